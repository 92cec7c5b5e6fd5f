//! The conversation as items: the messages that the server receives, and the calls among them with their outputs.
//!
//! Servers refuse a call without an output after it, and an output without its call. A server that stores the
//! conversation knows the calls that new outputs belong to.

use std::collections::{HashMap, HashSet, VecDeque};

use interlingua_adapter_kit::data_url::normal;
use interlingua_adapter_kit::output_parts;
use interlingua_adapter_kit::transcript::joined_text;
use interlingua_adapter_kit::wire_names::{MAX_CALL_ID, ToolNames, WireIds};
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::opaque::{is_author, of_message_may_return};
use interlingua_core::pending::approval_id;
use interlingua_core::{Extra, Json, client_tool};
use serde_json::{Map, Value, json};

use super::{RequestBody, parts};
use crate::connect::options::McpHistory;

/// The messages as items.
#[derive(Debug, Default)]
pub(super) struct SerializedItems {
    pub(super) items: Vec<Value>,
    /// Instructions that are no messages.
    pub(super) instructions: Vec<String>,
}

/// The items of a request. `names`: the declared tools are in it.
pub(super) fn write(body: &RequestBody<'_>, names: &mut ToolNames, losses: &mut Losses) -> SerializedItems {
    let input = &body.turn.request.input;
    let mut writer = Writer {
        body,
        names,
        ids: WireIds::new(MAX_CALL_ID),
        losses,
        left: HashMap::new(),
        open: HashMap::new(),
        answered: input.iter().flat_map(decided).collect(),
        mcp_outputs: HashMap::new(),
        kept: HashSet::new(),
        written: SerializedItems::default(),
    };

    for output in input.iter().flat_map(Message::outputs) {
        *writer.left.entry(output.call_id).or_default() += 1;
    }
    if body.options.mcp_history == McpHistory::Keep {
        for message in input.iter().filter(|message| message.kind == MessageType::McpCallOutput) {
            writer.mcp_outputs.extend(message.outputs().map(|output| (output.call_id.clone(), output)));
        }
    }

    input.iter().for_each(|message| writer.message(message));
    writer.leave_out_loose_reasoning();
    writer.written
}

/// True if the assistant made it: what reasoning can be about.
fn is_assistants(item: &Value) -> bool {
    match item["type"].as_str() {
        Some("message") => item["role"] == "assistant",
        Some(kind) => !kind.ends_with("_output") && kind != "mcp_approval_response",
        None => false,
    }
}

/// The approvals that a message decides.
fn decided(message: &Message) -> Vec<String> {
    if message.kind != MessageType::McpApprovalResponse {
        return Vec::new();
    }
    message.content.iter().filter_map(Content::as_data).filter_map(approval_id).collect()
}

struct Writer<'a> {
    body: &'a RequestBody<'a>,
    names: &'a mut ToolNames,
    ids: WireIds,
    losses: &'a mut Losses,
    /// The number of outputs of a call that follow.
    left: HashMap<String, usize>,
    /// The ids under which calls were written that have no output so far.
    open: HashMap<String, VecDeque<String>>,
    /// Ids of the approvals that the input decides.
    answered: HashSet<String>,
    /// Outputs of MCP calls that are written with their calls.
    mcp_outputs: HashMap<String, ToolOutput>,
    /// Calls that are sent back unchanged.
    kept: HashSet<String>,
    written: SerializedItems,
}

