//! The conversation of a thread as messages of this protocol: for front ends that show what the gateway keeps.
//!
//! Clients drop every message that a snapshot does not name, so it is always whole; and it takes the place of what they
//! made of the stream, so it has the same texts, calls and ids as the stream ([`super::texts`], [`super::calls`]).

use std::collections::{HashMap, HashSet};

use interlingua_adapter_kit::answer_parts::{call_in_data, derived_id};
use interlingua_adapter_kit::call_ledger::CallLedger;
use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::markdown;
use interlingua_core::call::SessionItem;
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolOutput};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::Run;
use interlingua_core::{Extra, Json, RunId};
use serde_json::json;

use super::super::options::{Options, ReasoningForm};
use super::super::thread::Labels;
use super::{contents, interrupts};
use crate::connect::user_parts;

/// The messages of a thread, under the ids that its client knows: the client's and the agent's ids, and replacements
/// for ids that the agent has used before.
pub(in crate::serve) fn snapshot_messages(items: &[SessionItem]) -> Vec<Message> {
    let mut known: HashMap<&str, Option<RunId>> = HashMap::new();
    let messages = items.iter().map(|item| {
        let mut message = item.message.clone();
        let id = item.message.id.as_deref().unwrap_or(&item.id);
        let first = *known.entry(id).or_insert(item.run);
        let is_agents = message.role == Some(Role::Assistant) || message.kind.is_output();
        message.id = Some(match item.run {
            Some(run) if is_agents && first != item.run => run.to_prefixed(&format!("{id}-")),
            _ => id.to_owned(),
        });
        message
    });
    messages.collect()
}

/// The messages before a run, and those of the run.
pub(super) fn whole(before: &[Message], run: &Run, labels: &Labels, options: &Options) -> Vec<Json> {
    let mut snapshot = Snapshot::new(options, labels.is_v1());
    before.iter().for_each(|message| snapshot.add(message));
    snapshot.end_turn();
    run.turns.iter().flat_map(|turn| &turn.input).for_each(|message| snapshot.add(message));
    snapshot.end_turn();
    for message in &run.messages {
        let mut shown = message.to_model();
        shown.id = Some(labels.known.shown_id(&message.id, run).into_owned());
        snapshot.add(&shown);
    }
    snapshot.end_turn();
    snapshot.written.into_iter().map(MessageDraft::into_json).collect()
}

struct Snapshot<'o> {
    options: &'o Options,
    is_v1: bool,
    written: Vec<MessageDraft>,
    ids: HashSet<String>,
    /// The number of messages, for generated message ids.
    count: usize,
    calls: CallLedger<(), ()>,
    /// The calls that the agent requested in this turn.
    asked: Vec<Pending>,
    /// The message that the next call belongs to, if only calls have arrived since.
    group: Option<usize>,
}

/// A message, to which calls may be added.
struct MessageDraft {
    fields: Extra,
    calls: Vec<Json>,
}

impl MessageDraft {
    fn new(id: &str, role: &str) -> Self {
        let mut fields = Extra::new();
        fields.push("id", Json::from_serialize(id));
        fields.push("role", Json::from_serialize(role));
        Self { fields, calls: Vec::new() }
    }

    fn with(mut self, name: &str, value: Json) -> Self {
        self.fields.push(name, value);
        self
    }

    fn into_json(mut self) -> Json {
        if !self.calls.is_empty() {
            self.fields.push("toolCalls", Json::from_serialize(&self.calls));
        }
        Json::from_serialize(&self.fields)
    }
}

impl<'o> Snapshot<'o> {
    fn new(options: &'o Options, is_v1: bool) -> Self {
        Self {
            options,
            is_v1,
            written: Vec::new(),
            ids: HashSet::new(),
            count: 0,
            calls: CallLedger::default(),
            asked: Vec::new(),
            group: None,
        }
    }

    /// The client's message, or the end of the conversation, ends a turn: all requested calls are announced by now.
    fn end_turn(&mut self) {
        for item in std::mem::take(&mut self.asked) {
            let id = interrupts::call_id(&item).to_owned();
            self.call(&id, &item.name, &item.arguments, &id, None);
        }
        self.group = None;
    }

    fn add(&mut self, message: &Message) {
        let place = self.count;
        self.count += 1;
        let mut id = message.id.clone().unwrap_or_else(|| format!("message_{place}"));
        // What a client sent again stands here once.
        if !self.ids.insert(id.clone()) {
            if message.role != Some(Role::Assistant) {
                return;
            }
            id = format!("{id}_{place}");
        }

        match (&message.kind, &message.role) {
            (kind, _) if kind.is_call() => self.add_calls(&id, message),
            (kind, _) if kind.is_output() => self.add_outputs(&id, message),
            (MessageType::McpApprovalRequest, _) => {
                let asked = message.content.iter().filter_map(Content::as_data).filter_map(Pending::parse);
                self.asked.extend(asked.filter(|item| item.kind == PendingKind::Approval));
            }
            (MessageType::Reasoning, _) => self.add_reasoning(&id, message),
            (MessageType::Message, Some(Role::User) | None) => {
                self.end_turn();
                self.written.push(MessageDraft::new(&id, "user").with("content", user_parts(&message.content)));
            }
            (MessageType::Message, Some(Role::System)) => {
                self.end_turn();
                self.written
                    .push(MessageDraft::new(&id, "system").with("content", Json::from_serialize(&message.text())));
            }
            (MessageType::Message, _) => {
                let text = self.text_of(message);
                if !text.is_empty() {
                    self.group = Some(self.written.len());
                    self.written.push(MessageDraft::new(&id, "assistant").with("content", Json::from_serialize(&text)));
                }
            }
            (MessageType::McpApprovalResponse, _) => self.end_turn(),
            // Questions are part of outcomes, and events of this protocol are no messages.
            _ => {}
        }
    }

