//! Forwarded headers of trusted proxies: the scheme, host, port and path prefix that the client used.
//!
//! The operator chooses one family of headers: `X-Forwarded-*` or `Forwarded` (RFC 7239). Proxies append entries, and
//! the client can forge the first ones. So lists are read from the right, and one entry is skipped for each trusted
//! proxy in a row. Invalid values are ignored, each header separately.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use interlingua_core::network::{self, IpNet};

use interlingua_config::{ForwardedFamily, Host};

/// The report of the outermost trusted proxy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardedInfo {
    /// The address of the client: the first one from the right that is not a trusted proxy.
    pub(super) client: Option<IpAddr>,
    pub(super) scheme: Option<&'static str>,
    pub(super) host: Option<Host>,
    pub(super) port: Option<u16>,
    /// The path prefix that proxies removed: empty, or with a leading slash and without a trailing one.
    pub(super) prefix: String,
}

/// Parses the headers. `headers` returns the values of a header, in order; `peer` is the address of the connection.
pub(super) fn parse<'a>(
    family: ForwardedFamily,
    trusted: &[IpNet],
    peer: IpAddr,
    headers: impl Fn(&'static str) -> Vec<&'a str>,
) -> ForwardedInfo {
    let is_trusted = |address: IpAddr| trusted.iter().any(|proxy| network::contains(proxy, address));
    if !is_trusted(peer) {
        return ForwardedInfo::default();
    }

    match family {
        ForwardedFamily::XForwarded => x_forwarded(headers, is_trusted),
        ForwardedFamily::Forwarded => forwarded(&headers("forwarded").join(","), is_trusted),
    }
}

fn x_forwarded<'a>(
    headers: impl Fn(&'static str) -> Vec<&'a str>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> ForwardedInfo {
    let list = |name: &'static str| -> Vec<&'a str> {
        let values = headers(name).into_iter().flat_map(|value| value.split(','));
        values.map(str::trim).filter(|value| !value.is_empty()).collect()
    };

    // Each proxy appends the address of its client: the last entry is the client of the gateway's peer.
    let clients = list("x-forwarded-for");
    let hops = 1 + clients.iter().rev().take_while(|client| address(client).is_some_and(&is_trusted)).count();
    let outermost = |name| {
        let values = list(name);
        values.get(values.len().saturating_sub(hops)).copied()
    };
    let prefixes = list("x-forwarded-prefix");
    let client = clients.len().checked_sub(hops).and_then(|index| address(clients[index]));
    ForwardedInfo {
        client,
        scheme: outermost("x-forwarded-proto").and_then(scheme),
        host: outermost("x-forwarded-host").and_then(|host| host.parse().ok()),
        port: outermost("x-forwarded-port").and_then(|port| port.parse().ok()).filter(|port| *port != 0),
        prefix: prefix(&prefixes[prefixes.len().saturating_sub(hops)..]),
    }
}

fn forwarded(header: &str, is_trusted: impl Fn(IpAddr) -> bool) -> ForwardedInfo {
    let elements: Vec<&str> = split_unquoted(header, ',').collect();
    let client = |element: &str| parameter(element, "for").and_then(|client| address(&client));
    let hops = 1 + elements.iter().rev().take_while(|element| client(element).is_some_and(&is_trusted)).count();
    let Some(element) = elements.get(elements.len().saturating_sub(hops)) else { return ForwardedInfo::default() };

    ForwardedInfo {
        // If all elements are from trusted proxies, `element` is the first one, and its address is a proxy's.
        client: client(element).filter(|client| !is_trusted(*client)),
        scheme: parameter(element, "proto").and_then(|value| scheme(&value)),
        host: parameter(element, "host").and_then(|host| host.parse().ok()),
        port: None,
        prefix: String::new(),
    }
}

/// The address of a hop, with or without a port. `None` if it is obfuscated or invalid.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim().trim_start_matches('[').trim_end_matches(']');
    let parsed = bare.parse().ok().or_else(|| text.trim().parse::<SocketAddr>().ok().map(|address| address.ip()));
    parsed.map(|address: IpAddr| address.to_canonical())
}

