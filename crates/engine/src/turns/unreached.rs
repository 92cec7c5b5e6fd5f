//! End of turns that never reached the agent or that it refused.
//!
//! Not here: detecting such turns ([`super::turn_driver`]).

use interlingua_core::normalize::Normalizer;
use interlingua_core::run::FailureCause;
use interlingua_core::{Fault, FaultKind};

use crate::faults;
use crate::runs::{ActiveRun, Publish, Turn};
use interlingua_base::clock;

/// Ends a turn that the agent never started. A run with earlier turns returns to its previous state. Returns the fault
/// that the client gets; `None`: the client gets the run.
pub(super) fn end_unreached(run: &ActiveRun, normalizer: &mut Normalizer, turn: &Turn, fault: Fault) -> Option<Fault> {
    // If the run was ended from outside, the turn has its end.
    let _ = run.update_turn(Publish::Now, |state| {
        state.record.set_time(clock::now());
        if fault.kind == FaultKind::Canceled {
            return normalizer.cancel(&mut state.record);
        }
        if turn.resumes.is_some() {
            // If the run has open items by now, that is no error: its client gets these items.
            let error = (fault.kind != FaultKind::Waiting).then(|| faults::to_run_error(&fault));
            if error.is_some() {
                state.record.set_cause(FailureCause::from_fault(&fault));
            }
            state.record.withdraw_turn(error);
        } else {
            normalizer.fail(&mut state.record, &fault);
        }
    });

    match fault.kind {
        FaultKind::Waiting if turn.resumes.is_some() => None,
        // The client that canceled the run knows its id, so the run must exist as canceled.
        FaultKind::Canceled if turn.policy.discard_if_unreached || turn.resumes.is_some() => None,
        _ => Some(fault),
    }
}

/// Makes a run unfindable, because its client got a fault instead.
pub(super) fn discard(run: &ActiveRun, turn: &Turn) {
    let previous = run.update(Publish::Later, |state| {
        state.about.stored = false;
        state.about.previous
    });
    turn.session.forget_run(run.id(), previous);
}
