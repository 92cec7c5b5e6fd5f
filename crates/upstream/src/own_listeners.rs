//! The addresses at which this gateway listens. Requests whose URL an agent or a client chose never go there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use interlingua_core::public_address::{OwnAddresses, is_local_name};
use url::{Host, Url};

/// The listeners of a gateway. Cheap to clone: all clones have the same listeners.
#[derive(Clone, Debug, Default)]
pub struct OwnListeners(Arc<ArcSwap<Vec<SocketAddr>>>);

impl OwnListeners {
    /// Replaces the addresses, once the listeners are bound.
    pub fn set(&self, listens: Vec<SocketAddr>) {
        self.0.store(Arc::new(listens));
    }

    /// Whether a connection to the host and port of a URL would reach a listener. A host name counts as this machine
    /// only if it is a name of loopback addresses: names are not resolved here.
    #[must_use]
    pub fn include(&self, url: &Url) -> bool {
        let listens = self.0.load();
        let Some(port) = url.port_or_known_default().filter(|port| listens.iter().any(|own| own.port() == *port))
        else {
            return false;
        };

        let addresses: Vec<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![address.into()],
            Some(Host::Ipv6(address)) => vec![address.into()],
            Some(Host::Domain(name)) if is_local_name(name) => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Some(Host::Domain(_)) | None => Vec::new(),
        };
        let own = own_addresses(listens.to_vec());
        addresses.iter().any(|address| own.contains(SocketAddr::new(*address, port)))
    }
}

/// The addresses at which the gateway can be reached now: the addresses of a machine change.
pub(super) fn own_addresses(listens: Vec<SocketAddr>) -> OwnAddresses {
    let machine = if listens.iter().any(|listens| listens.ip().is_unspecified()) {
        let found = if_addrs::get_if_addrs();
        let found = found.inspect_err(|error| tracing::warn!(%error, "cannot read the addresses of this machine: until this works again, the gateway refuses webhooks to any host if the port is that of a listener on all addresses, and URLs in agent cards that have an IP address and such a port"));
        found.ok().map(|found| found.iter().map(if_addrs::Interface::ip).collect())
    } else {
        Some(Vec::new())
    };
    OwnAddresses { listens, machine }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_gateway_itself_are_known() {
        let own = OwnListeners::default();
        let include = |own: &OwnListeners, url: &str| own.include(&Url::parse(url).expect("a URL"));
        assert!(!include(&own, "http://127.0.0.1:9090/"), "nothing listens yet");

        own.set(vec!["127.0.0.1:9090".parse().expect("an address"), "0.0.0.0:80".parse().expect("an address")]);
        for (url, expected) in [
            ("http://127.0.0.1:9090/", true),
            ("http://localhost:9090/api", true),
            ("http://admin.localhost:9090/api", true),
            ("http://0.0.0.0:9090/", true),
            ("http://[::ffff:127.0.0.1]:9090/", true),
            ("http://127.0.0.1/", true),
            ("http://127.0.0.1:9091/", false),
            ("http://192.0.2.1:9090/", false),
            ("http://agent.example:9090/", false),
        ] {
            assert_eq!(include(&own, url), expected, "{url}");
        }
    }
}