impl Writer<'_> {
    fn message(&mut self, message: &Message) {
        match &message.kind {
            kind if kind.is_call() => self.calls(message),
            kind if kind.is_output() => self.outputs(message),
            MessageType::Reasoning => self.reasoning(message),
            MessageType::McpApprovalRequest => self.approval_request(message),
            MessageType::McpApprovalResponse => self.approval_response(message),
            MessageType::Heartbeat | MessageType::Error | MessageType::McpListTools | MessageType::ProtocolEvent => {}
            _ => self.write_message(message),
        }
    }

    fn push(&mut self, item: Value) {
        self.written.items.push(item);
    }

    /// Servers refuse reasoning that is not followed by what it led to, such as a call that is left out.
    fn leave_out_loose_reasoning(&mut self) {
        let mut is_followed = false;
        let mut kept: Vec<Value> = Vec::with_capacity(self.written.items.len());
        for item in std::mem::take(&mut self.written.items).into_iter().rev() {
            if item["type"] == "reasoning" && !is_followed {
                self.losses.lost(ContentKind::Reasoning, "reasoning about what is left out is left out, too");
                continue;
            }
            is_followed = is_assistants(&item);
            kept.push(item);
        }
        kept.reverse();
        self.written.items = kept;
    }

    fn write_message(&mut self, message: &Message) {
        let word = message.role.as_ref().map_or("user", Role::as_str);
        match word {
            "system" | "developer" => self.instructions(message),
            "assistant" => {
                let content = parts::assistant(&message.content, self.losses);
                if content.is_empty() {
                    return;
                }
                let mut item = json!({ "type": "message", "role": "assistant", "content": content });
                if let Some(phase) = metadata(message).get("phase") {
                    item["phase"] = to_value(phase);
                }
                self.push(item);
            }
            _ => {
                let content = parts::user(&message.content, self.body.options, self.losses);
                if !content.is_empty() {
                    self.push(json!({ "type": "message", "role": "user", "content": content }));
                }
            }
        }
    }

    fn instructions(&mut self, message: &Message) {
        let text = joined_text(&message.content, self.losses);
        if text.is_empty() {
            return;
        }
        match self.body.options.instruction_role() {
            Some(role) => {
                let content = json!([{ "type": "input_text", "text": text }]);
                self.push(json!({ "type": "message", "role": role, "content": content }));
            }
            None => self.written.instructions.push(text),
        }
    }

    /// Reasoning goes back if only its author can read it. In plain words it is of no use to a server, which refuses
    /// it.
    fn reasoning(&mut self, message: &Message) {
        let fields = metadata(message);
        let Some(encrypted) = fields.get("encrypted_content") else {
            if !self.body.goes_on {
                self.losses.lost(ContentKind::Reasoning, "a server takes back only reasoning that it encrypted");
            }
            return;
        };
        if !of_message_may_return(message, self.body.origin) {
            self.losses.lost(ContentKind::Opaque, "made by another agent");
            return;
        }

        let texts = message.content.iter().filter_map(Content::as_text);
        let summary: Vec<Value> = texts.map(|text| json!({ "type": "summary_text", "text": text })).collect();
        let mut item = json!({ "type": "reasoning", "summary": summary, "encrypted_content": to_value(encrypted) });
        if let Some(id) = fields.get("id") {
            item["id"] = to_value(id);
        }
        self.push(item);
    }

    fn calls(&mut self, message: &Message) {
        if let Some(item) = self.kept(message) {
            self.push(item);
            // The message contains its outputs, or they are passed on unchanged too.
            return;
        }

        for call in message.calls() {
            if self.body.goes_on && self.body.open_calls.contains(&call.call_id) {
                // The server knows it.
                continue;
            }
            if message.kind == MessageType::McpCall
                && let Some(output) = self.mcp_outputs.get(&call.call_id)
            {
                let item = mcp_call(&call, output);
                self.push(item);
                continue;
            }

            let left = self.left.get_mut(&call.call_id).filter(|left| **left > 0);
            let Some(left) = left else {
                let kind = if message.kind == MessageType::FunctionCall {
                    ContentKind::ClientCall
                } else {
                    ContentKind::AgentCall
                };
                self.losses.lost(kind, "a call without an output is left out of the history");
                continue;
            };
            *left -= 1;
            // An id that the server made, however odd, goes back to it.
            let wire_id = if is_author(message, self.body.origin) && !call.call_id.is_empty() {
                self.ids.keep(&call.call_id)
            } else {
                self.ids.to_wire(&call.call_id)
            };
            self.open.entry(call.call_id.clone()).or_default().push_back(wire_id.clone());
            let name = self.names.to_wire(&call.name);
            self.push(function_call(message, &call, &wire_id, &name));
        }
    }

    fn outputs(&mut self, message: &Message) {
        if let Some(item) = self.kept(message) {
            return self.push(item);
        }

        let is_custom = metadata(message).get("type").and_then(Json::decode::<String>);
        let is_custom = is_custom.is_some_and(|word| word.starts_with("custom_tool_call"));
        for output in message.outputs() {
            if message.kind == MessageType::McpCallOutput && self.mcp_outputs.contains_key(&output.call_id) {
                continue;
            }

            let open = self.open.get_mut(&output.call_id).and_then(VecDeque::pop_front);
            let is_new = self.body.goes_on && message.kind == MessageType::FunctionCallOutput;
            let wire_id = match open {
                Some(wire_id) => wire_id,
                // The server knows the call by its own id.
                None if is_new => output.call_id.clone(),
                None => {
                    if let Some(left) = self.left.get_mut(&output.call_id) {
                        *left = left.saturating_sub(1);
                    }
                    if !self.kept.contains(&output.call_id) {
                        self.losses.lost(ContentKind::ClientOutput, "an output without its call is left out");
                    }
                    continue;
                }
            };
            if message.has_failed_output() {
                self.losses.lost(ContentKind::ToolFailure, "an output has no mark of a failure");
            }
            let kind = if is_custom { "custom_tool_call_output" } else { "function_call_output" };
            let value = self.output_value(&output.output, message);
            self.push(json!({ "type": kind, "call_id": wire_id, "output": value }));
        }
    }

    /// An output: parts, if it has media or is a list of parts as this protocol has them, else a text.
    fn output_value(&mut self, output: &str, message: &Message) -> Value {
        if let Some(parts) = own_parts(output) {
            return parts;
        }
        match output_parts::parts(output, message) {
            Some(parts) => parts::user(&parts, self.body.options, self.losses).into(),
            None => output.into(),
        }
    }

    /// An unchanged item of the server.
    fn kept(&mut self, message: &Message) -> Option<Value> {
        let own = metadata(message).get("item").cloned();
        // The data contains the item that the client itself sent.
        let brought = || match message.content.as_slice() {
            [content] => content.as_data()?.decode::<Extra>()?.get("item").cloned(),
            _ => None,
        };
        let item = own.or_else(brought).filter(Json::is_object)?;
        if !of_message_may_return(message, self.body.origin) {
            self.losses.changed(ContentKind::AgentCall, "a call of another server is sent as a function's");
            return None;
        }
        // With its output in it.
        self.kept.extend(message.calls().map(|call| call.call_id));
        Some(to_value(&item))
    }

    /// Sent together with its answer, to a server without a stored conversation. Others refuse it without an answer.
    fn approval_request(&mut self, message: &Message) {
        for data in message.content.iter().filter_map(Content::as_data) {
            let Some(fields) = data.decode::<Extra>() else { continue };
            let id = fields.get("id").and_then(Json::decode::<String>).unwrap_or_default();
            if !self.answered.contains(&id) {
                if !self.body.goes_on {
                    self.losses.lost(ContentKind::Approval, "a question without a decision is left out of the history");
                }
                continue;
            }
            if self.body.goes_on {
                continue;
            }

            let mut item = Map::new();
            item.insert("type".to_owned(), "mcp_approval_request".into());
            for name in ["id", "server_label", "name", "arguments"] {
                let value = fields.get(name).map(to_value);
                item.insert(name.to_owned(), value.unwrap_or_else(|| "".into()));
            }
            self.push(Value::Object(item));
        }
    }

    fn approval_response(&mut self, message: &Message) {
        for data in message.content.iter().filter_map(Content::as_data) {
            let (Some(id), Some(fields)) = (approval_id(data), data.decode::<Extra>()) else { continue };
            // Nothing is approved by translation: only a plain yes is one.
            let approve = fields.get("approve").and_then(Json::decode::<bool>).unwrap_or_default();
            let mut item = json!({ "type": "mcp_approval_response", "approval_request_id": id, "approve": approve });
            if let Some(reason) = fields.get("reason").and_then(Json::decode::<String>) {
                if !approve && reason == "cancelled" {
                    self.losses.changed(ContentKind::Approval, "a decision that no one made is sent as a no");
                }
                item["reason"] = reason.into();
            }
            self.push(item);
        }
    }
}

