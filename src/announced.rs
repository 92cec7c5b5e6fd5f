//! What operators should know of the URLs in agent cards: logged at the start, when a wrong one can still be corrected.
//! One line for all mounts that have the same fault.
//!
//! Pure but for [`tell`], which writes to the log. Not here: which URL is told, which is the protocol's.

use std::net::{IpAddr, SocketAddr};

use interlingua_core::exchange::Announced;
use url::{Host, Url};

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
struct Advice {
    /// Whether something is surely wrong.
    warns: bool,
    text: String,
}

/// Writes down what is to be known. `trusts` says whether there are proxies whose word on host and scheme is taken.
pub(crate) fn tell<'a>(mounts: impl Iterator<Item = (&'a str, &'a Announced)>, listen: SocketAddr, trusts: bool) {
    for Advice { warns, text } in advise(mounts, listen, trusts) {
        if warns {
            tracing::warn!("{text}");
        } else {
            tracing::info!("{text}");
        }
    }
}

fn advise<'a>(mounts: impl Iterator<Item = (&'a str, &'a Announced)>, listen: SocketAddr, trusts: bool) -> Vec<Advice> {
    // What is said after the paths, each with the first path it is said of, and of how many.
    let mut said: Vec<(Saying, &str, usize)> = Vec::new();
    for (path, announced) in mounts {
        let saying = match announced {
            Announced::AsAsked => Some(Saying::AsAsked),
            Announced::Fixed(url) => fault(url).map(|(place, why)| Saying::Wrong { url: url.clone(), place, why }),
        };
        let Some(saying) = saying else { continue };
        match said.iter_mut().find(|(known, ..)| known.same(&saying)) {
            Some((.., more)) => *more += 1,
            None => said.push((saying, path, 0)),
        }
    }
    said.into_iter()
        .map(|(saying, path, more)| {
            let shown = if path.is_empty() { "/" } else { path };
            let of = match more {
                0 => format!("the agent card of {shown} uses"),
                more => format!("the agent cards of {shown} and {more} more use"),
            };
            match saying {
                Saying::Wrong { url, why, .. } => {
                    Advice { warns: true, text: format!("{of} {url}, {why}: set public_url to what clients use") }
                }
                Saying::AsAsked => {
                    let ip = match listen.ip() {
                        IpAddr::V4(ip) if ip.is_unspecified() => "localhost".to_owned(),
                        IpAddr::V6(ip) if ip.is_unspecified() => "localhost".to_owned(),
                        IpAddr::V6(ip) => format!("[{ip}]"),
                        IpAddr::V4(ip) => ip.to_string(),
                    };
                    let proxy = if trusts { "what a trusted proxy says, else " } else { "" };
                    let example = format!("http://{ip}:{}{path}", listen.port());
                    let text = format!(
                        "{of} {proxy}the URL of each request's Host header, such as {example}: set public_url if \
                         clients come another way"
                    );
                    Advice { warns: false, text }
                }
            }
        })
        .collect()
}

enum Saying {
    AsAsked,
    /// A URL that is good for few clients, the part of it that is to blame, and why.
    Wrong {
        url: String,
        place: String,
        why: &'static str,
    },
}

impl Saying {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AsAsked, Self::AsAsked) => true,
            (Self::Wrong { place, why, .. }, Self::Wrong { place: other, why: other_why, .. }) => {
                place == other && why == other_why
            }
            _ => false,
        }
    }
}

/// What is wrong with a URL that clients are told, and with which part of it.
fn fault(url: &str) -> Option<(String, &'static str)> {
    let Some(parsed) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Some((url.to_owned(), "which is no URL that begins with http:// or https://"));
    };
    let origin = parsed.origin().ascii_serialization();
    let address = match parsed.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(address.to_canonical()),
        Host::Domain(_) => None,
    };
    let name = parsed.domain().unwrap_or("").trim_end_matches('.').to_ascii_lowercase();
    let local = address.map_or(name == "localhost" || name.ends_with(".localhost"), |address| address.is_loopback());
    let why = if address.is_some_and(|address| address.is_unspecified()) {
        "an address nobody can connect to"
    } else if local {
        "which only this machine can reach"
    } else if address.is_none() && !name.contains('.') {
        "a name that is known in one network only"
    } else if parsed.scheme() == "http" {
        "without TLS"
    } else {
        return None;
    };
    Some((origin, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mounts: &[(&str, Announced)], listen: &str, trusts: bool) -> Vec<(bool, String)> {
        let listen = listen.parse().expect("an address");
        let advice = advise(mounts.iter().map(|(path, announced)| (*path, announced)), listen, trusts);
        advice.into_iter().map(|advice| (advice.warns, advice.text)).collect()
    }

    fn fixed(url: &str) -> Announced {
        Announced::Fixed(url.to_owned())
    }

    #[test]
    fn all_cards_made_from_the_host_header_are_one_line_without_a_warning() {
        let mounts = [("/a2a/demo", Announced::AsAsked), ("/a2a/friday", Announced::AsAsked), ("", Announced::AsAsked)];
        assert_eq!(
            told(&mounts, "127.0.0.1:8080", false),
            [(
                false,
                "the agent cards of /a2a/demo and 2 more use the URL of each request's Host header, such as \
             http://127.0.0.1:8080/a2a/demo: set public_url if clients come another way"
                    .to_owned()
            )]
        );
        let open = told(&mounts[2..], "[::]:80", true);
        assert!(open[0].1.starts_with("the agent card of / uses what a trusted proxy says, else the URL"), "{open:?}");
        assert!(open[0].1.contains("http://localhost:80:"), "{open:?}");
    }

    #[test]
    fn a_url_that_few_can_use_is_warned_of() {
        for (url, why) in [
            ("http://0.0.0.0:8080/a", Some("nobody can connect")),
            ("https://[::]/a", Some("nobody can connect")),
            ("https://127.0.0.1/a", Some("only this machine")),
            ("http://localhost:8080/a", Some("only this machine")),
            ("https://[::ffff:127.0.0.1]/a", Some("only this machine")),
            ("https://gateway:8443/a", Some("one network only")),
            ("http://agents.example.com/a", Some("without TLS")),
            ("http://10.1.2.3/a", Some("without TLS")),
            ("agents.example.com/a", Some("is no URL")),
            ("https://agents.example.com/a", None),
            ("https://10.1.2.3/a", None),
        ] {
            let lines = told(&[("/a", fixed(url))], "0.0.0.0:8080", false);
            match why {
                None => assert!(lines.is_empty(), "{url}: {lines:?}"),
                Some(why) => {
                    let [(true, line)] = &lines[..] else { panic!("{url}: {lines:?}") };
                    assert!(line.contains(url) && line.contains(why) && line.contains("set public_url"), "{line}");
                }
            }
        }
    }

    #[test]
    fn many_mounts_with_one_wrong_origin_are_one_line() {
        let mounts = [
            ("/a/1", fixed("http://gw.example/a/1")),
            ("/a/2", fixed("http://gw.example/a/2")),
            ("/a/3", fixed("http://0.0.0.0/a/3")),
        ];
        let lines = told(&mounts, "127.0.0.1:8080", false);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].1.starts_with("the agent cards of /a/1 and 1 more use http://gw.example/a/1, without TLS"));
    }
}
