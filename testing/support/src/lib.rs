//! Shared by the tests of the running gateway: the gateway itself, clients that can misbehave, a scripted agent that
//! can misbehave too, and the rules that streams are validated against.

// Fixtures panic where a test cannot continue; their names say what they are.
#![allow(missing_docs, clippy::unwrap_used)]

pub mod agent;
pub mod alternating;
pub mod callers;
pub mod cluster;
pub mod collector;
pub mod contract;
pub mod endings;
pub mod endpoints;
pub mod engine;
pub mod framing;
pub mod front;
pub mod gateway;
pub mod http;
pub mod http2;
pub mod issuer;
pub mod line_agent;
pub mod pairs;
pub mod paths;
pub mod process;
pub mod puppet;
pub mod recording;
pub mod replicas;
pub mod resender;
pub mod socket;
pub mod store;
pub mod tls;
pub mod transcript;
pub mod upstream;

/// Polls every 5 ms until `check` returns a value. For conditions without an event to wait for.
pub async fn poll_until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    http::with_timeout(what, async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}
