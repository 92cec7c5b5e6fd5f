//! Results of calls: the answer of a run, or of a chain of runs, as a `CallToolResult` (docs/protocols/mcp.md#results).
//!
//! A chain is a run and the runs that answered its questions over other protocols, in order. Its result has the id and
//! the session of the first run, the messages of all, and the end of the last one.

mod blocks;
mod content_media;
mod failure;
mod losses;
mod notes;
mod size;
mod structured;
mod uris;

pub(crate) use blocks::{Part, is_answer, parts};
pub(crate) use content_media::{Media, resource_contents};
pub(crate) use losses::note as note_losses;
pub(crate) use structured::output_schema;
pub(crate) use uris::RUNS;
#[cfg(test)]
pub(crate) use uris::{part_uri, run_uri};

use interlingua_adapter_kit::token_usage::TokenUsage;
use interlingua_core::call::RunView;
use interlingua_core::model::ContentType;
use interlingua_core::{End, Fault};
use serde_json::{Map, Value, json};

use self::blocks::Block;
use self::failure::Failure;
use self::structured::CallState;
use crate::envelope::RpcError;
use crate::options::Options;
use crate::revision::Revision;
use crate::tools::ToolError;

/// The route and the client that a result is made for.
#[derive(Clone, Copy)]
pub(crate) struct ResultContext<'a> {
    /// The options of the route.
    pub(crate) options: &'a Options,
    /// The revision that the client speaks.
    pub(crate) revision: Revision,
    /// True if clients can read resources.
    pub(crate) resources: bool,
}

impl ResultContext<'_> {
    fn is_structured(&self) -> bool {
        self.options.structured && self.revision.has_structured_content()
    }
}

/// The way in which a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome<'a> {
    /// The last run has ended, or stopped between two turns without a question.
    Ended,
    /// The last run continues without the call.
    Working,
    /// The last run waits, and this client is not asked. `reason`: why the last answer was not taken.
    Waiting {
        /// A sentence for the model.
        reason: Option<&'a str>,
    },
}

impl Outcome<'_> {
    /// The outcome of a call that ends now.
    pub(crate) fn of(last: RunView<'_>) -> Self {
        match last.info.state {
            state if state.is_working() => Self::Working,
            state if state.is_waiting() && !last.pending.is_empty() => Self::Waiting { reason: None },
            state if state.is_waiting() && last.run().outcome().is_none_or(|(end, _)| end == End::Completed) => {
                Self::Waiting { reason: None }
            }
            _ => Self::Ended,
        }
    }
}

/// The facts about a call that its result shows.
struct Summary {
    status: &'static str,
    failure: Option<Failure>,
    usage: Option<Value>,
    next: Option<String>,
}

/// The result of a call. `runs`: the chain of its runs, not empty.
///
/// # Errors
/// The run has failed in a way that a model cannot act on.
pub(crate) fn call_result(
    context: &ResultContext<'_>,
    runs: &[RunView<'_>],
    outcome: Outcome<'_>,
) -> Result<Value, RpcError> {
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return Err(RpcError::new(crate::envelope::rpc_error::INTERNAL_ERROR, "the run is missing"));
    };
    let run = first.run();
    let summary = summary(context, runs, outcome);
    if let Some(failure) = &summary.failure
        && let Some(error) = failure.to_rpc_error(&run.id.to_string(), &run.session_id)
    {
        return Err(error);
    }

    let mut answer = match summary.status {
        "rejected" => Vec::new(),
        _ => blocks::blocks(run.id, runs.iter().map(|view| view.run())),
    };
    let before: Vec<Block> = summary.failure.iter().map(|failure| Block::text(failure.text())).collect();
    let mut after = Vec::new();
    if summary.status == "incomplete" {
        after.push(Block::text(notes::CUT_OFF));
    }
    if let Outcome::Waiting { reason } = outcome
        && (reason.is_some() || !last.pending.is_empty())
    {
        after.push(Block::text(notes::questions(last.pending, reason)));
    }
    after.extend(summary.next.as_deref().map(Block::text));
    if context.options.session_note && !context.is_structured() {
        after.push(session_note(&run.session_id));
    }

    // Structured content repeats the texts.
    let max = if context.is_structured() { size::MAX_RESULT / 2 } else { size::MAX_RESULT };
    let fixed: usize = before.iter().chain(&after).map(|block| block.size() + 1).sum();
    size::shrink(&mut answer, max.saturating_sub(fixed), run.id, context.resources);

    let mut result = Map::new();
    let all = before.into_iter().chain(answer).chain(after);
    let all = all.map(|block| if context.revision.has_structured_content() { block } else { size::as_text(block) });
    result.insert("content".to_owned(), all.map(|block| block.value).collect());
    if context.is_structured() {
        let mut object = structured::object(runs, &call_state(&summary, context));
        structured::shrink(&mut object, size::MAX_RESULT / 2);
        result.insert("structuredContent".to_owned(), object);
    }
    result.insert("isError".to_owned(), json!(summary.failure.is_some()));
    finish(context, &mut result);

    let mut meta = ids(&run.id.to_string(), &run.session_id, summary.status);
    if let Some(usage) = summary.usage {
        meta.insert("interlingua/usage".to_owned(), usage);
    }
    if has_refusal(runs) {
        meta.insert("interlingua/refusal".to_owned(), json!(true));
    }
    if let Some(failure) = &summary.failure {
        meta.insert("interlingua/error".to_owned(), failure.to_value());
    }
    result.insert("_meta".to_owned(), Value::Object(meta));
    Ok(Value::Object(result))
}

