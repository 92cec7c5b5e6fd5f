//! The steps between a signal to stop and the end of the server.
//!
//! Not here: signals, the engine's part ([`Engine::drain`]), and closing the store.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::live::LiveParts;
use interlingua_engine::Engine;
use interlingua_server::Stopper;

/// Time that clients have to read the end of their responses after the last run ended. An idle gateway must exit within
/// a second, whatever connections clients leave open and whatever push receivers do; only a collector or a store that
/// does not answer may take longer.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_millis(700);
/// The least of it that remains after push receivers had their time.
const MIN_SERVER_STOP_TIMEOUT: Duration = Duration::from_millis(150);

/// Waits for `stop`, then until load balancers have noticed, then until runs have ended and connections are closed,
/// each as long as it may take.
pub(super) async fn stop_in_order(stop: impl Future<Output = ()>, parts: LiveParts, engine: Engine, server: Stopper) {
    stop.await;
    let (delay, drain) = (parts.shutdown_delay.get(), parts.drain.get());
    if !delay.is_zero() {
        tracing::info!(?delay, "stopping: /readyz answers 503, requests are served for shutdown_delay");
        engine.announce_stop();
        tokio::time::sleep(delay).await;
    }

    tracing::info!(
        runs = engine.working(), drain = ?drain,
        "stopping: no new runs are accepted, active runs may finish; a second signal exits immediately"
    );
    server.drain();
    engine.drain(drain).await;
    let ended = Instant::now();
    // Before the server stops, because deliveries run on its threads. Clients read meanwhile.
    engine.deliver_rest().await;
    let left = SERVER_STOP_TIMEOUT.saturating_sub(ended.elapsed()).max(MIN_SERVER_STOP_TIMEOUT);
    if timeout(left, server.stop()).await.is_err() {
        tracing::warn!("clients do not read their responses: closing their connections");
    }
}
