//! Sends requests to URLs that clients have configured, and never to an address that they must not reach
//! (docs/protocols/a2a.md#webhook-addresses).
//!
//! A name is resolved once, all its addresses are checked, and the connection goes to one of exactly these, in whatever
//! form the name is written. A name that cannot be resolved yet is accepted, since every delivery checks it again;
//! local names are not. No redirects, no proxies, no credentials of the gateway. `interlingua_core::public_address`
//! decides which addresses are public.

mod pool;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use interlingua_core::public_address::{Destination, OwnAddresses, Policy, RefusedAddress, is_local_name};
use interlingua_core::push::PushRequest;

use self::pool::{Pool, RECEIVER_TIMEOUT};
use super::own_listeners::own_addresses;
use interlingua_base::ports::{WebhookClient, WebhookError};

/// The most that is read of a receiver's answer, in bytes.
const MAX_READ: usize = 64 * 1024;

/// Resolves a name to all its addresses, each with the port.
type Lookup = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Sends webhooks over HTTP.
#[derive(Clone)]
pub struct HttpWebhookClient {
    /// The gateway's own addresses, which are never receivers.
    listens: Vec<SocketAddr>,
    lookup: Lookup,
    pool: Arc<Pool>,
}

impl HttpWebhookClient {
    /// Creates the client of a gateway that listens on these addresses.
    #[must_use]
    pub fn new(listens: Vec<SocketAddr>) -> Self {
        let lookup = |host: String, port| {
            async move { tokio::net::lookup_host((host, port)).await.map(|found| found.collect()) }.boxed()
        };
        Self { listens, lookup: Arc::new(lookup), pool: Arc::default() }
    }

    fn own(&self) -> OwnAddresses {
        own_addresses(self.listens.clone())
    }

    /// Resolves the host of a URL and checks all its addresses.
    async fn resolve(&self, url: &str, policy: &Policy) -> Result<Receiver, UnreachableReceiver> {
        let destination = policy.destination(url).map_err(UnreachableReceiver::Refused)?;
        let url = reqwest::Url::parse(url).ok().filter(|url| agree(url, &destination));
        let url = url.ok_or(UnreachableReceiver::Refused(RefusedAddress::InvalidUrl))?;
        let addresses = match destination.address {
            Some(address) => vec![SocketAddr::new(address, destination.port)],
            None => {
                let found = (self.lookup)(destination.host.clone(), destination.port);
                match tokio::time::timeout(RECEIVER_TIMEOUT, found).await {
                    Ok(Ok(found)) => found,
                    Ok(Err(_)) | Err(_) => return Err(UnreachableReceiver::Unknown(destination.host)),
                }
            }
        };
        policy.check_resolved(&destination.host, &addresses, &self.own()).map_err(UnreachableReceiver::Refused)?;
        Ok(Receiver { url, addresses })
    }
}

impl WebhookClient for HttpWebhookClient {
    fn check_url(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), RefusedAddress>> {
        let (this, url, policy) = (self.clone(), url.to_owned(), policy.clone());
        async move {
            match this.resolve(&url, &policy).await {
                Ok(_) => Ok(()),
                Err(UnreachableReceiver::Unknown(host)) if !is_local_name(&host) || policy.allows_name(&host) => Ok(()),
                Err(UnreachableReceiver::Unknown(_)) => Err(RefusedAddress::Host),
                Err(UnreachableReceiver::Refused(refused)) => Err(refused),
            }
        }
        .boxed()
    }

    fn post(&self, url: &str, policy: &Policy, delivery: PushRequest) -> BoxFuture<'static, Result<(), WebhookError>> {
        let (this, url, policy) = (self.clone(), url.to_owned(), policy.clone());
        async move {
            let place = this.resolve(&url, &policy).await.map_err(|unreached| match unreached {
                // A name may resolve to a public address again later.
                UnreachableReceiver::Refused(refused) => {
                    WebhookError { retryable: refused == RefusedAddress::Host, reason: refused.to_string() }
                }
                UnreachableReceiver::Unknown(_) => {
                    WebhookError { retryable: true, reason: "its name is not known".to_owned() }
                }
            })?;
            send(&this.pool, place, delivery).await
        }
        .boxed()
    }
}

/// A receiver that may be connected to.
struct Receiver {
    url: reqwest::Url,
    /// All of them have been checked.
    addresses: Vec<SocketAddr>,
}

/// Why a receiver has no address that may be connected to.
enum UnreachableReceiver {
    /// The URL or an address is not allowed.
    Refused(RefusedAddress),
    /// The name cannot be resolved at the moment.
    Unknown(String),
}

/// True if the HTTP client reads the same host and port in the URL as the check did.
fn agree(url: &reqwest::Url, destination: &Destination) -> bool {
    let host = url.host_str().unwrap_or("").trim_start_matches('[').trim_end_matches([']', '.']);
    let same = match destination.address {
        Some(address) => host.parse() == Ok(address),
        None => host == destination.host,
    };
    same && url.port_or_known_default() == Some(destination.port)
}

async fn send(pool: &Pool, place: Receiver, delivery: PushRequest) -> Result<(), WebhookError> {
    let secure = place.url.scheme() == "https";
    let failed = |retryable: bool, reason: String| WebhookError { retryable, reason };
    // The URL may contain a secret: errors are reported without it.
    let client = pool.client(secure, place.addresses);
    let client = client.map_err(|error| failed(false, error.without_url().to_string()))?;
    let mut request = client.post(place.url).body(delivery.body);
    for (name, value) in delivery.headers {
        request = request.header(name, value);
    }
    let response = request.send().await.map_err(|error| {
        let again = error.is_connect() || error.is_timeout() || error.is_request();
        failed(again, error.without_url().to_string())
    })?;
    let status = response.status().as_u16();
    let mut read = 0;
    let mut body = response.bytes_stream();
    while let Some(Ok(chunk)) = body.next().await {
        read += chunk.len();
        if read > MAX_READ {
            break;
        }
    }
    match status {
        200..=299 => Ok(()),
        408 | 429 | 500..=599 => Err(failed(true, format!("status {status}"))),
        _ => Err(failed(false, format!("status {status}"))),
    }
}

#[cfg(test)]
mod tests;
