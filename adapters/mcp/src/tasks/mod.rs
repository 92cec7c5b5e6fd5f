//! Runs as tasks (docs/protocols/mcp.md#tasks): `tasks/get`, `tasks/update` and `tasks/cancel`, and the task that a call
//! is answered with. A task is a run of the caller, over whatever protocol it began.
//!
//! Not here: the envelope of the request, and the decision to answer a call with a task (`serve`).

mod loader;
mod object;
mod phase;

use interlingua_core::answer::{NOT_TAKEN, NOT_WAITING, UNDECIDED};
use interlingua_core::event::Millis;
use interlingua_core::policy::RunPolicy;
use interlingua_core::{Call, Delivery, Fault, FaultKind, Reply, RunCall, RunId, RunView, Target};
use serde_json::{Value, json};

pub(crate) use loader::{DismissalCounts, KeptRun, LoadStep, TaskLoader};
pub(crate) use object::{created, current};
pub(crate) use phase::Phase;

use crate::envelope::{Params, RpcError};
use crate::forms::{self, Modes};
use crate::result::ResultContext;
use crate::revision::Revision;

/// A method on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskMethod {
    /// `tasks/get`
    Get,
    /// `tasks/update`
    Update,
    /// `tasks/cancel`
    Cancel,
}

impl TaskMethod {
    /// Parses a method. `None`: it does not act on a task.
    pub(crate) fn parse(method: &str) -> Option<Self> {
        Some(match method {
            "tasks/get" => Self::Get,
            "tasks/update" => Self::Update,
            "tasks/cancel" => Self::Cancel,
            _ => return None,
        })
    }
}

/// One request on a task.
pub(crate) struct TaskRequest {
    method: TaskMethod,
    loader: TaskLoader,
    stage: Stage,
    /// The member `inputResponses` of an update.
    responses: Value,
    modes: Modes,
    now: Millis,
}

/// The next step of a request.
#[derive(Debug)]
pub(crate) enum TaskStep {
    /// Make this call.
    Call(Call),
    /// The result, with its `resultType`.
    Result(Value),
}

enum Stage {
    /// Loading the task.
    Loading,
    /// Answering items of its run; then this call notes the questions that were closed.
    Answering(Option<Call>),
    /// Noting the questions that were closed.
    Noting,
    /// Cancelling the run.
    Cancelling,
}

/// The answers of an update.
enum Update {
    Nothing,
    Answers(Box<RunCall>, Option<Call>),
    Closed(Call),
}

impl TaskRequest {
    /// Reads the parameters of a request, and makes its first call. `modes`: the forms of questions that the request
    /// declares.
    ///
    /// # Errors
    /// The parameters are wrong, or name no task.
    pub(crate) fn decode(
        method: TaskMethod,
        params: &Params,
        modes: Modes,
        now: Millis,
    ) -> Result<(Self, Call), RpcError> {
        let id = params.get("taskId").and_then(Value::as_str);
        let id = id.ok_or_else(|| RpcError::params("\"taskId\" must be a string"))?;
        let id = RunId::parse(id).ok_or_else(unknown_task)?;
        let responses = params.get("inputResponses").cloned().unwrap_or_else(|| json!({}));
        if method == TaskMethod::Update {
            // Wrong responses are refused whatever the task waits for.
            forms::read_all(&[], Revision::July2026, modes, &responses, &|_| String::new())?;
        }
        let (loader, load) = TaskLoader::new(id);
        let (stage, call) = match method {
            TaskMethod::Cancel => (Stage::Cancelling, Call::Cancel(Target::Run(id))),
            TaskMethod::Get | TaskMethod::Update => (Stage::Loading, load),
        };
        Ok((Self { method, loader, stage, responses, modes, now }, call))
    }

