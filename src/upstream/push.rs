//! Sending to places that clients have named, and to no place they must not name (A2A page, section 11).
//!
//! A name is resolved, every address it has is judged, and the connection goes to one of just those: nobody resolves
//! it a second time, however it is spelled. A name that nobody knows yet may be named, since every delivery judges it
//! anew; names that are local by themselves may not. No redirects, no proxies, no credentials of the gateway. Which
//! addresses are public is decided in `interlingua_core::public_address`.

mod pool;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use interlingua_core::public_address::{Destination, OwnAddresses, Policy, Refused, is_local_name};
use interlingua_core::push::PushRequest;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls_platform_verifier::ConfigVerifierExt as _;

use self::pool::Pool;
use crate::engine::deliver::{Failed, WebhookClient};

/// How long a receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// No more is read of a receiver's answer.
const MAX_READ: usize = 64 * 1024;

/// Asks for all addresses of a name, to be used with a port.
type Lookup = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Sends over HTTP.
#[derive(Clone)]
pub struct HttpWebhookClient {
    /// What the gateway listens on: never a receiver.
    listens: Vec<SocketAddr>,
    lookup: Lookup,
    pool: Arc<Pool>,
}

impl HttpWebhookClient {
    /// For a gateway that listens on these addresses.
    #[must_use]
    pub fn new(listens: Vec<SocketAddr>) -> Self {
        // Fails only if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let lookup = |host: String, port| {
            async move { tokio::net::lookup_host((host, port)).await.map(|found| found.collect()) }.boxed()
        };
        Self { listens, lookup: Arc::new(lookup), pool: Arc::default() }
    }

    /// The gateway as it can be reached now: addresses of a machine come and go.
    fn own(&self) -> OwnAddresses {
        let machine = if self.listens.iter().any(|listens| listens.ip().is_unspecified()) {
            let found = if_addrs::get_if_addrs();
            let found = found.inspect_err(|error| tracing::warn!(%error, "the machine's addresses are not known"));
            found.ok().map(|found| found.iter().map(if_addrs::Interface::ip).collect())
        } else {
            Some(Vec::new())
        };
        OwnAddresses { listens: self.listens.clone(), machine }
    }

    /// Resolves a place, and judges all of its addresses.
    async fn resolve(&self, url: &str, policy: &Policy) -> Result<Place, Unreached> {
        let destination = policy.destination(url).map_err(Unreached::Refused)?;
        let url = reqwest::Url::parse(url).ok().filter(|url| agree(url, &destination));
        let url = url.ok_or(Unreached::Refused(Refused::InvalidUrl))?;
        let addresses = match destination.address {
            Some(address) => vec![SocketAddr::new(address, destination.port)],
            None => {
                let found = (self.lookup)(destination.host.clone(), destination.port);
                match tokio::time::timeout(PATIENCE, found).await {
                    Ok(Ok(found)) => found,
                    Ok(Err(_)) | Err(_) => return Err(Unreached::Unknown(destination.host)),
                }
            }
        };
        policy.check_resolved(&destination.host, &addresses, &self.own()).map_err(Unreached::Refused)?;
        Ok(Place { url, addresses })
    }
}

impl WebhookClient for HttpWebhookClient {
    fn check_url(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), Refused>> {
        let (this, url, policy) = (self.clone(), url.to_owned(), policy.clone());
        async move {
            match this.resolve(&url, &policy).await {
                Ok(_) => Ok(()),
                Err(Unreached::Unknown(host)) if !is_local_name(&host) || policy.allows_name(&host) => Ok(()),
                Err(Unreached::Unknown(_)) => Err(Refused::Host),
                Err(Unreached::Refused(refused)) => Err(refused),
            }
        }
        .boxed()
    }

    fn post(&self, url: &str, policy: &Policy, parcel: PushRequest) -> BoxFuture<'static, Result<(), Failed>> {
        let (this, url, policy) = (self.clone(), url.to_owned(), policy.clone());
        async move {
            let place = this.resolve(&url, &policy).await.map_err(|unreached| match unreached {
                // What a name resolves to may change back.
                Unreached::Refused(refused) => Failed { again: refused == Refused::Host, why: refused.to_string() },
                Unreached::Unknown(_) => Failed { again: true, why: "its name is not known".to_owned() },
            })?;
            send(&this.pool, place, parcel).await
        }
        .boxed()
    }
}

/// A place that may be connected to.
struct Place {
    url: reqwest::Url,
    /// All of them judged.
    addresses: Vec<SocketAddr>,
}

/// Why a place has no address that may be connected to.
enum Unreached {
    /// It may not be.
    Refused(Refused),
    /// Nobody knows this name, at the moment.
    Unknown(String),
}

/// Whether who connects reads the same host and port as who judged.
fn agree(url: &reqwest::Url, destination: &Destination) -> bool {
    let host = url.host_str().unwrap_or("").trim_start_matches('[').trim_end_matches([']', '.']);
    let same = match destination.address {
        Some(address) => host.parse() == Ok(address),
        None => host == destination.host,
    };
    same && url.port_or_known_default() == Some(destination.port)
}

/// Resolves every name to the addresses that were judged: a name that is spelled another way (with a dot at its end)
/// must not be asked for anew.
struct Judged(Vec<SocketAddr>);

impl Resolve for Judged {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(ready(Ok(addresses)))
    }
}

/// Receivers are trusted whom the system trusts. Its certificates are read once, not for each push.
fn trusting_the_system() -> rustls::ClientConfig {
    static TRUSTING: OnceLock<rustls::ClientConfig> = OnceLock::new();
    let read = || {
        let trusting = rustls::ClientConfig::with_platform_verifier();
        let mut trusting = trusting.unwrap_or_else(|error| {
            tracing::error!(%error, "the system's certificates cannot be read: no push over https will arrive");
            trusting_nobody()
        });
        trusting.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        trusting
    };
    TRUSTING.get_or_init(read).clone()
}

/// For plain HTTP.
fn trusting_nobody() -> rustls::ClientConfig {
    rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

async fn send(pool: &Pool, place: Place, parcel: PushRequest) -> Result<(), Failed> {
    let secure = place.url.scheme() == "https";
    let failed = |again: bool, why: String| Failed { again, why };
    // The URL may hold a secret: errors are told without it.
    let client = pool.client(secure, place.addresses);
    let client = client.map_err(|error| failed(false, error.without_url().to_string()))?;
    let mut request = client.post(place.url).body(parcel.body);
    for (name, value) in parcel.headers {
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
