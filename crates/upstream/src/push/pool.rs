//! Connections to receivers: kept for a few seconds, for the next push to the same addresses. The caller has just
//! checked these addresses; a connection to any other is never returned.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::ready;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::tls;

/// The limit for resolving a name, for connecting, and for one request.
pub(super) const RECEIVER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most sets of addresses whose connections are kept.
const MAX_CLIENTS: usize = 256;
/// Time that an unused connection is kept: less than the five seconds after which common servers close it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Clients by the addresses they connect to.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<PooledClient>>);

struct PooledClient {
    secure: bool,
    /// In order.
    addresses: Vec<SocketAddr>,
    client: Client,
    used: Instant,
}

impl Pool {
    /// A client that connects to these addresses, whatever name it is given.
    pub(super) fn client(&self, secure: bool, mut addresses: Vec<SocketAddr>) -> reqwest::Result<Client> {
        addresses.sort_unstable();
        let now = Instant::now();
        {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A client that was unused for this long has no open connection.
            entries.retain(|entry| now.duration_since(entry.used) < IDLE_TIMEOUT);
            let known = entries.iter_mut().find(|entry| entry.secure == secure && entry.addresses == addresses);
            if let Some(entry) = known {
                entry.used = now;
                return Ok(entry.client.clone());
            }
        }
        let client = build(secure, addresses.clone())?;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_CLIENTS
            && let Some(oldest) = entries.iter().enumerate().min_by_key(|(_, entry)| entry.used).map(|(place, _)| place)
        {
            entries.swap_remove(oldest);
        }
        entries.push(PooledClient { secure, addresses, client: client.clone(), used: now });
        Ok(client)
    }
}

fn build(secure: bool, addresses: Vec<SocketAddr>) -> reqwest::Result<Client> {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(FixedAddresses(addresses)))
        .tls_backend_preconfigured(tls::client_config(secure))
        .connect_timeout(RECEIVER_TIMEOUT)
        .timeout(RECEIVER_TIMEOUT)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(2)
        .build()
}

/// Resolves every name to the addresses that were checked: another form of the name (with a dot at its end) must not be
/// resolved again.
struct FixedAddresses(Vec<SocketAddr>);

impl Resolve for FixedAddresses {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(ready(Ok(addresses)))
    }
}