    /// The streamed text of an agent's message: with refusals, and with links to media.
    fn text_of(&self, message: &Message) -> String {
        let mut text = String::new();
        for content in &message.content {
            match &content.body {
                Body::Text(more) | Body::Refusal(more) => text.push_str(more),
                medium if self.options.media.has_links() => {
                    let Some(link) = markdown::link(medium) else { continue };
                    if !text.is_empty() {
                        text.push_str("\n\n");
                    }
                    text.push_str(&link);
                }
                _ => {}
            }
        }
        text
    }

    fn add_reasoning(&mut self, id: &str, message: &Message) {
        // Clients of the older form have no such messages.
        if self.options.reasoning != ReasoningForm::Events {
            return;
        }
        let (text, sealed) = (message.text(), self.sealed(message));
        if text.is_empty() && sealed.is_none() {
            return;
        }
        self.group = None;
        let mut written = MessageDraft::new(id, "reasoning").with("content", Json::from_serialize(&text));
        if let Some(sealed) = sealed {
            written = written.with("encryptedValue", sealed);
        }
        self.written.push(written);
    }

    fn add_calls(&mut self, id: &str, message: &Message) {
        let sealed = self.sealed(message);
        for (place, content) in message.content.iter().enumerate() {
            let Some(data) = content.as_data() else { continue };
            let call = call_in_data(data);
            let call_id = if call.call_id.is_empty() { derived_id(id, place) } else { call.call_id };
            self.call(&call_id, &call.name, &call.arguments, id, sealed.as_ref());
        }
    }

    /// Adds a call to the message it belongs to, unless it is known. `parent`: the id of a message of its own. Returns
    /// its index in the ledger.
    fn call(&mut self, id: &str, name: &str, arguments: &str, parent: &str, sealed: Option<&Json>) -> usize {
        if let Some(known) = self.calls.index_of(id) {
            return known;
        }
        let index = self.calls.announce(id, name, true);
        self.calls.end(index);

        let function = json!({ "name": name, "arguments": arguments });
        let mut call = json!({ "id": id, "type": "function", "function": function });
        if let Some(sealed) = sealed.and_then(Json::decode) {
            call["encryptedValue"] = sealed;
        }
        let group = *self.group.get_or_insert_with(|| {
            self.written.push(MessageDraft::new(parent, "assistant"));
            self.written.len() - 1
        });
        self.written[group].calls.push(Json::from_serialize(&call));
        index
    }

    fn add_outputs(&mut self, id: &str, message: &Message) {
        let outputs: Vec<(usize, ToolOutput)> = message
            .content
            .iter()
            .enumerate()
            .filter_map(|(place, content)| Some((place, call_output::in_data(content.as_data()?))))
            .collect();
        let is_only = outputs.len() == 1;
        // Media beside several results belong to none of them.
        let media = if is_only { message.content.as_slice() } else { &[] };
        for (place, output) in outputs {
            let name = output.name.as_deref().unwrap_or_default();
            let call = self.calls.find(&output.call_id, name).unwrap_or_else(|| {
                let call = if output.call_id.is_empty() { derived_id(id, place) } else { output.call_id };
                self.call(&call, name, "{}", &format!("{call}_call"), None)
            });
            if !self.calls.answer(call, || ()) {
                continue;
            }

            let id = if is_only { id.to_owned() } else { format!("{id}_{place}") };
            let content = self.result(&message.kind, output.output, media);
            let mut written =
                MessageDraft::new(&id, "tool").with("toolCallId", Json::from_serialize(&self.calls.calls()[call].id));
            written = written.with("content", content);
            if let Some(sealed) = self.sealed(message).filter(|_| is_only) {
                written = written.with("encryptedValue", sealed);
            }
            self.written.push(written);
            self.group = None;
        }
    }

    /// A value that only the agent can read, where the stream has it.
    fn sealed(&self, message: &Message) -> Option<Json> {
        let metadata: Extra =
            message.metadata.as_ref().filter(|_| self.options.reasoning == ReasoningForm::Events)?.decode()?;
        metadata.get("encrypted_content").filter(|value| value.text().starts_with('"')).cloned()
    }

    fn result(&self, kind: &MessageType, output: String, media: &[Content]) -> Json {
        let is_unwrapped = self.options.unwrap_tool_output.0;
        let mut text = if is_unwrapped { call_output::text_of_blocks(&output).unwrap_or(output) } else { output };
        let form = self.options.media.of_message(kind);
        contents::add_result_links(&mut text, media.iter(), form);
        let parts = contents::result_parts(media.iter(), form);
        // Older clients have no place for parts in a result.
        if parts.is_empty() || !self.is_v1 {
            return Json::from_serialize(&text);
        }
        let text = (!text.is_empty()).then(|| contents::text_part(&text));
        Json::from_serialize(&text.into_iter().chain(parts).collect::<Vec<_>>())
    }
}
