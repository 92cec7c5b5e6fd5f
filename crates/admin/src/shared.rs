//! Data that the streams of all pages share, so that it is read once for all of them.
//!
//! Not here: the frames sent to one page ([`super::summaries`]), and data of single requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::Fault;
use tokio::sync::Mutex;

use super::views::{Agent, Gateway};
use super::{AdminState, overview};
use interlingua_engine::OpenItems;

/// Minimum interval between two reads of open items.
const OPEN_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum pause before the next reading, as a multiple of the last one's duration: many open items cost more, and the
/// listener has one worker.
const REST: u32 = 10;
/// Interval of reads of the overview.
pub(super) const OVERVIEW_INTERVAL: Duration = Duration::from_secs(2);

/// A cached value with its expiry.
type CachedRead<T> = Mutex<Option<(Instant, Arc<T>)>>;

/// The data about the gateway in streams.
#[derive(Debug, PartialEq)]
pub(super) struct Overview {
    pub(super) gateway: Gateway,
    pub(super) agents: Vec<Agent>,
}

/// The cached reads.
#[derive(Default)]
pub(super) struct SharedReads {
    open: CachedRead<Vec<OpenItems>>,
    overview: CachedRead<Overview>,
}

impl SharedReads {
    /// All open items of all sessions, possibly slightly outdated.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn open_items(&self, state: &AdminState) -> Result<Arc<Vec<OpenItems>>, Fault> {
        let mut kept = self.open.lock().await;
        if let Some((until, open)) = kept.as_ref()
            && Instant::now() < *until
        {
            return Ok(Arc::clone(open));
        }
        let began = Instant::now();
        let open = Arc::new(state.admin.engine.operator().open_items().await?);
        *kept = Some((Instant::now() + OPEN_INTERVAL.max(began.elapsed() * REST), Arc::clone(&open)));
        Ok(open)
    }

    /// The gateway, its agents and its traffic, possibly slightly outdated.
    pub(super) async fn overview(&self, state: &AdminState) -> Arc<Overview> {
        let mut kept = self.overview.lock().await;
        if let Some((until, overview)) = kept.as_ref()
            && Instant::now() < *until
        {
            return Arc::clone(overview);
        }
        let overview = Arc::new(Overview { gateway: overview::gateway(state), agents: overview::agents(state) });
        *kept = Some((Instant::now() + OVERVIEW_INTERVAL, Arc::clone(&overview)));
        overview
    }
}
