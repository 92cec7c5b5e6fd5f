//! Items of an input, as native messages (sections 4 and 15). What this protocol alone knows is kept in them, so that
//! it can be handed back: hosted calls as they came, the role `developer`, a message's phase.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};
use serde::Serialize;

use super::fields::{cut, listed, text};
use super::parts;
use crate::echo::{Declared, Echo};
use crate::fault::missing;
use crate::options::Options;

/// One thing said, or the name of one that was said before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// As it goes to the agent.
    Said(Message),
    /// A stored item (section 4, `item_reference`).
    Reference {
        /// Its id.
        id: String,
        /// Where it stands in the request.
        path: String,
    },
    /// What the client's tool returned: its call has to be known.
    Returned {
        /// As it goes to the agent.
        message: Message,
        /// Joins call and output.
        call_id: String,
        /// What was returned.
        output: String,
    },
}

impl Entry {
    /// Whether it is the agent's own thinking, handed back.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self, Self::Said(message) if message.kind == MessageType::Reasoning)
    }
}

/// Reads a list of items.
///
/// # Errors
/// The first field at fault, by its path.
pub(crate) fn read_items(node: &Node<'_>, options: &Options, echo: &Echo) -> Result<Vec<Entry>, Fault> {
    let declared = echo.declared();
    let mut reader = Reader { options, declared, entries: Vec::new(), answered: BTreeSet::new() };
    let mut items = node.array()?;
    if let Some(first) = items.next() {
        reader.item(&first)?;
        // Nearly always one entry each. Not before one of them was good.
        reader.entries.reserve_exact(items.left());
    }
    for item in items {
        reader.item(&item)?;
    }
    // The question in front of an approval's answer needs no looking up: it is found by the answer.
    let Reader { mut entries, answered, .. } = reader;
    entries.retain(|entry| !matches!(entry, Entry::Reference { id, .. } if answered.contains(id)));
    Ok(entries)
}

struct Reader<'o> {
    options: &'o Options,
    declared: Declared,
    entries: Vec<Entry>,
    /// Approvals that are answered.
    answered: BTreeSet<String>,
}

/// A text that has to be there.
fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    text(object, name)?.ok_or_else(|| missing(object.path_of(name)))
}

fn message(object: &Object<'_>, kind: MessageType, role: Role, content: Vec<Content>) -> Result<Message, Fault> {
    let id = text(object, "id")?.filter(|id| !id.is_empty());
    Ok(Message { id, ..Message::new(kind, Some(role), content) })
}

