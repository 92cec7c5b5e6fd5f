//! What trusted proxies say of a request: the scheme, host, port and path a client used.
//!
//! One family of headers counts, as the operator chose: `X-Forwarded-*` or `Forwarded` (RFC 7239). Proxies append, and
//! whoever came first may be the client, who writes what it likes: lists are counted from the right, past as many
//! entries as there are trusted proxies in a row. What cannot be true of a URL is not believed, one header at a time.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use crate::config::{Forwarded, Host, Network};

/// What the outermost trusted proxy said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) scheme: Option<&'static str>,
    pub(super) host: Option<Host>,
    pub(super) port: Option<u16>,
    /// What proxies took from the front of the path: empty, or beginning with a slash and not ending with one.
    pub(super) prefix: String,
}

/// Reads what was told. `headers` gives the values of a name, in order; `peer` is the other end of the connection.
pub(super) fn told<'a>(
    family: Forwarded,
    trusted: &[Network],
    peer: IpAddr,
    headers: impl Fn(&'static str) -> Vec<&'a str>,
) -> Told {
    let is_trusted = |address: IpAddr| trusted.iter().any(|proxy| proxy.contains(address));
    if !is_trusted(peer) {
        return Told::default();
    }
    match family {
        Forwarded::XForwarded => x_forwarded(headers, is_trusted),
        Forwarded::Forwarded => forwarded(&headers("forwarded").join(","), is_trusted),
    }
}

fn x_forwarded<'a>(headers: impl Fn(&'static str) -> Vec<&'a str>, is_trusted: impl Fn(IpAddr) -> bool) -> Told {
    let list = |name: &'static str| -> Vec<&'a str> {
        let values = headers(name).into_iter().flat_map(|value| value.split(','));
        values.map(str::trim).filter(|value| !value.is_empty()).collect()
    };
    // Each proxy appends whom it was asked by: the last one told of is our peer's client.
    let clients = list("x-forwarded-for");
    let hops = 1 + clients.iter().rev().take_while(|client| address(client).is_some_and(&is_trusted)).count();
    let outermost = |name| {
        let values = list(name);
        values.get(values.len().saturating_sub(hops)).copied()
    };
    let prefixes = list("x-forwarded-prefix");
    Told {
        scheme: outermost("x-forwarded-proto").and_then(scheme),
        host: outermost("x-forwarded-host").and_then(|host| host.parse().ok()),
        port: outermost("x-forwarded-port").and_then(|port| port.parse().ok()).filter(|port| *port != 0),
        prefix: prefix(&prefixes[prefixes.len().saturating_sub(hops)..]),
    }
}

fn forwarded(header: &str, is_trusted: impl Fn(IpAddr) -> bool) -> Told {
    let elements: Vec<&str> = parts(header, ',').collect();
    let client = |element: &&str| pair(element, "for").and_then(|client| address(&client));
    let hops = 1 + elements.iter().rev().take_while(|element| client(element).is_some_and(&is_trusted)).count();
    let Some(element) = elements.get(elements.len().saturating_sub(hops)) else { return Told::default() };
    Told {
        scheme: pair(element, "proto").and_then(|told| scheme(&told)),
        host: pair(element, "host").and_then(|host| host.parse().ok()),
        port: None,
        prefix: String::new(),
    }
}

/// The address of a hop, with or without a port. `None`: hidden, or no address.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.trim().parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// The parts of a header between separators that stand in no quotes.
fn parts(header: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = header.split(move |letter: char| {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return letter == separator && !quoted,
        }
        false
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// The value of a name in an element of `Forwarded`.
fn pair<'a>(element: &'a str, name: &str) -> Option<Cow<'a, str>> {
    parts(element, ';').find_map(|pair| {
        let (known, value) = pair.split_once('=')?;
        let value = value.trim();
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        known
            .trim()
            .eq_ignore_ascii_case(name)
            .then(|| quoted.map_or(Cow::Borrowed(value), |value| Cow::Owned(value.replace('\\', ""))))
    })
}

fn scheme(told: &str) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|known| told.eq_ignore_ascii_case(known))
}

