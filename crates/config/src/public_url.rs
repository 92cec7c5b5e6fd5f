//! Log lines about the public URLs in agent cards, written at the start, when a wrong URL can still be corrected.
//! Mounts with the same problem share one line.
//!
//! Pure except for [`log`]. Not here: the choice of the URL, which is up to the protocol.

use std::net::{IpAddr, SocketAddr};

use interlingua_core::exchange::AnnouncedUrl;
use url::{Host, Url};

/// A log line.
#[derive(Debug, PartialEq, Eq)]
struct Advice {
    /// True if the URL is wrong for most clients; false for information.
    is_warning: bool,
    text: String,
}

/// Logs which URLs are in agent cards, and what is wrong with them. `scheme` is that of the gateway itself;
/// `has_proxies` is true if trusted proxies are configured.
pub fn log<'a>(
    mounts: impl Iterator<Item = (&'a str, &'a AnnouncedUrl)>,
    (scheme, listen): (&str, SocketAddr),
    has_proxies: bool,
) {
    for Advice { is_warning, text } in advise(mounts, (scheme, listen), has_proxies) {
        if is_warning {
            tracing::warn!("{text}");
        } else {
            tracing::info!("{text}");
        }
    }
}

fn advise<'a>(
    mounts: impl Iterator<Item = (&'a str, &'a AnnouncedUrl)>,
    (scheme, listen): (&str, SocketAddr),
    has_proxies: bool,
) -> Vec<Advice> {
    // Each finding with the first path that has it, and the number of others.
    let mut findings: Vec<(Finding, &str, usize)> = Vec::new();

    for (path, announced) in mounts {
        let finding = match announced {
            AnnouncedUrl::AsAsked => Some(Finding::FromRequest),
            AnnouncedUrl::Fixed(url) => {
                check(url).map(|(culprit, reason)| Finding::Wrong { url: url.clone(), culprit, reason })
            }
        };

        let Some(finding) = finding else { continue };
        match findings.iter_mut().find(|(known, ..)| known.is_same(&finding)) {
            Some((.., more)) => *more += 1,
            None => findings.push((finding, path, 0)),
        }
    }

    findings
        .into_iter()
        .map(|(finding, path, more)| {
            let shown = if path.is_empty() { "/" } else { path };
            let cards = match more {
                0 => format!("the agent card of {shown} uses"),
                more => format!("the agent cards of {shown} and {more} more use"),
            };
            match finding {
                Finding::Wrong { url, reason, .. } => Advice {
                    is_warning: true,
                    text: format!("{cards} {url}, {reason}: set public_url to the URL that clients use"),
                },
                Finding::FromRequest => {
                    let ip = match listen.ip() {
                        IpAddr::V4(ip) if ip.is_unspecified() => "localhost".to_owned(),
                        IpAddr::V6(ip) if ip.is_unspecified() => "localhost".to_owned(),
                        IpAddr::V6(ip) => format!("[{ip}]"),
                        IpAddr::V4(ip) => ip.to_string(),
                    };
                    let proxy = if has_proxies { "the forwarded headers of trusted proxies, else " } else { "" };
                    let example = format!("{scheme}://{ip}:{}{path}", listen.port());
                    let text = format!(
                        "{cards} {proxy}the Host header of each request, for example {example}: set public_url if \
                         clients use another URL"
                    );
                    Advice { is_warning: false, text }
                }
            }
        })
        .collect()
}

enum Finding {
    /// The URL follows from the Host header of each request.
    FromRequest,
    /// A URL that most clients cannot use.
    Wrong {
        url: String,
        /// The origin of the URL, or the URL itself if it is invalid. Mounts with the same culprit are reported
        /// together.
        culprit: String,
        reason: &'static str,
    },
}

impl Finding {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::FromRequest, Self::FromRequest) => true,
            (Self::Wrong { culprit, reason, .. }, Self::Wrong { culprit: other, reason: other_reason, .. }) => {
                culprit == other && reason == other_reason
            }
            _ => false,
        }
    }
}

