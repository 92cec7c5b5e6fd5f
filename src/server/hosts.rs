//! The hosts that a request may name, so that a name which somebody else's DNS lets point here (DNS rebinding) is told
//! apart from ours.
//!
//! Addresses are no names: a page whose address is `http://10.0.0.5` came from that very address. So wherever nothing is
//! listed and every address of the machine is listened on, any address may be named, which is what a container's
//! probe does, and no name but this machine's own.

use std::net::IpAddr;

use crate::config::{Host, HostName, Origin, implied_port};

/// Which hosts requests may name.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    listed: Vec<Host>,
    /// The address that is listened on, where nothing is listed.
    listen: Option<IpAddr>,
    /// The origin of `public_url`.
    public: Option<Origin>,
}

impl AllowedHosts {
    /// As the settings say: what is listed, else the host of `public_url` and the address that is listened on.
    pub fn new(listed: Option<&[Host]>, public_url: Option<&str>, listen: IpAddr) -> Self {
        let public = public_url.and_then(|url| {
            let (scheme, rest) = url.split_once("://")?;
            format!("{scheme}://{}", rest.split('/').next()?).parse::<Origin>().ok()
        });
        match listed {
            Some(listed) => Self { listed: listed.to_vec(), listen: None, public },
            None => {
                // On any port: a proxy in front has its own, and says so or does not.
                let listed = public.iter().map(|origin| Host { port: None, ..origin.host.clone() }).collect();
                Self { listed, listen: Some(listen.to_canonical()), public }
            }
        }
    }

    /// Whether a request may name this host. Probes ask for the address of a container, whatever is listed.
    pub(super) fn include(&self, host: &Host, is_probe: bool) -> bool {
        if host.name.is_loopback() || self.listed.iter().any(|listed| matches(listed, host)) {
            return true;
        }
        let HostName::Address(address) = host.name else { return false };
        is_probe || self.listen.is_some_and(|listen| listen.is_unspecified() || listen == address)
    }

    /// Whether a page of this origin is one of `public_url`.
    pub(super) fn is_public(&self, origin: &Origin) -> bool {
        self.public.as_ref() == Some(origin)
    }
}

fn matches(listed: &Host, host: &Host) -> bool {
    listed.name == host.name
        && match listed.port {
            None => true,
            // Whoever names no port came over one that goes without saying.
            Some(port) => host.port.map_or_else(|| matches!(port, 80 | 443), |named| named == port),
        }
}

/// Whether a page of this origin was loaded from the host that a request names: the same name, and the same port but
/// for those that go without saying. The scheme is not compared, since a proxy may end TLS without telling.
pub(super) fn is_same(origin: &Origin, host: &Host) -> bool {
    let implied = [implied_port("http"), implied_port("https")];
    let port = host.port.filter(|port| !implied.contains(&Some(*port)));
    let own = origin.host.port.filter(|port| !implied.contains(&Some(*port)));
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

    fn judge(hosts: &AllowedHosts, named: &[(&str, bool)]) {
        for (host, wanted) in named {
            assert_eq!(hosts.include(&host.parse().expect(host), false), *wanted, "{host}: {hosts:?}");
        }
    }

    #[test]
    fn on_loopback_only_this_machine_may_be_named() {
        judge(
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
    fn on_every_address_any_address_may_be_named_and_no_name() {
        let named = [("10.0.0.5:8080", true), ("[fd00::5]", true), ("localhost", true), ("gateway", false)];
        judge(&allowed("0.0.0.0", None, None), &named);
        judge(&allowed("::", None, None), &named);
        judge(&allowed("10.0.0.5", None, None), &[("10.0.0.5:1", true), ("10.0.0.6", false), ("127.0.0.1", true)]);
    }

    #[test]
    fn behind_a_public_url_its_host_may_be_named() {
        judge(
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
    fn a_list_counts_instead_and_probes_may_name_addresses() {
        let hosts = allowed("0.0.0.0", Some("https://agents.example.com"), Some(&["gateway", "a.example:8443"]));
        judge(
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
    fn a_page_of_the_gateway_itself_is_known_whatever_the_proxy_says_of_the_scheme() {
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