/// The body of an approval's answer (human-in-the-loop page, section 2).
#[derive(Serialize)]
struct Approval<'a> {
    approval_request_id: &'a str,
    id: &'a str,
    approve: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Reader<'_> {
    fn item(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let object = node.object()?;
        let kind = object.string("type")?;
        match kind.as_deref() {
            None if object.get("role").is_some() => self.said(&object),
            None if object.get("id").is_some() => self.reference(&object),
            None => Err(missing(object.path_of("type"))),
            Some("message") => self.said(&object),
            Some("item_reference") => self.reference(&object),
            Some("function_call" | "custom_tool_call") => self.call(&object, kind.as_deref() != Some("function_call")),
            Some(word @ ("function_call_output" | "custom_tool_call_output")) => {
                self.returned(&object, word != "function_call_output")
            }
            Some("reasoning") => self.reasoning(&object),
            Some("mcp_call") => self.mcp_call(&object),
            Some("mcp_list_tools") => {
                let data = object.rest(&["type", "status"]);
                self.push(&object, MessageType::McpListTools, Role::Assistant, Content::data(&data))
            }
            Some("mcp_approval_request") => {
                required(&object, "id")?;
                required(&object, "name")?;
                let data = object.rest(&["type", "status"]);
                self.push(&object, MessageType::McpApprovalRequest, Role::Assistant, Content::data(&data))
            }
            Some("mcp_approval_response") => self.approval(&object),
            Some("compaction") => self.compaction(&object),
            // Accepted; they mean nothing here.
            Some("compaction_trigger" | "configuration_update" | "additional_tools") => Ok(()),
            Some(other) => self.opaque(&object, node, other),
        }
    }

    fn push(&mut self, object: &Object<'_>, kind: MessageType, role: Role, content: Content) -> Result<(), Fault> {
        let message = message(object, kind, role, vec![content])?;
        self.entries.push(Entry::Said(message));
        Ok(())
    }

    fn said(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let node = object.get("role").ok_or_else(|| missing(object.path_of("role")))?;
        let word = node.string()?;
        let role = match word.as_ref() {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" | "developer" => Role::System,
            other => {
                let known = listed(&["user", "assistant", "system", "developer"]);
                return Err(node.invalid(format!("unknown role '{}': must be one of {known}", cut(other))));
            }
        };
        let content = object.get("content").ok_or_else(|| missing(object.path_of("content")))?;
        let mut said = message(object, MessageType::Message, role, parts::read(&content, self.options)?)?;
        let mut kept = Extra::new();
        if word == "developer" {
            kept.push("role", Json::from_serialize("developer"));
        }
        if let Some(phase) = text(object, "phase")? {
            kept.push("phase", Json::from_serialize(&phase));
        }
        said.metadata = (!kept.is_empty()).then(|| Json::from_serialize(&kept));
        self.entries.push(Entry::Said(said));
        Ok(())
    }

    fn reference(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let id = required(object, "id")?;
        self.entries.push(Entry::Reference { id, path: object.path_of("id") });
        Ok(())
    }

    fn call(&mut self, object: &Object<'_>, custom: bool) -> Result<(), Fault> {
        let name = required(object, "name")?;
        let call_id = required(object, "call_id")?;
        let namespace = text(object, "namespace")?;
        let arguments = if custom {
            Json::from_serialize(&serde_json::json!({ "input": required(object, "input")? })).text().to_owned()
        } else {
            required(object, "arguments")?
        };
        let name = self.declared.known_as(namespace.as_deref(), &name).unwrap_or(name);
        let call = ToolCall { call_id, name, arguments, server_label: None };
        let mut called = message(object, MessageType::FunctionCall, Role::Assistant, vec![Content::data(&call)])?;
        let mut kept = Extra::new();
        if custom {
            kept.push("type", Json::from_serialize("custom_tool_call"));
        }
        if let Some(namespace) = namespace {
            kept.push("namespace", Json::from_serialize(&namespace));
        }
        called.metadata = (!kept.is_empty()).then(|| Json::from_serialize(&kept));
        self.entries.push(Entry::Said(called));
        Ok(())
    }

    fn returned(&mut self, object: &Object<'_>, custom: bool) -> Result<(), Fault> {
        let call_id = required(object, "call_id")?;
        let node = object.get("output").ok_or_else(|| missing(object.path_of("output")))?;
        let output = parts::output(&node)?;
        let data = ToolOutput { call_id: call_id.clone(), name: None, output: output.clone() };
        let mut message = message(object, MessageType::FunctionCallOutput, Role::Tool, vec![Content::data(&data)])?;
        if custom {
            let mut kept = Extra::new();
            kept.push("type", Json::from_serialize("custom_tool_call_output"));
            message.metadata = Some(Json::from_serialize(&kept));
        }
        self.entries.push(Entry::Returned { message, call_id, output });
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
        let mut thought = message(object, MessageType::Reasoning, Role::Assistant, contents)?;
        if let Some(encrypted) = text(object, "encrypted_content")? {
            let mut kept = Extra::new();
            kept.push("encrypted_content", Json::from_serialize(&encrypted));
            thought.metadata = Some(Json::from_serialize(&kept));
        }
        self.entries.push(Entry::Said(thought));
        Ok(())
    }

    fn mcp_call(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let call_id = required(object, "id")?;
        let name = required(object, "name")?;
        let arguments = text(object, "arguments")?.unwrap_or_default();
        let label = text(object, "server_label")?;
        let call = ToolCall { call_id: call_id.clone(), name: name.clone(), arguments, server_label: label };
        self.push(object, MessageType::McpCall, Role::Assistant, Content::data(&call))?;
        let failed = object.get("error").map(|node| node.text().to_owned());
        if let Some(output) = text(object, "output")?.or(failed) {
            let output = ToolOutput { call_id, name: Some(name), output };
            let returned = Message::new(MessageType::McpCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
            self.entries.push(Entry::Said(returned));
        }
        Ok(())
    }

    fn approval(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let asked = required(object, "approval_request_id")?;
        // Never approved by default: an answer that does not decide is an error (human-in-the-loop page, rule 1).
        let approve = object.boolean("approve")?.ok_or_else(|| missing(object.path_of("approve")))?;
        let reason = text(object, "reason")?;
        let data = Approval { approval_request_id: &asked, id: &asked, approve, reason: reason.as_deref() };
        self.push(object, MessageType::McpApprovalResponse, Role::User, Content::data(&data))?;
        self.answered.insert(asked);
        Ok(())
    }

    fn compaction(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        let node = object.get("encrypted_content").ok_or_else(|| missing(object.path_of("encrypted_content")))?;
        let unreadable = || node.invalid("this compaction was not made here");
        let packed = node.string()?;
        let bytes = BASE64.decode(packed.as_bytes()).map_err(|_| unreadable())?;
        let kept = Node::parse(&bytes).map_err(|_| unreadable())?;
        for kept in kept.array().map_err(|_| unreadable())? {
            let message = Message::read(&kept).map_err(|_| unreadable())?;
            self.entries.push(Entry::Said(message));
        }
        Ok(())
    }

    /// A hosted call, its output, or an item nobody knows: kept as it came, with what an agent could read of it.
    fn opaque(&mut self, object: &Object<'_>, node: &Node<'_>, kind: &str) -> Result<(), Fault> {
        let call_id = text(object, "call_id").ok().flatten().or_else(|| text(object, "id").ok().flatten());
        let call_id = call_id.unwrap_or_default();
        let told = |names: &[&str]| {
            let node = object.any(names)?;
            let plain = (node.kind() == Kind::String).then(|| node.string().ok()).flatten();
            Some(plain.map_or_else(|| node.text().to_owned(), std::borrow::Cow::into_owned))
        };
        let mut data = Extra::new();
        data.push("call_id", Json::from_serialize(&call_id));
        let (kind, role) = if let Some(name) = kind.strip_suffix("_call") {
            data.push("name", Json::from_serialize(name));
            let arguments = told(&["arguments", "action", "queries", "code", "operation"]).unwrap_or_default();
            data.push("arguments", Json::from_serialize(&arguments));
            (MessageType::PluginCall, Role::Assistant)
        } else if let Some(name) = kind.strip_suffix("_output") {
            data.push("name", Json::from_serialize(name.trim_end_matches("_call")));
            let output = told(&["output", "results", "outputs"]).unwrap_or_default();
            data.push("output", Json::from_serialize(&output));
            (MessageType::PluginCallOutput, Role::Tool)
        } else {
            (MessageType::from(kind), Role::Assistant)
        };
        data.push("item", node.to_json());
        self.push(object, kind, role, Content::data(&data))
    }
}

/// A whole context as the content of a `compaction` item. Not secret: it is what its reader has said and heard.
pub(crate) fn compacted(messages: &[Message]) -> String {
    BASE64.encode(Json::from_serialize(messages).text())
}

/// The raw item in a message made of a hosted call.
pub(crate) fn original(message: &Message) -> Option<Json> {
    let [Content { body: Body::Data(data), .. }] = message.content.as_slice() else { return None };
    data.decode::<Extra>()?.get("item").filter(|item| item.is_object()).cloned()
}
