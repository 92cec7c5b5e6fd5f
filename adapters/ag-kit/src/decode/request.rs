//! Parses requests (docs/protocols/ag-kit.md#request, docs/protocols/ag-kit.md#from-the-client-to-the-agent): every
//! error names its field. More tolerant than the reference implementation where the meaning is unambiguous.

use interlingua_adapter_kit::source_parts;
use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::model::{self, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::{Kind, Node};
use interlingua_core::{Extra, Fault, FaultKind, Json, Request};
use serde::Serialize;

/// A parsed request.
#[derive(Debug, Default)]
pub(crate) struct SendMessage {
    /// `None`: a conversation that consists of this exchange only.
    pub(crate) conversation: Option<String>,
    pub(crate) input: Vec<Message>,
    /// `None`: the request has no `tools` field.
    pub(crate) tools: Option<Vec<Json>>,
    pub(crate) resume: Option<Answer>,
    /// `state`, `context` and `forwardedProps`, under their names in the Agent API.
    pub(crate) extra: Extra,
}

impl SendMessage {
    /// Parses the body of a request.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Self, Fault> {
        let media = request.media_type();
        if !(media.is_empty() || media == "application/json" || media.ends_with("+json")) {
            let message = format!("the content type must be application/json, not {media}");
            return Err(Fault::new(FaultKind::UnsupportedMedia, message));
        }

        let body = Node::parse_object(request.body)?;
        let conversation = body.string("conversationId")?.filter(|id| !id.is_empty()).map(|id| id.into_owned());
        if conversation.is_none()
            && let Some(other) = body.get_any(&["threadId", "runId"])
        {
            let message = format!("'{}' belongs to AG-UI, but this route serves AG-Kit", other.path());
            return Err(Fault::new(FaultKind::Unsupported, message).with_field(other.path()));
        }

        let mut parsed = Self { conversation, ..Self::default() };
        let mut messages = body.array("messages")?;
        if let Some(first) = messages.next() {
            parse_message(&first, &mut parsed.input)?;
            // Each node almost always becomes one message. Reserved only after the first one was valid.
            parsed.input.reserve_exact(messages.remaining());
        }
        for message in messages {
            parse_message(&message, &mut parsed.input)?;
        }

        parsed.tools =
            body.get("tools").map(|tools| tools.array()?.map(|tool| parse_tool(&tool)).collect()).transpose()?;
        parsed.resume = body.get("resume").map(|resume| parse_resume(&resume)).transpose()?;
        for (name, native) in [("state", "state"), ("context", "context"), ("forwardedProps", "forwarded_props")] {
            if let Some(value) = body.get(name) {
                parsed.extra.push(native, value.to_json());
            }
        }
        Ok(parsed)
    }

    /// True if the request has no content.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.resume.is_none()
    }
}

fn parse_message(node: &Node<'_>, input: &mut Vec<Message>) -> Result<(), Fault> {
    let message = node.object()?;
    let role = message.required("role")?;
    let id = message.string("id")?.filter(|id| !id.is_empty()).map(|id| id.into_owned());
    let first = input.len();
    match role.string()?.as_ref() {
        "system" => input.push(text_message(Role::System, vec![Content::text(message.required("content")?.string()?)])),
        "user" => input.push(text_message(Role::User, parse_content(&message.required("content")?)?)),
        "assistant" => {
            let text = message.string("content")?.filter(|text| !text.is_empty());
            input.extend(text.map(|text| text_message(Role::Assistant, vec![Content::text(text)])));
            if let Some(calls) = message.get_any(&["toolCalls", "tool_calls"]) {
                for call in calls.array()? {
                    input.push(parse_call(&call)?);
                }
            }
        }
        "tool" => {
            let call_id = message.get_any(&["toolCallId", "tool_call_id"]);
            let call_id = call_id.map_or_else(|| message.required("toolCallId"), Ok)?.string()?.into_owned();
            let output = message.required("content")?.string()?.into_owned();
            let data = Content::data(&ToolOutput { call_id, name: None, output });
            input.push(Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![data]));
        }
        other => {
            let known = "'system', 'user', 'assistant' or 'tool'";
            return Err(role.invalid(format!("unknown role '{other}': must be {known}")));
        }
    }

    // One message may have become several; the id goes to the first.
    if let Some(first) = input.get_mut(first) {
        first.id = id;
    }
    Ok(())
}

const fn text_message(role: Role, content: Vec<Content>) -> Message {
    Message::new(MessageType::Message, Some(role), content)
}

fn parse_call(node: &Node<'_>) -> Result<Message, Fault> {
    let call = node.object()?;
    let function = call.required("function")?.object()?;
    let arguments = match function.get("arguments") {
        None => "{}".to_owned(),
        // Not according to the documentation, but unambiguous.
        Some(arguments) if arguments.kind() == Kind::Object => arguments.text().to_owned(),
        Some(arguments) => arguments.string()?.into_owned(),
    };

    let call = ToolCall {
        call_id: call.required("id")?.string()?.into_owned(),
        name: function.required("name")?.string()?.into_owned(),
        arguments,
        server_label: None,
    };
    Ok(Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&call)]))
}

/// Parses a text, or a list of parts as AG-UI defines them, including the old form.
fn parse_content(node: &Node<'_>) -> Result<Vec<Content>, Fault> {
    match node.kind() {
        Kind::String => Ok(vec![Content::text(node.string()?)]),
        Kind::Array => node.array()?.parse_each(source_parts::parse),
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}

/// A client tool in the form of the Agent API.
#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Json,
}

fn parse_tool(node: &Node<'_>) -> Result<Json, Fault> {
    let tool = node.object()?;
    let name = tool.required("name")?;
    if name.string()?.is_empty() {
        return Err(name.invalid("must not be empty"));
    }

    let parameters = match tool.get("parameters") {
        None => Json::from_serialize(&serde_json::json!({ "type": "object", "properties": {} })),
        // The documentation shows the schema as a JSON string; objects are equally common.
        Some(parameters) if parameters.kind() == Kind::String => Json::parse(&parameters.string()?)
            .filter(Json::is_object)
            .ok_or_else(|| parameters.invalid("must be a JSON object, or a string that contains one"))?,
        Some(parameters) => parameters.json_object()?,
    };

    let (name, description) = (name.string()?, tool.string("description")?.unwrap_or_default());
    let function = Function { name: &name, description: &description, parameters };
    Ok(Json::from_serialize(&Tool { r#type: "function", function }))
}

fn parse_resume(node: &Node<'_>) -> Result<Answer, Fault> {
    let resume = node.object()?;
    let id = resume.required("interruptId")?;
    if id.string()?.is_empty() {
        return Err(id.invalid("must not be empty"));
    }
    let answer = match resume.get("payload") {
        None => AnswerBody::Payload(Json::null()),
        Some(payload) if payload.kind() == Kind::String => AnswerBody::Text(payload.string()?.into_owned()),
        Some(payload) => AnswerBody::Payload(payload.to_json()),
    };
    Ok(Answer::new(id.string()?.into_owned(), answer))
}

/// Converts the request to the Agent API.
pub(crate) fn take_agent_request(message: &mut SendMessage, user: Option<String>) -> model::AgentRequest {
    model::AgentRequest {
        input: std::mem::take(&mut message.input).into(),
        session_id: message.conversation.clone(),
        user_id: user,
        tools: message.tools.take(),
        extra: std::mem::take(&mut message.extra),
        ..model::AgentRequest::default()
    }
}
