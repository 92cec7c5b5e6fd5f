//! What tests of the running gateway share: the gateway itself, a client that may misbehave, a scripted agent that
//! may be worse, and the rules answers are held to.

#![allow(dead_code, unreachable_pub, reason = "every test uses another part of it")]

pub mod agent;
pub mod gateway;
pub mod http;
pub mod pairs;
pub mod process;
pub mod socket;
pub mod store;
pub mod story;
pub mod upstream;

/// Answers when it is so, asking again and again with a breath between: for what has no event to wait for.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    http::bounded(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await
}
