//! Limits on open connections, in total and per client address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlingua_core::network::{self, IpNet};

use interlingua_config::ServerLimits;
use interlingua_observe::metrics::Metrics;

/// The minimum interval between two log lines about rejected connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The response on a rejected connection, sent only if possible without waiting.
pub(super) const REJECTED_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// All open connections of the server, and all open HTTP/2 streams.
pub struct Connections {
    metrics: Arc<Metrics>,
    open: Mutex<OpenConnections>,
}

/// Limits on connections and HTTP/2 streams.
pub struct Limits {
    /// The maximum number of open connections.
    pub max: usize,
    /// The maximum number of open connections of an address.
    pub max_per_address: usize,
    /// The same for an address of the gateway's own machine.
    pub max_per_loopback_address: usize,
    /// The maximum number of HTTP/2 streams of an address.
    pub max_streams_per_address: usize,
    /// The same for an address of the gateway's own machine.
    pub max_streams_per_loopback_address: usize,
    /// Exempt from the limits per address, because each proxy stands for many clients.
    pub proxies: Vec<IpNet>,
}

impl Limits {
    pub(super) fn new(limits: ServerLimits, proxies: Vec<IpNet>) -> Self {
        Self {
            max: limits.connections,
            max_per_address: limits.connections_per_address,
            max_per_loopback_address: limits.connections_per_loopback_address,
            max_streams_per_address: limits.http2_streams_per_address,
            max_streams_per_loopback_address: limits.http2_streams_per_loopback_address,
            proxies,
        }
    }
}

struct OpenConnections {
    limits: Limits,
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Open HTTP/2 streams, by client address.
    streams: HashMap<IpAddr, usize>,
    /// Rejections of all clients and limits since the latest log line.
    rejected: u64,
    last_logged: Option<Instant>,
}

/// A permit for one open connection. Returned on drop.
pub(super) struct Permit {
    connections: Arc<Connections>,
    /// `None` for a proxy.
    address: Option<IpAddr>,
}

/// A permit for one HTTP/2 stream. Returned on drop.
pub(super) struct StreamPermit {
    connections: Arc<Connections>,
    /// `None` for a proxy.
    address: Option<IpAddr>,
}

impl Connections {
    /// Counts connections from now on, up to these limits.
    pub fn new(limits: Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let open = OpenConnections {
            limits,
            total: 0,
            by_address: HashMap::new(),
            streams: HashMap::new(),
            rejected: 0,
            last_logged: None,
        };
        Arc::new(Self { metrics, open: Mutex::new(open) })
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the limits. Open connections stay.
    pub(super) fn set_limits(&self, limits: ServerLimits, proxies: Vec<IpNet>) {
        self.lock().limits = Limits::new(limits, proxies);
    }

    pub(super) fn total(&self) -> usize {
        self.lock().total
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// True if the total limit is reached.
    pub(super) fn is_full(&self) -> bool {
        let open = self.lock();
        open.total >= open.limits.max
    }

    /// Admits a connection of this peer. `None`: a limit is reached.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<Permit> {
        self.admit_within(peer, true)
    }

    /// Admits a connection of this peer in place of an evicted one that still counts. `None`: the limit per address is
    /// reached.
    pub(super) fn admit_instead(self: &Arc<Self>, peer: IpAddr) -> Option<Permit> {
        self.admit_within(peer, false)
    }

    fn admit_within(self: &Arc<Self>, peer: IpAddr, total: bool) -> Option<Permit> {
        let mut open = self.lock();
        let is_proxy = open.limits.proxies.iter().any(|proxy| network::contains(proxy, peer));
        let address = (!is_proxy).then(|| address_key(peer));

        if total && open.total >= open.limits.max {
            self.metrics.limited("connections");
            open.reject(peer, "limits.connections");
            return None;
        }
        if let Some(address) = address {
            let Limits { max_per_address, max_per_loopback_address, .. } = open.limits;
            let max = if peer.to_canonical().is_loopback() { max_per_loopback_address } else { max_per_address };
            let from_address = open.by_address.entry(address).or_default();
            if *from_address >= max {
                self.metrics.limited("connections_per_address");
                open.reject(peer, "limits.connections_per_address; add proxies to trusted_proxies");
                return None;
            }
            *from_address += 1;
        }
        open.total += 1;
        drop(open);
        Some(Permit { connections: Arc::clone(self), address })
    }

    /// Admits an HTTP/2 stream of this peer. `None`: the limit per address is reached. Without this limit, many
    /// connections with many streams each would get around the limit on connections.
    pub(super) fn admit_stream(self: &Arc<Self>, peer: IpAddr) -> Option<StreamPermit> {
        let mut open = self.lock();
        if open.limits.proxies.iter().any(|proxy| network::contains(proxy, peer)) {
            return Some(StreamPermit { connections: Arc::clone(self), address: None });
        }

        let Limits { max_streams_per_address, max_streams_per_loopback_address, .. } = open.limits;
        let is_loopback = peer.to_canonical().is_loopback();
        let max = if is_loopback { max_streams_per_loopback_address } else { max_streams_per_address };
        let address = address_key(peer);
        let from_address = open.streams.entry(address).or_default();
        if *from_address >= max {
            self.metrics.limited("http2_streams_per_address");
            open.reject(peer, "limits.http2_streams_per_address; add proxies to trusted_proxies");
            return None;
        }
        *from_address += 1;
        drop(open);
        Some(StreamPermit { connections: Arc::clone(self), address: Some(address) })
    }
}

impl OpenConnections {
    fn reject(&mut self, peer: IpAddr, limit: &str) {
        self.rejected += 1;
        if self.last_logged.is_none_or(|last_logged| last_logged.elapsed() >= LOG_INTERVAL) {
            let rejected = std::mem::take(&mut self.rejected);
            self.last_logged = Some(Instant::now());
            tracing::warn!(
                latest_client = %peer,
                rejected,
                "the gateway rejected connections or streams since the last such line; the latest one reached the limit: {limit}"
            );
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.total -= 1;

        if let Some(address) = self.address {
            count_down(&mut open.by_address, address);
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        if let Some(address) = self.address {
            count_down(&mut self.connections.lock().streams, address);
        }
    }
}

fn count_down(counted: &mut HashMap<IpAddr, usize>, address: IpAddr) {
    if let Some(count) = counted.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            counted.remove(&address);
        }
    }
}

/// The key for counting by address: for IPv6 the /64 network, because one client usually has a whole network.
fn address_key(peer: IpAddr) -> IpAddr {
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
            unread: 1 << 20,
            json_depth: 8,
            head: 32 << 10,
            sockets: 1,
            sockets_per_caller: 1,
            sockets_per_loopback_address: 1,
            followers: 1,
            json_values: 1000,
            runs: 1000,
            queued_turns: 1,
            receivers: 1,
            pushes: 2,
            page: 1 << 20,
            http2_streams: 1,
            http2_streams_per_address: 2,
            http2_streams_per_loopback_address: 3,
            http2_resets: 10,
            http2_control_frames: 100,
        };

