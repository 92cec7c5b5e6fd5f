//! Data that the streams of all pages share: it is read once for all of them.
//!
//! Not here: the frames sent to one page ([`super::summaries`]), and data of single requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::Fault;
use tokio::sync::Mutex;

use super::views::{Agent, Gateway};
use super::{AdminState, overview};
use crate::engine::OpenItems;

/// Open items are read at most this often.
const OPEN_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum pause before the next reading, as a multiple of the last one's duration: many open items cost more, and the
/// listener has one worker.
const REST: u32 = 10;
/// Agents, routes and traffic are looked at this often.
pub(super) const OVERVIEW_INTERVAL: Duration = Duration::from_secs(2);

/// Something that was read, until it is too old.
type CachedRead<T> = Mutex<Option<(Instant, Arc<T>)>>;

/// The gateway at a glance, as the streams send it.
#[derive(Debug, PartialEq)]
pub(super) struct Overview {
    pub(super) gateway: Gateway,
    pub(super) agents: Vec<Agent>,
}

/// The last reading.
#[derive(Default)]
pub(super) struct SharedReads {
    open: CachedRead<Vec<OpenItems>>,
    overview: CachedRead<Overview>,
}

impl SharedReads {
    /// Every open item of every session. It may be slightly outdated.
    ///
    /// # Errors
    /// Those of the store.
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

    /// The gateway, its agents and its traffic.
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
