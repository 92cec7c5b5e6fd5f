//! Renders stored messages as items, for `input_items` and conversations (docs/protocols/responses.md#output-items).
//!
//! Not here: the output items of a response, which [`crate::encode`] writes.

use std::collections::{BTreeMap, VecDeque};

use interlingua_adapter_kit::shown_text;
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Extra, Json};
use serde_json::json;

use crate::decode::original_item;
use crate::encode::show;
use crate::wire::{Empty, Item, Part, ReasoningText, SummaryText};

#[derive(Clone, Debug)]
pub(crate) struct RenderedItem {
    pub(crate) id: String,
    /// Index of the stored message in the input of the renderer.
    pub(crate) index: usize,
    pub(crate) json: Json,
    /// Index of a second stored message that is part of this item: the output of a call.
    pub(crate) output_index: Option<usize>,
}

/// Renders messages. Holds the settings of the route and the agent.
pub(crate) struct ItemRenderer<'a> {
    /// Name of the function call that represents a question to a person.
    pub(crate) request_input: &'a str,
    /// `server_label` of calls that have none.
    pub(crate) server_label: &'a str,
}

impl ItemRenderer<'_> {
    /// Renders messages, each with its id.
    pub(crate) fn render(&self, messages: &[(String, Message)]) -> Vec<RenderedItem> {
        let mut outputs: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        for (index, (_, message)) in
            messages.iter().enumerate().filter(|(_, (_, message))| is_agent_output(&message.kind))
        {
            for output in message.outputs() {
                outputs.entry(output.call_id).or_default().push_back(index);
            }
        }

        let mut consumed = vec![false; messages.len()];
        let mut items = Vec::with_capacity(messages.len());
        for (index, (id, message)) in messages.iter().enumerate() {
            if consumed[index] {
                continue;
            }
            let is_call = message.kind.is_call() && message.kind != MessageType::FunctionCall;
            let call = message.calls().next().filter(|_| is_call && original_item(message).is_none());
            let output = call.as_ref().and_then(|call| outputs.get_mut(&call.call_id)?.pop_front());

            let json = match (&call, output) {
                (Some(call), output) => {
                    let result = output.and_then(|at| messages[at].1.outputs().next());
                    if let Some(at) = output {
                        consumed[at] = true;
                    }
                    self.mcp_call(id, call, result)
                }
                (None, _) => self.item(id, message),
            };
            items.push(RenderedItem { id: id.clone(), index, json, output_index: output });
        }

        items
    }

    fn mcp_call(&self, id: &str, call: &ToolCall, output: Option<ToolOutput>) -> Json {
        Json::from_serialize(&Item::McpCall {
            id,
            status: "completed",
            server_label: call.server_label.as_deref().unwrap_or(self.server_label),
            name: &call.name,
            arguments: &call.arguments,
            output: output.map(|output| output.output).as_deref(),
            error: None,
            approval_request_id: None,
        })
    }

    fn item(&self, id: &str, message: &Message) -> Json {
        if let Some(original) = original_item(message) {
            return with_id(&original, id);
        }
        let metadata: Extra = message.metadata.as_ref().and_then(Json::decode).unwrap_or_default();
        let string = |name: &str| metadata.get(name).and_then(Json::decode::<String>);

        match &message.kind {
            MessageType::Reasoning => {
                let summary: Vec<_> =
                    message.content.iter().filter_map(Content::as_text).map(SummaryText::new).collect();
                let encrypted = string("encrypted_content");
                let content: &[ReasoningText<'_>] = &[];
                let encrypted_content = encrypted.as_deref();
                Json::from_serialize(&Item::Reasoning {
                    id,
                    summary: &summary,
                    content,
                    encrypted_content,
                    status: None,
                })
            }
            MessageType::FunctionCall => {
                let call = message.calls().next().unwrap_or_default();
                let namespace = string("namespace");
                let prefix = namespace.as_ref().map(|namespace| format!("{namespace}__"));
                let name = prefix.and_then(|prefix| call.name.strip_prefix(&prefix)).unwrap_or(&call.name);
                let (namespace, call_id) = (namespace.as_deref(), call.call_id.as_str());
                if string("type").as_deref() == Some("custom_tool_call") {
                    let fields = serde_json::from_str::<Extra>(&call.arguments).unwrap_or_default();
                    let input = fields.get("input").and_then(Json::decode::<String>).unwrap_or_default();
                    let status = "completed";
                    return Json::from_serialize(&Item::CustomToolCall {
                        id,
                        status,
                        call_id,
                        name,
                        input: &input,
                        namespace,
                    });
                }
                let (status, arguments) = ("completed", call.arguments.as_str());
                Json::from_serialize(&Item::FunctionCall { id, status, call_id, name, arguments, namespace })
            }
            kind if kind.is_output() => {
                let output = message.outputs().next().unwrap_or_default();
                let (call_id, output) = (output.call_id.as_str(), output.output.as_str());
                if string("type").as_deref() == Some("custom_tool_call_output") {
                    return Json::from_serialize(&Item::CustomToolCallOutput {
                        id,
                        call_id,
                        output,
                        status: "completed",
                    });
                }
                Json::from_serialize(&Item::FunctionCallOutput { id, call_id, output, status: "completed" })
            }
            MessageType::McpApprovalRequest => self.pending(id, message),
            MessageType::McpApprovalResponse => approval(id, message),
            MessageType::McpListTools => {
                let data = message.content.iter().find_map(Content::as_data).and_then(Json::decode::<Extra>);
                let mut fields = data.unwrap_or_default();
                fields.set("type", Json::from_serialize("mcp_list_tools"));
                fields.set("id", Json::from_serialize(id));
                Json::from_serialize(&fields)
            }
            _ => self.message(id, message, string("role"), string("phase").as_deref()),
        }
    }

    fn pending(&self, id: &str, message: &Message) -> Json {
        let Some(pending) = message.content.iter().find_map(Content::as_data).and_then(Pending::parse) else {
            return self.message(id, message, None, None);
        };

        let arguments = pending.arguments.as_str();
        if pending.kind == PendingKind::Approval {
            let server_label = pending.server_label.as_deref().unwrap_or(self.server_label);
            return Json::from_serialize(&Item::McpApprovalRequest {
                id: &pending.id,
                server_label,
                name: &pending.name,
                arguments,
            });
        }

        let name = self.request_input;
        Json::from_serialize(&Item::FunctionCall {
            id,
            status: "completed",
            call_id: &pending.id,
            name,
            arguments,
            namespace: None,
        })
    }

    fn message(&self, id: &str, message: &Message, role: Option<String>, phase: Option<&str>) -> Json {
        let role = match (&message.role, role.as_deref()) {
            (_, Some("developer")) => "developer",
            (Some(Role::User), _) => "user",
            (Some(Role::System), _) => "system",
            _ => "assistant",
        };
        let is_input = role != "assistant";

        let annotations: Vec<Vec<Json>> = message
            .content
            .iter()
            .map(|content| content.extra.get("annotations").and_then(Json::decode).unwrap_or_default())
            .collect();
        let texts: Vec<Option<String>> =
            message.content.iter().map(|content| shown_text::content_text(content, show(true))).collect();

        let parts: Vec<Part<'_>> = message
            .content
            .iter()
            .zip(&texts)
            .zip(&annotations)
            .filter_map(|((content, text), annotations)| match (&content.body, text) {
                (Body::Refusal(refusal), _) => Some(Part::Refusal { refusal }),
                _ if is_input => Some(Part::Input(input_part(content))),
                (_, Some(text)) => Some(Part::OutputText { text, annotations, logprobs: Empty }),
                (_, None) => None,
            })
            .collect();

        Json::from_serialize(&Item::Message { id, status: "completed", role, content: &parts, phase })
    }
}