/// Splits a header at separators outside of quotes.
fn split_unquoted(header: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = header.split(move |character: char| {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return character == separator && !quoted,
        }
        false
    });

    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// The value of a parameter in an element of `Forwarded`.
fn parameter<'a>(element: &'a str, name: &str) -> Option<Cow<'a, str>> {
    split_unquoted(element, ';').find_map(|parameter| {
        let (known, value) = parameter.split_once('=')?;
        let value = value.trim();
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        known
            .trim()
            .eq_ignore_ascii_case(name)
            .then(|| quoted.map_or(Cow::Borrowed(value), |value| Cow::Owned(value.replace('\\', ""))))
    })
}

fn scheme(value: &str) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|known| value.eq_ignore_ascii_case(known))
}

/// Joins the path prefixes that proxies removed, the outermost first. Empty if any of them is invalid.
fn prefix(parts: &[&str]) -> String {
    let mut prefix = String::new();
    for part in parts.iter().map(|part| part.trim_end_matches('/')) {
        let is_valid_segment = |segment: &str| {
            !matches!(segment, "" | "." | "..")
                && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+=:@%".contains(&byte))
        };
        if part.is_empty() {
            continue;
        }

        match part.strip_prefix('/') {
            Some(segments) if segments.split('/').all(is_valid_segment) => prefix.push_str(part),
            _ => return String::new(),
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(family: ForwardedFamily, peer: &str, headers: &[(&str, &'static str)]) -> ForwardedInfo {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "::1"].iter().map(|text| network::parse(text).expect(text)).collect();
        super::parse(family, &trusted, peer.parse().expect("an address"), |name| {
            headers.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
        })
    }

    fn host(info: &ForwardedInfo) -> String {
        info.host.as_ref().map_or("none".to_owned(), ToString::to_string)
    }

    #[test]
    fn the_entry_of_the_outermost_trusted_proxy_is_used() {
        for (clients, hosts, expected) in [
            ("203.0.113.7", "pub.ex", "pub.ex"),
            // Entries of the client are to the left of those that proxies append.
            ("203.0.113.7", "evil.ex, pub.ex", "pub.ex"),
            ("203.0.113.7, 10.0.0.2", "evil.ex, pub.ex, inner.ex", "pub.ex"),
            ("203.0.113.7, 10.0.0.3, 10.0.0.2:5000", "evil.ex, pub.ex, b.ex, c.ex", "pub.ex"),
            // An untrusted address ends the chain, whatever is to its left.
            ("10.0.0.9, 203.0.113.7", "evil.ex, pub.ex", "pub.ex"),
            // A proxy that replaces instead of appending leaves one entry.
            ("203.0.113.7, 10.0.0.2", "pub.ex", "pub.ex"),
            ("unknown", "evil.ex, pub.ex", "pub.ex"),
            ("", "pub.ex", "pub.ex"),
        ] {
            let headers = [("x-forwarded-for", clients), ("x-forwarded-host", hosts)];
            assert_eq!(host(&parse(ForwardedFamily::XForwarded, "10.0.0.1", &headers)), expected, "{clients} {hosts}");
        }
    }

    #[test]
    fn the_client_is_the_first_untrusted_address_from_the_right() {
        for (family, header, value, expected) in [
            (ForwardedFamily::XForwarded, "x-forwarded-for", "1.1.1.1, 203.0.113.7", Some("203.0.113.7")),
            (
                ForwardedFamily::XForwarded,
                "x-forwarded-for",
                "1.1.1.1, 203.0.113.7:99, 10.0.0.2, 10.0.0.3",
                Some("203.0.113.7"),
            ),
            (ForwardedFamily::XForwarded, "x-forwarded-for", "::ffff:203.0.113.7", Some("203.0.113.7")),
            (ForwardedFamily::XForwarded, "x-forwarded-for", "1.1.1.1, unknown", None),
            (ForwardedFamily::XForwarded, "x-forwarded-for", "10.0.0.4, 10.0.0.2", None),
            (ForwardedFamily::XForwarded, "forwarded", "for=203.0.113.7", None),
            (
                ForwardedFamily::Forwarded,
                "forwarded",
                "for=1.1.1.1, for=203.0.113.7, for=10.0.0.2",
                Some("203.0.113.7"),
            ),
            (ForwardedFamily::Forwarded, "forwarded", "for=\"[2001:db8::1]:3\"", Some("2001:db8::1")),
            (ForwardedFamily::Forwarded, "forwarded", "for=1.1.1.1, for=_hidden", None),
            (ForwardedFamily::Forwarded, "forwarded", "for=10.0.0.2", None),
            (ForwardedFamily::Forwarded, "x-forwarded-for", "203.0.113.7", None),
        ] {
            let client = parse(family, "10.0.0.1", &[(header, value)]).client;
            assert_eq!(client, expected.map(|address| address.parse().expect("an address")), "{value}");
        }
        assert_eq!(parse(ForwardedFamily::XForwarded, "192.0.2.1", &[("x-forwarded-for", "1.1.1.1")]).client, None);
    }

    #[test]
    fn scheme_port_and_prefix_are_counted_in_the_same_way() {
        let headers = [
            ("x-forwarded-for", "1.1.1.1, 203.0.113.7, 10.0.0.2"),
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-port", "1, 8443, 80"),
            ("x-forwarded-prefix", "/evil, /outer"),
            ("x-forwarded-prefix", "/inner/"),
        ];

        let info = parse(ForwardedFamily::XForwarded, "::1", &headers);
        assert_eq!((info.scheme, info.port, info.prefix.as_str()), (Some("https"), Some(8443), "/outer/inner"));
    }

    #[test]
    fn forwarded_elements_are_counted_from_the_right() {
        for (header, expected, scheme) in [
            ("for=1.2.3.4;proto=https;host=f.ex", "f.ex", Some("https")),
            ("for=6.6.6.6;host=evil.ex, for=\"[2001:db8::1]:3\";Host=\"f.ex:7\";Proto=HTTPS", "f.ex:7", Some("https")),
            ("for=6.6.6.6;host=evil.ex, for=1.2.3.4;host=f.ex, for=\"10.0.0.2:80\";host=in.ex", "f.ex", None),
            ("host=evil.ex, for=\"a,b;host=no.ex\";host=f.ex", "f.ex", None),
            ("for=6.6.6.6;host=evil.ex, for=10.0.0.2", "evil.ex", None),
            ("for=1.2.3.4;host=evil.ex, for=_hidden", "none", None),
            ("\"host=h.ex", "none", None),
            ("host", "none", None),
        ] {
            let info = parse(ForwardedFamily::Forwarded, "10.0.0.1", &[("forwarded", header)]);
            assert_eq!((host(&info).as_str(), info.scheme), (expected, scheme), "{header}");
        }
    }

    #[test]
    fn the_other_family_and_untrusted_peers_are_ignored() {
        let both = [("forwarded", "proto=https;host=f.ex"), ("x-forwarded-host", "x.ex"), ("x-forwarded-prefix", "/p")];
        assert_eq!(host(&parse(ForwardedFamily::XForwarded, "10.0.0.1", &both)), "x.ex");
        let info = parse(ForwardedFamily::Forwarded, "10.0.0.1", &both);
        assert_eq!((host(&info).as_str(), info.prefix.as_str()), ("f.ex", ""));
        for family in [ForwardedFamily::XForwarded, ForwardedFamily::Forwarded] {
            assert_eq!(parse(family, "192.0.2.1", &both), ForwardedInfo::default());
        }
    }

    #[test]
    fn invalid_values_are_ignored() {
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
            assert_eq!(
                parse(ForwardedFamily::XForwarded, "10.0.0.1", &[(name, value)]),
                ForwardedInfo::default(),
                "{name}: {value}"
            );
        }

        let invalid = "host=\"h.ex/x\";proto=ftp";
        assert_eq!(parse(ForwardedFamily::Forwarded, "10.0.0.1", &[("forwarded", invalid)]), ForwardedInfo::default());
    }
}
