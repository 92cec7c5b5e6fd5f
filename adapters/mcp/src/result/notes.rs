//! The sentences with which the gateway ends a result: the questions of a run, and an instruction to the model.

use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::Run;

use crate::forms;
use crate::options::Options;
use crate::result::uris::run_uri;

/// Follows an answer that a limit of the agent has cut off.
pub(super) const CUT_OFF: &str = "[the answer was cut off]";

/// Longest text of all questions, in bytes.
const MAX_QUESTIONS: usize = 64 << 10;

/// The questions of a run. `reason`: why they come again.
pub(super) fn questions(pending: &[Pending], reason: Option<&str>) -> String {
    let mut text = reason.map_or_else(String::new, |reason| format!("{reason}\n"));
    for (index, item) in pending.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        if text.len() > MAX_QUESTIONS {
            text.push_str(&format!("… ({} more)", pending.len() - index));
            break;
        }
        let words: Vec<&str> = forms::offered(item).iter().map(|decision| decision.as_str()).collect();
        text.push_str(&forms::question_text(item));
        if item.kind == PendingKind::Input
            && let Some(schema) = &item.response_schema
        {
            text.push_str(&format!("\nThe answer is JSON that matches: {}", schema.text()));
        }
        text.push_str(&format!("\n(item {}, decisions: {})", item.id, words.join(", ")));
    }
    text
}

/// The instruction to the model for a run that waits.
pub(super) fn answer(first: &Run, pending: &[Pending], options: &Options) -> String {
    let run = first.id;
    if pending.is_empty() {
        return format!("Ask the person; then call this tool again with session {} and the answer.", first.session_id);
    }
    if options.answer_tool.is_empty() {
        return format!("The person has to answer in another client. The run is {run}.");
    }
    let tool = &options.answer_tool;
    let items = match pending {
        [one] => format!(" and item {}", one.id),
        _ => ", once for each item".to_owned(),
    };
    let needs_person = |item: &Pending| matches!(item.kind, PendingKind::Approval | PendingKind::Auth);
    if options.answer_tool_approves || !pending.iter().any(needs_person) {
        return format!("Ask the person; then call {tool} with run {run}{items}.");
    }
    let then = match options.wait_tool.as_str() {
        "" => String::new(),
        wait => format!(" Afterwards call {wait} with run {run}."),
    };
    format!(
        "A person has to approve this, in the console or in another client: {tool} takes no approvals.{then} \
         For anything else ask the person; then call {tool} with run {run}{items}; the decision reject declines."
    )
}

/// The instruction to the model for a run that is still working.
pub(super) fn wait(first: &Run, options: &Options, has_resources: bool) -> String {
    let run = first.id;
    match options.wait_tool.as_str() {
        "" if has_resources => format!("The agent is still working. Read {} later.", run_uri(run)),
        "" => format!("The agent is still working. The run is {run}."),
        wait => format!("The agent is still working. Call {wait} with run {run} for the rest of its answer."),
    }
}
