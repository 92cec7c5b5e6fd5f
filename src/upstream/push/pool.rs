//! Connections to receivers: kept for a moment, for the next push to the same addresses. Whoever asks has judged these
//! addresses in the same breath, and a connection to any other is never handed out.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::Client;

use super::tls::{Judged, PATIENCE, trusting_nobody, trusting_the_system};

/// Places whose connections are kept.
const MAX_PLACES: usize = 256;
/// How long an unused connection is kept: less than the five seconds after which common servers close it.
const POOLED: Duration = Duration::from_secs(4);

/// Clients by the addresses they connect to.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<Entry>>);

struct Entry {
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
            // What was not used for so long has no connection any more.
            entries.retain(|entry| now.duration_since(entry.used) < POOLED);
            let known = entries.iter_mut().find(|entry| entry.secure == secure && entry.addresses == addresses);
            if let Some(entry) = known {
                entry.used = now;
                return Ok(entry.client.clone());
            }
        }
        let client = build(secure, addresses.clone())?;
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_PLACES
            && let Some(oldest) = entries.iter().enumerate().min_by_key(|(_, entry)| entry.used).map(|(place, _)| place)
        {
            entries.swap_remove(oldest);
        }
        entries.push(Entry { secure, addresses, client: client.clone(), used: now });
        Ok(client)
    }
}

fn build(secure: bool, addresses: Vec<SocketAddr>) -> reqwest::Result<Client> {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(Judged(addresses)))
        .tls_backend_preconfigured(if secure { trusting_the_system() } else { trusting_nobody() })
        .connect_timeout(PATIENCE)
        .timeout(PATIENCE)
        .pool_idle_timeout(POOLED)
        .pool_max_idle_per_host(2)
        .build()
}
