//! The tools `answer` and `wait` (docs/protocols/mcp.md#answer-tool): their arguments, and the calls that they make.
//!
//! The caller of a tool is a model. So a model may answer questions and reject calls, but it approves nothing, unless the
//! route allows that. Not here: the definitions (`tools`), and the stream of the run that continues (`serve`).

use interlingua_core::answer::{AnswerBody, AnswerError, NOT_TAKEN, NOT_WAITING, UNDECIDED, decide};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::policy::RunPolicy;
use interlingua_core::{Answer, Call, Delivery, Fault, FaultKind, Json, Reply, RunCall, RunId, RunView};
use serde_json::{Map, Value};

use crate::envelope::RpcError;
use crate::forms;
use crate::options::Options;
use crate::tasks::{LoadStep, Phase, TaskLoader};
use crate::tools::ToolError;

const DECISIONS: [Decision; 5] =
    [Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel];

/// A call of the tool `answer`.
pub(crate) struct AnswerTool {
    loader: TaskLoader,
    given: AnswerArguments,
}

/// The answer in the arguments.
#[derive(Debug)]
struct AnswerArguments {
    item: Option<String>,
    decision: Option<Decision>,
    text: Option<String>,
    value: Option<Value>,
    arguments: Option<Map<String, Value>>,
}

/// The call that carries an answer, and the run that continues.
#[derive(Debug)]
pub(crate) struct AnswerPlan {
    /// The call.
    pub(crate) call: Box<RunCall>,
    /// The run that asked: another one if the first was answered over another protocol.
    pub(crate) asked_by: RunId,
    /// The number of turns of that run: what the agent says from this turn on is the result.
    pub(crate) turns: usize,
}

/// The reason why a helper tool does not do its work.
#[derive(Debug)]
pub(crate) enum HelperError {
    /// The model can do something about it.
    Tool(ToolError),
    /// The gateway has failed.
    Rpc(RpcError),
}

impl From<ToolError> for HelperError {
    fn from(error: ToolError) -> Self {
        Self::Tool(error)
    }
}

impl AnswerTool {
    /// Reads the arguments, and begins to load the run.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub(crate) fn decode(arguments: &Value) -> Result<(Self, Call), ToolError> {
        let known = ["run", "item", "decision", "text", "value", "arguments"];
        let fields = fields(arguments, &known)?;
        let run = run(&fields)?;
        let decision = match text(&fields, "decision")? {
            None => None,
            Some(word) => {
                Some(DECISIONS.into_iter().find(|decision| decision.as_str() == word).ok_or_else(|| {
                    error("INVALID_PARAMETER", format!("decision must be one of {}", words(&DECISIONS)))
                })?)
            }
        };
        let arguments = match fields.get("arguments") {
            None | Some(Value::Null) => None,
            Some(Value::Object(arguments)) => Some(arguments.clone()),
            Some(_) => return Err(error("PARAMETER_VALIDATION", "arguments must be an object")),
        };
        let given = AnswerArguments {
            item: text(&fields, "item")?,
            decision,
            text: text(&fields, "text")?,
            value: fields.get("value").filter(|value| !value.is_null()).cloned(),
            arguments,
        };
        let (loader, call) = TaskLoader::new(run);
        Ok((Self { loader, given }, call))
    }

    /// Continues with a reply of the engine, until the answer can be given.
    ///
    /// # Errors
    /// Nothing waits for this answer, or a person has to give it.
    pub(crate) fn reply(&mut self, reply: Reply<'_>, options: &Options) -> Result<LoadStep<AnswerPlan>, HelperError> {
        let given = &self.given;
        match self.loader.reply(reply, |runs, _| plan(runs, given, options)).map_err(HelperError::Rpc)? {
            LoadStep::Call(call) => Ok(LoadStep::Call(call)),
            LoadStep::Done(plan) => Ok(LoadStep::Done(plan?)),
        }
    }

    /// The call to make instead of one that found nothing.
    pub(crate) fn on_not_found(&self) -> Option<Call> {
        self.loader.on_not_found()
    }
}

/// Reads the arguments of the tool `wait`: the run to wait for.
///
/// # Errors
/// The arguments are wrong.
pub(crate) fn wait(arguments: &Value) -> Result<RunId, ToolError> {
    run(&fields(arguments, &["run"])?)
}

/// The error of a helper tool for a fault of the engine. `None`: the fault is an error as everywhere.
pub(crate) fn tool_fault(fault: &Fault) -> Option<ToolError> {
    match (fault.kind, fault.code()) {
        (_, NOT_WAITING) => Some(error(NOT_WAITING, fault.message.clone())),
        (_, UNDECIDED) => Some(error(UNDECIDED, fault.message.clone())),
        (_, NOT_TAKEN) => Some(error(NOT_TAKEN, fault.message.clone())),
        (FaultKind::NotFound, _) => Some(no_such_run()),
        _ => None,
    }
}