        let proxies = vec![network::parse(proxy).expect("a network")];
        Connections::new(Limits::new(limits, proxies), Metrics::new())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_is_limited_and_closed_connections_are_returned() {
        let connections = connections(100, 2, "10.0.0.1");
        let first = connections.admit(address("192.0.2.1")).expect("the first");
        let _second = connections.admit(address("::ffff:192.0.2.1")).expect("the second");
        assert!(connections.admit(address("192.0.2.1")).is_none());
        assert!(connections.admit(address("192.0.2.2")).is_some());
        drop(first);
        assert!(connections.admit(address("192.0.2.1")).is_some());
    }

    #[test]
    fn streams_of_an_address_are_limited_over_all_connections() {
        let connections = connections(100, 100, "10.0.0.1");
        let admitted = |peer: &str| (0..10).filter_map(|_| connections.admit_stream(address(peer))).collect::<Vec<_>>();
        let held = admitted("192.0.2.1");
        assert_eq!((held.len(), admitted("::ffff:192.0.2.1").len()), (2, 0));
        assert_eq!((admitted("192.0.2.2").len(), admitted("127.0.0.1").len(), admitted("10.0.0.1").len()), (2, 3, 10));
        drop(held);
        assert_eq!(admitted("192.0.2.1").len(), 2);
        assert!(connections.lock().streams.is_empty());
    }

    #[test]
    fn loopback_addresses_have_their_own_limit() {
        let connections = connections(3, 1, "10.0.0.1");
        let permits: Vec<_> = (0..3).filter_map(|_| connections.admit(address("127.0.0.1"))).collect();
        assert_eq!(permits.len(), 3);
        assert!(connections.admit(address("127.0.0.1")).is_none());
    }

    #[test]
    fn an_ipv6_network_counts_as_one_client() {
        let connections = connections(100, 1, "10.0.0.1");
        let _one = connections.admit(address("2001:db8::1")).expect("the first");
        assert!(connections.admit(address("2001:db8::2")).is_none());
        assert!(connections.admit(address("2001:db8:0:1::1")).is_some());
    }

    #[test]
    fn a_proxy_is_only_limited_by_the_total() {
        let connections = connections(3, 1, "10.0.0.0/8");
        let permits: Vec<_> = (0..3).filter_map(|_| connections.admit(address("10.0.0.1"))).collect();
        assert_eq!(permits.len(), 3);
        assert!(connections.admit(address("10.0.0.1")).is_none());
        drop(permits);
        let open = connections.open.lock().expect("no panic");
        assert!(open.total == 0 && open.by_address.is_empty());
    }
}
