//! Turns that never reached the agent, or that the agent only refused: what becomes of the run, and what its client is told
//! instead.
//!
//! Not here: when that is so ([`super::driver`]).

use interlingua_core::normalize::Normalizer;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind};

use super::active_run::ActiveRun;
use super::clock;
use super::driver::Turn;
use super::session::Session;

/// Ends a turn that the upstream never began; answers why, if its client should be told in the run's place. A run that
/// was there before is where it was.
pub(super) fn end_early(live: &ActiveRun, normalizer: &mut Normalizer, turn: &Turn, fault: Fault) -> Option<Fault> {
    live.update(|state| {
        state.record.set_time(clock::now());
        if fault.kind == FaultKind::Canceled {
            return normalizer.cancel(&mut state.record);
        }
        if turn.resumes.is_some() {
            let error = RunError { code: fault.code().to_owned(), message: fault.message.clone() };
            // A run that asks something meanwhile is not in the way of anything: it asks first.
            state.record.withdraw_turn((fault.kind != FaultKind::Waiting).then_some(error));
        } else {
            normalizer.fail(&mut state.record, &fault);
        }
    });
    match fault.kind {
        // Who spoke before the run asked is shown what it asks.
        FaultKind::Waiting if turn.resumes.is_some() => None,
        // Whoever cancelled it has seen it: it is there, and it is cancelled.
        FaultKind::Canceled if turn.discard_if_unreached || turn.resumes.is_some() => None,
        _ => Some(fault),
    }
}

/// Makes a run one that never was: its client is told of the refusal instead.
pub(super) fn vanish(live: &ActiveRun, session: &Session) {
    let previous = live.update_unpublished(|state| {
        state.about.stored = false;
        state.about.previous
    });
    let mut doc = session.doc();
    if doc.latest == Some(live.id()) {
        doc.latest = previous;
    }
}

/// A run's error as a fault, for those who still wait for its beginning.
pub(super) fn fault_of(error: &RunError) -> Fault {
    let kind = FaultKind::ALL.iter().copied().find(|kind| kind.code() == error.code).unwrap_or(FaultKind::AgentFailed);
    Fault::new(kind, error.message.clone()).with_code(error.code.clone())
}
