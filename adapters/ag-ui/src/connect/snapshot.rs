//! What snapshots say that was not streamed.
//!
//! LangGraph's adapter loses the first piece of a call's arguments, and what a node says without a model: both stand in
//! its snapshots alone. What was streamed, and what is of earlier turns, is not repeated.

use std::collections::HashSet;

use interlingua_core::Fault;
use interlingua_core::model::{MessageType, Role};
use serde_json::value::RawValue;

use super::calls::Calls;
use super::context::Context;
use super::frame::{Fields, entries, text_or_json};
use super::ids::key;
use super::texts::{Opening, Texts};

/// What the request says about the place where the answer begins in a snapshot.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// The agent's id of the last message before this turn, which answers what an earlier turn asked. Empty: the agent
    /// said nothing since the user's last words. None: unknown.
    pub(super) after: Option<String>,
    /// Ids of calls whose outputs this turn brings.
    pub(super) outputs: HashSet<String>,
    /// The turn has nothing but answers to what the agent asked.
    pub(super) is_answer: bool,
}

/// Reads a snapshot of the conversation.
pub(super) struct SnapshotReader<'r, 'a> {
    pub(super) start: &'r Start,
    pub(super) texts: &'r mut Texts,
    pub(super) calls: &'r mut Calls,
    pub(super) context: Context<'a>,
}

impl SnapshotReader<'_, '_> {
    /// Emits what of the conversation was not streamed.
    pub(super) fn read(&mut self, messages: &[&RawValue]) -> Result<(), Fault> {
        let messages: Vec<Fields<'_>> =
            messages.iter().map(|message| Fields::parse(message.get()).unwrap_or_default()).collect();
        for message in &messages {
            self.learn_arguments(message)?;
        }

        let Some(first) = self.first_of_answer(&messages) else { return Ok(()) };
        for message in &messages[first..] {
            self.message(message)?;
        }
        Ok(())
    }

    /// Takes over the whole arguments of calls.
    fn learn_arguments(&mut self, message: &Fields<'_>) -> Result<(), Fault> {
        for call in message.list("toolCalls") {
            let Some(call) = Fields::parse(call.get()) else { continue };
            let Some(function) = call.object("function") else { continue };
            if let (Some(id), Some(arguments)) = (call.text("id"), function.get("arguments")) {
                self.calls.learn(&id, &text_or_json(arguments), &mut self.context)?;
            }
        }
        Ok(())
    }

    /// Where the answer begins: behind everything that was said before this turn. None: that cannot be known.
    fn first_of_answer(&self, messages: &[Fields<'_>]) -> Option<usize> {
        let is_earlier = |message: &Fields<'_>| {
            let id = key(&message.text("id").unwrap_or_default());
            let is_after = !id.is_empty() && self.start.after.as_ref() == Some(&id);
            let calls = message.list("toolCalls");
            let asked = calls.into_iter().filter_map(|call| Fields::parse(call.get())?.text("id"));
            let was_shown = asked.into_iter().any(|id| {
                let call = self.calls.get(&key(&id));
                call.is_some_and(super::calls::Call::was_shown_before)
            });
            let answers = message.text("toolCallId").is_some_and(|id| self.start.outputs.contains(key(&id).as_str()));
            is_after || was_shown || answers
        };
        let is_from_user =
            |message: &Fields<'_>| matches!(message.text("role").as_deref(), Some("user" | "system" | "developer"));

        let earlier = messages.iter().rposition(is_earlier);
        let said = messages.iter().rposition(is_from_user);
        match (earlier, said) {
            (Some(earlier), said) => Some(earlier.max(said.unwrap_or(0)) + 1),
            // Between the user's last words and now, an earlier turn may have said something, too.
            (None, _) if self.start.is_answer && self.start.after.as_deref() != Some("") => None,
            (None, Some(said)) => Some(said + 1),
            (None, None) => Some(0),
        }
    }

    fn message(&mut self, message: &Fields<'_>) -> Result<(), Fault> {
        let id = key(&message.text("id").unwrap_or_default());
        match message.text("role").as_deref() {
            Some("assistant") => {
                let text = message.get("content").map(text_or_json).unwrap_or_default();
                if !text.is_empty() && !id.is_empty() && !self.context.shared.has_text_of(&id) {
                    let opening = Opening::from_snapshot(MessageType::Message, Role::Assistant, &id);
                    self.texts.whole(opening, &text, &mut self.context)?;
                }
                self.new_calls(message, &id)
            }
            Some("reasoning") => {
                let text = message.get("content").map(text_or_json).unwrap_or_default();
                if text.is_empty() || id.is_empty() || self.context.shared.has_text_of(&id) {
                    return Ok(());
                }
                let opening = Opening::from_snapshot(MessageType::Reasoning, Role::Assistant, &id);
                self.texts.whole(opening, &text, &mut self.context)
            }
            Some("tool") => {
                let call = message.text("toolCallId").unwrap_or_default();
                let is_new = self.calls.get(&key(&call)).is_some_and(|call| !call.is_answered);
                if is_new { self.calls.result(message, &mut self.context) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Calls that were not streamed.
    fn new_calls(&mut self, message: &Fields<'_>, parent: &str) -> Result<(), Fault> {
        for call in message.list("toolCalls") {
            let Some(call) = Fields::parse(call.get()) else { continue };
            let (Some(id), Some(function)) = (call.text("id"), call.object("function")) else { continue };
            if self.calls.get(&key(&id)).is_some() {
                continue;
            }

            let name = function.text("name").unwrap_or_default();
            let metadata = interlingua_core::Extra::new();
            self.calls.open(&id, &name, parent, metadata, &mut self.context)?;
            let arguments = function.get("arguments").map(text_or_json).unwrap_or_default();
            self.calls.learn(&id, &arguments, &mut self.context)?;
        }
        Ok(())
    }
}

/// Takes over arguments of calls from a snapshot of LangGraph's state, which comes before the calls' results.
pub(super) fn learn_from_state(snapshot: &RawValue, calls: &mut Calls, context: &mut Context<'_>) -> Result<(), Fault> {
    let Some(messages) = Fields::parse(snapshot.get()).and_then(|state| state.get("messages")) else { return Ok(()) };
    for message in entries(messages) {
        let Some(message) = Fields::parse(message.get()) else { continue };
        for call in message.list("tool_calls") {
            let Some(call) = Fields::parse(call.get()) else { continue };
            if let (Some(id), Some(arguments)) = (call.text("id"), call.get("args"))
                && calls.get(&key(&id)).is_some_and(super::calls::Call::lacks_arguments)
            {
                calls.learn(&id, arguments.get(), context)?;
            }
        }
    }
    Ok(())
}