    /// Continues with a reply of the engine.
    ///
    /// # Errors
    /// The error of the response.
    pub(crate) fn reply(&mut self, reply: Reply<'_>, context: &ResultContext<'_>) -> Result<TaskStep, RpcError> {
        match std::mem::replace(&mut self.stage, Stage::Loading) {
            Stage::Loading if self.method == TaskMethod::Get => {
                let (modes, now) = (self.modes, self.now);
                let show =
                    |runs: &[RunView<'_>], dismissed: &DismissalCounts| current(runs, context, modes, dismissed, now);
                Ok(match self.loader.reply(reply, show)? {
                    LoadStep::Call(call) => TaskStep::Call(call),
                    LoadStep::Done(mut task) => {
                        task["resultType"] = Value::from("complete");
                        TaskStep::Result(task)
                    }
                })
            }
            Stage::Loading => {
                let (modes, responses) = (self.modes, &self.responses);
                let update =
                    |runs: &[RunView<'_>], dismissed: &DismissalCounts| update(runs, modes, responses, dismissed);
                Ok(match self.loader.reply(reply, update)? {
                    LoadStep::Call(call) => TaskStep::Call(call),
                    LoadStep::Done(Ok(Update::Nothing)) => acknowledged(),
                    LoadStep::Done(Ok(Update::Answers(answers, closed))) => {
                        self.stage = Stage::Answering(closed);
                        TaskStep::Call(Call::Run(answers))
                    }
                    LoadStep::Done(Ok(Update::Closed(closed))) => {
                        self.stage = Stage::Noting;
                        TaskStep::Call(closed)
                    }
                    LoadStep::Done(Err(error)) => return Err(error),
                })
            }
            Stage::Answering(Some(closed)) => {
                self.stage = Stage::Noting;
                Ok(TaskStep::Call(closed))
            }
            Stage::Answering(None) | Stage::Noting | Stage::Cancelling => Ok(acknowledged()),
        }
    }

    /// The call to make instead of one that found nothing.
    pub(crate) fn on_not_found(&self) -> Option<Call> {
        if matches!(self.stage, Stage::Loading) { self.loader.on_not_found() } else { None }
    }

    /// The answer to a fault that means something else on a task. `None`: the fault is an error as everywhere.
    pub(crate) fn on_fault(&self, fault: &Fault) -> Option<Result<Value, RpcError>> {
        let is_answering = matches!(self.stage, Stage::Answering(_));
        match (fault.kind, fault.code()) {
            // Another request was faster: the keys are satisfied.
            (_, NOT_WAITING) if is_answering => Some(Ok(json!({ "resultType": "complete" }))),
            (_, code @ (UNDECIDED | NOT_TAKEN)) if is_answering => {
                let data = json!({ "code": code });
                Some(Err(RpcError::params(format!("{code}: {}", fault.message)).with_data(data)))
            }
            (FaultKind::NotFound, _) if !is_answering => Some(Err(unknown_task())),
            _ => None,
        }
    }
}

/// The error of a request that names no task of the caller.
pub(crate) fn unknown_task() -> RpcError {
    RpcError::params("Unknown task")
}

fn acknowledged() -> TaskStep {
    TaskStep::Result(json!({ "resultType": "complete" }))
}

/// Reads the answers of an update to the items that the task waits for now.
fn update(
    runs: &[RunView<'_>],
    modes: Modes,
    responses: &Value,
    dismissed: &DismissalCounts,
) -> Result<Update, RpcError> {
    let Some(last) = runs.last().copied().filter(|last| Phase::of(*last) == Phase::Asks) else {
        return Ok(Update::Nothing);
    };
    let suffix = |item: &_| object::suffix(runs, item, dismissed);
    let round = forms::read_all(last.pending, Revision::July2026, modes, responses, &suffix)?;
    if let Some((id, reason)) = round.undecided.iter().next() {
        let item = last.pending.iter().find(|item| item.id == *id);
        let key = item.map(|item| format!("{}{}", forms::key(item), suffix(item))).unwrap_or_default();
        let data = json!({ "code": UNDECIDED, "key": key, "reason": reason });
        return Err(RpcError::params(format!("{UNDECIDED}: '{key}': {reason}")).with_data(data));
    }

    let closed: Vec<_> = last.pending.iter().filter(|item| round.closed.contains(&item.id)).collect();
    let closed = (!closed.is_empty()).then(|| dismissed.with(&closed).put(last.run().id));
    Ok(if round.answers.is_empty() {
        closed.map_or(Update::Nothing, Update::Closed)
    } else {
        let call = forms::answer_call(last, round.answers, Delivery::Background, RunPolicy::task());
        Update::Answers(Box::new(call), closed)
    })
}

#[cfg(test)]
mod tests;
