//! Runs that one replica hands over to another, which has their next turn in line: what becomes of them if that turn is
//! never taken, because its client gave up or its replica died.
//!
//! Not here: handing a run over ([`crate::turns::conclude`]), and taking it ([`crate::turns::later_turns`]).

use std::sync::Arc;

use interlingua_core::{Fault, FaultKind, RunId};

use super::active_run::{ActiveRun, Publish};
use super::commit;
use super::table::RunTable;
use crate::backoff::Backoff;
use crate::sessions::Session;

/// Ends runs that no other replica took.
pub(crate) struct Handover {
    runs: Arc<RunTable>,
}

impl Handover {
    pub(crate) const fn new(runs: Arc<RunTable>) -> Self {
        Self { runs }
    }

    /// Waits until no turn of the run is in line: all were taken or given up. If none was taken, it ends the run as it
    /// would have ended without them.
    pub(crate) fn watch(self: &Arc<Self>, run: &ActiveRun, session: &Arc<Session>) {
        let (this, id, session) = (Arc::clone(self), run.id(), Arc::clone(session));
        tokio::task::spawn_local(async move {
            let mut backoff = Backoff::new();
            while let Err(fault) = this.end_if_left(id, &session).await {
                if fault.kind != FaultKind::Overloaded || this.runs.is_closed() {
                    return tracing::warn!(run = %id, "a run that waits for queued turns of another gateway may stay open: {fault}");
                }
                // Neither did the other replica reach the store.
                backoff.pause().await;
            }
        });
    }

    async fn end_if_left(&self, id: RunId, session: &Arc<Session>) -> Result<(), Fault> {
        let sessions = self.runs.sessions();
        let (_guard, end) = loop {
            let queued = sessions.enqueue(session, None, usize::MAX).await?;
            let guard = sessions.turn_of(queued).await?;
            let Some(end) = session.handed_over(id) else { return Ok(()) };
            // A turn that came later is in line, too: it continues the run, or leaves it as it is now.
            if !sessions.is_continued(session, id).await? {
                break (guard, end);
            }
        };

        if let Some(run) = self.runs.find(id).await?.filter(|run| run.run_state().is_waiting()) {
            let run = self.runs.activate(run).await?;
            let is_ended = run.update(Publish::Later, |state| {
                let waits = state.about.state.is_waiting();
                if waits {
                    state.cut(end, None);
                }
                waits
            });
            if is_ended {
                let store = self.runs.store();
                commit::publish_when_safe(store, &run, store.write_timeout(), async {}).await;
                self.runs.turn_ended(&run);
            }
        }
        session.take_handed_over(id);
        sessions.save(session).await
    }
}
