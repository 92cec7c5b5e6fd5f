//! Stored messages as items: what `input_items` and conversations show (sections 4, 7 and 12).
//!
//! Not here: the items of an answer. Those are told by [`crate::encode`], with the ids and in the words of the stream.

use std::collections::{BTreeMap, VecDeque};

use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Extra, Json};
use serde_json::json;

use crate::decode::original;
use crate::encode::render;
use crate::wire::{Empty, Item, Part, ReasoningText, SummaryText};

/// An item as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) id: String,
    /// The stored message, by its place in what was shown.
    pub(crate) place: usize,
    pub(crate) json: Json,
    /// A second stored message that is shown as part of this one: the output of a call.
    pub(crate) also: Option<usize>,
}

/// What is needed besides the messages.
pub(crate) struct Showing<'a> {
    /// The function that asks a person for something.
    pub(crate) request_input: &'a str,
    /// What tools come from, where nobody says so.
    pub(crate) server_label: &'a str,
}

impl Showing<'_> {
    /// Shows messages, each with its id.
    pub(crate) fn items(&self, messages: &[(String, Message)]) -> Vec<Shown> {
        let mut outputs: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
        for (index, (_, message)) in messages.iter().enumerate().filter(|(_, (_, message))| by_agent(&message.kind)) {
            for output in message.outputs() {
                outputs.entry(output.call_id).or_default().push_back(index);
            }
        }
        let mut taken = vec![false; messages.len()];
        let mut shown = Vec::with_capacity(messages.len());
        for (index, (id, message)) in messages.iter().enumerate() {
            if taken[index] {
                continue;
            }
            let is_call = message.kind.is_call() && message.kind != MessageType::FunctionCall;
            let call = message.calls().next().filter(|_| is_call && original(message).is_none());
            let output = call.as_ref().and_then(|call| outputs.get_mut(&call.call_id)?.pop_front());
            let json = match (&call, output) {
                (Some(call), output) => {
                    let told = output.and_then(|at| messages[at].1.outputs().next());
                    if let Some(at) = output {
                        taken[at] = true;
                    }
                    self.mcp_call(id, call, told)
                }
                (None, _) => self.item(id, message),
            };
            shown.push(Shown { id: id.clone(), place: index, json, also: output });
        }
        shown
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
        if let Some(original) = original(message) {
            return with_id(&original, id);
        }
        let kept: Extra = message.metadata.as_ref().and_then(Json::decode).unwrap_or_default();
        let word = |name: &str| kept.get(name).and_then(Json::decode::<String>);
        match &message.kind {
            MessageType::Reasoning => {
                let summary: Vec<_> =
                    message.content.iter().filter_map(Content::as_text).map(SummaryText::new).collect();
                let encrypted = word("encrypted_content");
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
                let namespace = word("namespace");
                let long = namespace.as_ref().map(|namespace| format!("{namespace}__"));
                let name = long.and_then(|long| call.name.strip_prefix(&long)).unwrap_or(&call.name);
                let (namespace, call_id) = (namespace.as_deref(), call.call_id.as_str());
                if word("type").as_deref() == Some("custom_tool_call") {
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
                if word("type").as_deref() == Some("custom_tool_call_output") {
                    return Json::from_serialize(&Item::CustomToolCallOutput {
                        id,
                        call_id,
                        output,
                        status: "completed",
                    });
                }
                Json::from_serialize(&Item::FunctionCallOutput { id, call_id, output, status: "completed" })
            }
            MessageType::McpApprovalRequest => self.question(id, message),
            MessageType::McpApprovalResponse => approval(id, message),
            MessageType::McpListTools => {
                let data = message.content.iter().find_map(Content::as_data).and_then(Json::decode::<Extra>);
                let mut whole = data.unwrap_or_default();
                whole.set("type", Json::from_serialize("mcp_list_tools"));
                whole.set("id", Json::from_serialize(id));
                Json::from_serialize(&whole)
            }
            _ => self.said(id, message, word("role"), word("phase").as_deref()),
        }
    }

    fn question(&self, id: &str, message: &Message) -> Json {
        let Some(asked) = message.content.iter().find_map(Content::as_data).and_then(Pending::read) else {
            return self.said(id, message, None, None);
        };
        let arguments = asked.arguments.as_str();
        if asked.kind == PendingKind::Approval {
            let server_label = asked.server_label.as_deref().unwrap_or(self.server_label);
            return Json::from_serialize(&Item::McpApprovalRequest {
                id: &asked.id,
                server_label,
                name: &asked.name,
                arguments,
            });
        }
        let name = self.request_input;
        Json::from_serialize(&Item::FunctionCall {
            id,
            status: "completed",
            call_id: &asked.id,
            name,
            arguments,
            namespace: None,
        })
    }

    fn said(&self, id: &str, message: &Message, role: Option<String>, phase: Option<&str>) -> Json {
        let role = match (&message.role, role.as_deref()) {
            (_, Some("developer")) => "developer",
            (Some(Role::User), _) => "user",
            (Some(Role::System), _) => "system",
            _ => "assistant",
        };
        let given = role != "assistant";
        let annotations: Vec<Vec<Json>> = message
            .content
            .iter()
            .map(|content| content.extra.get("annotations").and_then(Json::decode).unwrap_or_default())
            .collect();
        let texts: Vec<Option<String>> = message.content.iter().map(|content| render::content(content, true)).collect();
        let parts: Vec<Part<'_>> = message
            .content
            .iter()
            .zip(&texts)
            .zip(&annotations)
            .filter_map(|((content, text), annotations)| match (&content.body, text) {
                (Body::Refusal(refusal), _) => Some(Part::Refusal { refusal }),
                _ if given => Some(Part::Given(said_part(content))),
                (_, Some(text)) => Some(Part::OutputText { text, annotations, logprobs: Empty }),
                (_, None) => None,
            })
            .collect();
        Json::from_serialize(&Item::Message { id, status: "completed", role, content: &parts, phase })
    }
}

fn by_agent(kind: &MessageType) -> bool {
    kind.is_output() && *kind != MessageType::FunctionCallOutput
}

fn with_id(original: &Json, id: &str) -> Json {
    let mut whole: Extra = original.decode().unwrap_or_default();
    if whole.get("id").is_none_or(Json::is_null) {
        whole.set("id", Json::from_serialize(id));
    }
    Json::from_serialize(&whole)
}

fn approval(id: &str, message: &Message) -> Json {
    let data = message.content.iter().find_map(Content::as_data);
    let fields: Extra = data.and_then(Json::decode).unwrap_or_default();
    let asked = data.and_then(interlingua_core::pending::approval_id).unwrap_or_default();
    let approve = fields.get("approve").and_then(Json::decode).unwrap_or(false);
    let reason: Option<String> = fields.get("reason").and_then(Json::decode);
    Json::from_serialize(&Item::McpApprovalResponse {
        id,
        approval_request_id: &asked,
        approve,
        reason: reason.as_deref(),
    })
}

/// A content of a user's or a system's message, as a part of an input.
fn said_part(content: &Content) -> Json {
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
