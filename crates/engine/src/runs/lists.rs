//! Lists of runs.

use std::collections::HashMap;
use std::sync::Arc;

use interlingua_core::call::{Cursor, Filter, Order, RunView};
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, FaultKind, RunId};

use super::follow::settled;
use super::handle::RunHandle;
use super::loaded::Loaded;
use super::retention::SharedRules;
use super::scope::Scope;
use super::table::RunTable;
use crate::faults::store_fault;
use interlingua_base::clock;
use interlingua_store::{Query, RunHead, StoredRun};

/// A page of runs.
pub(crate) struct RunPage {
    pub(crate) runs: Vec<ListedRun>,
    /// The number of matching runs on all pages.
    pub(crate) total: usize,
    /// The start of the next page. `None`: this is the last page.
    pub(crate) next: Option<Cursor>,
}

/// A snapshot of a run on a page, so that no lock is held while the page is encoded.
pub struct ListedRun {
    stored: Arc<StoredRun>,
    pending: Arc<[Pending]>,
    _loaded: Option<Arc<Loaded>>,
}

impl ListedRun {
    /// A view of the snapshot.
    #[must_use]
    pub fn view(&self) -> RunView<'_> {
        RunView { record: &self.stored.record, info: &self.stored.info, pending: &self.pending }
    }

    fn whole(run: &RunHandle) -> Self {
        if let RunHandle::Stored(loaded, pending) = run {
            let (stored, pending) = (Arc::clone(loaded.stored()), Arc::clone(pending));
            return Self { stored, pending, _loaded: Some(Arc::clone(loaded)) };
        }
        run.view_safe(|view| {
            Self::copied(StoredRun { record: view.record.clone(), info: view.info.clone() }, view.pending)
        })
    }

    fn head(run: &RunHandle) -> Self {
        let head = |view: RunView<'_>| Self::copied(StoredRun::head(view.record, view.info), view.pending);
        match run {
            // A head shows the state of the run. That state is stored unless an end is still being written.
            RunHandle::InMemory(run) if run.settling().is_none() => run.view(head),
            run => run.view_safe(head),
        }
    }

    fn copied(stored: StoredRun, pending: &[Pending]) -> Self {
        Self { stored: Arc::new(stored), pending: pending.into(), _loaded: None }
    }
}

/// The runs of the caller that match a filter. A page has at most `max_bytes` of runs, but at least one run.
pub(crate) async fn list(
    runs: &Arc<RunTable>,
    rules: &SharedRules,
    max_bytes: u64,
    filter: Filter,
    scope: &Scope,
) -> Result<RunPage, Fault> {
    let expired_before = rules.load().retention.expiry_cutoffs(clock::now());
    let (heads_only, order) = (filter.heads, filter.order);
    let query = Query {
        agents: scope.agent_names(),
        owner: Some(scope.owner.key().to_owned()),
        filter,
        text: None,
        expired_before,
    };
    let found = runs.store().find(query).await.map_err(store_fault)?;

    let (listed, cut) = if heads_only {
        (list_heads(runs, found.runs.iter().map(|head| head.id).collect()).await?, None)
    } else {
        list_whole(runs, &found.runs, order, max_bytes).await?
    };

    Ok(RunPage { runs: listed, total: found.total, next: cut.or(found.next) })
}

/// Loads runs without their messages.
async fn list_heads(runs: &Arc<RunTable>, ids: Vec<RunId>) -> Result<Vec<ListedRun>, Fault> {
    let mut known: HashMap<RunId, ListedRun> = HashMap::new();
    for id in &ids {
        if let Some(run) = runs.get(*id) {
            let run = settled(runs, RunHandle::InMemory(run.pin())).await;
            known.insert(*id, ListedRun::head(&run));
        }
    }

    let stored = ids.iter().copied().filter(|id| !known.contains_key(id)).collect();
    for head in runs.store().heads(stored).await.map_err(store_fault)? {
        known.insert(head.record.run().id, ListedRun::copied(head, &[]));
    }
    Ok(ids.iter().filter_map(|id| known.remove(id)).collect())
}

/// Loads as many runs as the page may contain. The cursor is set if runs are left for the next page.
async fn list_whole(
    runs: &Arc<RunTable>,
    heads: &[RunHead],
    order: Order,
    max_bytes: u64,
) -> Result<(Vec<ListedRun>, Option<Cursor>), Fault> {
    let (mut listed, mut size) = (Vec::new(), 0_u64);
    let mut last = None;
    for head in heads {
        size = size.saturating_add(head.size);
        if size > max_bytes && last.is_some() {
            return Ok((listed, last));
        }

        // Wait for memory only before the first run: pages that hold memory must not wait for each other.
        match runs.find_if_room(head.id, last.is_none()).await {
            Ok(Some(run)) => listed.push(ListedRun::whole(&settled(runs, run).await)),
            Ok(None) => {}
            Err(fault) if fault.kind == FaultKind::Overloaded && last.is_some() => return Ok((listed, last)),
            // Skip an unreadable run: it must not hide all others.
            Err(fault) if fault.kind == FaultKind::Internal => {
                tracing::error!(run = %head.id, reason = fault.detail, "a run is left out of a list");
            }
            Err(fault) => return Err(fault),
        }
        last = Some(head.cursor(order));
    }

    Ok((listed, None))
}
