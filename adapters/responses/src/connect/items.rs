//! Complete items: the end of a streamed item, an item that was not streamed, and an item of a polled answer.

use std::borrow::Cow;

use interlingua_adapter_kit::wire_names::{MAX_CALL_ID, is_accepted};
use interlingua_core::agent_event::{
    AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::ContentKind;
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::opaque::ORIGIN;
use interlingua_core::{End, Extra, Fault, Json};
use serde_json::value::RawValue;

use super::calls::{head, hosted_arguments, text_argument};
use super::reader::Reader;
use super::slots::SlotKind;
use super::wire::{Event, Object, index, json_text, text};

/// Items up to this size are kept as they are, in bytes, so that they can be given back.
const MAX_KEPT: usize = 256 * 1024;
/// More calls of one answer than this are not remembered.
const MAX_OPEN_CALLS: usize = 256;

impl Reader {
    pub(super) fn item_done(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(raw) = event.item else { return sink.emit(&AgentEvent::Ignored) };
        self.end_item(raw, index(event.output_index), false, sink)
    }

    /// Processes an entry of the list at the end of an answer. It usually repeats an item that was streamed.
    pub(super) fn final_item(
        &mut self,
        raw: &RawValue,
        place: Option<u32>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        self.end_item(raw, place, true, sink)
    }

    fn end_item(
        &mut self,
        raw: &RawValue,
        place: Option<u32>,
        is_final: bool,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let Some(item) = Object::parse(raw) else { return sink.emit(&AgentEvent::Ignored) };
        let word = item.word("type");
        let kind = SlotKind::from_word(&word);
        let wire_id = item.word("id");
        let known = self.slots.known(place, &wire_id, kind, is_final);
        let known = if is_final { self.slots.settle(known, kind) } else { known };
        let slot = match known {
            Some(known) if self.slots.all[known].is_closed => return sink.emit(&AgentEvent::KeepAlive),
            Some(known) => known,
            None => self.open(place, &wire_id, kind)?,
        };

        self.slots.all[slot].is_closed = true;
        match kind {
            SlotKind::Message => self.message_done(slot, &item, sink),
            SlotKind::Reasoning => self.reasoning_done(slot, &item, sink),
            SlotKind::FunctionCall | SlotKind::CustomCall => self.client_call_done(slot, &item, sink),
            SlotKind::McpCall => self.mcp_call_done(slot, &item, sink),
            SlotKind::Hosted => self.hosted_done(slot, raw, &item, sink),
            SlotKind::Whole => self.whole(slot, raw, &item, sink),
        }
    }

    /// Processes the current state of an item whose answer is incomplete.
    pub(super) fn item_so_far(
        &mut self,
        raw: &RawValue,
        place: Option<u32>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let Some(item) = Object::parse(raw) else { return sink.emit(&AgentEvent::Ignored) };
        let kind = SlotKind::from_word(&item.word("type"));
        if item.text("status").as_deref() == Some("completed") {
            return self.final_item(raw, place, sink);
        }
        let (name, step) = match kind {
            SlotKind::Message => ("content", 1),
            SlotKind::Reasoning => ("summary", 2),
            // Calls are shown once they are whole: nothing can be done with a part of one.
            _ => return sink.emit(&AgentEvent::KeepAlive),
        };

        let wire_id = item.word("id");
        let slot = match self.slots.known(place, &wire_id, kind, true) {
            Some(known) if self.slots.all[known].is_closed => return sink.emit(&AgentEvent::KeepAlive),
            Some(known) => known,
            None => {
                let slot = self.open(place, &wire_id, kind)?;
                self.announce(slot, &item, sink)?;
                slot
            }
        };

        for (part, raw) in (0..).step_by(step).zip(item.list(name)) {
            let Some(text) = Object::parse(raw).and_then(|part| part.text("text")) else { continue };
            let content =
                ContentEvent::new(&self.slots.all[slot].id, ContentUpdate::Snapshot, ContentValue::Text(text));
            sink.emit(&AgentEvent::Content(content.at(part)))?;
        }
        Ok(())
    }

    fn message_done(&mut self, slot: usize, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = self.slots.all[slot].id.clone();
        let mut contents = Vec::new();
        let mut annotations: Vec<&RawValue> = Vec::new();
        let mut annotated = 0;
        for (place, raw) in (0_u32..).zip(item.list("content")) {
            let Some(part) = Object::parse(raw) else { continue };
            let found = part.list("annotations");
            annotated += usize::from(!found.is_empty());
            annotations.extend(found);
            if !part.list("logprobs").is_empty() {
                self.losses.lost(ContentKind::Metadata, "probabilities of tokens are left out");
            }
            contents.extend(self.part(&id, &part, raw).map(|content| content.at(place)));
        }

        if annotated > 1 {
            self.losses.changed(ContentKind::Annotation, "those of all parts of a message stand together");
        }
        if contents.is_empty() && !self.slots.all[slot].has_spoken {
            // Servers that call a tool end a message, too, that never began.
            return sink.emit(&AgentEvent::KeepAlive);
        }
        let mut fields = Extra::new();
        if !annotations.is_empty() {
            fields.push("annotations", Json::from_serialize(&annotations));
        }
        if let Some(phase) = item.text("phase") {
            fields.push("phase", Json::from_serialize(&phase));
        }

        let role = item.text("role").map_or(Role::Assistant, |role| Role::from(role.as_ref()));
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(MessageType::Message),
            role: Some(role),
            end: Some(end_of(item)),
            contents,
            metadata: metadata(fields),
            ..MessageEvent::default()
        }))
    }

    /// A part of a message.
    fn part<'p>(&mut self, id: &'p str, part: &Object<'p>, raw: &'p RawValue) -> Option<ContentEvent<'p>> {
        let value = match part.word("type").as_ref() {
            "output_text" | "text" | "input_text" => ContentValue::Text(part.word("text")),
            "refusal" => ContentValue::Refusal(part.word("refusal")),
            "output_audio" | "audio" => ContentValue::Audio { data: part.text("data"), format: part.text("format") },
            "output_image" | "image" => ContentValue::Image(part.text("image_url").or_else(|| part.text("url"))),
            _ => ContentValue::Data(Some(raw)),
        };
        Some(ContentEvent::new(id, ContentUpdate::Final, value)).filter(|content| {
            // Servers close a text that never had a word, beside a part that has.
            !matches!(&content.value, ContentValue::Text(text) | ContentValue::Refusal(text) if text.is_empty())
        })
    }

    fn reasoning_done(&mut self, slot: usize, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let texts = |name: &str| -> Vec<Cow<'_, str>> {
            if let Some(whole) = item.text(name) {
                return vec![whole];
            }
            let parts = item.list(name).into_iter();
            parts.filter_map(|part| text(Some(part)).or_else(|| Object::parse(part)?.text("text"))).collect()
        };
        let summary = texts("summary");
        let thoughts = texts("content");
        // Servers without summaries send the thoughts as both.
        let is_repeated = !summary.is_empty() && summary.concat() == thoughts.concat();

        let id = self.slots.all[slot].id.clone();
        let place = |parity: u32| (parity..).step_by(2);
        let repeated = if is_repeated { 0 } else { thoughts.len() };
        let all = place(0).zip(summary).chain(place(1).zip(thoughts.into_iter().take(repeated)));
        let contents: Vec<ContentEvent<'_>> = all
            .filter(|(_, text)| !text.is_empty())
            .map(|(place, text)| ContentEvent::new(&id, ContentUpdate::Final, ContentValue::Text(text)).at(place))
            .collect();

        let mut fields = Extra::new();
        if let Some(encrypted) = item.text("encrypted_content").filter(|text| !text.is_empty()) {
            if encrypted.len() <= MAX_KEPT {
                fields.push("encrypted_content", Json::from_serialize(&encrypted));
                fields.push("id", Json::from_serialize(&item.word("id")));
                fields.push(ORIGIN, Json::from_serialize(&self.origin));
            } else {
                self.losses.lost(ContentKind::Opaque, "encrypted reasoning is too large to be kept");
            }
        }

        if contents.is_empty() && fields.is_empty() && !self.slots.all[slot].has_spoken {
            // Models that do not show their thoughts.
            return sink.emit(&AgentEvent::KeepAlive);
        }
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(MessageType::Reasoning),
            end: Some(end_of(item)),
            contents,
            metadata: metadata(fields),
            ..MessageEvent::default()
        }))
    }

    /// A call that the client runs.
    fn client_call_done(&mut self, slot: usize, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let kind = self.slots.all[slot].kind;
        let mut call = head(kind, item, &self.names);
        if call.name.is_empty() && call.arguments.is_empty() {
            // A call of nothing.
            return sink.emit(&AgentEvent::Ignored);
        }

        let end = end_of(item);
        if kind == SlotKind::CustomCall {
            call.arguments = text_argument(kind, &item.word("input")).into();
        } else if call.arguments.is_empty() && end == End::Completed && !self.slots.all[slot].has_arguments {
            // Clients parse them, and an empty text is no JSON.
            call.arguments = "{}".into();
        }

        if end == End::Completed {
            self.remember(&call.call_id);
        }
        let mut fields = Extra::new();
        if kind == SlotKind::CustomCall {
            fields.push("type", Json::from_serialize("custom_tool_call"));
        }
        // Only its author knows such an id: it goes back to that agent unchanged.
        if !call.call_id.is_empty() && !is_accepted(&call.call_id, MAX_CALL_ID) {
            fields.push(ORIGIN, Json::from_serialize(&self.origin));
        }
        if let Some(namespace) = item.text("namespace") {
            fields.push("namespace", Json::from_serialize(&namespace));
        }
        self.end_call(slot, MessageType::FunctionCall, call, end, fields, sink)
    }

    /// Calls of the server's own kinds that got no output: the server waits for one that no client can make.
    pub(super) fn settle_own_calls(&mut self) {
        for call_id in std::mem::take(&mut self.own_calls) {
            self.losses.lost(ContentKind::ClientCall, "no client can run a call of the server's own kind");
            self.remember(&call_id);
        }
    }

    /// The server waits for the output of this call, or for a decision about it.
    fn remember(&mut self, call_id: &str) {
        if self.open_calls.len() < MAX_OPEN_CALLS && call_id.len() <= MAX_KEPT / 256 {
            self.open_calls.push(call_id.to_owned());
        }
    }

    fn end_call(
        &mut self,
        slot: usize,
        kind: MessageType,
        call: CallPart<'_>,
        end: End,
        fields: Extra,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let id = self.slots.all[slot].id.as_str();
        // Arguments that came in pieces are not taken back by an end without any.
        let is_empty = call.arguments.is_empty() && self.slots.all[slot].has_arguments;
        let contents = if is_empty {
            Vec::new()
        } else {
            vec![ContentEvent::new(id, ContentUpdate::Final, ContentValue::Call(call))]
        };
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(id)),
            kind: Some(kind),
            end: Some(end),
            contents,
            metadata: metadata(fields),
            ..MessageEvent::default()
        }))
    }

    fn mcp_call_done(&mut self, slot: usize, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let call = head(SlotKind::McpCall, item, &self.names);
        let (call_id, name) = (call.call_id.clone(), call.name.clone());
        let error = item.get("error").map(failure_text);
        let output = error.clone().or_else(|| json_text(item.get("output")).map(Cow::into_owned));

        let mut fields = Extra::new();
        if let Some(request) = item.text("approval_request_id") {
            fields.push("approval_request_id", Json::from_serialize(&request));
        }
        let failed = error.is_some() || item.text("status").as_deref() == Some("failed");
        let end = if failed || output.is_some() { End::Completed } else { end_of(item) };
        if !self.slots.all[slot].has_called {
            self.end_call(slot, MessageType::McpCall, call, end, fields, sink)?;
        }

        let output = output.or_else(|| failed.then(|| "the tool failed".to_owned()));
        let Some(output) = output else { return Ok(()) };
        let end = if failed { End::Failed } else { End::Completed };
        self.output(slot, MessageType::McpCallOutput, (&call_id, &name, output), end, Extra::new(), sink)
    }

    /// A call of a tool that the server brings along.
    fn hosted_done(
        &mut self,
        slot: usize,
        raw: &RawValue,
        item: &Object<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let mut call = head(SlotKind::Hosted, item, &self.names);
        call.arguments = hosted_arguments(item, true);
        let (call_id, name) = (call.call_id.clone().into_owned(), call.name.clone().into_owned());
        let output = ["results", "outputs", "output"].iter().find_map(|field| json_text(item.get(field)));
        let image = item.text("result").filter(|_| name == "image_generation");

        let failed = item.text("status").as_deref() == Some("failed") || item.get("error").is_some();
        let awaits_client = RUN_BY_CLIENTS.contains(&&*item.word("type")) && output.is_none() && !failed;
        let end = if failed || !awaits_client { End::Completed } else { end_of(item) };
        let kept = self.kept_item(raw);
        self.end_call(slot, MessageType::PluginCall, call, end, kept, sink)?;
        if let Some(image) = &image {
            self.image(slot, image, &item.word("output_format"), sink)?;
        }

        if awaits_client {
            self.own_calls.push(call_id);
            return Ok(());
        }
        let output = match item.get("error") {
            Some(error) => failure_text(error),
            None => output.map(Cow::into_owned).unwrap_or_default(),
        };
        let end = if failed { End::Failed } else { End::Completed };
        self.output(slot, MessageType::PluginCallOutput, (&call_id, &name, output), end, Extra::new(), sink)
    }

    /// Metadata with the item as it is, so that it can be given back to its author.
    fn kept_item(&mut self, raw: &RawValue) -> Extra {
        let mut fields = Extra::new();
        if raw.get().len() <= MAX_KEPT {
            fields.push("item", Json::from_raw(raw));
            fields.push(ORIGIN, Json::from_serialize(&self.origin));
        } else {
            self.losses.lost(ContentKind::Opaque, "an item of the server is too large to be kept");
        }
        fields
    }

    fn image(&mut self, slot: usize, data: &str, format: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = format!("{}_image", self.slots.all[slot].id);
        let format = if format.is_empty() { "png" } else { format };
        let url = if data.starts_with("data:") || data.starts_with("http") {
            data.to_owned()
        } else {
            format!("data:image/{format};base64,{data}")
        };
        sink.emit(&AgentEvent::whole(&id, MessageType::Message, Role::Assistant, ContentValue::Image(Some(url.into()))))
    }

    /// Emits the output of a call, as a message of its own after the call.
    fn output(
        &mut self,
        slot: usize,
        kind: MessageType,
        (call_id, name, output): (&str, &str, String),
        end: End,
        fields: Extra,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let id = format!("{}_output", self.slots.all[slot].id);
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        let output = ToolOutput { call_id: call_id.to_owned(), name, output };
        emit_output(&id, kind, &output, end, fields, sink)
    }

    /// An item that is shown once it is whole.
    fn whole(&mut self, slot: usize, raw: &RawValue, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = self.slots.all[slot].id.clone();
        let word = item.word("type");
        let kind = match &*word {
            // The server's own memory: a server with memory does not need it back, a server without memory gets the
            // whole history.
            "compaction" => return sink.emit(&AgentEvent::KeepAlive),
            "function_call_output" | "custom_tool_call_output" => MessageType::FunctionCallOutput,
            _ if word.ends_with("_output") => MessageType::PluginCallOutput,
            "mcp_list_tools" => MessageType::McpListTools,
            "mcp_approval_request" => MessageType::McpApprovalRequest,
            "" => return sink.emit(&AgentEvent::Ignored),
            other => MessageType::from(other),
        };

        if kind.is_output() {
            let output = ToolOutput {
                call_id: item.word("call_id").into_owned(),
                name: None,
                output: json_text(item.get("output")).unwrap_or_default().into_owned(),
            };
            self.open_calls.retain(|open| *open != output.call_id);
            self.own_calls.retain(|open| *open != output.call_id);
            let kept = if kind == MessageType::PluginCallOutput { self.kept_item(raw) } else { Extra::new() };
            return emit_output(&id, kind, &output, end_of(item), kept, sink);
        }

        // Clients answer an approval by this id.
        let is_request = kind == MessageType::McpApprovalRequest;
        if is_request && (item.word("id").is_empty() || item.word("name").is_empty()) {
            return sink.emit(&AgentEvent::Ignored);
        }
        if is_request {
            self.remember(&item.word("id"));
        }
        sink.emit(&AgentEvent::whole(&id, kind, Role::Assistant, ContentValue::Data(Some(raw))))
    }
}

