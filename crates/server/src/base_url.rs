//! The public URL of a mount: from the configuration, else from a trusted proxy, else from the request.
//!
//! Not here: whether the request may name that host (`guard.rs`), and the parsing of forwarded headers
//! (`forwarded.rs`).

use std::net::IpAddr;

use actix_web::dev::RequestHead;
use actix_web::http::Version;
use interlingua_core::network;

use super::forwarded::{self, ForwardedInfo};
use super::{Gateway, ServedRoute};
use interlingua_config::{Host, implied_port};

/// The URL of the mount, without a trailing slash.
pub(super) fn of_mount(gateway: &Gateway, route: &ServedRoute, head: &RequestHead) -> String {
    if let Some(url) = &gateway.settings().public_url {
        return format!("{url}{}", route.path);
    }

    let requested = requested_host(head).ok().flatten().and_then(|host| host.parse().ok());
    let scheme = if gateway.settings().tls.is_some() { "https" } else { "http" };
    format!("{}{}", origin(scheme, requested, forwarded_info(gateway, head)), route.path)
}

/// The host that a request names: the host of an absolute target, which takes precedence (RFC 9112, section 3.2.2),
/// else the `Host` header. `None` if there is neither, which is valid in HTTP/1.0 only.
pub(super) fn requested_host(head: &RequestHead) -> Result<Option<&str>, &'static str> {
    let mut hosts = head.headers.get_all("host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err("the request has several Host headers");
    }
    let host = host.map(|host| host.to_str().map_err(|_| "the Host header is not text")).transpose()?;
    let target = head.uri.authority().map(|authority| authority.as_str());
    if head.version == Version::HTTP_2
        && let (Some(target), Some(host)) = (target, host)
        && !target.eq_ignore_ascii_case(host)
    {
        // RFC 9113, section 8.3.1.
        return Err("the Host header differs from the host of the request");
    }
    Ok(target.or(host))
}

/// The forwarded headers of trusted proxies. Empty if the peer is not one.
pub(super) fn forwarded_info(gateway: &Gateway, head: &RequestHead) -> ForwardedInfo {
    let settings = gateway.settings();
    let Some(peer) = head.peer_addr.filter(|_| !settings.trusted_proxies.is_empty()) else {
        return ForwardedInfo::default();
    };
    forwarded::parse(settings.forwarded, &settings.trusted_proxies, peer.ip(), |name| {
        head.headers.get_all(name).filter_map(|value| value.to_str().ok()).collect()
    })
}

/// The address of the client: reported by trusted proxies, or else the peer's own. `None` if the peer is a trusted
/// proxy that reports none: its own address would stand for many clients.
pub(super) fn client_address(gateway: &Gateway, head: &RequestHead, peer: IpAddr) -> Option<IpAddr> {
    let is_proxy = gateway.settings().trusted_proxies.iter().any(|proxy| network::contains(proxy, peer));
    if is_proxy { forwarded_info(gateway, head).client } else { Some(peer.to_canonical()) }
}

/// Scheme, host, port and path prefix. `scheme`: the scheme of the gateway's own listener.
fn origin(scheme: &'static str, requested: Option<Host>, forwarded: ForwardedInfo) -> String {
    let scheme = forwarded.scheme.unwrap_or(scheme);
    let Some(mut host) = forwarded.host.or(requested) else {
        return format!("{scheme}://localhost{}", forwarded.prefix);
    };

    if host.port.is_none() {
        host.port = forwarded.port.filter(|port| implied_port(scheme) != Some(*port));
    }
    format!("{scheme}://{host}{}", forwarded.prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_values_take_precedence_over_the_request() {
        let host = |text: &str| text.parse::<Host>().ok();
        for (scheme, name, port, prefix, expected) in [
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
            let forwarded = ForwardedInfo { client: None, scheme, host: host(name), port, prefix: prefix.to_owned() };
            assert_eq!(origin("http", host("gw:8080"), forwarded), expected);
        }

        assert_eq!(origin("http", None, ForwardedInfo::default()), "http://localhost");
        assert_eq!(origin("https", host("gw:8443"), ForwardedInfo::default()), "https://gw:8443");
    }
}