fn metadata(message: &Message) -> Extra {
    message.metadata.as_ref().and_then(Json::decode).unwrap_or_default()
}

fn to_value(json: &Json) -> Value {
    json.decode().unwrap_or_default()
}

fn function_call(message: &Message, call: &ToolCall, id: &str, name: &str) -> Value {
    let fields = metadata(message);
    let is_custom = fields.get("type").and_then(Json::decode::<String>).as_deref() == Some("custom_tool_call");
    if is_custom {
        let input = client_tool::free_text(&call.arguments);
        return json!({ "type": "custom_tool_call", "call_id": id, "name": name, "input": input });
    }

    let mut item = json!({
        "type": "function_call", "call_id": id, "name": name, "arguments": call.arguments,
    });
    if let Some(namespace) = fields.get("namespace") {
        item["namespace"] = to_value(namespace);
    }
    item
}

fn mcp_call(call: &ToolCall, output: &ToolOutput) -> Value {
    json!({
        "type": "mcp_call", "id": call.call_id, "server_label": call.server_label.as_deref().unwrap_or_default(),
        "name": call.name, "arguments": call.arguments, "output": output.output,
    })
}

/// An output that is a list of parts as this protocol has them, with its media as servers take them.
fn own_parts(output: &str) -> Option<Value> {
    let is_part = |part: &Value| {
        let kind = part.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| matches!(kind, "input_text" | "input_image" | "input_file"))
    };
    if !output.starts_with('[') {
        return None;
    }
    let mut parts: Vec<Value> = serde_json::from_str(output).ok()?;
    if parts.is_empty() || !parts.iter().all(is_part) {
        return None;
    }
    for part in &mut parts {
        for name in ["image_url", "file_data"] {
            let normal = part.get(name).and_then(Value::as_str).map(|url| normal(url).into_owned());
            if let Some(normal) = normal {
                part[name] = normal.into();
            }
        }
    }
    Some(Value::Array(parts))
}
