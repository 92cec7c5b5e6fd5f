//! The answer to a call of a tool: a live stream of progress and questions, and at last the result
//! (docs/protocols/mcp.md#calls).
//!
//! A call follows its run, and the runs that answer it over other protocols. `start` reads the parameters, `stream`
//! follows the run, `ask` asks the client, `finish` writes the response. Whatever needs the whole run at the end is loaded by a call of its own,
//! because a step shows only the run's events.

mod ask;
mod finish;
mod start;
mod stream;

pub(super) use start::CallStart;

use std::collections::BTreeMap;
use std::time::Duration;

use interlingua_core::call::{Reply, Tags, Target, Thread};
use interlingua_core::event::Millis;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::run::RunError;
use interlingua_core::{Call, Delivery, End, Event, Fault, FaultKind, Next, Out, RunCall, RunId, RunView, Step};
use serde_json::Value;

use super::question::OpenQuestion;
use super::refusal::Refusal;
use super::session;
use super::shared::SharedState;
use crate::envelope::RpcError;
use crate::helper_tools::{AnswerTool, HelperError, tool_fault};
use crate::progress::Progress;
use crate::result::{fault_result, tool_error};
use crate::tasks::{KeptRun, LoadStep, Phase};
use crate::tokens::StateToken;
use crate::tools::ToolError;

/// Maximum number of runs that a call follows.
const MAX_RUNS: usize = 32;
/// The time in which a client that cancels its call marks the run.
const MARK_PAUSE: Duration = Duration::from_millis(300);
/// The time between two looks at a question that is open on the stream, in milliseconds.
const QUESTION_POLL: Millis = 250;

/// One call of a tool.
pub(super) struct ToolCall {
    /// The tool's name.
    tool: String,
    /// The digest of the tool and its arguments.
    digest: String,
    /// The text that answers a single open question without a schema.
    message: Option<String>,
    /// The tool is `answer` or `wait`.
    is_helper: bool,
    stage: Stage,
    next: Option<Call>,
    /// The runs before the current one, which it answers.
    kept: Vec<KeptRun>,
    /// The current run. `None`: the engine has not started it yet.
    run: Option<RunId>,
    /// The run whose steps were streamed last.
    streamed: Option<RunId>,
    tags: Tags,
    /// The steps that the client knows, or that it is not to see again.
    skip: Skip,
    skipped: u64,
    /// The position of the current run's first event.
    base: u64,
    /// The position up to which steps have arrived.
    position: u64,
    token: Option<Value>,
    progress: Option<Progress>,
    /// The position at which an earlier stream of the call was cut. `None`: this is its first stream.
    resumed_from: Option<u64>,
    deadline: Option<Deadline>,
    closes_at: Option<Millis>,
    asked: Option<OpenQuestion>,
    /// The state with which the client repeats the call.
    state: Option<StateToken>,
    /// The reasons why items are asked again.
    reasons: BTreeMap<String, String>,
    /// The time of the next look at an open question.
    look_at: Option<Millis>,
    /// The error of the run, in case that it cannot be loaded.
    error: Option<RunError>,
    losses: Losses,
    /// The call has waited for the mark of its client.
    awaited_mark: bool,
}

/// The time at which a call is answered although its run continues.
#[derive(Clone, Copy)]
struct Deadline {
    at: Millis,
    with_task: bool,
}

/// The steps that are not shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Skip {
    None,
    /// All steps that exist when the stream begins.
    Existing,
    /// The steps up to the end of this turn.
    Turn(usize),
}

/// The use of the next reply.
enum Stage {
    /// A stream follows.
    Streaming,
    /// Checking that the session of this call exists and is one of the agent.
    Session(Box<RunCall>),
    /// The run was started in the background: its task is the response.
    Task,
    /// Act on the run in its state.
    Settle,
    /// The time is over: answer with a task, or with the state of the run.
    Expired(Deadline),
    /// The run is kept, and this one that answers it is followed.
    Chain(RunId),
    /// Find the run that asked, for these answers.
    Resume(Box<StateToken>, Option<Value>),
    /// Answers to a repeated call were sent, of the run that asked.
    Answered(Box<StateToken>, bool),
    /// The tool `answer` looks for the item.
    Answer(Box<AnswerTool>),
    /// The call ends although the run waits.
    Close(Option<String>),
    /// The run was cancelled. If its own client did so, it marks the run in a moment.
    Mark(RunId),
}

