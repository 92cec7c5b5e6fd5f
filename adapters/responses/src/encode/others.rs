//! What is neither text nor call: approvals, lists of tools, images, errors, messages of unknown types (section 16).

use interlingua_core::event::End;
use interlingua_core::model::{Body, Content};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::{Message, Slot};
use interlingua_core::{Extra, Json, Out, RunId};
use serde::Serialize;

use super::{Encoder, render, said};
use crate::ids;
use crate::wire::Item;

/// The arguments of the function that asks a person for something (human-in-the-loop page, section 5).
#[derive(Serialize)]
struct Question<'a> {
    message: Option<&'a str>,
    payload: Option<&'a Json>,
    response_schema: Option<&'a Json>,
}

impl Encoder {
    /// Somebody is asked.
    pub(super) fn approval_asked(&mut self, run: RunId, at: usize, content: usize, slot: &Slot, out: &mut Out) {
        let Some(asked) = slot.data().and_then(Pending::read) else { return };
        // Asked again, it is the same question: what is pending is told apart by the id.
        if !self.asked.insert(asked.id.clone()) {
            return;
        }
        match asked.kind {
            PendingKind::Approval => {
                let label = asked.server_label.as_deref().unwrap_or(&self.server_label).to_owned();
                let item = Item::McpApprovalRequest {
                    id: &asked.id,
                    server_label: &label,
                    name: &asked.name,
                    arguments: &asked.arguments,
                };
                let index = self.add(&item, out);
                self.done(index, &item, out);
            }
            PendingKind::Input | PendingKind::Auth => {
                if let Some(prompt) = &asked.message {
                    said::whole(self, &ids::output("msg_", run, at, content), prompt, "completed", out);
                }
                let question = Question {
                    message: asked.message.as_deref(),
                    payload: asked.payload.as_ref(),
                    response_schema: asked.response_schema.as_ref(),
                };
                let name = self.shared.options.request_input.clone();
                let id = ids::output("fc_", run, at, content);
                self.function_told(&id, &asked.id, &name, Json::from_serialize(&question).text(), out);
            }
            PendingKind::Tool => {
                let id = ids::output("fc_", run, at, content);
                self.function_told(&id, &asked.id, &asked.name, &asked.arguments, out);
            }
        }
    }

    /// A function call that is known at once.
    fn function_told(&mut self, id: &str, call_id: &str, name: &str, arguments: &str, out: &mut Out) {
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

    /// The tools of a server. Optional keys that are null are left out: the AI SDK refuses them.
    pub(super) fn tools_listed(&mut self, run: RunId, at: usize, content: usize, slot: &Slot, out: &mut Out) {
        let Some(fields) = slot.data().and_then(Json::decode::<Extra>) else { return };
        let tools: Vec<Extra> = fields.get("tools").and_then(Json::decode).unwrap_or_default();
        let tools: Vec<Json> = tools.into_iter().map(|tool| Json::from_serialize(&without_nulls(&tool))).collect();
        let error = fields.get("error").filter(|error| !error.is_null());
        let label = fields.get("server_label").and_then(Json::decode::<String>);
        let label = label.unwrap_or_else(|| self.server_label.clone());
        let id = ids::output("mcpl_", run, at, content);
        let index = self.add(&Item::McpListTools { id: &id, server_label: &label, tools: &[], error: None }, out);
        self.stage("response.mcp_list_tools.in_progress", &id, index, out);
        let end = if error.is_some() { "response.mcp_list_tools.failed" } else { "response.mcp_list_tools.completed" };
        self.stage(end, &id, index, out);
        self.done(index, &Item::McpListTools { id: &id, server_label: &label, tools: &tools, error }, out);
    }

    /// An image that is in the message itself becomes an item after it.
    pub(super) fn image_told(&mut self, run: RunId, at: usize, message: &Message, content: usize, out: &mut Out) {
        let Some(Content { body: Body::Image(Some(url)), .. }) = message.slots.get(content).map(Slot::content) else {
            return;
        };
        let Some(image) = render::inline_image(&url) else { return };
        let id = ids::output("ig_", run, at, content);
        let shell =
            Item::ImageGenerationCall { id: &id, status: "in_progress", result: None, output_format: image.format };
        let index = self.add(&shell, out);
        self.stage("response.image_generation_call.in_progress", &id, index, out);
        self.stage("response.image_generation_call.generating", &id, index, out);
        self.stage("response.image_generation_call.completed", &id, index, out);
        let whole = Item::ImageGenerationCall {
            id: &id,
            status: "completed",
            result: Some(image.data),
            output_format: image.format,
        };
        self.done(index, &whole, out);
    }

    /// Something went wrong and the run goes on: told as text.
    pub(super) fn error_told(&mut self, run: RunId, at: usize, message: &Message, out: &mut Out) {
        let told = message.message.clone().filter(|text| !text.is_empty());
        let told = told.or_else(|| Some(message.text()).filter(|text| !text.is_empty()));
        let text = told.unwrap_or_else(|| "the agent reported an error".to_owned());
        said::whole(self, &ids::output("msg_", run, at, 0), &text, "incomplete", out);
    }

    /// A message of a type nobody knows, where the operator wants it shown.
    pub(super) fn custom_told(&mut self, run: RunId, at: usize, message: &Message, out: &mut Out) {
        let id = ids::output("msg_", run, at, 0);
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
