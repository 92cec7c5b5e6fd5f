//! Parses messages (docs/protocols/chat-completions.md#messages-and-parts) and splits them: instructions of this
//! request, the client's copy of the history, and new messages (docs/protocols/chat-completions.md#conversations).

use std::collections::HashMap;

use interlingua_adapter_kit::model_options::{OpenCalls, ReasoningInput};
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::fields::{quoted_list, text, truncate};
use interlingua_core::tree::{Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json, client_tool};

use super::parts;
use crate::encode::answer::Call;
use crate::fault::misplaced;
use crate::options::Options;

/// The messages of a request.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// System messages at the front: of this request only.
    pub(crate) instructions: Vec<Message>,
    /// The history, up to the last message of the assistant.
    pub(crate) history: Vec<Message>,
    /// The messages after the history.
    pub(crate) new: Vec<Message>,
    /// The last message of the assistant.
    pub(crate) last: Option<LastAnswer>,
    /// The words of the user, if they are all that is new.
    pub(crate) only_words: Option<String>,
    /// New outputs without a call in the list.
    pub(crate) unmatched: Vec<UnmatchedOutput>,
}

/// The assistant's last message as the client sends it back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LastAnswer {
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// An output whose call is not in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnmatchedOutput {
    pub(crate) call_id: String,
    pub(crate) output: String,
    /// Path of the message, for errors.
    pub(crate) path: String,
}

/// Parses the list of messages.
///
/// # Errors
/// The first invalid field, by its path.
pub(super) fn parse(node: &Node<'_>, options: &Options) -> Result<Conversation, Fault> {
    let mut parser = Parser {
        options,
        calls: HashMap::new(),
        functions: HashMap::new(),
        all: Vec::new(),
        split: 0,
        read: Conversation::default(),
    };
    let mut messages = node.array()?;
    let Some(first) = messages.next() else {
        let message = "missing required parameter: 'messages' is empty";
        return Err(Fault::new(FaultKind::Missing, message).with_field("messages"));
    };
    parser.all.reserve_exact(1 + messages.remaining());
    parser.message(&first)?;
    for message in messages {
        parser.message(&message)?;
    }
    parser.finish()
}

struct Parser<'o> {
    options: &'o Options,
    /// Name, place in the request, and whether there is an output, by call id.
    calls: HashMap<String, KnownCall>,
    /// The id of the last deprecated call of each name.
    functions: HashMap<String, String>,
    /// All messages but the instructions.
    all: Vec<Message>,
    /// Where the new ones begin.
    split: usize,
    read: Conversation,
}

struct KnownCall {
    name: String,
    path: String,
    is_answered: bool,
}

fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    text(object, name)?.ok_or_else(|| missing(object.path_of(name)))
}

