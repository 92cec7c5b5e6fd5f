//! The tasks that drive runs: one for each turn, which ends the turn whatever happens.
//!
//! Invariant: a turn that was started ends, the run ends after its last turn, and clients see an end once it is safe in
//! the store. Not here: the steps of a turn ([`super::turn_driver`]).

use std::sync::{Arc, Weak};

use interlingua_core::{Fault, FaultKind};
use tokio::sync::oneshot;

use super::turn_driver::{TurnDriver, TurnServices};
use super::unreached::discard;
use crate::deliveries::{Deliveries, StartReason};
use crate::faults;
use crate::runs::{AbortGuard, ActiveRun, ConnectionCache, Scope, Turn, commit, unless_canceled};
use interlingua_store::StoreFuture;

/// Starts the tasks of turns.
pub(crate) struct Driver {
    turns: TurnServices,
    deliveries: Arc<Deliveries>,
}

/// The beginning of a turn.
enum TurnStart {
    /// The first turn of a run.
    First(RunStart),
    /// A later turn of a run. With a fault, it ends without a request to the agent.
    Later(Option<Fault>),
}

/// The steps of a new run before its first turn.
pub(crate) struct RunStart {
    /// Resolves once the store has the run.
    pub(crate) opened: StoreFuture<()>,
    /// Gets a value once the store has the run, or the reason why it does not. `None`: the client waits for the
    /// agent, which is called meanwhile.
    pub(crate) saved: Option<oneshot::Sender<Result<(), Fault>>>,
    /// The scope of the call, if push receivers may have been registered in it.
    pub(super) scope: Option<Box<Scope>>,
    /// The connection of the request, if it keeps responses.
    pub(super) connection: Option<Weak<ConnectionCache>>,
}

/// The result of a [`RunStart`].
#[derive(Default)]
struct OpenedRun {
    /// The reason why its first turn ends without a request.
    refused: Option<Fault>,
    /// See [`RunStart`]; `None` once it has a value.
    saved: Option<oneshot::Sender<Result<(), Fault>>>,
    /// See [`RunStart`]; `None` once it has resolved.
    opened: Option<StoreFuture<()>>,
}

impl Driver {
    pub(crate) const fn new(turns: TurnServices, deliveries: Arc<Deliveries>) -> Self {
        Self { turns, deliveries }
    }

    pub(super) const fn turns(&self) -> &TurnServices {
        &self.turns
    }

    /// Starts the task of the first turn of a run. Nothing may be awaited between making the turn known and this call:
    /// if the client disconnected in between, no task would end the turn.
    ///
    /// The turn is boxed: a future holds its arguments several times over.
    pub(super) fn start(self: &Arc<Self>, abort_guard: AbortGuard, turn: Box<Turn>, start: RunStart) {
        self.spawn(abort_guard, turn, TurnStart::First(start));
    }

    /// Starts the task of a later turn, like [`Driver::start`]. `refused`: it ends with this fault, without a request
    /// to the agent.
    pub(super) fn start_next(self: &Arc<Self>, run: &Arc<ActiveRun>, turn: Box<Turn>, refused: Option<Fault>) {
        self.spawn(AbortGuard::new(&self.turns.runs, run), turn, TurnStart::Later(refused));
    }

    fn spawn(self: &Arc<Self>, abort_guard: AbortGuard, turn: Box<Turn>, start: TurnStart) {
        let driver = Arc::clone(self);
        tokio::task::spawn_local(async move { driver.drive(abort_guard, turn, start).await });
    }

    async fn drive(&self, abort_guard: AbortGuard, turn: Box<Turn>, start: TurnStart) {
        let run = abort_guard.run();
        let mut connection = None;
        let OpenedRun { mut refused, saved, opened } = match start {
            TurnStart::First(start) => {
                connection.clone_from(&start.connection);
                Box::pin(self.open(run, &turn, start)).await
            }
            TurnStart::Later(refused) => OpenedRun { refused, ..OpenedRun::default() },
        };

        let turn = TurnDriver::new(&self.turns, run, turn, connection);
        turn.take(refused.clone(), opened).await;
        if let Some(saved) = saved {
            let refused = refused.take().filter(|fault| fault.kind != FaultKind::Canceled);
            // The client may have disconnected.
            let _ = saved.send(refused.map_or(Ok(()), |fault| Err(faults::logged(fault))));
        }

        let run = Arc::clone(run);
        abort_guard.disarm();
        self.turns.runs.turn_ended(&run);
    }

    /// Waits until the first turn of a new run may begin.
    async fn open(&self, run: &Arc<ActiveRun>, first: &Turn, start: RunStart) -> OpenedRun {
        let RunStart { opened, mut saved, scope, .. } = start;
        let mut opened = Some(opened);
        let ready = async {
            if saved.is_some()
                && let Some(opened) = opened.take()
            {
                commit::opened(opened).await?;
            }
            if let Some(scope) = scope {
                self.deliveries.start(run, StartReason::RunStarts, &scope).await?;
            }
            Ok(())
        };

        let refused = unless_canceled(run, ready).await.err();
        match &refused {
            None => {
                if let Some(saved) = saved.take() {
                    // The client may have disconnected.
                    let _ = saved.send(Ok(()));
                }
            }
            // The client that gets the refusal does not know the run.
            Some(fault) if saved.is_some() && fault.kind != FaultKind::Canceled => discard(run, first),
            Some(_) => {}
        }

        OpenedRun { refused, saved, opened }
    }
}
