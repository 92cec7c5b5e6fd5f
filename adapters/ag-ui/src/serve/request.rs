//! The input of a run as clients send it (docs/protocols/ag-ui.md#run-input): every error names its field.
//!
//! Accepted is more than the specification says where the meaning is clear: snake case, `null` for what may be absent,
//! fields of later versions, messages without ids. Not here: which of the messages are new ([`super::thread`]).

use std::collections::HashSet;

use interlingua_adapter_kit::source_parts;
use interlingua_core::answer::{Answer, AnswerBody, AnswerMessage};
use interlingua_core::model::{Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::Decision;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json, client_tool};
use serde_json::json;

use crate::connect::ReasoningInput;

/// A parsed run input.
#[derive(Debug)]
pub(super) struct RunInput {
    pub(super) thread: String,
    pub(super) run: String,
    /// The version that the client declares. `None`: before 1.0.
    pub(super) version: Option<String>,
    /// All messages, oldest first. One of the client's may be several.
    pub(super) messages: Vec<Message>,
    /// `None`: the request has no `tools`.
    pub(super) tools: Option<Vec<Json>>,
    pub(super) resume: Vec<Answer>,
    /// The answer of the time before `resume`: `forwardedProps.command.resume`.
    pub(super) command: Option<Json>,
    /// `forwardedProps.user_id` or `userId`.
    pub(super) user: Option<String>,
    /// `state`, `context`, `forwardedProps` and `parentRunId`, under their names in the Agent API.
    pub(super) extra: Extra,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// `system` or `developer`.
    Application,
    User,
    /// `assistant` or `reasoning`.
    Agent,
    Tool,
}

impl Author {
    /// The author of a message that a client has sent.
    pub(super) fn from_message(message: &Message) -> Self {
        match (&message.kind, &message.role) {
            (kind, _) if kind.is_output() => Self::Tool,
            (MessageType::Message, Some(Role::System)) => Self::Application,
            (MessageType::Message, Some(Role::User)) => Self::User,
            _ => Self::Agent,
        }
    }
}

