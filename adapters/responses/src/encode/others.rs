//! Encodes everything except text and calls: approvals, tool lists, images, errors, unknown messages
//! (docs/protocols/responses.md#what-a-client-receives).

use interlingua_adapter_kit::shown_text;
use interlingua_core::event::End;
use interlingua_core::model::{Body, Content};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out, RunId};
use serde::Serialize;

use super::{ContentPlace, Encoder, messages};
use crate::ids;
use crate::wire::Item;

/// The arguments of the function call that represents a question to a person (docs/human-in-the-loop.md#asking).
#[derive(Serialize)]
struct Question<'a> {
    message: Option<&'a str>,
    payload: Option<&'a Json>,
    response_schema: Option<&'a Json>,
}

impl Encoder {
    /// Encodes a pending item: an approval, a question, a login or a client tool.
    pub(super) fn emit_pending(&mut self, place: ContentPlace, slot: &Slot, out: &mut Out) {
        let Some(pending) = slot.data().and_then(Pending::parse) else { return };
        // The agent repeats a pending item: its id is sent only once.
        if !self.sent_pending.insert(pending.id.clone()) {
            return;
        }

        match pending.kind {
            PendingKind::Approval => {
                let label = pending.server_label.as_deref().unwrap_or(&self.server_label).to_owned();
                let item = Item::McpApprovalRequest {
                    id: &pending.id,
                    server_label: &label,
                    name: &pending.name,
                    arguments: &pending.arguments,
                };
                let index = self.add(&item, out);
                self.done(index, &item, out);
            }
            PendingKind::Input | PendingKind::Auth => {
                if let Some(prompt) = &pending.message {
                    messages::emit_message(self, &place.item_id("msg_"), prompt, "completed", out);
                }
                let question = Question {
                    message: pending.message.as_deref(),
                    payload: pending.payload.as_ref(),
                    response_schema: pending.response_schema.as_ref(),
                };
                let name = self.shared.options.request_input.clone();
                let id = place.item_id("fc_");
                self.emit_function_call(&id, &pending.id, &name, Json::from_serialize(&question).text(), out);
            }
            PendingKind::Tool => {
                let id = place.item_id("fc_");
                self.emit_function_call(&id, &pending.id, &pending.name, &pending.arguments, out);
            }
        }
    }

    /// Sends a complete function call.
    fn emit_function_call(&mut self, id: &str, call_id: &str, name: &str, arguments: &str, out: &mut Out) {
        let item = |status, arguments| Item::FunctionCall { id, status, call_id, name, arguments, namespace: None };

        let index = self.add(&item("in_progress", ""), out);
        if !arguments.is_empty()
            && let Some(frame) = self.frames.event("response.function_call_arguments.delta", out)
        {
            frame.with("item_id", id).with("output_index", &index).with("delta", arguments).end();
        }
        if let Some(frame) = self.frames.event("response.function_call_arguments.done", out) {
            let frame = frame.with("item_id", id).with("output_index", &index);
            frame.with("name", name).with("arguments", arguments).end();
        }
        self.done(index, &item("completed", arguments), out);
    }

    /// Encodes the tools of a server. Optional keys that are null are left out, because the AI SDK rejects them.
    pub(super) fn emit_tool_list(&mut self, place: ContentPlace, slot: &Slot, out: &mut Out) {
        let Some(fields) = slot.data().and_then(Json::decode::<Extra>) else { return };
        let tools: Vec<Extra> = fields.get("tools").and_then(Json::decode).unwrap_or_default();
        let tools: Vec<Json> = tools.into_iter().map(|tool| Json::from_serialize(&without_nulls(&tool))).collect();
        let error = fields.get("error").filter(|error| !error.is_null());
        let label = fields.get("server_label").and_then(Json::decode::<String>);
        let label = label.unwrap_or_else(|| self.server_label.clone());

        let id = place.item_id("mcpl_");
        let index = self.add(&Item::McpListTools { id: &id, server_label: &label, tools: &[], error: None }, out);
        self.stage("response.mcp_list_tools.in_progress", &id, index, out);

        let end = if error.is_some() { "response.mcp_list_tools.failed" } else { "response.mcp_list_tools.completed" };
        self.stage(end, &id, index, out);
        self.done(index, &Item::McpListTools { id: &id, server_label: &label, tools: &tools, error }, out);
    }

    /// Encodes an inline image as an item after its message.
    pub(super) fn emit_image(&mut self, place: ContentPlace, message: &Message, out: &mut Out) {
        let content = message.slots.get(place.content).map(Slot::content);
        let Some(Content { body: Body::Image(Some(url)), .. }) = content else { return };
        let Some(image) = shown_text::inline_image(&url) else { return };
        let id = place.item_id("ig_");

        let shell = Item::ImageGenerationCall {
            id: &id,
            status: "in_progress",
            result: None,
            output_format: image.format.as_deref(),
        };
        let index = self.add(&shell, out);

        self.stage("response.image_generation_call.in_progress", &id, index, out);
        self.stage("response.image_generation_call.generating", &id, index, out);
        self.stage("response.image_generation_call.completed", &id, index, out);

        let complete = Item::ImageGenerationCall {
            id: &id,
            status: "completed",
            result: Some(&image.data),
            output_format: image.format.as_deref(),
        };
        self.done(index, &complete, out);
    }

    /// Encodes an error after which the run continues, as text.
    pub(super) fn emit_error(&mut self, run: RunId, message_index: usize, message: &Message, out: &mut Out) {
        let error = message.message.clone().filter(|text| !text.is_empty());
        let error = error.or_else(|| Some(message.text()).filter(|text| !text.is_empty()));
        let text = error.unwrap_or_else(|| "the agent reported an error".to_owned());
        messages::emit_message(self, &ids::output_item_id("msg_", run, message_index, 0), &text, "incomplete", out);
    }

    /// Encodes a message of an unknown type, if the options say so.
    pub(super) fn emit_custom(&mut self, run: RunId, message_index: usize, message: &Message, out: &mut Out) {
        let id = ids::output_item_id("msg_", run, message_index, 0);
        let content: Vec<Content> = message.slots.iter().map(Slot::content).collect();
        let kind = format!("interlingua:{}", message.announced);
        let item = |status, content| Item::Extension { id: &id, kind: kind.clone(), status, content };

        let index = self.add(&item("in_progress", &[]), out);
        let status = if message.end == Some(End::Completed) { "completed" } else { "incomplete" };
        self.done(index, &item(status, &content), out);
    }
}

fn without_nulls(fields: &Extra) -> Extra {
    fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value.clone())).collect()
}