impl Parser<'_> {
    /// Parses one message by its role. System messages before all others are instructions; later ones stay in the
    /// conversation. An output of the deprecated role `function` belongs to the last call of that name.
    fn message(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        let object = node.object()?;
        let role = object.get("role").ok_or_else(|| missing(object.path_of("role")))?;
        let word = role.string()?;
        match word.as_ref() {
            "system" | "developer" => self.system(&object, word == "developer"),
            "user" => {
                let content = object.get("content").ok_or_else(|| missing(object.path_of("content")))?;
                let contents = parts::parse(&content, self.options)?.contents;
                self.all.push(spoken(&object, Role::User, contents)?);
                Ok(())
            }
            "assistant" => self.assistant(&object),
            "tool" => {
                let call_id = required(&object, "tool_call_id")?;
                self.output(&object, call_id)
            }
            "function" => {
                let name = required(&object, "name")?;
                let call_id = self.functions.get(&name).cloned().ok_or_else(|| unmatched(&object.path()))?;
                self.output(&object, call_id)
            }
            other => {
                let known = quoted_list(&["system", "developer", "user", "assistant", "tool", "function"]);
                Err(role.invalid(format!("unknown role '{}': must be one of {known}", truncate(other))))
            }
        }
    }

    fn system(&mut self, object: &Object<'_>, is_developer: bool) -> Result<(), Fault> {
        let content = object.get("content").ok_or_else(|| missing(object.path_of("content")))?;
        let mut message = spoken(object, Role::System, parts::parse(&content, self.options)?.contents)?;
        if is_developer {
            let role = [("role", Json::from_serialize("developer"))];
            message.metadata = Some(Json::from_serialize(&role.into_iter().collect::<Extra>()));
        }

        // Those at the front are instructions: clients send them with each request, and change them.
        let is_first = self.all.is_empty();
        if is_first {
            self.read.instructions.push(message)
        } else {
            self.all.push(message)
        }
        Ok(())
    }

    fn assistant(&mut self, object: &Object<'_>) -> Result<(), Fault> {
        // The messages so far are history, so outputs among them must have their calls.
        if let Some(first) = self.read.unmatched.first() {
            return Err(unmatched(&first.path));
        }
        let mut last = LastAnswer::default();
        let mut parts = match object.get("content") {
            Some(content) => parts::parse(&content, self.options)?,
            None => parts::Parts::default(),
        };
        if let Some(refusal) = text(object, "refusal")?.filter(|refusal| !refusal.is_empty()) {
            parts.contents.push(parts::refusal(refusal, self.options));
        }
        // Many send an empty text beside calls.
        parts.contents.retain(|content| content.as_text() != Some(""));
        last.text = parts.contents.iter().filter_map(Content::as_text).collect();

        let said = &mut self.all;
        if let Some(reasoning) = reasoning(object, parts.reasoning)?
            && self.options.reasoning_input == ReasoningInput::Forward
        {
            said.push(reasoning);
        }
        let has_audio = object.get("audio").is_some();
        if parts.contents.is_empty() && has_audio {
            parts.contents.push(Content::text("(audio)"));
        }
        if !parts.contents.is_empty() {
            said.push(spoken(object, Role::Assistant, parts.contents)?);
        }

        for node in object.array("tool_calls")? {
            let call = node.object()?;
            self.call(&call, &mut last)?;
        }
        if let Some(node) = object.get("function_call") {
            self.function_call(&node.object()?, &object.path(), &mut last)?;
        }

        self.read.last = Some(last);
        self.split = self.all.len();
        Ok(())
    }

    fn call(&mut self, object: &Object<'_>, last: &mut LastAnswer) -> Result<(), Fault> {
        let id = required(object, "id")?;
        let kind = text(object, "type")?.unwrap_or_else(|| "function".to_owned());
        let custom = kind == "custom";
        if !custom && kind != "function" {
            let message = format!("unknown value '{}': must be one of 'function', 'custom'", truncate(&kind));
            return Err(Fault::invalid(object.path_of("type"), message));
        }
        let node = object.get(&kind).ok_or_else(|| missing(object.path_of(&kind)))?;
        let function = node.object()?;
        let name = required(&function, "name")?;
        let shown = required(&function, if custom { "input" } else { "arguments" })?;

        let mut metadata = Extra::new();
        if custom {
            metadata.push("type", Json::from_serialize("custom_tool_call"));
        }
        if let Some(extra) = object.get("extra_content") {
            metadata.push("extra_content", extra.to_json());
        }
        last.calls.push(Call {
            id: id.clone(),
            name: name.clone(),
            arguments: shown.clone(),
            custom,
            extra_content: None,
        });
        let arguments = if custom { client_tool::to_arguments(&shown) } else { shown };
        self.push_call(id, name, arguments, &metadata, object.path());
        Ok(())
    }

    fn function_call(&mut self, object: &Object<'_>, path: &str, last: &mut LastAnswer) -> Result<(), Fault> {
        let name = required(object, "name")?;
        let arguments = required(object, "arguments")?;
        let id = format!("function_call_{}", self.calls.len());
        self.functions.insert(name.clone(), id.clone());
        last.calls.push(Call {
            id: String::new(),
            name: name.clone(),
            arguments: arguments.clone(),
            ..Call::default()
        });
        self.push_call(id, name, arguments, &Extra::new(), path.to_owned());
        Ok(())
    }

    fn push_call(&mut self, id: String, name: String, arguments: String, metadata: &Extra, path: String) {
        let call = ToolCall { call_id: id.clone(), name: name.clone(), arguments, server_label: None };
        let mut message = Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&call)]);
        message.metadata = (!metadata.is_empty()).then(|| Json::from_serialize(metadata));
        self.all.push(message);
        self.calls.insert(id, KnownCall { name, path, is_answered: false });
    }

    fn output(&mut self, object: &Object<'_>, call_id: String) -> Result<(), Fault> {
        let output = match object.get("content") {
            Some(content) => parts::output(&content, self.options)?,
            None => String::new(),
        };
        let Some(call) = self.calls.get_mut(&call_id) else {
            // Its call may be known to the gateway, which the engine finds out.
            self.read.unmatched.push(UnmatchedOutput { call_id, output, path: object.path() });
            return Ok(());
        };
        call.is_answered = true;
        let data = ToolOutput { call_id, name: Some(call.name.clone()), output };
        let message = Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&data)]);
        self.all.push(message);
        Ok(())
    }

    fn finish(mut self) -> Result<Conversation, Fault> {
        let open = self.calls.values().filter(|call| !call.is_answered).map(|call| &call.path).min();
        if let (OpenCalls::Refuse, Some(path)) = (self.options.open_calls, open) {
            let message = "an assistant message with 'tool_calls' must be followed by tool messages that respond to \
                           each 'tool_call_id'";
            return Err(misplaced(path.as_str(), message));
        }

        // A list that is not split is moved: `split_off` would allocate another one of its size.
        self.read.new = if self.split == 0 { std::mem::take(&mut self.all) } else { self.all.split_off(self.split) };
        self.read.history = self.all;

        let is_text = |content: &Content| content.as_text().is_some();
        if let [message] = self.read.new.as_slice()
            && self.read.unmatched.is_empty()
            && message.kind == MessageType::Message
            && message.role == Some(Role::User)
            && message.content.iter().all(is_text)
        {
            self.read.only_words = Some(message.text());
        }
        Ok(self.read)
    }
}