/// What proxies took from the front of the path, the outermost one's first. All of it or nothing.
fn prefix(told: &[&str]) -> String {
    let mut prefix = String::new();
    for part in told.iter().map(|part| part.trim_end_matches('/')) {
        let is_segment = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+=:@%".contains(&byte))
        };
        if part.is_empty() {
            continue;
        }
        match part.strip_prefix('/') {
            Some(segments) if segments.split('/').all(is_segment) => prefix.push_str(part),
            _ => return String::new(),
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: Forwarded, peer: &str, headers: &[(&str, &'static str)]) -> Told {
        let trusted: Vec<Network> = ["10.0.0.0/8", "::1"].iter().map(|text| text.parse().expect(text)).collect();
        told(family, &trusted, peer.parse().expect("an address"), |name| {
            headers.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
        })
    }

    fn host(told: &Told) -> String {
        told.host.as_ref().map_or("none".to_owned(), ToString::to_string)
    }

    #[test]
    fn of_a_list_the_entry_of_the_outermost_trusted_proxy_counts() {
        for (clients, hosts, wanted) in [
            ("203.0.113.7", "pub.ex", "pub.ex"),
            // What a client wrote stands to the left of what the proxy appended.
            ("203.0.113.7", "evil.ex, pub.ex", "pub.ex"),
            ("203.0.113.7, 10.0.0.2", "evil.ex, pub.ex, inner.ex", "pub.ex"),
            ("203.0.113.7, 10.0.0.3, 10.0.0.2:5000", "evil.ex, pub.ex, b.ex, c.ex", "pub.ex"),
            // One that is not trusted ends the row, whatever stands to its left.
            ("10.0.0.9, 203.0.113.7", "evil.ex, pub.ex", "pub.ex"),
            // A proxy that replaces instead of appending leaves one entry.
            ("203.0.113.7, 10.0.0.2", "pub.ex", "pub.ex"),
            ("unknown", "evil.ex, pub.ex", "pub.ex"),
            ("", "pub.ex", "pub.ex"),
        ] {
            let headers = [("x-forwarded-for", clients), ("x-forwarded-host", hosts)];
            assert_eq!(host(&read(Forwarded::XForwarded, "10.0.0.1", &headers)), wanted, "{clients} {hosts}");
        }
    }

    #[test]
    fn scheme_port_and_prefix_are_counted_likewise() {
        let headers = [
            ("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2"),
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-port", "1, 8443, 80"),
            ("x-forwarded-prefix", "/evil, /outer"),
            ("x-forwarded-prefix", "/inner/"),
        ];
        let told = read(Forwarded::XForwarded, "::1", &headers);
        assert_eq!((told.scheme, told.port, told.prefix.as_str()), (Some("https"), Some(8443), "/outer/inner"));
    }

    #[test]
    fn forwarded_is_read_element_by_element_from_the_right() {
        for (header, wanted, scheme) in [
            ("for=1.2.3.4;proto=https;host=f.ex", "f.ex", Some("https")),
            ("for=6.6.6.6;host=evil.ex, for=\"[2001:db8::1]:3\";Host=\"f.ex:7\";Proto=HTTPS", "f.ex:7", Some("https")),
            ("for=6.6.6.6;host=evil.ex, for=1.2.3.4;host=f.ex, for=\"10.0.0.2:80\";host=in.ex", "f.ex", None),
            ("host=evil.ex, for=\"a,b;host=no.ex\";host=f.ex", "f.ex", None),
            ("for=6.6.6.6;host=evil.ex, for=10.0.0.2", "evil.ex", None),
            ("for=1.2.3.4;host=evil.ex, for=_hidden", "none", None),
            ("\"host=h.ex", "none", None),
            ("host", "none", None),
        ] {
            let told = read(Forwarded::Forwarded, "10.0.0.1", &[("forwarded", header)]);
            assert_eq!((host(&told).as_str(), told.scheme), (wanted, scheme), "{header}");
        }
    }

    #[test]
    fn the_other_family_and_other_peers_are_not_heard() {
        let both = [("forwarded", "proto=https;host=f.ex"), ("x-forwarded-host", "x.ex"), ("x-forwarded-prefix", "/p")];
        assert_eq!(host(&read(Forwarded::XForwarded, "10.0.0.1", &both)), "x.ex");
        let told = read(Forwarded::Forwarded, "10.0.0.1", &both);
        assert_eq!((host(&told).as_str(), told.prefix.as_str()), ("f.ex", ""));
        for family in [Forwarded::XForwarded, Forwarded::Forwarded] {
            assert_eq!(read(family, "192.0.2.1", &both), Told::default());
        }
    }

    #[test]
    fn what_is_no_scheme_no_host_no_port_and_no_prefix_is_not_believed() {
        for (name, value) in [
            ("x-forwarded-host", "a b<>"),
            ("x-forwarded-host", "u@h.ex"),
            ("x-forwarded-host", "h.ex/path"),
            ("x-forwarded-host", "h.ex?x"),
            ("x-forwarded-host", "h.ex#x"),
            ("x-forwarded-host", "h.ex:"),
            ("x-forwarded-host", "h.ex:99999"),
            ("x-forwarded-host", "h.ex:0"),
            ("x-forwarded-host", "[::1"),
            ("x-forwarded-host", "::1"),
            ("x-forwarded-host", "\\h.ex"),
            ("x-forwarded-host", ""),
            ("x-forwarded-proto", "javascript"),
            ("x-forwarded-proto", "https:"),
            ("x-forwarded-prefix", "//evil.ex"),
            ("x-forwarded-prefix", "/a/../b"),
            ("x-forwarded-prefix", "pre"),
            ("x-forwarded-prefix", "/a?b"),
            ("x-forwarded-prefix", "/a b"),
            ("x-forwarded-port", "0"),
            ("x-forwarded-port", "70000"),
            ("x-forwarded-port", "x"),
        ] {
            assert_eq!(read(Forwarded::XForwarded, "10.0.0.1", &[(name, value)]), Told::default(), "{name}: {value}");
        }
        let lies = "host=\"h.ex/x\";proto=ftp";
        assert_eq!(read(Forwarded::Forwarded, "10.0.0.1", &[("forwarded", lies)]), Told::default());
    }
}