impl RunInput {
    /// Parses a body.
    pub(super) fn parse(body: &[u8], reasoning: ReasoningInput) -> Result<Self, Fault> {
        let body = Node::parse_object(body)?;
        let thread = required_id(&body, "threadId", "thread_id")?;
        let run = required_id(&body, "runId", "run_id")?;
        let version = body.get_any(&["protocolVersion", "protocol_version"]).map(|version| version.string());

        let mut messages = Vec::new();
        let mut nodes = body.required("messages")?.array()?;
        if let Some(first) = nodes.next() {
            parse_message(&first, reasoning, &mut messages)?;
            // Each node almost always becomes one message. Reserved only after the first one was valid.
            messages.reserve_exact(nodes.remaining());
        }
        for node in nodes {
            parse_message(&node, reasoning, &mut messages)?;
        }

        let mut declared = HashSet::new();
        let mut tool = |tool: Node<'_>| parse_tool(&tool, &mut declared);
        let tools = body.get("tools").map(|tools| tools.array()?.map(&mut tool).collect()).transpose()?;
        let resume = match body.get("resume") {
            Some(entries) => entries.array()?.map(|entry| parse_resume(&entry)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };

        let mut extra = Extra::new();
        if let Some(state) = body.get("state") {
            extra.push("state", state.to_json());
        }
        if let Some(context) = body.get("context") {
            context.array()?.try_for_each(|entry| check_context(&entry))?;
            extra.push("context", context.to_json());
        }
        if let Some(parent) = body.get_any(&["parentRunId", "parent_run_id"]) {
            extra.push("parent_run_id", Json::from_serialize(&parent.string()?));
        }

        let props = body.get_any(&["forwardedProps", "forwarded_props"]);
        let (user, command) = props.as_ref().map(read_props).unwrap_or_default();
        if let Some(props) = props {
            extra.push("forwarded_props", props.to_json());
        }

        Ok(Self {
            thread,
            run,
            version: version.transpose()?.map(|version| version.into_owned()),
            messages,
            tools,
            resume,
            command,
            user,
            extra,
        })
    }
}

fn required_id(body: &Object<'_>, name: &str, snake: &str) -> Result<String, Fault> {
    let node = body.get_any(&[name, snake]).map_or_else(|| body.required(name), Ok)?;
    let id = node.string()?;
    if id.is_empty() {
        return Err(node.invalid("must not be empty"));
    }
    Ok(id.into_owned())
}

/// The application's values that the gateway reads: the user's id, and the older form of an answer.
fn read_props(props: &Node<'_>) -> (Option<String>, Option<Json>) {
    let Ok(props) = props.object() else { return (None, None) };
    let user = props.get_any(&["user_id", "userId"]).and_then(|user| user.string().ok());
    let command = props.get("command").and_then(|command| command.object().ok()?.get("resume"));
    let user = user.filter(|user| !user.is_empty()).map(|user| user.into_owned());
    (user, command.map(|resume| resume.to_json()))
}

fn check_context(entry: &Node<'_>) -> Result<(), Fault> {
    let entry = entry.object()?;
    for name in ["description", "value"] {
        entry.required(name)?.string()?;
    }
    Ok(())
}

fn parse_message(node: &Node<'_>, reasoning: ReasoningInput, messages: &mut Vec<Message>) -> Result<(), Fault> {
    let fields = node.object()?;
    let role = fields.required("role")?;
    let first = messages.len();
    match role.string()?.as_ref() {
        "system" | "developer" => {
            let text = fields.required("content")?.string()?;
            messages.push(text_message(Role::System, vec![Content::text(text)]));
        }
        "user" => messages.push(text_message(Role::User, parse_content(&fields.required("content")?)?)),
        "assistant" => parse_assistant(&fields, messages)?,
        "tool" => messages.push(parse_output(&fields)?),
        "reasoning" => {
            let text = fields.required("content")?.string()?;
            if reasoning == ReasoningInput::Send {
                let content = vec![Content::text(text)];
                messages.push(Message::new(MessageType::Reasoning, Some(Role::Assistant), content));
            }
        }
        // What front ends show of the agent's progress is no part of the conversation.
        "activity" => {}
        other => {
            let known = "user, assistant, system, developer, tool, reasoning, activity";
            return Err(role.invalid(format!("unknown role '{other}': must be one of {known}")));
        }
    }

    let id = fields.string("id")?.filter(|id| !id.is_empty()).map(|id| id.into_owned());
    let sealed = fields.get_any(&["encryptedValue", "encrypted_value"]).map(|value| value.to_json());
    if let Some(first) = messages.get_mut(first) {
        first.id = id;
        if let Some(sealed) = sealed {
            first.metadata = Some(sealed_metadata(sealed));
        }
    }
    Ok(())
}

/// A value that only the agent can read, as metadata of its message.
fn sealed_metadata(value: Json) -> Json {
    let mut metadata = Extra::new();
    metadata.push("encrypted_content", value);
    Json::from_serialize(&metadata)
}

const fn text_message(role: Role, content: Vec<Content>) -> Message {
    Message::new(MessageType::Message, Some(role), content)
}

fn parse_assistant(fields: &Object<'_>, messages: &mut Vec<Message>) -> Result<(), Fault> {
    let text = match fields.get("content") {
        // Front ends that show one as a list of parts send it back so.
        Some(parts) if parts.kind() == Kind::Array => {
            let parts = parts.array()?.parse_each(source_parts::parse)?;
            parts.iter().filter_map(Content::as_text).collect()
        }
        Some(text) => text.string()?.into_owned(),
        None => String::new(),
    };
    if !text.is_empty() {
        messages.push(text_message(Role::Assistant, vec![Content::text(text)]));
    }

    for call in
        fields.get_any(&["toolCalls", "tool_calls"]).map(|calls| calls.array()).transpose()?.into_iter().flatten()
    {
        messages.push(parse_call(&call)?);
    }
    Ok(())
}

fn parse_call(node: &Node<'_>) -> Result<Message, Fault> {
    let call = node.object()?;
    let function = call.required("function")?.object()?;
    let arguments = match function.get("arguments") {
        None => String::new(),
        // Not as the specification says, but unambiguous.
        Some(arguments) if arguments.kind() == Kind::Object => arguments.text().to_owned(),
        Some(arguments) => arguments.string()?.into_owned(),
    };
    let data = ToolCall {
        call_id: call.required("id")?.string()?.into_owned(),
        name: function.required("name")?.string()?.into_owned(),
        arguments,
        server_label: None,
    };

    let mut message = Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&data)]);
    if let Some(sealed) = call.get_any(&["encryptedValue", "encrypted_value"]) {
        message.metadata = Some(sealed_metadata(sealed.to_json()));
    }
    Ok(message)
}

