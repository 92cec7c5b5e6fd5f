//! Runs whose next turn may be queued by another process: their end if that turn never starts, because its client gave
//! up or its process was lost.
//!
//! Only for stores that several processes use. In other stores the last queued turn ends the run
//! ([`super::queued_turn`]). Not here: the handover itself ([`crate::turns::conclude`]), and starting the queued turn
//! ([`crate::turns::later_turns`]).

use std::sync::Arc;

use interlingua_core::{Fault, FaultKind, RunId};

use super::active_run::{ActiveRun, Publish};
use super::commit;
use super::table::RunTable;
use crate::backoff::Backoff;
use crate::sessions::Session;

/// Ends runs whose queued turns were all given up.
pub(crate) struct Handover {
    runs: Arc<RunTable>,
}

impl Handover {
    pub(crate) const fn new(runs: Arc<RunTable>) -> Self {
        Self { runs }
    }

    /// Waits until no turn of the run is queued. If none of them started, the run ends as it would have ended without
    /// them.
    pub(crate) fn watch(self: &Arc<Self>, run: &ActiveRun, session: &Arc<Session>) {
        let (this, id, session) = (Arc::clone(self), run.id(), Arc::clone(session));
        tokio::task::spawn_local(async move {
            let mut backoff = Backoff::new();
            while let Err(fault) = this.end_if_left(id, &session).await {
                // Busy: another process has the run in memory, and may give it up again.
                let is_retried = matches!(fault.kind, FaultKind::Overloaded | FaultKind::Busy);
                if !is_retried || this.runs.is_closed() {
                    return tracing::warn!(run = %id, "a run that waits for queued turns of another gateway may stay open: {fault}");
                }
                backoff.pause().await;
            }
        });
    }

    async fn end_if_left(&self, id: RunId, session: &Arc<Session>) -> Result<(), Fault> {
        let sessions = self.runs.sessions();
        loop {
            let place = sessions.enqueue(session, None, usize::MAX).await?;
            let _guard = sessions.turn_of(place).await?;
            let Some(end) = session.handed_over(id) else { return Ok(()) };
            // A turn that was queued later continues the run, or leaves it as it is now.
            if sessions.is_continued(session, id).await? {
                continue;
            }

            if let Some(run) = self.runs.find(id).await?.filter(|run| run.run_state().is_waiting()) {
                let run = self.runs.activate(run).await?;
                // Again, while no other process can have the run: a caller that had it a moment ago has queued its turn
                // before it released the run.
                if sessions.is_continued(session, id).await? {
                    continue;
                }
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
            return sessions.save(session).await;
        }
    }
}
