//! Sending to places that clients have named, and to no place they must not name (A2A page, section 11).
//!
//! A name is resolved, every address it has is judged, and the connection goes to one of just those: nobody resolves
//! it a second time. No redirects, no proxies, no credentials of the gateway. Which addresses are public is decided
//! in `interlingua_core::public_address`.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use interlingua_core::courier::Parcel;
use interlingua_core::public_address::{Destination, Policy, Refused};

use crate::engine::deliver::{Failed, Post};

/// How long a receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// No more is read of a receiver's answer.
const MOST_READ: usize = 64 * 1024;

/// Sends over HTTP.
pub struct HttpPost {
    /// The gateway's own addresses: never a receiver.
    own: Vec<SocketAddr>,
}

impl HttpPost {
    /// For a gateway that listens on these addresses.
    #[must_use]
    pub fn new(own: Vec<SocketAddr>) -> Self {
        // Fails only if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { own }
    }
}

impl Post for HttpPost {
    fn judge(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), Refused>> {
        let (url, policy, own) = (url.to_owned(), policy.clone(), self.own.clone());
        async move { resolve(&url, &policy, &own).await.map(|_| ()) }.boxed()
    }

    fn post(&self, url: &str, policy: &Policy, parcel: Parcel) -> BoxFuture<'static, Result<(), Failed>> {
        let (url, policy, own) = (url.to_owned(), policy.clone(), self.own.clone());
        async move {
            let (destination, addresses) = resolve(&url, &policy, &own).await.map_err(|refused| Failed {
                // What a name resolves to may change back.
                again: refused == Refused::Host,
                why: refused.to_string(),
            })?;
            send(&url, &destination, &addresses, parcel).await
        }
        .boxed()
    }
}

/// Resolves a place, and judges all of its addresses.
async fn resolve(url: &str, policy: &Policy, own: &[SocketAddr]) -> Result<(Destination, Vec<SocketAddr>), Refused> {
    let destination = policy.destination(url)?;
    let addresses: Vec<SocketAddr> = match destination.address {
        Some(address) => vec![SocketAddr::new(address, destination.port)],
        None => {
            let found = tokio::net::lookup_host((destination.host.as_str(), destination.port));
            let found = tokio::time::timeout(PATIENCE, found).await.map_err(|_| Refused::Host)?;
            found.map_err(|_| Refused::Host)?.collect()
        }
    };
    policy.resolved(&destination.host, &addresses, own)?;
    Ok((destination, addresses))
}

async fn send(url: &str, destination: &Destination, addresses: &[SocketAddr], parcel: Parcel) -> Result<(), Failed> {
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(PATIENCE)
        .timeout(PATIENCE);
    if destination.address.is_none() {
        builder = builder.resolve_to_addrs(&destination.host, addresses);
    }
    let failed = |again: bool, why: String| Failed { again, why };
    // The URL may hold a secret: errors are told without it.
    let client = builder.build().map_err(|error| failed(false, error.without_url().to_string()))?;
    let mut request = client.post(url).body(parcel.body);
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
        if read > MOST_READ {
            break;
        }
    }
    match status {
        200..=299 => Ok(()),
        408 | 429 | 500..=599 => Err(failed(true, format!("status {status}"))),
        _ => Err(failed(false, format!("status {status}"))),
    }
}
