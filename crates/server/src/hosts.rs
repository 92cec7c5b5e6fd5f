//! Restricts the hosts that a request may name. This prevents DNS rebinding, where a foreign name resolves to the
//! gateway's address.
//!
//! IP addresses cannot be rebound: a page at `http://10.0.0.5` was loaded from that address. So if no hosts are listed
//! and the gateway listens on all addresses, every IP address is allowed, because probes of containers use them. Names
//! are refused, except names of loopback and the host of `public_url`.

use std::net::IpAddr;

use interlingua_config::{Host, HostName, Origin, implied_port};

/// The hosts that requests may name.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    listed: Vec<Host>,
    /// The listen address. `None` if hosts are listed.
    listen: Option<IpAddr>,
    /// The origin of `public_url`.
    public: Option<Origin>,
}

impl AllowedHosts {
    /// The listed hosts, else the host of `public_url` and the listen address.
    pub fn new(listed: Option<&[Host]>, public_url: Option<&str>, listen: IpAddr) -> Self {
        let public = public_url.and_then(|url| {
            let (scheme, rest) = url.split_once("://")?;
            format!("{scheme}://{}", rest.split('/').next()?).parse::<Origin>().ok()
        });

        match listed {
            Some(listed) => Self { listed: listed.to_vec(), listen: None, public },
            None => {
                // On any port, because a proxy may or may not forward its own port.
                let listed = public.iter().map(|origin| Host { port: None, ..origin.host.clone() }).collect();
                Self { listed, listen: Some(listen.to_canonical()), public }
            }
        }
    }

    /// True if a request may name this host. Probes of containers use IP addresses, so `is_probe` allows every IP
    /// address.
    pub(super) fn include(&self, host: &Host, is_probe: bool) -> bool {
        if host.name.is_loopback() || self.listed.iter().any(|listed| matches(listed, host)) {
            return true;
        }
        let HostName::Address(address) = host.name else { return false };
        is_probe || self.listen.is_some_and(|listen| listen.is_unspecified() || listen == address)
    }

    /// True if this is the origin of `public_url`.
    pub(super) fn is_public(&self, origin: &Origin) -> bool {
        self.public.as_ref() == Some(origin)
    }
}

fn matches(listed: &Host, host: &Host) -> bool {
    listed.name == host.name
        && match listed.port {
            None => true,
            // Without a port, the request used the default port of its scheme.
            Some(port) => host.port.map_or_else(|| matches!(port, 80 | 443), |named| named == port),
        }
}

/// True if an origin and a host have the same name and the same port, where all default ports are equal. `http` and
/// `https` are equal too, because a proxy may terminate TLS without forwarding the scheme. Other schemes never match.
pub(super) fn is_same(origin: &Origin, host: &Host) -> bool {
    let default_ports = [implied_port("http"), implied_port("https")];
    let port = host.port.filter(|port| !default_ports.contains(&Some(*port)));
    let own = origin.host.port.filter(|port| !default_ports.contains(&Some(*port)));
    matches!(origin.scheme.as_str(), "http" | "https") && origin.host.name == host.name && own == port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(listen: &str, public_url: Option<&str>, listed: Option<&[&str]>) -> AllowedHosts {
        let listed: Option<Vec<Host>> =
            listed.map(|listed| listed.iter().map(|host| host.parse().expect("a host")).collect());
        AllowedHosts::new(listed.as_deref(), public_url, listen.parse().expect("an address"))
    }

    fn check(hosts: &AllowedHosts, named: &[(&str, bool)]) {
        for (host, expected) in named {
            assert_eq!(hosts.include(&host.parse().expect(host), false), *expected, "{host}: {hosts:?}");
        }
    }

    #[test]
    fn on_loopback_only_loopback_hosts_are_allowed() {
        check(
            &allowed("127.0.0.1", None, None),
            &[
                ("127.0.0.1:8080", true),
                ("localhost", true),
                ("[::1]:1", true),
                ("a.localhost", true),
                ("10.0.0.5", false),
                ("rebound.evil.example", false),
                ("localhost.evil.example", false),
                ("gateway", false),
            ],
        );
    }

    #[test]
    fn on_all_addresses_every_address_but_no_name_is_allowed() {
        let named = [("10.0.0.5:8080", true), ("[fd00::5]", true), ("localhost", true), ("gateway", false)];
        check(&allowed("0.0.0.0", None, None), &named);
        check(&allowed("::", None, None), &named);
        check(&allowed("10.0.0.5", None, None), &[("10.0.0.5:1", true), ("10.0.0.6", false), ("127.0.0.1", true)]);
    }

    #[test]
    fn the_host_of_public_url_is_allowed() {
        check(
            &allowed("127.0.0.1", Some("https://agents.example.com:8443/pre"), None),
            &[
                ("agents.example.com", true),
                ("agents.example.com:8443", true),
                ("Agents.Example.com.", true),
                ("127.0.0.1:8080", true),
                ("evil.example", false),
                ("agents.example.com.evil.example", false),
            ],
        );
    }

    #[test]
    fn a_list_replaces_the_defaults_and_probes_may_use_addresses() {
        let hosts = allowed("0.0.0.0", Some("https://agents.example.com"), Some(&["gateway", "a.example:8443"]));
        check(
            &hosts,
            &[
                ("gateway:80", true),
                ("a.example:8443", true),
                ("a.example", false),
                ("a.example:80", false),
                ("agents.example.com", false),
                ("10.0.0.5", false),
                ("localhost", true),
            ],
        );

        assert!(hosts.include(&"10.0.0.5:8080".parse().expect("a host"), true));
        assert!(!hosts.include(&"evil.example".parse().expect("a host"), true));
    }

    #[test]
    fn the_own_origin_is_recognised_with_any_scheme() {
        for (origin, host, same) in [
            ("https://a.example", "a.example", true),
            ("http://a.example", "a.example:80", true),
            ("https://a.example:8443", "a.example:8443", true),
            ("http://localhost:3000", "localhost:8080", false),
            ("https://a.example:8443", "a.example", false),
            ("https://b.example", "a.example", false),
            ("evil://a.example", "a.example", false),
        ] {
            let (read, named) = (origin.parse().expect(origin), host.parse().expect(host));
            assert_eq!(is_same(&read, &named), same, "{origin} at {host}");
        }
    }
}
