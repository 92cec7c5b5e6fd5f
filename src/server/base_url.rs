//! The URL of a mount as a client sees it: as it is configured, else as a trusted proxy tells it, else as the request
//! says.
//!
//! Not here: whether the request may name that host (`guard.rs`), what proxies say (`forwarded.rs`), and what is made of
//! the URL, which is the protocol's.

use actix_web::dev::RequestHead;

use super::forwarded::{self, Told};
use super::{Gateway, Served};
use crate::config::{Host, implied_port};

/// The URL of the mount, without a slash at its end.
pub(super) fn of(gateway: &Gateway, route: &Served, head: &RequestHead) -> String {
    if let Some(url) = &gateway.settings.public_url {
        return format!("{url}{}", route.path);
    }
    let named = named(head).ok().flatten().and_then(|host| host.parse().ok());
    format!("{}{}", origin(named, told(gateway, head)), route.path)
}

/// The host that a request names: that of its target if it is a whole URL, which counts more (RFC 9112, section
/// 3.2.2), else that of its `Host`. `None`: it names none, which only HTTP/1.0 may.
pub(super) fn named(head: &RequestHead) -> Result<Option<&str>, &'static str> {
    let mut hosts = head.headers.get_all("host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("the request has several Host headers");
    }
    let host = host.map(|host| host.to_str().map_err(|_| "the Host header is no text")).transpose()?;
    Ok(head.uri.authority().map(|authority| authority.as_str()).or(host))
}

/// What trusted proxies say of the request.
pub(super) fn told(gateway: &Gateway, head: &RequestHead) -> Told {
    let settings = &gateway.settings;
    let Some(peer) = head.peer_addr.filter(|_| !settings.trusted_proxies.is_empty()) else {
        return Told::default();
    };
    forwarded::told(settings.forwarded, &settings.trusted_proxies, peer.ip(), |name| {
        head.headers.get_all(name).filter_map(|value| value.to_str().ok()).collect()
    })
}

/// Scheme, host and prefix.
fn origin(named: Option<Host>, told: Told) -> String {
    let scheme = told.scheme.unwrap_or("http");
    let Some(mut host) = told.host.or(named) else { return format!("{scheme}://localhost{}", told.prefix) };
    if host.port.is_none() {
        host.port = told.port.filter(|port| implied_port(scheme) != Some(*port));
    }
    format!("{scheme}://{host}{}", told.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_what_proxies_tell_and_else_what_the_request_names() {
        let host = |text: &str| text.parse::<Host>().ok();
        for (scheme, told, port, prefix, wanted) in [
            (None, "", None, "", "http://gw:8080"),
            (Some("https"), "", None, "", "https://gw:8080"),
            (None, "pub.ex", None, "", "http://pub.ex"),
            (Some("https"), "pub.ex:8443", Some(1), "", "https://pub.ex:8443"),
            (Some("https"), "pub.ex", Some(8443), "", "https://pub.ex:8443"),
            (Some("https"), "pub.ex", Some(443), "", "https://pub.ex"),
            (None, "pub.ex", Some(80), "", "http://pub.ex"),
            (None, "pub.ex", Some(443), "", "http://pub.ex:443"),
            (None, "[2001:db8::1]", Some(8443), "", "http://[2001:db8::1]:8443"),
            (None, "", Some(8443), "", "http://gw:8080"),
            (None, "pub.ex", None, "/pre/a%20b", "http://pub.ex/pre/a%20b"),
        ] {
            let told = Told { scheme, host: host(told), port, prefix: prefix.to_owned() };
            assert_eq!(origin(host("gw:8080"), told), wanted);
        }
        assert_eq!(origin(None, Told::default()), "http://localhost");
    }
}
