//! Converts a run to a task: folds its updates into status, history and artifacts
//! (docs/protocols/a2a.md#tasks-and-contexts).
//!
//! Not here: the updates ([`crate::encode::updates`]).

use std::borrow::Cow;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Event, Millis};
use interlingua_core::run::{Run, Turn};
use interlingua_core::step::Step;

use crate::Route;
use crate::decode::input;
use crate::encode::history::History;
use crate::encode::render::AgentApi;
use crate::encode::updates::{Change, Update, Updates};
use crate::options::{Incomplete, TurnEnd};
use crate::wire::{Message, Status, Task, TaskState};

/// The parts of a task that a response includes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskDetail {
    /// Maximum number of history messages, newest last. `None`: all.
    pub(crate) history: Option<usize>,
    /// True to include artifacts.
    pub(crate) artifacts: bool,
    /// True to write an empty artifact list instead of omitting it.
    pub(crate) empty_artifacts: bool,
}

impl TaskDetail {
    /// Everything except empty lists.
    pub(crate) const fn full(history: Option<usize>) -> Self {
        Self { history, artifacts: true, empty_artifacts: false }
    }
}

/// Status and history after the updates applied so far.
pub(crate) struct Fold<'r> {
    state: TaskState,
    at: Millis,
    history: History<Message<'r>>,
    task: String,
}

impl<'r> Fold<'r> {
    pub(crate) fn new(run: &Run) -> Self {
        Self { state: TaskState::Submitted, at: run.created_at, history: History::new(), task: run.id.to_string() }
    }

    /// Applies an update of this step.
    pub(crate) fn apply(&mut self, update: Update<'r>, step: Step<'r>) {
        let (task, context) = (&self.task, step.run.session_id.as_str());
        match update {
            Update::TurnStarted(turn) => {
                let sent = input::as_sent(step.run, turn);
                self.history.add_input(sent.into_iter().map(|message| message.in_task(task.clone(), context)));
            }
            Update::TurnWithdrawn { keep_input } => self.history.withdraw(keep_input),
            Update::Status(Change { state, message, .. }) => {
                let message = message.map(|message| message.in_task(task.clone(), context));
                self.history.set(message, |new, old| new.id == old.id);
                (self.state, self.at) = (state, step.at);
            }
            Update::Artifact(_) => {}
        }
    }

    /// The task as of the applied updates.
    pub(crate) fn task(&self, route: &Route, updates: &Updates, run: &'r Run, detail: TaskDetail) -> Task<'r> {
        let artifacts = detail.artifacts.then(|| updates.artifacts(run));
        let before = self.history.before();
        let history = before[detail.history.map_or(0, |most| before.len().saturating_sub(most))..].to_vec();

        Task {
            id: Cow::Owned(self.task.clone()),
            context: Cow::Borrowed(&run.session_id),
            status: Status { state: self.state, message: self.history.current().cloned(), at: self.at },
            artifacts: artifacts.filter(|artifacts| detail.empty_artifacts || !artifacts.is_empty()),
            history: (!history.is_empty()).then_some(history),
            metadata: metadata(route, run),
        }
    }
}

/// Metadata of a task.
fn metadata(route: &Route, run: &Run) -> Option<crate::wire::Raw<'static>> {
    let turn = run.turns.get(run.last_effective_turn()?)?;
    turn_metadata(route, turn, turn.end.is_some())
}

/// Task metadata from this turn. `done`: the end of the turn was sent.
pub(crate) fn turn_metadata(route: &Route, turn: &Turn, done: bool) -> Option<crate::wire::Raw<'static>> {
    let response_id = turn.upstream_id.as_deref().filter(|_| route.options.expose_ids);
    let answered_by = turn.answered_by.map(|run| run.to_string());
    AgentApi { usage: turn.usage.as_ref().filter(|_| done), response_id, answered_by, ..AgentApi::default() }
        .to_metadata()
}

/// Converts the current state of a run to a task. Afterwards `updates` is at the end of the view, so a stream can
/// continue from there.
pub(crate) fn task<'r>(updates: &mut Updates, route: &Route, view: RunView<'r>, detail: TaskDetail) -> Task<'r> {
    task_at_turn(updates, route, view, detail, None).0
}

/// Converts a run to the task at the start of this turn, and returns it with the sequence number of the step at which a
/// stream continues. Such a task does not depend on how far the turn has progressed. `None`, or a turn that has not
/// started: the task as it is now.
pub(crate) fn task_at_turn<'r>(
    updates: &mut Updates,
    route: &Route,
    view: RunView<'r>,
    detail: TaskDetail,
    turn: Option<u32>,
) -> (Task<'r>, u64) {
    let run = view.run();
    let start = turn.map(|turn| Event::TurnStarted { turn });
    let mut fold = Fold::new(run);
    for step in view.record.steps(0) {
        updates.process_without_deltas(step, &mut |update| fold.apply(update, step));
        if Some(&step.event) == start.as_ref() {
            updates.mark_working();
            let mut task = fold.task(route, updates, run, detail);
            task.status.state = TaskState::Working;
            task.status.at = step.at;
            // The usage and the response id of the turn are known later, and the stream reports them.
            task.metadata = None;
            return (task, step.sequence + 1);
        }
    }

    let mut task = fold.task(route, updates, run, detail);

    let state = state(route, view);
    if state == TaskState::Working {
        updates.mark_working();
    }

    task.status.state = state;
    task.status.at = view.info.changed_at;
    (task, view.record.len())
}

pub(crate) fn state(route: &Route, view: RunView<'_>) -> TaskState {
    match view.info.state {
        RunState::Queued => TaskState::Submitted,
        RunState::Running => TaskState::Working,
        RunState::Waiting => TaskState::InputRequired,
        RunState::WaitingForAuth => TaskState::AuthRequired,
        RunState::Ended(end) => route.end_state(end),
    }
}

/// The run states that map to this task state; used to filter lists.
pub(crate) fn run_states(route: &Route, state: TaskState) -> Vec<RunState> {
    match state {
        TaskState::Submitted => vec![RunState::Queued],
        TaskState::Working => vec![RunState::Running],
        TaskState::InputRequired => vec![RunState::Waiting],
        TaskState::AuthRequired => vec![RunState::WaitingForAuth],
        ended => [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled]
            .into_iter()
            .filter(|end| route.end_state(*end) == ended)
            .map(RunState::Ended)
            .collect(),
    }
}

impl Route {
    /// Turn ends after which a task waits for input although nothing is pending.
    pub(crate) fn pausing_ends(&self) -> &'static [End] {
        let completed = self.options.turn_end == TurnEnd::InputRequired;
        let incomplete = self.options.incomplete == Incomplete::InputRequired;

        match (completed, incomplete) {
            (false, false) => &[],
            (true, false) => &[End::Completed],
            (false, true) => &[End::Incomplete],
            (true, true) => &[End::Completed, End::Incomplete],
        }
    }

    /// The task state for the end of a run.
    pub(crate) fn end_state(&self, end: End) -> TaskState {
        match end {
            End::Incomplete if self.options.incomplete == Incomplete::Failed => TaskState::Failed,
            End::Completed | End::Incomplete => TaskState::Completed,
            End::Failed => TaskState::Failed,
            End::Rejected => TaskState::Rejected,
            End::Canceled => TaskState::Canceled,
        }
    }
}

impl Route {
    /// True if clients of this route may see the run: any run of this agent. A run from another protocol is a task of
    /// one turn, found by id but not listed.
    pub(crate) fn is_visible(&self, view: RunView<'_>, agent: &str) -> bool {
        view.run().agent == agent
    }
}