impl ToolCall {
    /// The next call, or the response.
    pub(super) fn reply(&mut self, reply: Reply<'_>, shared: &mut SharedState, out: &mut Out) -> Result<Next, Refusal> {
        match (std::mem::replace(&mut self.stage, Stage::Streaming), reply) {
            (Stage::Streaming | Stage::Task, Reply::Waiting(view, _)) => Ok(self.blocked(view, shared, out)?),
            (Stage::Session(run), Reply::Session(sessions)) => {
                let is_own = sessions.first().is_some_and(|session| session.agent == run.agent);
                if !is_own {
                    let error = tool_error(&shared.result_context(), &ToolError::no_such_session(), None);
                    shared.writer.result(error, 0, out);
                    return Ok(Next::Done);
                }
                if run.delivery == Delivery::Background {
                    self.stage = Stage::Task;
                }
                Ok(Next::Call(Call::Run(run)))
            }
            (Stage::Task, Reply::Run(view)) => {
                self.write_task(view, shared, out);
                Ok(Next::Done)
            }
            (Stage::Settle, Reply::Run(view)) => Ok(self.settle(view, shared, out)?),
            (Stage::Mark(run), Reply::Done) => {
                self.stage = Stage::Settle;
                Ok(Next::Call(Call::Fetch(Target::Run(run))))
            }
            (Stage::Expired(deadline), Reply::Run(view)) => {
                if Phase::of(view) == Phase::Working && view.run().answered_by().is_none() {
                    self.write_unfinished(deadline, view, shared, out);
                    return Ok(Next::Done);
                }
                Ok(self.settle(view, shared, out)?)
            }
            (Stage::Chain(next), Reply::Run(view)) => {
                self.keep(view);
                Ok(Next::Call(self.follow(next, Skip::None)))
            }
            (Stage::Resume(state, responses), Reply::Run(view)) => self.resume(*state, responses, view, shared, out),
            (Stage::Answered(state, closed), Reply::Waiting(view, reason)) => {
                Ok(self.ask_again(*state, closed, view, reason, shared, out)?)
            }
            (Stage::Answer(mut tool), reply) => match tool.reply(reply, &shared.route.options) {
                Ok(LoadStep::Call(call)) => {
                    self.stage = Stage::Answer(tool);
                    Ok(Next::Call(call))
                }
                Ok(LoadStep::Done(plan)) => {
                    let is_next_turn = plan.call.thread == Thread::Continue(plan.asked_by);
                    self.skip = if is_next_turn { Skip::Turn(plan.turns.saturating_sub(1)) } else { Skip::None };
                    Ok(Next::Call(Call::Run(plan.call)))
                }
                Err(HelperError::Tool(error)) => {
                    shared.writer.result(tool_error(&shared.result_context(), &error, None), self.position, out);
                    Ok(Next::Done)
                }
                Err(HelperError::Rpc(error)) => Err(error.into()),
            },
            (Stage::Close(reason), Reply::Run(view)) => {
                self.write_waiting(view, reason.as_deref(), shared, out);
                Ok(Next::Done)
            }
            // The run that answered the last one was deleted.
            (Stage::Settle | Stage::Chain(_), Reply::Done) => {
                self.write_kept(shared, out);
                Ok(Next::Done)
            }
            _ => Err(Fault::unexpected_reply().into()),
        }
    }

    /// Acts on a run in its state: follows it, asks what it waits for, or writes its result.
    fn settle(&mut self, view: RunView<'_>, shared: &mut SharedState, out: &mut Out) -> Result<Next, Fault> {
        self.note_run(view);
        if let Some(next) = self.next_run(view) {
            self.keep(view);
            self.stage = Stage::Settle;
            return Ok(Next::Call(Call::Fetch(Target::Run(next))));
        }
        match Phase::of(view) {
            Phase::Working => Ok(Next::Call(self.follow(view.run().id, self.skip))),
            Phase::Asks if shared.asks_on_stream() && view.info.state.is_waiting() => {
                Ok(Next::Call(self.follow(view.run().id, Skip::Existing)))
            }
            Phase::Asks => self.ask_by_result(view, None, shared, out).map(|()| Next::Done),
            Phase::Ended(End::Canceled) if self.may_be_marked(view, shared) => {
                self.awaited_mark = true;
                self.stage = Stage::Mark(view.run().id);
                Ok(Next::Call(Call::Wait(MARK_PAUSE)))
            }
            Phase::Ended(_) => {
                self.write_ended(view, shared, out);
                Ok(Next::Done)
            }
        }
    }