/// True for outputs of tools that the agent runs itself.
fn is_agent_output(kind: &MessageType) -> bool {
    kind.is_output() && *kind != MessageType::FunctionCallOutput
}

fn with_id(original: &Json, id: &str) -> Json {
    let mut fields: Extra = original.decode().unwrap_or_default();
    if fields.get("id").is_none_or(Json::is_null) {
        fields.set("id", Json::from_serialize(id));
    }
    Json::from_serialize(&fields)
}

fn approval(id: &str, message: &Message) -> Json {
    let data = message.content.iter().find_map(Content::as_data);
    let fields: Extra = data.and_then(Json::decode).unwrap_or_default();
    let pending = data.and_then(interlingua_core::pending::approval_id).unwrap_or_default();
    let approve = fields.get("approve").and_then(Json::decode).unwrap_or(false);
    let reason: Option<String> = fields.get("reason").and_then(Json::decode);

    Json::from_serialize(&Item::McpApprovalResponse {
        id,
        approval_request_id: &pending,
        approve,
        reason: reason.as_deref(),
    })
}

/// A content of a user or system message, as an input part.
fn input_part(content: &Content) -> Json {
    let value = match &content.body {
        Body::Text(text) => json!({ "type": "input_text", "text": text }),
        Body::Image(url) => {
            let detail = content.extra.get("detail").and_then(Json::decode::<String>);
            json!({ "type": "input_image", "image_url": url, "file_id": null, "detail": detail.as_deref().unwrap_or("auto") })
        }
        Body::Video(url) => json!({ "type": "input_video", "video_url": url }),
        Body::Audio { data, format } => {
            json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
        }
        Body::File(file) => {
            let mut part = json!({ "type": "input_file" });
            for (name, value) in
                [("file_id", &file.id), ("file_url", &file.url), ("filename", &file.name), ("file_data", &file.data)]
            {
                if let Some(value) = value {
                    part[name] = json!(value);
                }
            }
            part
        }
        Body::Refusal(text) => json!({ "type": "refusal", "refusal": text }),
        Body::Data(data) => json!({ "type": "input_text", "text": data.text() }),
        Body::Other(_) => json!({ "type": "input_text", "text": Json::from_serialize(content).text() }),
    };
    Json::from_serialize(&value)
}
