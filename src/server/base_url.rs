//! The URL of a mount as a client sees it: as it is configured, else as a trusted proxy tells it, else as the request
//! says. What is told and cannot be true of a URL is not believed, one header at a time.
//!
//! Not here: which proxies are trusted (`crate::config`), and what is made of the URL, which is the protocol's.

use std::borrow::Cow;

use actix_web::HttpRequest;
use interlingua_core::public_address::{Policy, Refused};

use super::{Gateway, Served};

/// The URL of the mount, without a slash at its end.
pub(super) fn of(gateway: &Gateway, route: &Served, request: &HttpRequest) -> String {
    if let Some(url) = &gateway.settings.public_url {
        return format!("{url}{}", route.path);
    }
    let peer = request.peer_addr().map(|address| address.ip());
    let trusted = peer.is_some_and(|peer| gateway.settings.trusted_proxies.iter().any(|proxy| proxy.contains(peer)));
    let headers = |name: &'static str| -> Vec<&str> {
        request.headers().get_all(name).filter_map(|value| value.to_str().ok()).collect()
    };
    format!("{}{}", origin(headers, trusted, request.uri().host()), route.path)
}

/// Scheme, host and prefix. `target` is the host of a request target that names one.
fn origin<'a>(headers: impl Fn(&'static str) -> Vec<&'a str>, trusted: bool, target: Option<&'a str>) -> String {
    let own = || {
        let hosts = headers("host").into_iter().chain(target).find(|host| is_host(host));
        Cow::Borrowed(hosts.unwrap_or("localhost"))
    };
    if !trusted {
        return format!("http://{}", own());
    }
    let forwarded = headers("forwarded").join(",");
    // Of several proxies the first stands before the client.
    let first = |name: &'static str| headers(name).first().and_then(|value| value.split(',').next()).map(str::trim);
    let told = forwarded_as(&forwarded, "proto").and_then(|told| scheme(&told));
    let scheme = told.or_else(|| first("x-forwarded-proto").and_then(scheme)).unwrap_or("http");
    let host = forwarded_as(&forwarded, "host").filter(|host| is_host(host)).map(|host| Cow::Owned(host.into_owned()));
    let host = host.or_else(|| first("x-forwarded-host").filter(|host| is_host(host)).map(Cow::Borrowed));
    let host = host.unwrap_or_else(own);
    let port = first("x-forwarded-port").and_then(|port| port.parse::<u16>().ok()).filter(|port| {
        let implied = if scheme == "https" { 443 } else { 80 };
        *port != 0 && *port != implied && !has_port(&host)
    });
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", prefix(&headers("x-forwarded-prefix")))
}

/// What `Forwarded` says first of a name (RFC 7239).
fn forwarded_as<'a>(header: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let mut rest = header;
    while !rest.is_empty() {
        let (pair, after) = cut(rest);
        rest = after;
        if let Some((known, value)) = pair.split_once('=')
            && known.trim().eq_ignore_ascii_case(name)
        {
            let value = value.trim();
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            return Some(quoted.map_or(Cow::Borrowed(value), |value| Cow::Owned(value.replace('\\', ""))));
        }
    }
    None
}

/// The part of the header before the next comma or semicolon that stands in no quotes, and what follows it.
fn cut(header: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (place, letter) in header.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' | ';' if !quoted => return (&header[..place], &header[place + 1..]),
            _ => {}
        }
    }
    (header, "")
}

fn scheme(told: &str) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|known| told.eq_ignore_ascii_case(known))
}

/// Whether this is a host, and a port if it likes: nothing that leads elsewhere once it stands in a URL.
fn is_host(host: &str) -> bool {
    let anybody = Policy { allow_http: true, ..Policy::default() };
    let alone = !host.contains(['/', '?', '#']) && !host.ends_with(':');
    alone && matches!(anybody.destination(&format!("http://{host}")), Ok(_) | Err(Refused::Host))
}

fn has_port(host: &str) -> bool {
    host.rsplit(']').next().is_some_and(|end| end.contains(':'))
}

