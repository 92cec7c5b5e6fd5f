//! Content of snapshots that was not streamed.
//!
//! LangGraph's adapter loses the first piece of a call's arguments, and the messages of a node without a model: only
//! its snapshots contain both. Streamed texts and calls, and messages of earlier turns, are not repeated, even under
//! other ids: a node of LangGraph that returns a new message lists the model's text under another id.

use std::borrow::Cow;
use std::collections::HashSet;

use interlingua_adapter_kit::text_ledger::SnapshotText;
use interlingua_core::Fault;
use interlingua_core::model::{MessageType, Role};
use serde_json::value::RawValue;

use super::calls::Calls;
use super::context::Context;
use super::frame::{Fields, entries, text_or_json};
use super::ids::key;
use super::texts::{Opening, Texts};

/// Facts from the request that determine where the answer begins in a snapshot.
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
    /// Reasoning is emitted.
    pub(super) keeps_reasoning: bool,
    pub(super) context: Context<'a>,
}

/// The text of a message in a snapshot.
struct Text<'a> {
    id: String,
    kind: MessageType,
    text: Cow<'a, str>,
}

impl<'a> Text<'a> {
    /// None: it is no message of the agent.
    fn read(message: &Fields<'a>) -> Option<Self> {
        let kind = match message.text("role").as_deref() {
            Some("assistant") => MessageType::Message,
            Some("reasoning") => MessageType::Reasoning,
            _ => return None,
        };
        let id = key(&message.text("id").unwrap_or_default());
        Some(Self { id, kind, text: message.get("content").map(content_text).unwrap_or_default() })
    }
}

fn call_ids(message: &Fields<'_>) -> Vec<String> {
    let calls = message.list("toolCalls").into_iter();
    calls.filter_map(|call| Some(key(&Fields::parse(call.get())?.text("id")?))).collect()
}

/// The text of a content: a string, the texts of its parts, or its JSON.
fn content_text(content: &RawValue) -> Cow<'_, str> {
    if content.get().starts_with('[') {
        let parts: Vec<Fields<'_>> =
            entries(content).into_iter().filter_map(|part| Fields::parse(part.get())).collect();
        if parts.iter().any(|part| part.text("type").is_some()) {
            return Cow::Owned(parts.iter().filter_map(|part| part.text("text")).collect());
        }
    }
    text_or_json(content)
}

impl SnapshotReader<'_, '_> {
    /// Emits the content of the conversation that was not streamed.
    pub(super) fn read(&mut self, messages: &[&RawValue]) -> Result<(), Fault> {
        let messages: Vec<Fields<'_>> =
            messages.iter().map(|message| Fields::parse(message.get()).unwrap_or_default()).collect();
        for message in &messages {
            self.learn_arguments(message)?;
        }

        let Some(first) = self.first_of_answer(&messages) else { return Ok(()) };
        let answer = &messages[first..];
        let texts: Vec<Option<Text<'_>>> = answer.iter().map(Text::read).collect();
        let mut new = self.new_texts(&texts).into_iter();
        let mut listed: HashSet<String> = answer.iter().flat_map(call_ids).collect();
        for (message, text) in answer.iter().zip(&texts) {
            match text {
                Some(text) => self.read_text(message, text, new.next().unwrap_or_default(), &mut listed)?,
                None => self.output(message)?,
            }
        }
        Ok(())
    }

    /// For each text, whether it was neither emitted nor sent to the agent.
    fn new_texts(&mut self, texts: &[Option<Text<'_>>]) -> Vec<bool> {
        let texts: Vec<&Text<'_>> = texts.iter().flatten().collect();
        let shared = &mut *self.context.shared;
        let compared: Vec<SnapshotText<'_>> =
            texts.iter().map(|Text { id, kind, text }| SnapshotText { id, kind, text }).collect();
        let emitted = shared.emitted.compare(&compared);

        let mut begun = Vec::new();
        let new = texts.into_iter().zip(emitted).map(|(Text { id, kind, text }, is_emitted)| {
            if is_emitted || text.is_empty() {
                return false;
            }
            if let Some(place) = self.texts.expect(kind, id, text, &begun) {
                begun.push(place);
                if !id.is_empty() {
                    shared.add_alias(id);
                }
                return false;
            }
            let is_known = shared.has_text_of(id) && !shared.emitted.has_id(id);
            !is_known && !id.is_empty() && (self.keeps_reasoning || *kind != MessageType::Reasoning)
        });
        new.collect()
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

    /// The index of the answer's first message, after all messages of earlier turns. `None`: it cannot be determined.
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

    fn read_text(
        &mut self,
        message: &Fields<'_>,
        text: &Text<'_>,
        is_new: bool,
        listed: &mut HashSet<String>,
    ) -> Result<(), Fault> {
        let Text { id, kind, text } = text;
        if is_new {
            let opening = Opening::from_snapshot(kind.clone(), Role::Assistant, id);
            self.texts.whole(opening, text, &mut self.context)?;
        }
        if *kind == MessageType::Message { self.new_calls(message, id, listed) } else { Ok(()) }
    }

    fn output(&mut self, message: &Fields<'_>) -> Result<(), Fault> {
        if message.text("role").as_deref() != Some("tool") {
            return Ok(());
        }
        let call = message.text("toolCallId").unwrap_or_default();
        let is_new = self.calls.get(&key(&call)).is_some_and(|call| !call.is_answered);
        if is_new { self.calls.result(message, &mut self.context) } else { Ok(()) }
    }

    /// Calls that were not streamed. `listed`: ids of all calls in the snapshot.
    fn new_calls(&mut self, message: &Fields<'_>, parent: &str, listed: &mut HashSet<String>) -> Result<(), Fault> {
        for call in message.list("toolCalls") {
            let Some(call) = Fields::parse(call.get()) else { continue };
            let (Some(id), Some(function)) = (call.text("id"), call.object("function")) else { continue };
            if self.calls.get(&key(&id)).is_some() {
                continue;
            }

            let name = function.text("name").unwrap_or_default();
            let arguments = function.get("arguments").map(text_or_json).unwrap_or_default();
            if let Some(place) = self.calls.find_same(&name, &arguments, |id| listed.contains(id)) {
                listed.extend(self.calls.key_of(place).map(str::to_owned));
                self.calls.add_alias(&id, place);
                continue;
            }
            self.calls.open_ahead(&id, &name, parent, &mut self.context)?;
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
