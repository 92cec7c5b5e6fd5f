//! Turns that never reached the agent, or that the agent only refused: what becomes of the run, and what its client
//! gets instead.
//!
//! Not here: when that is so ([`super::turn_driver`]).

use interlingua_core::normalize::Normalizer;
use interlingua_core::run::FailureCause;
use interlingua_core::{Fault, FaultKind};

use crate::faults;
use crate::runs::{ActiveRun, Publish, Turn};
use crate::sessions::Session;
use interlingua_base::clock;

/// Ends a turn that the agent never began. Returns the fault if the client gets it instead of the run. A run that had
/// turns before goes back to where it was.
pub(super) fn end_unreached(run: &ActiveRun, normalizer: &mut Normalizer, turn: &Turn, fault: Fault) -> Option<Fault> {
    run.update(Publish::Now, |state| {
        state.record.set_time(clock::now());
        if fault.kind == FaultKind::Canceled {
            return normalizer.cancel(&mut state.record);
        }
        if turn.resumes.is_some() {
            // A run that asks something by now is not in the way of anything: its client is shown what it asks.
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
        // The client that canceled it has its id: the run exists, and it is canceled.
        FaultKind::Canceled if turn.policy.discard_if_unreached || turn.resumes.is_some() => None,
        _ => Some(fault),
    }
}

/// Makes sure that a run cannot be found, as if it had never been: its client gets the refusal instead.
pub(super) fn discard(run: &ActiveRun, session: &Session) {
    let previous = run.update(Publish::Later, |state| {
        state.about.stored = false;
        state.about.previous
    });
    let mut doc = session.doc();
    if doc.latest == Some(run.id()) {
        doc.latest = previous;
    }
}