/// Calls of the server's own kinds that are for the client to run.
const RUN_BY_CLIENTS: [&str; 4] = ["computer_call", "local_shell_call", "shell_call", "apply_patch_call"];

fn emit_output(
    id: &str,
    kind: MessageType,
    output: &ToolOutput,
    end: End,
    fields: Extra,
    sink: &mut dyn EventSink,
) -> Result<(), Fault> {
    let data = ContentValue::OwnedData(Json::from_serialize(output));
    sink.emit(&AgentEvent::Message(MessageEvent {
        id: Some(Cow::Borrowed(id)),
        kind: Some(kind),
        role: Some(Role::Tool),
        end: Some(end),
        contents: vec![ContentEvent::new(id, ContentUpdate::Final, data)],
        metadata: metadata(fields),
        ..MessageEvent::default()
    }))
}

fn end_of(item: &Object<'_>) -> End {
    match item.text("status").as_deref() {
        Some("incomplete" | "in_progress" | "queued") => End::Incomplete,
        Some("failed") => End::Failed,
        _ => End::Completed,
    }
}

/// The text of a failed tool: its text, its message, or the whole error.
fn failure_text(error: &RawValue) -> String {
    let whole = || json_text(Some(error)).unwrap_or_default().into_owned();
    let Some(fields) = Object::parse(error) else { return whole() };
    let parts = fields.list("content").into_iter().filter_map(Object::parse);
    let said: Vec<Cow<'_, str>> = parts.filter_map(|part| part.text("text")).collect();
    if !said.is_empty() {
        return said.join("\n");
    }
    text(fields.get("message")).filter(|message| !message.is_empty()).map_or_else(whole, Cow::into_owned)
}

/// Metadata of a message, or nothing.
fn metadata(fields: Extra) -> Option<JsonRef<'static>> {
    (!fields.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(&fields)))
}
