//! Driving runs: a task takes each turn of a run to an end, whatever happens.
//!
//! Invariant: a turn that was started ends, the run after its last one, and clients see an end once it is safe in the
//! store. Not here: one turn ([`super::turn_driver`]).

use std::sync::{Arc, Weak};

use interlingua_core::{Fault, FaultKind};
use tokio::sync::oneshot;

use super::turn_driver::{TurnDriver, TurnServices};
use super::unreached::discard;
use crate::deliveries::{Deliveries, StartReason};
use crate::faults;
use crate::runs::{AbortGuard, ActiveRun, ConnectionCache, Scope, Turn, commit, unless_canceled};
use interlingua_store::StoreFuture;

/// Starts the tasks that take turns.
pub(crate) struct Driver {
    turns: TurnServices,
    deliveries: Arc<Deliveries>,
}

/// What a new run needs before its first turn.
pub(crate) struct Beginning {
    /// Resolves once the store knows the run.
    pub(crate) opened: StoreFuture<()>,
    /// Gets a value once the store knows the run, or the reason why it does not. `None`: no one waits for that, and the
    /// agent is called meanwhile.
    pub(crate) saved: Option<oneshot::Sender<Result<(), Fault>>>,
    /// Where the run was started, if receivers may have been named there.
    pub(super) scope: Option<Box<Scope>>,
    /// The connection that its request came over, if that keeps responses.
    pub(super) connection: Option<Weak<ConnectionCache>>,
}

/// How a new run began.
#[derive(Default)]
struct Begun {
    /// Why it may not take its first turn.
    refused: Option<Fault>,
    /// See [`Beginning`]; `None` once it has a value.
    saved: Option<oneshot::Sender<Result<(), Fault>>>,
    /// See [`Beginning`]; `None` once it was waited for.
    opened: Option<StoreFuture<()>>,
}

impl Driver {
    pub(crate) const fn new(turns: TurnServices, deliveries: Arc<Deliveries>) -> Self {
        Self { turns, deliveries }
    }

    pub(super) const fn turns(&self) -> &TurnServices {
        &self.turns
    }

    /// Starts the task that takes a turn of a run. Nothing may be awaited between making the turn known and this call: a
    /// client that leaves in between would leave a turn behind that no one takes.
    ///
    /// The turn is boxed: a future holds its arguments several times over.
    pub(crate) fn start(self: &Arc<Self>, abort_guard: AbortGuard, turn: Box<Turn>, beginning: Option<Beginning>) {
        let driver = Arc::clone(self);
        tokio::task::spawn_local(async move { driver.drive(abort_guard, turn, beginning).await });
    }

    async fn drive(&self, abort_guard: AbortGuard, turn: Box<Turn>, beginning: Option<Beginning>) {
        let run = abort_guard.run();
        let connection = beginning.as_ref().and_then(|beginning| beginning.connection.clone());
        let Begun { mut refused, saved, opened } = match beginning {
            Some(beginning) => Box::pin(self.begin(run, &turn, beginning)).await,
            None => Begun::default(),
        };

        let turn = TurnDriver::new(&self.turns, run, turn, connection);
        turn.take(refused.clone(), opened).await;
        if let Some(saved) = saved {
            let refused = refused.take().filter(|fault| fault.kind != FaultKind::Canceled);
            // The client may have left.
            let _ = saved.send(refused.map_or(Ok(()), |fault| Err(faults::logged(fault))));
        }

        let run = Arc::clone(run);
        abort_guard.disarm();
        self.turns.runs.turn_ended(&run);
    }

    /// Waits until a new run may take its first turn.
    async fn begin(&self, run: &Arc<ActiveRun>, first: &Turn, beginning: Beginning) -> Begun {
        let Beginning { opened, mut saved, scope, .. } = beginning;
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
                    // The client may have left.
                    let _ = saved.send(Ok(()));
                }
            }
            // The client that gets the refusal does not know the run.
            Some(fault) if saved.is_some() && fault.kind != FaultKind::Canceled => discard(run, first),
            Some(_) => {}
        }

        Begun { refused, saved, opened }
    }
}
