//! The response to a call: the result, a task, or the state of a run that continues.

use interlingua_core::{Out, RunView};

use super::super::cancel::CANCELLED_TAG;
use super::super::session::{self, REQUEST_TAG};
use super::super::shared::SharedState;
use super::{Deadline, ToolCall};
use crate::result::{Outcome, call_result, note_losses};
use crate::tasks::{self, KeptRun};

impl ToolCall {
    /// Writes the result of a run that has ended.
    pub(super) fn write_ended(&mut self, view: RunView<'_>, shared: &SharedState, out: &mut Out) {
        if is_cancelled(view, shared) {
            // Cancelled calls have no response.
            return;
        }
        self.write(Some(view), Outcome::Ended, shared, out);
    }

    /// Writes the result of a run that waits for answers for which this client is not asked.
    pub(super) fn write_waiting(
        &mut self,
        view: RunView<'_>,
        reason: Option<&str>,
        shared: &SharedState,
        out: &mut Out,
    ) {
        self.write(Some(view), Outcome::Waiting { reason }, shared, out);
    }

    /// Writes the result of the runs that were kept: the one that follows them was deleted.
    pub(super) fn write_kept(&mut self, shared: &SharedState, out: &mut Out) {
        self.write(None, Outcome::Ended, shared, out);
    }

    /// Writes the task, or the state, of a run that continues.
    pub(super) fn write_unfinished(
        &mut self,
        deadline: Deadline,
        view: RunView<'_>,
        shared: &SharedState,
        out: &mut Out,
    ) {
        if deadline.with_task {
            self.write_task(view, shared, out);
        } else {
            self.write(Some(view), Outcome::Working, shared, out);
        }
    }

    /// Writes the task of the call.
    pub(super) fn write_task(&self, view: RunView<'_>, shared: &SharedState, out: &mut Out) {
        let first = self.kept.first().map_or(view, KeptRun::view);
        let task = tasks::created(first, &shared.route.options, shared.now);
        shared.writer.result(task, self.position, out);
    }

    fn write(&mut self, last: Option<RunView<'_>>, outcome: Outcome<'_>, shared: &SharedState, out: &mut Out) {
        let runs: Vec<RunView<'_>> = self.kept.iter().map(KeptRun::view).chain(last).collect();
        let context = shared.result_context();
        match call_result(&context, &runs, outcome) {
            Ok(result) => shared.writer.result(result, self.position, out),
            Err(error) => shared.writer.error(&error, self.position, out),
        }
        note_losses(&context, &runs, self.progress.is_some(), &mut self.losses);
    }

    /// True if the client of the call may have cancelled it, and has not marked it yet.
    pub(super) fn may_be_marked(&self, view: RunView<'_>, shared: &SharedState) -> bool {
        let is_of_session = shared.session.is_some() && shared.writer.id.is_some();
        !self.awaited_mark && is_of_session && !is_cancelled(view, shared)
    }
}

/// True if the client of the call has cancelled it.
fn is_cancelled(view: RunView<'_>, shared: &SharedState) -> bool {
    let (Some(session), Some(id)) = (&shared.session, &shared.writer.id) else { return false };
    let own = session::tags(session, id);
    own.get(REQUEST_TAG).is_some_and(|own| view.info.tags.get(CANCELLED_TAG) == Some(own))
}