/// What proxies took from the front of the path, the first one's first. All of it or nothing.
fn prefix(told: &[&str]) -> String {
    let mut prefix = String::new();
    for part in told.iter().flat_map(|value| value.split(',')).map(|part| part.trim().trim_end_matches('/')) {
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

    fn told(headers: &[(&str, &'static str)], trusted: bool) -> String {
        let of = |name: &'static str| -> Vec<&'static str> {
            headers.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
        };
        origin(of, trusted, None)
    }

    #[test]
    fn a_trusted_proxy_says_scheme_host_port_and_prefix() {
        for (headers, wanted) in [
            (&[][..], "http://gw:8080"),
            (&[("x-forwarded-host", "pub.ex")], "http://pub.ex"),
            (&[("x-forwarded-proto", "HTTPS")], "https://gw:8080"),
            (
                &[("x-forwarded-host", "pub.ex:8443, inner"), ("x-forwarded-proto", "https, http")],
                "https://pub.ex:8443",
            ),
            (
                &[("x-forwarded-host", "pub.ex"), ("x-forwarded-proto", "https"), ("x-forwarded-port", "8443")],
                "https://pub.ex:8443",
            ),
            (
                &[("x-forwarded-host", "pub.ex"), ("x-forwarded-proto", "https"), ("x-forwarded-port", "443")],
                "https://pub.ex",
            ),
            (&[("x-forwarded-host", "pub.ex"), ("x-forwarded-port", "80, 9090")], "http://pub.ex"),
            (&[("x-forwarded-host", "pub.ex"), ("x-forwarded-port", "443")], "http://pub.ex:443"),
            (&[("x-forwarded-host", "pub.ex:1"), ("x-forwarded-port", "8443")], "http://pub.ex:1"),
            (&[("x-forwarded-host", "[2001:db8::1]"), ("x-forwarded-port", "8443")], "http://[2001:db8::1]:8443"),
            (&[("x-forwarded-host", "[2001:db8::1]:80")], "http://[2001:db8::1]:80"),
            (&[("x-forwarded-port", "8443")], "http://gw:8080"),
            (&[("x-forwarded-host", "pub.ex"), ("x-forwarded-prefix", "/pre")], "http://pub.ex/pre"),
            (&[("x-forwarded-prefix", "/pre/a%20b/")], "http://gw:8080/pre/a%20b"),
            (&[("x-forwarded-prefix", "/one, /two"), ("x-forwarded-prefix", "/three")], "http://gw:8080/one/two/three"),
            (&[("x-forwarded-prefix", "/")], "http://gw:8080"),
            (&[("forwarded", "for=1.2.3.4;proto=https;host=f.ex")], "https://f.ex"),
            (
                &[("forwarded", "for=\"[::1]:3\";Host=\"f.ex:7\";Proto=https, for=2.2.2.2;host=evil.ex")],
                "https://f.ex:7",
            ),
            (&[("forwarded", "for=\"a,b;host=no.ex\";host=f.ex")], "http://f.ex"),
            (
                &[("forwarded", "proto=https;host=f.ex"), ("x-forwarded-host", "x.ex"), ("x-forwarded-prefix", "/p")],
                "https://f.ex/p",
            ),
        ] {
            let headers = [headers, &[("host", "gw:8080")]].concat();
            assert_eq!(told(&headers, true), wanted, "{headers:?}");
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
            ("x-forwarded-host", "h.ex:8o"),
            ("x-forwarded-host", "[::1"),
            ("x-forwarded-host", "::1"),
            ("x-forwarded-host", "\\h.ex"),
            ("x-forwarded-host", ""),
            ("x-forwarded-proto", "javascript"),
            ("x-forwarded-proto", ""),
            ("x-forwarded-proto", "https:"),
            ("x-forwarded-prefix", "//evil.ex"),
            ("x-forwarded-prefix", "/a/../b"),
            ("x-forwarded-prefix", "pre"),
            ("x-forwarded-prefix", "/a?b"),
            ("x-forwarded-prefix", "/a b"),
            ("x-forwarded-prefix", "/good, bad"),
            ("x-forwarded-port", "0"),
            ("x-forwarded-port", "70000"),
            ("x-forwarded-port", "x"),
            ("forwarded", "host=\"h.ex/x\";proto=ftp"),
            ("forwarded", "host"),
            ("forwarded", "\"host=h.ex"),
        ] {
            assert_eq!(told(&[("host", "gw.ex"), (name, value)], true), "http://gw.ex", "{name}: {value}");
        }
        // One header that lies does not silence the next.
        let both = [("forwarded", "host=a@b;proto=x"), ("x-forwarded-host", "x.ex"), ("x-forwarded-proto", "https")];
        assert_eq!(told(&both, true), "https://x.ex");
    }

    #[test]
    fn others_are_believed_their_host_alone() {
        let all = [
            ("host", "gw.ex:99"),
            ("x-forwarded-host", "pub.ex"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "1"),
            ("x-forwarded-prefix", "/pre"),
            ("forwarded", "proto=https;host=f.ex"),
        ];
        assert_eq!(told(&all, false), "http://gw.ex:99");
        assert_eq!(told(&[("host", "127.0.0.1:8080")], false), "http://127.0.0.1:8080");
        assert_eq!(
            (told(&[], false), told(&[("host", "a b")], false)),
            ("http://localhost".into(), "http://localhost".into())
        );
        assert_eq!(origin(|_| Vec::new(), false, Some("target.ex")), "http://target.ex");
    }
}
