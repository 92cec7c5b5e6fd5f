//! Parses input items into messages of the canonical model (docs/protocols/responses.md#input-items). What only this
//! protocol has is stored in their metadata, so that it can be returned: hosted calls unchanged, the role `developer`,
//! the phase of a message.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::fields::{quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json, client_tool};
use serde::Serialize;

use super::parts;
use crate::echo::{DeclaredTools, Echo};
use crate::options::Options;

/// An entry of the input: a message, or a reference to a stored item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InputEntry {
    /// A message for the agent.
    Message(Message),
    /// A stored item (docs/protocols/responses.md#input-items).
    Reference {
        /// Id of the item.
        id: String,
        /// Path of the reference in the request, for errors.
        path: String,
    },
    /// The output of a client tool. Its call must be known.
    ToolOutput {
        /// The message for the agent.
        message: Message,
        /// Links the output to its call.
        call_id: String,
        /// The output as text.
        output: String,
    },
}

impl InputEntry {
    /// True if it is reasoning of the agent that the client sends back.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Message(message) if message.kind == MessageType::Reasoning)
    }
}

/// Parses a list of items.
///
/// # Errors
/// The first invalid field, by its path.
pub(crate) fn parse_items(node: &Node<'_>, options: &Options, echo: &Echo) -> Result<Vec<InputEntry>, Fault> {
    let declared = echo.declared();
    let mut parser = ItemParser { options, declared, entries: Vec::new(), answered: BTreeSet::new() };

    let mut items = node.array()?;
    if let Some(first) = items.next() {
        parser.item(&first)?;
        // Items nearly always become one entry each. Memory is reserved only after the first one is valid.
        parser.entries.reserve_exact(items.remaining());
    }
    for item in items {
        parser.item(&item)?;
    }
    // The approval request before an approval response needs no lookup: the engine finds it by the response.
    let ItemParser { mut entries, answered, .. } = parser;
    entries.retain(|entry| !matches!(entry, InputEntry::Reference { id, .. } if answered.contains(id)));
    Ok(entries)
}

struct ItemParser<'o> {
    options: &'o Options,
    declared: DeclaredTools,
    entries: Vec<InputEntry>,
    /// Ids of approval requests that have a response in this input.
    answered: BTreeSet<String>,
}

fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    text(object, name)?.ok_or_else(|| missing(object.path_of(name)))
}

fn new_message(object: &Object<'_>, kind: MessageType, role: Role, content: Vec<Content>) -> Result<Message, Fault> {
    let id = text(object, "id")?.filter(|id| !id.is_empty());
    Ok(Message { id, ..Message::new(kind, Some(role), content) })
}

/// The content of an approval response (docs/human-in-the-loop.md#canonical-form).
#[derive(Serialize)]
struct Approval<'a> {
    approval_request_id: &'a str,
    id: &'a str,
    approve: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Json>,
}