    /// The run that answers this one, if it is not followed yet.
    fn next_run(&self, view: RunView<'_>) -> Option<RunId> {
        let next = view.run().answered_by().filter(|_| self.kept.len() < MAX_RUNS)?;
        let is_known = next == view.run().id || self.kept.iter().any(|kept| kept.view().run().id == next);
        (!is_known).then_some(next)
    }

    /// Keeps a run that another one answers. The positions of that one count on from it.
    fn keep(&mut self, view: RunView<'_>) {
        if self.streamed != Some(view.run().id) {
            let links = |step: &Step<'_>| match step.event {
                Event::TurnStarted { turn } => {
                    step.run.turns.get(turn as usize).is_some_and(|turn| turn.answered_by.is_some())
                }
                _ => false,
            };
            let link = view.record.steps(0).filter(links).last();
            self.position += link.map_or(view.record.len(), |step| step.sequence + 1);
        }
        self.kept.push(KeptRun::new(view));
    }

    fn follow(&mut self, run: RunId, skip: Skip) -> Call {
        self.stage = Stage::Streaming;
        self.skip = skip;
        Call::Follow(Target::Run(run))
    }

    fn note_run(&mut self, view: RunView<'_>) {
        self.run = Some(view.run().id);
        self.tags.clone_from(&view.info.tags);
    }

    /// The session waits for answers to the questions of a run: nothing has reached the agent.
    fn blocked(&mut self, view: RunView<'_>, shared: &mut SharedState, out: &mut Out) -> Result<Next, Fault> {
        if let Some(call) = self.answer_with_message(view, shared) {
            return Ok(Next::Call(call));
        }
        self.note_run(view);
        if shared.asks_on_stream() && view.info.state.is_waiting() {
            return Ok(Next::Call(self.follow(view.run().id, Skip::Existing)));
        }
        self.ask_by_result(view, None, shared, out).map(|()| Next::Done)
    }

    pub(super) fn next_call(&mut self) -> Option<Call> {
        self.next.take()
    }

    pub(super) fn on_not_found(&mut self) -> Option<Call> {
        match &mut self.stage {
            Stage::Settle | Stage::Chain(_) if !self.kept.is_empty() => Some(Call::Nothing),
            Stage::Answer(tool) => tool.on_not_found(),
            _ => None,
        }
    }

    /// The call with which an open call ends: its run is no longer that of the call.
    fn closing_call(&self, run: RunId, shared: &SharedState) -> Call {
        let tags = session::without_call(&self.tags);
        if shared.session.is_some() && tags.len() != self.tags.len() {
            Call::Tag(Target::Run(run), tags)
        } else {
            Call::Fetch(Target::Run(run))
        }
    }

    /// The answer to a fault of the engine. `None`: the fault is an error as everywhere.
    pub(super) fn on_fault(&self, fault: &Fault, shared: &SharedState) -> Option<Result<Value, RpcError>> {
        let context = shared.result_context();
        if matches!(fault.kind, FaultKind::NoSuchAgent | FaultKind::Forbidden) {
            return Some(Err(unknown_tool(&self.tool)));
        }
        if self.is_helper
            && let Some(error) = tool_fault(fault)
        {
            return Some(Ok(tool_error(&context, &error, None)));
        }
        if fault.kind == FaultKind::NotFound {
            return Some(Ok(tool_error(&context, &ToolError::no_such_session(), None)));
        }
        fault_result(&context, fault, None).map(Ok)
    }

    pub(super) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }
}

fn unknown_tool(name: &str) -> RpcError {
    let shown = crate::forms::beginning(name, crate::tools::MAX_NAME);
    RpcError::params(format!("Unknown tool: {shown}"))
}