/// A call's state as one object, of any length: the content of the resource of a run. `runs`: as for [`call_result`].
pub(crate) fn run_object(context: &ResultContext<'_>, runs: &[RunView<'_>]) -> Value {
    let outcome = runs.last().map_or(Outcome::Ended, |last| Outcome::of(*last));
    let summary = summary(context, runs, outcome);
    structured::object(runs, &call_state(&summary, context))
}

/// The result of a call that failed with an error that a model can act on. `run`: the run that the error concerns.
pub(crate) fn tool_error(context: &ResultContext<'_>, error: &ToolError, run: Option<RunView<'_>>) -> Value {
    failed(context, &Failure::new(error.code, &error.message), run)
}

/// The result of a call that the engine refused. `None`: the fault is no error that a model can act on.
pub(crate) fn fault_result(context: &ResultContext<'_>, fault: &Fault, run: Option<RunView<'_>>) -> Option<Value> {
    use interlingua_core::FaultKind as K;
    let is_of_envelope = matches!(
        fault.kind,
        K::BadHead
            | K::HeadTooLarge
            | K::Misdirected
            | K::Malformed
            | K::UnsupportedMedia
            | K::NotAcceptable
            | K::TooLarge
            | K::Unauthenticated
            | K::Forbidden
            | K::NoSuchPath
            | K::MethodNotAllowed
            | K::NoSuchAgent
            | K::RateLimited
    );
    let is_result = !is_of_envelope && !failure::is_protocol_error(fault.kind);
    is_result.then(|| failed(context, &Failure::of_fault(fault), run))
}

/// The data of a JSON-RPC error for a fault that no result shows: its code, and the party that has to act.
pub(crate) fn fault_data(fault: &Fault) -> Value {
    json!({ "code": fault.code(), "retryable": failure::is_retryable(fault.kind), "blame": fault.kind.blame().as_str() })
}

fn failed(context: &ResultContext<'_>, failure: &Failure, run: Option<RunView<'_>>) -> Value {
    let mut content = vec![Block::text(failure.text()).value];
    let mut meta = Map::new();
    if let Some(run) = run.map(|view| view.run()) {
        if context.options.session_note && !context.is_structured() {
            content.push(session_note(&run.session_id).value);
        }
        meta = ids(&run.id.to_string(), &run.session_id, "failed");
    } else {
        meta.insert("interlingua/status".to_owned(), json!("failed"));
    }
    meta.insert("interlingua/error".to_owned(), failure.to_value());

    let mut result = Map::new();
    result.insert("content".to_owned(), Value::Array(content));
    result.insert("isError".to_owned(), json!(true));
    result.insert("_meta".to_owned(), Value::Object(meta));
    finish(context, &mut result);
    Value::Object(result)
}

fn finish(context: &ResultContext<'_>, result: &mut Map<String, Value>) {
    if context.revision.is_modern() {
        result.insert("resultType".to_owned(), json!("complete"));
    }
}

fn ids(run: &str, session: &str, status: &str) -> Map<String, Value> {
    let fields = [("interlingua/run", run), ("interlingua/session", session), ("interlingua/status", status)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
}

fn session_note(session: &str) -> Block {
    let value = json!({
        "type": "text",
        "text": format!("[session {session}]"),
        "annotations": { "audience": ["assistant"] },
    });
    Block { value, part: None }
}

fn summary(context: &ResultContext<'_>, runs: &[RunView<'_>], outcome: Outcome<'_>) -> Summary {
    let (first, last) = (runs.first().map(|view| view.run()), runs.last());
    let mut summary = Summary { status: "working", failure: None, usage: usage(runs), next: None };
    match outcome {
        Outcome::Working => {
            summary.next = first.map(|first| notes::wait(first, context.options, context.resources));
        }
        Outcome::Waiting { .. } => {
            summary.status = "input_required";
            let pending = last.map_or(&[][..], |view| view.pending);
            summary.next = first.map(|first| notes::answer(first, pending, context.options));
        }
        Outcome::Ended => {
            // A run that has not ended yet has ended its last turn.
            let end = last.and_then(|view| view.run().outcome()).map_or(End::Completed, |(end, _)| end);
            summary.status = end.as_str();
            summary.failure = last.and_then(|view| Failure::of_run(view.run(), end));
        }
    }
    summary
}

fn call_state<'a>(summary: &'a Summary, context: &ResultContext<'_>) -> CallState<'a> {
    CallState {
        status: summary.status,
        next: summary.next.as_deref(),
        failure: summary.failure.as_ref(),
        usage: summary.usage.as_ref(),
        has_steps: context.options.steps,
    }
}

/// The sum of the token usage of all turns. `None`: no agent reported any.
fn usage(runs: &[RunView<'_>]) -> Option<Value> {
    let turns = runs.iter().flat_map(|view| view.run().turns.iter());
    let reports = turns.filter_map(|turn| TokenUsage::parse(turn.usage.as_ref()?));
    let sum = reports.reduce(|sum, one| TokenUsage {
        input: sum.input.saturating_add(one.input),
        output: sum.output.saturating_add(one.output),
        total: sum.total.saturating_add(one.total),
        ..sum
    })?;
    Some(json!({ "input_tokens": sum.input, "output_tokens": sum.output, "total_tokens": sum.total }))
}

fn has_refusal(runs: &[RunView<'_>]) -> bool {
    let messages = runs.iter().flat_map(|view| view.run().messages.iter()).filter(|message| is_answer(message));
    messages.flat_map(|message| message.slots.iter()).any(|slot| slot.kind == ContentType::Refusal)
}

#[cfg(test)]
mod tests;