impl ItemParser<'_> {
    fn item(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let object = node.object()?;
        let kind = object.string("type")?;
        match kind.as_deref() {
            None if object.get("role").is_some() => self.message(&object),
            None if object.get("id").is_some() => self.reference(&object),
            None => Err(missing(object.path_of("type"))),
            Some("message") => self.message(&object),
            Some("item_reference") => self.reference(&object),
            Some("function_call" | "custom_tool_call") => self.call(&object, kind.as_deref() != Some("function_call")),
            Some(word @ ("function_call_output" | "custom_tool_call_output")) => {
                self.tool_output(&object, word != "function_call_output")
            }
            Some("reasoning") => self.reasoning(&object),
            Some("mcp_call") => self.mcp_call(&object),
            Some("mcp_list_tools") => {
                let data = object.fields_except(&["type", "status"]);
                self.push(&object, MessageType::McpListTools, Role::Assistant, Content::data(&data))
            }
            Some("mcp_approval_request") => {
                required(&object, "id")?;
                required(&object, "name")?;
                let data = object.fields_except(&["type", "status"]);
                self.push(&object, MessageType::McpApprovalRequest, Role::Assistant, Content::data(&data))
            }
            Some("mcp_approval_response") => self.approval(&object),
            Some("compaction") => self.compaction(&object),
            // Accepted for compatibility, without effect.
            Some("compaction_trigger" | "configuration_update" | "additional_tools") => Ok(()),
            Some(other) => self.opaque(&object, node, other),
        }
    }

    fn push(&mut self, object: &Object<'_>, kind: MessageType, role: Role, content: Content) -> Result<(), Fault> {
        let message = new_message(object, kind, role, vec![content])?;
        self.entries.push(InputEntry::Message(message));
        Ok(())
    }

    fn message(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let node = object.get("role").ok_or_else(|| missing(object.path_of("role")))?;
        let word = node.string()?;
        let role = match word.as_ref() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" | "developer" => Role::System,
            other => {
                let known = quoted_list(&["user", "assistant", "system", "developer"]);
                return Err(node.invalid(format!("unknown role '{}': must be one of {known}", truncate(other))));
            }
        };

        let content = object.get("content").ok_or_else(|| missing(object.path_of("content")))?;
        let mut message = new_message(object, MessageType::Message, role, parts::parse(&content, self.options)?)?;

        let mut metadata = Extra::new();
        if word == "developer" {
            metadata.push("role", Json::from_serialize("developer"));
        }
        if let Some(phase) = text(object, "phase")? {
            metadata.push("phase", Json::from_serialize(&phase));
        }
        message.metadata = (!metadata.is_empty()).then(|| Json::from_serialize(&metadata));

        self.entries.push(InputEntry::Message(message));
        Ok(())
    }

    fn reference(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let id = required(object, "id")?;
        self.entries.push(InputEntry::Reference { id, path: object.path_of("id") });
        Ok(())
    }

    fn call(&mut self, object: &Object<'_>, custom: bool) -> Result<(), Fault> {
        let name = required(object, "name")?;
        let call_id = required(object, "call_id")?;
        let namespace = text(object, "namespace")?;
        let arguments = if custom {
            client_tool::to_arguments(&required(object, "input")?)
        } else {
            required(object, "arguments")?
        };

        let name = self.declared.flat_name(namespace.as_deref(), &name).unwrap_or(name);
        let call = ToolCall { call_id, name, arguments, server_label: None };

        let mut message = new_message(object, MessageType::FunctionCall, Role::Assistant, vec![Content::data(&call)])?;
        let mut metadata = Extra::new();
        if custom {
            metadata.push("type", Json::from_serialize("custom_tool_call"));
        }
        if let Some(namespace) = namespace {
            metadata.push("namespace", Json::from_serialize(&namespace));
        }
        message.metadata = (!metadata.is_empty()).then(|| Json::from_serialize(&metadata));

        self.entries.push(InputEntry::Message(message));
        Ok(())
    }

    fn tool_output(&mut self, object: &Object<'_>, custom: bool) -> Result<(), Fault> {
        let call_id = required(object, "call_id")?;
        let node = object.get("output").ok_or_else(|| missing(object.path_of("output")))?;
        let output = parts::output(&node)?;
        let data = ToolOutput { call_id: call_id.clone(), name: None, output: output.clone() };

        let mut message = new_message(object, MessageType::FunctionCallOutput, Role::Tool, vec![Content::data(&data)])?;
        if custom {
            let mut metadata = Extra::new();
            metadata.push("type", Json::from_serialize("custom_tool_call_output"));
            message.metadata = Some(Json::from_serialize(&metadata));
        }
        self.entries.push(InputEntry::ToolOutput { message, call_id, output });
        Ok(())
    }

    fn reasoning(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let texts = |name: &str| -> Result<Vec<Content>, Fault> {
            let mut contents = Vec::new();
            for part in object.array(name)? {
                contents.push(Content::text(required(&part.object()?, "text")?));
            }
            Ok(contents)
        };

        let summary = texts("summary")?;
        let content = texts("content")?;
        let contents = if content.is_empty() { summary } else { content };

        let mut message = new_message(object, MessageType::Reasoning, Role::Assistant, contents)?;
        if let Some(encrypted) = text(object, "encrypted_content")? {
            let mut metadata = Extra::new();
            metadata.push("encrypted_content", Json::from_serialize(&encrypted));
            message.metadata = Some(Json::from_serialize(&metadata));
        }

        self.entries.push(InputEntry::Message(message));
        Ok(())
    }

    fn mcp_call(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let call_id = required(object, "id")?;
        let name = required(object, "name")?;
        let arguments = text(object, "arguments")?.unwrap_or_default();
        let label = text(object, "server_label")?;
        let call = ToolCall { call_id: call_id.clone(), name: name.clone(), arguments, server_label: label };
        self.push(object, MessageType::McpCall, Role::Assistant, Content::data(&call))?;

        // A failed call has an error instead of an output.
        let failed = object.get("error").map(|node| node.text().to_owned());
        if let Some(output) = text(object, "output")?.or(failed) {
            let output = ToolOutput { call_id, name: Some(name), output };
            let message = Message::new(MessageType::McpCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
            self.entries.push(InputEntry::Message(message));
        }
        Ok(())
    }

    fn approval(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let request_id = required(object, "approval_request_id")?;
        // Never approve by default: a response without a decision is an error (docs/human-in-the-loop.md#rule-1).
        let approve = object.boolean("approve")?.ok_or_else(|| missing(object.path_of("approve")))?;
        let reason = text(object, "reason")?;
        // The protocol has no edits, but a client that sends other arguments must not get the old call.
        let arguments = object.get_any(&["arguments", "edited_arguments", "editedArgs", "edited_args"]);
        let data = Approval {
            approval_request_id: &request_id,
            id: &request_id,
            approve,
            reason: reason.as_deref(),
            arguments: arguments.map(|arguments| arguments.to_json()),
        };
        self.push(object, MessageType::McpApprovalResponse, Role::User, Content::data(&data))?;
        self.answered.insert(request_id);
        Ok(())
    }

    fn compaction(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let node = object.get("encrypted_content").ok_or_else(|| missing(object.path_of("encrypted_content")))?;
        let unreadable = || node.invalid("this compaction was not created by this gateway");

        let encoded = node.string()?;
        let bytes = BASE64.decode(encoded.as_bytes()).map_err(|_| unreadable())?;
        let messages = Node::parse(&bytes).map_err(|_| unreadable())?;
        for message in messages.array().map_err(|_| unreadable())? {
            let message = Message::parse(&message).map_err(|_| unreadable())?;
            self.entries.push(InputEntry::Message(message));
        }
        Ok(())
    }

    /// A hosted call, its output, or an unknown item: stored unchanged, together with the fields an agent can use.
    fn opaque(&mut self, object: &Object<'_>, node: &Node<'_>, kind: &str) -> Result<(), Fault> {
        let call_id = text(object, "call_id").ok().flatten().or_else(|| text(object, "id").ok().flatten());
        let call_id = call_id.unwrap_or_default();

        let first_text = |names: &[&str]| {
            let node = object.get_any(names)?;
            let plain = (node.kind() == Kind::String).then(|| node.string().ok()).flatten();
            Some(plain.map_or_else(|| node.text().to_owned(), std::borrow::Cow::into_owned))
        };

        let mut data = Extra::new();
        data.push("call_id", Json::from_serialize(&call_id));
        let (kind, role) = if let Some(name) = kind.strip_suffix("_call") {
            data.push("name", Json::from_serialize(name));
            let arguments = first_text(&["arguments", "action", "queries", "code", "operation"]).unwrap_or_default();
            data.push("arguments", Json::from_serialize(&arguments));
            (MessageType::PluginCall, Role::Assistant)
        } else if let Some(name) = kind.strip_suffix("_output") {
            data.push("name", Json::from_serialize(name.trim_end_matches("_call")));
            let output = first_text(&["output", "results", "outputs"]).unwrap_or_default();
            data.push("output", Json::from_serialize(&output));
            (MessageType::PluginCallOutput, Role::Tool)
        } else {
            (MessageType::from(kind), Role::Assistant)
        };

        data.push("item", node.to_json());
        self.push(object, kind, role, Content::data(&data))
    }
}

/// Encodes a complete context as the content of a `compaction` item. It is not encrypted: the client that receives it
/// already knows the context.
pub(crate) fn encode_compaction(messages: &[Message]) -> String {
    BASE64.encode(Json::from_serialize(messages).text())
}

/// The original item in a message that was parsed from a hosted call.
pub(crate) fn original_item(message: &Message) -> Option<Json> {
    let [Content { body: Body::Data(data), .. }] = message.content.as_slice() else { return None };
    data.decode::<Extra>()?.get("item").filter(|item| item.is_object()).cloned()
}