fn plan(runs: &[RunView<'_>], given: &AnswerArguments, options: &Options) -> Result<AnswerPlan, ToolError> {
    let Some(last) = runs.last().copied() else { return Err(no_such_run()) };
    if Phase::of(last) != Phase::Asks {
        return Err(error(NOT_WAITING, "the run does not wait for an answer"));
    }
    let item = given.item_of(last.pending)?;
    let answer = given.answer(item, options)?;
    let call = forms::answer_call(last, vec![answer], Delivery::Stream, RunPolicy::task());
    let turns = last.run().turns.len();
    Ok(AnswerPlan { call: Box::new(call), asked_by: last.run().id, turns })
}

impl AnswerArguments {
    /// The item that the answer is for.
    fn item_of<'a>(&self, items: &'a [Pending]) -> Result<&'a Pending, ToolError> {
        match (&self.item, items) {
            (Some(id), _) => {
                let by_id = items.iter().find(|item| item.id == *id);
                let found = by_id.or_else(|| items.iter().find(|item| forms::key(item) == *id));
                found.ok_or_else(|| error(NOT_WAITING, format!("the run does not wait for an answer to item '{id}'")))
            }
            (None, [only]) => Ok(only),
            (None, _) => {
                let items: Vec<String> = items.iter().map(|item| format!("'{}' ({})", item.id, item.name)).collect();
                let message = format!("several items wait for an answer: name one of {}", items.join(", "));
                Err(error(UNDECIDED, message))
            }
        }
    }

    /// The answer, if a model may give it.
    fn answer(&self, item: &Pending, options: &Options) -> Result<Answer, ToolError> {
        let offered = forms::offered(item);
        if self.decision.is_some_and(|decision| needs_person(item, decision)) && !options.answer_tool_approves {
            return Err(permission_denied(item));
        }
        let given = self.body().ok_or_else(|| undecided(&offered))?;
        let decided = decide(item, &given, &offered).map_err(|reason| match reason {
            AnswerError::Unclear(offered) => undecided(&offered),
            other => error(NOT_TAKEN, other.to_string()),
        })?;
        // Answers in words and as JSON can decide as well.
        if needs_person(item, decided.decision) && !options.answer_tool_approves {
            return Err(permission_denied(item));
        }
        Ok(Answer::new(item.id.clone(), given))
    }

    fn body(&self) -> Option<AnswerBody> {
        let value = self.value.as_ref().map(Json::from_serialize);
        match (self.decision, &self.text) {
            (Some(decision), text) => Some(AnswerBody::Decided {
                decision,
                arguments: self.arguments.as_ref().map(|arguments| Json::from_serialize(arguments).text().to_owned()),
                text: text.clone(),
                payload: value,
            }),
            // New arguments decide nothing by themselves.
            (None, _) if self.arguments.is_some() => None,
            (None, Some(text)) if value.is_none() => Some(AnswerBody::Text(text.clone())),
            (None, _) => value.map(AnswerBody::Payload),
        }
    }
}

/// True if a person has to make this decision.
fn needs_person(item: &Pending, decision: Decision) -> bool {
    match item.kind {
        PendingKind::Approval => !matches!(decision, Decision::Reject | Decision::Cancel),
        PendingKind::Auth => decision == Decision::Accept,
        PendingKind::Input | PendingKind::Tool => false,
    }
}

fn permission_denied(item: &Pending) -> ToolError {
    let subject = if item.kind == PendingKind::Auth { "confirm this login" } else { "decide about this call" };
    let message = format!(
        "a person has to {subject}, in a client that shows forms or in another client of the gateway; \
         this tool can only reject or cancel it"
    );
    error("PERMISSION_DENIED", message)
}

fn undecided(offered: &[Decision]) -> ToolError {
    error(UNDECIDED, format!("the answer decides nothing: the decision must be one of {}", words(offered)))
}

fn no_such_run() -> ToolError {
    error("RESOURCE_NOT_FOUND", "no such run")
}

fn words(decisions: &[Decision]) -> String {
    let words: Vec<&str> = decisions.iter().map(|decision| decision.as_str()).collect();
    words.join(", ")
}

fn error(code: &'static str, message: impl Into<String>) -> ToolError {
    ToolError { code, message: message.into() }
}

fn fields(arguments: &Value, known: &[&str]) -> Result<Map<String, Value>, ToolError> {
    let fields = match arguments {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(error("INVALID_PARAMETER", format!("'{name}' is not an argument of this tool"))),
        None => Ok(fields),
    }
}

fn run(fields: &Map<String, Value>) -> Result<RunId, ToolError> {
    let id = text(fields, "run")?.filter(|id| !id.trim().is_empty());
    let id = id.ok_or_else(|| error("MISSING_PARAMETER", "run is required: the run of an earlier result"))?;
    RunId::parse(id.trim()).ok_or_else(no_such_run)
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, ToolError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(error("PARAMETER_VALIDATION", format!("{name} must be a string"))),
    }
}

#[cfg(test)]
mod tests;
