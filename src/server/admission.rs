//! How many connections may be open, in total and of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{Network, ServerLimits};

/// The log is told of refused connections no more often.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What is sent on a connection that is refused, where that is possible without waiting.
pub(super) const REFUSED: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// All open connections of the server.
pub(super) struct Connections {
    most: usize,
    most_per_address: usize,
    most_per_loopback_address: usize,
    /// Many clients stand behind each of them.
    proxies: Vec<Network>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    refused: u64,
    logged: Option<Instant>,
}

/// The right to keep a connection open.
pub(super) struct Permit {
    connections: Arc<Connections>,
    /// None: a proxy's.
    address: Option<IpAddr>,
}

impl Connections {
    pub(super) fn new(limits: ServerLimits, proxies: Vec<Network>) -> Arc<Self> {
        Arc::new(Self {
            most: limits.connections,
            most_per_address: limits.connections_per_address,
            most_per_loopback_address: limits.connections_per_loopback_address,
            proxies,
            open: Mutex::default(),
        })
    }

    /// Whether none is open.
    pub(super) fn are_none(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).total == 0
    }

    /// Admits one more connection of this peer, or refuses it.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Permit> {
        let is_proxy = self.proxies.iter().any(|proxy| proxy.contains(peer));
        let address = (!is_proxy).then(|| client(peer));
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);

        if open.total >= self.most {
            open.refuse(peer, "limits.connections");
            return None;
        }
        if let Some(address) = address {
            let most =
                if peer.to_canonical().is_loopback() { self.most_per_loopback_address } else { self.most_per_address };
            let of_address = open.by_address.entry(address).or_default();
            if *of_address >= most {
                open.refuse(peer, "limits.connections_per_address; a proxy belongs into trusted_proxies");
                return None;
            }
            *of_address += 1;
        }
        open.total += 1;
        drop(open);
        Some(Permit { connections: Arc::clone(self), address })
    }
}

impl Open {
    fn refuse(&mut self, peer: IpAddr, limit: &str) {
        self.refused += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            let refused = std::mem::take(&mut self.refused);
            self.logged = Some(Instant::now());
            tracing::warn!(client = %peer, refused, "too many connections: {limit}");
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total -= 1;
        if let Some(address) = self.address
            && let Some(of_address) = open.by_address.get_mut(&address)
        {
            *of_address -= 1;
            if *of_address == 0 {
                open.by_address.remove(&address);
            }
        }
    }
}

/// What counts as one address: of IPv6 the network, all of which one client has to itself.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(connections: usize, connections_per_address: usize, proxy: &str) -> Arc<Connections> {
        let limits = ServerLimits {
            connections,
            connections_per_address,
            connections_per_loopback_address: connections,
            bodies: 1 << 20,
            json_depth: 8,
            json_values: 1000,
        };
        Connections::new(limits, vec![proxy.parse().expect("a network")])
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_share_and_gets_it_back() {
        let connections = connections(100, 2, "10.0.0.1");
        let first = connections.admit(address("192.0.2.1")).expect("the first");
        let _second = connections.admit(address("::ffff:192.0.2.1")).expect("the second");
        assert!(connections.admit(address("192.0.2.1")).is_none());
        assert!(connections.admit(address("192.0.2.2")).is_some());
        drop(first);
        assert!(connections.admit(address("192.0.2.1")).is_some());
    }

    #[test]
    fn the_machine_itself_has_a_bound_of_its_own() {
        let connections = connections(3, 1, "10.0.0.1");
        let permits: Vec<_> = (0..3).filter_map(|_| connections.admit(address("127.0.0.1"))).collect();
        assert_eq!(permits.len(), 3);
        assert!(connections.admit(address("127.0.0.1")).is_none());
    }

    #[test]
    fn a_network_of_version_six_is_one_client() {
        let connections = connections(100, 1, "10.0.0.1");
        let _one = connections.admit(address("2001:db8::1")).expect("the first");
        assert!(connections.admit(address("2001:db8::2")).is_none());
        assert!(connections.admit(address("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn a_proxy_is_many_clients_and_counts_in_the_total() {
        let connections = connections(3, 1, "10.0.0.0/8");
        let permits: Vec<_> = (0..3).filter_map(|_| connections.admit(address("10.0.0.1"))).collect();
        assert_eq!(permits.len(), 3);
        assert!(connections.admit(address("10.0.0.1")).is_none());
        drop(permits);
        let open = connections.open.lock().expect("no panic");
        assert!(open.total == 0 && open.by_address.is_empty());
    }
}