/// The culprit and the reason if a URL is wrong for most clients.
fn check(url: &str) -> Option<(String, &'static str)> {
    let Some(parsed) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Some((url.to_owned(), "which is not an http or https URL"));
    };

    let origin = parsed.origin().ascii_serialization();
    let address = match parsed.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(address.to_canonical()),
        Host::Domain(_) => None,
    };
    let name = parsed.domain().unwrap_or("").trim_end_matches('.').to_ascii_lowercase();
    let local = address.map_or(name == "localhost" || name.ends_with(".localhost"), |address| address.is_loopback());
    let reason = if address.is_some_and(|address| address.is_unspecified()) {
        "an address that cannot be connected to"
    } else if local {
        "which only this machine can reach"
    } else if address.is_none() && !name.contains('.') {
        "a name that resolves only in the local network"
    } else if parsed.scheme() == "http" {
        "without TLS"
    } else {
        return None;
    };
    Some((origin, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(mounts: &[(&str, AnnouncedUrl)], listen: &str, has_proxies: bool) -> Vec<(bool, String)> {
        let listen = listen.parse().expect("an address");
        let advice = advise(mounts.iter().map(|(path, announced)| (*path, announced)), ("http", listen), has_proxies);
        advice.into_iter().map(|advice| (advice.is_warning, advice.text)).collect()
    }

    fn fixed(url: &str) -> AnnouncedUrl {
        AnnouncedUrl::Fixed(url.to_owned())
    }

    #[test]
    fn cards_that_use_the_host_header_share_one_line_without_a_warning() {
        let mounts =
            [("/a2a/demo", AnnouncedUrl::AsAsked), ("/a2a/friday", AnnouncedUrl::AsAsked), ("", AnnouncedUrl::AsAsked)];
        assert_eq!(
            advice(&mounts, "127.0.0.1:8080", false),
            [(
                false,
                "the agent cards of /a2a/demo and 2 more use the Host header of each request, for example \
             http://127.0.0.1:8080/a2a/demo: set public_url if clients use another URL"
                    .to_owned()
            )]
        );

        let open = advice(&mounts[2..], "[::]:80", true);
        assert!(
            open[0].1.starts_with("the agent card of / uses the forwarded headers of trusted proxies, else the Host"),
            "{open:?}"
        );
        assert!(open[0].1.contains("http://localhost:80:"), "{open:?}");
    }

    #[test]
    fn a_url_that_most_clients_cannot_use_is_a_warning() {
        for (url, reason) in [
            ("http://0.0.0.0:8080/a", Some("cannot be connected to")),
            ("https://[::]/a", Some("cannot be connected to")),
            ("https://127.0.0.1/a", Some("only this machine")),
            ("http://localhost:8080/a", Some("only this machine")),
            ("https://[::ffff:127.0.0.1]/a", Some("only this machine")),
            ("https://gateway:8443/a", Some("local network")),
            ("http://agents.example.com/a", Some("without TLS")),
            ("http://10.1.2.3/a", Some("without TLS")),
            ("agents.example.com/a", Some("is not an http")),
            ("https://agents.example.com/a", None),
            ("https://10.1.2.3/a", None),
        ] {
            let lines = advice(&[("/a", fixed(url))], "0.0.0.0:8080", false);
            match reason {
                None => assert!(lines.is_empty(), "{url}: {lines:?}"),
                Some(reason) => {
                    let [(true, line)] = &lines[..] else { panic!("{url}: {lines:?}") };
                    assert!(line.contains(url) && line.contains(reason) && line.contains("set public_url"), "{line}");
                }
            }
        }
    }

    #[test]
    fn mounts_with_the_same_wrong_origin_share_one_line() {
        let mounts = [
            ("/a/1", fixed("http://gw.example/a/1")),
            ("/a/2", fixed("http://gw.example/a/2")),
            ("/a/3", fixed("http://0.0.0.0/a/3")),
        ];

        let lines = advice(&mounts, "127.0.0.1:8080", false);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].1.starts_with("the agent cards of /a/1 and 1 more use http://gw.example/a/1, without TLS"));
    }
}