/// The result of a call. The model's form has a text and nothing else.
fn parse_output(fields: &Object<'_>) -> Result<Message, Fault> {
    let call = fields.get_any(&["toolCallId", "tool_call_id"]);
    let call_id = call.map_or_else(|| fields.required("toolCallId"), Ok)?.string()?.into_owned();
    let content = fields.required("content")?;
    let content = if content.kind() == Kind::Array {
        let parts = content.array()?.parse_each(|part| Ok((source_parts::parse(part)?, part.text())))?;
        let texts = parts.iter().map(|(parsed, json)| parsed.as_text().unwrap_or(json));
        texts.collect::<Vec<_>>().join("\n")
    } else {
        content.string()?.into_owned()
    };

    let error = fields.string("error")?.filter(|error| !error.is_empty());
    let is_error = error.is_some();
    let output = match error {
        Some(error) if content.is_empty() || *error == content => error.into_owned(),
        Some(error) => json!({ "error": error, "content": content }).to_string(),
        None => content,
    };
    let data = Content::data(&ToolOutput { call_id, name: None, output });
    let mut message = Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![data]);
    if is_error {
        message.mark_failed_output();
    }
    Ok(message)
}

fn parse_content(node: &Node<'_>) -> Result<Vec<Content>, Fault> {
    match node.kind() {
        Kind::String => Ok(vec![Content::text(node.string()?)]),
        Kind::Array => node.array()?.parse_each(source_parts::parse),
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}

/// A frontend tool in the form of the Agent API.
fn parse_tool(node: &Node<'_>, declared: &mut HashSet<String>) -> Result<Json, Fault> {
    let tool = node.object()?;
    let name = tool.required("name")?;
    if name.string()?.is_empty() {
        return Err(name.invalid("must not be empty"));
    }
    client_tool::declare(&name.string()?, declared, || name.path())?;

    // The schema may be any JSON, and is often an empty object.
    let parameters = match tool.get("parameters") {
        Some(parameters) if parameters.kind() == Kind::Object && parameters.object()?.iter().next().is_some() => {
            parameters.to_json()
        }
        Some(parameters) if parameters.kind() != Kind::Object => return Err(parameters.wrong_type("an object")),
        _ => Json::from_serialize(&json!({ "type": "object", "properties": {} })),
    };
    let mut function = Extra::new();
    function.push("name", Json::from_serialize(&name.string()?));
    function.push("description", Json::from_serialize(&tool.string("description")?.unwrap_or_default()));
    function.push("parameters", parameters);

    let mut declared = Extra::new();
    declared.push("type", Json::from_serialize("function"));
    declared.push("function", Json::from_serialize(&function));
    Ok(Json::from_serialize(&declared))
}

fn parse_resume(node: &Node<'_>) -> Result<Answer, Fault> {
    let entry = node.object()?;
    let id = entry.get_any(&["interruptId", "interrupt_id"]).map_or_else(|| entry.required("interruptId"), Ok)?;
    if id.string()?.is_empty() {
        return Err(id.invalid("must not be empty"));
    }
    let status = entry.required("status")?;
    let given = match status.string()?.as_ref() {
        "resolved" => answer_body(entry.get("payload").map(|payload| payload.to_json())),
        "cancelled" | "canceled" => {
            AnswerBody::Decided { decision: Decision::Cancel, arguments: None, text: None, payload: None }
        }
        other => return Err(status.invalid(format!("unknown status '{other}': must be resolved or cancelled"))),
    };

    let metadata = entry.get("metadata").map(|metadata| metadata.json_object()).transpose()?;
    let said = metadata.map(|metadata| AnswerMessage { metadata: Some(metadata), ..AnswerMessage::default() });
    Ok(Answer { said, ..Answer::new(id.string()?.into_owned(), given) })
}

/// An answer as its sender wrote it. Without one nothing is decided.
pub(super) fn answer_body(payload: Option<Json>) -> AnswerBody {
    let payload = payload.unwrap_or_else(Json::null);
    match payload.decode::<String>() {
        Some(text) => AnswerBody::Text(text),
        None => AnswerBody::Payload(payload),
    }
}
