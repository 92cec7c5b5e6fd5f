//! A run as a task: the fold of what its clients were told, with history and artifacts (section 8).
//!
//! Not here: what is told ([`crate::updates`]), and which of the caller's runs are tasks of a route ([`Route::shows`]).

use std::borrow::Cow;

use interlingua_core::call::{RunState, RunView};
use interlingua_core::event::{End, Millis, Step};
use interlingua_core::run::{Run, Turn};

use crate::Route;
use crate::history::History;
use crate::input;
use crate::options::{Incomplete, TurnEnd};
use crate::says::AgentApi;
use crate::updates::{Change, Update, Updates};
use crate::wire::{Message, State, Status, Task};

/// How much of a task is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// The most messages of the history. None: all.
    pub(crate) history: Option<usize>,
    /// Whether the artifacts are there at all.
    pub(crate) artifacts: bool,
    /// Whether an empty list of them is written.
    pub(crate) even_empty: bool,
}

impl Shown {
    /// Everything, but nothing that is empty.
    pub(crate) const fn all(history: Option<usize>) -> Self {
        Self { history, artifacts: true, even_empty: false }
    }
}

/// Status and history, as they grow.
pub(crate) struct Fold<'r> {
    state: State,
    at: Millis,
    history: History<Message<'r>>,
    task: String,
}

impl<'r> Fold<'r> {
    pub(crate) fn new(run: &Run) -> Self {
        Self { state: State::Submitted, at: run.created_at, history: History::new(), task: run.id.to_string() }
    }

    /// Takes what is told at a step.
    pub(crate) fn take(&mut self, update: Update<'r>, step: Step<'r>) {
        let (task, context) = (&self.task, step.run.session_id.as_str());
        match update {
            Update::Said(turn) => {
                let sent = input::as_sent(step.run, turn);
                self.history.say(sent.into_iter().map(|message| message.on(task.clone(), context)));
            }
            Update::Unasked { said } => self.history.unask(said),
            Update::Status(Change { state, message, .. }) => {
                let message = message.map(|message| message.on(task.clone(), context));
                self.history.set(message, |new, old| new.id == old.id);
                (self.state, self.at) = (state, step.at);
            }
            Update::Artifact(_) => {}
        }
    }

    /// The task as it stands in the fold alone.
    pub(crate) fn task(&self, route: &Route, updates: &Updates, run: &'r Run, shown: Shown) -> Task<'r> {
        let artifacts = shown.artifacts.then(|| updates.artifacts(run));
        let said = self.history.before();
        let history = said[shown.history.map_or(0, |most| said.len().saturating_sub(most))..].to_vec();
        Task {
            id: Cow::Owned(self.task.clone()),
            context: Cow::Borrowed(&run.session_id),
            status: Status { state: self.state, message: self.history.current().cloned(), at: self.at },
            artifacts: artifacts.filter(|artifacts| shown.even_empty || !artifacts.is_empty()),
            history: (!history.is_empty()).then_some(history),
            metadata: metadata(route, run),
        }
    }
}

/// What a task says of itself besides.
fn metadata(route: &Route, run: &Run) -> Option<crate::wire::Raw<'static>> {
    let turn = run.turns.get(run.last_taken()?)?;
    metadata_of(route, turn, turn.end.is_some())
}

/// The same, by the turn it is told of. `done`: its end was told.
pub(crate) fn metadata_of(route: &Route, turn: &Turn, done: bool) -> Option<crate::wire::Raw<'static>> {
    let response_id = turn.upstream_id.as_deref().filter(|_| route.options.expose_ids);
    let answered_by = turn.answered_by.map(|run| run.to_string());
    AgentApi { usage: turn.usage.as_ref().filter(|_| done), response_id, answered_by, ..AgentApi::default() }.written()
}

/// A run as it stands, as a task. `updates` is left where the view is, so that a stream can go on from there.
pub(crate) fn task<'r>(updates: &mut Updates, route: &Route, view: RunView<'r>, shown: Shown) -> Task<'r> {
    let run = view.run();
    let mut fold = Fold::new(run);
    for step in view.record.steps(0) {
        updates.take_quietly(step, &mut |update| fold.take(update, step));
    }
    let mut task = fold.task(route, updates, run, shown);
    let state = state(route, view);
    if state == State::Working {
        updates.set_working();
    }
    task.status.state = state;
    task.status.at = view.about.changed_at;
    task
}

/// Where a run stands, as a task.
pub(crate) fn state(route: &Route, view: RunView<'_>) -> State {
    match view.about.state {
        RunState::Queued => State::Submitted,
        RunState::Running => State::Working,
        RunState::Waiting => State::InputRequired,
        RunState::WaitingForAuth => State::AuthRequired,
        RunState::Ended(end) => route.ended(end),
    }
}

/// The states of runs that tasks of a state can have: what a list is filtered by.
pub(crate) fn run_states(route: &Route, state: State) -> Vec<RunState> {
    match state {
        State::Submitted => vec![RunState::Queued],
        State::Working => vec![RunState::Running],
        State::InputRequired => vec![RunState::Waiting],
        State::AuthRequired => vec![RunState::WaitingForAuth],
        ended => [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled]
            .into_iter()
            .filter(|end| route.ended(*end) == ended)
            .map(RunState::Ended)
            .collect(),
    }
}

impl Route {
    /// After which ends of a turn a task waits although nothing is pending.
    pub(crate) fn waits_after(&self) -> &'static [End] {
        let completed = self.options.turn_end == TurnEnd::InputRequired;
        let incomplete = self.options.incomplete == Incomplete::InputRequired;
        match (completed, incomplete) {
            (false, false) => &[],
            (true, false) => &[End::Completed],
            (false, true) => &[End::Incomplete],
            (true, true) => &[End::Completed, End::Incomplete],
        }
    }

    /// The state a run's end stands for.
    pub(crate) fn ended(&self, end: End) -> State {
        match end {
            End::Incomplete if self.options.incomplete == Incomplete::Failed => State::Failed,
            End::Completed | End::Incomplete => State::Completed,
            End::Failed => State::Failed,
            End::Rejected => State::Rejected,
            End::Canceled => State::Canceled,
        }
    }
}

impl Route {
    /// Whether a run is a task that clients of this route may know of: any run with this agent. One that was begun over
    /// another protocol is a task of one turn, found by its id and not in lists.
    pub(crate) fn shows(&self, view: RunView<'_>, agent: &str) -> bool {
        view.run().agent == agent
    }
}