/// The fault of an output whose call is in no message before it.
pub(crate) fn unmatched(path: &str) -> Fault {
    let message = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'";
    misplaced(path, message)
}

/// A message with contents. The name of a participant is an extra field.
fn spoken(object: &Object<'_>, role: Role, contents: Vec<Content>) -> Result<Message, Fault> {
    let mut message = Message::new(MessageType::Message, Some(role), contents);
    if let Some(name) = text(object, "name")? {
        message.extra.push("name", Json::from_serialize(&name));
    }
    Ok(message)
}

/// The reasoning of an assistant message. Servers have three fields for it; the first present one is used.
fn reasoning(object: &Object<'_>, in_parts: String) -> Result<Option<Message>, Fault> {
    let mut words = match text(object, "reasoning_content")? {
        Some(words) => Some(words),
        None => text(object, "reasoning")?,
    };
    let mut metadata = Extra::new();
    if let Some(details) = object.get("reasoning_details") {
        let mut joined = String::new();
        for detail in details.array()? {
            let detail = detail.object()?;
            let part = text(&detail, "text")?.or(text(&detail, "summary")?);
            joined.push_str(&part.unwrap_or_default());
        }
        words = words.or(Some(joined));
        metadata.push("reasoning_details", details.to_json());
    }

    let words = words.filter(|words| !words.is_empty()).unwrap_or(in_parts);
    if words.is_empty() && metadata.is_empty() {
        return Ok(None);
    }
    let contents = if words.is_empty() { Vec::new() } else { vec![Content::new(Body::Text(words))] };
    let mut message = Message::new(MessageType::Reasoning, Some(Role::Assistant), contents);
    message.metadata = (!metadata.is_empty()).then(|| Json::from_serialize(&metadata));
    Ok(Some(message))
}
