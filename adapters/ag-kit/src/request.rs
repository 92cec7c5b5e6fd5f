//! Parses requests (sections 3 and 10): every error names its field. More tolerant than the reference implementation
//! where the meaning is unambiguous.

use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::model::{self, Body, Content, File, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::{Kind, Node, Object};
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
        Kind::Array => node.array()?.parse_each(parse_part),
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}

fn parse_part(node: &Node<'_>) -> Result<Content, Fault> {
    if node.kind() == Kind::String {
        return Ok(Content::text(node.string()?));
    }
    let part = node.object()?;
    let kind = part.required("type")?;
    let name = kind.string()?;
    let body = match name.as_ref() {
        "text" => Body::Text(part.required("text")?.string()?.into_owned()),
        "image" | "audio" | "video" | "document" | "file" => {
            Source::parse(&part.required("source")?.object()?)?.body(&name, text(&part, "filename")?)
        }
        // The chat completions form, which front ends reuse.
        "image_url" => {
            let image = part.required("image_url")?;
            let url = if image.kind() == Kind::Object { image.object()?.required("url")? } else { image };
            Body::Image(Some(url.string()?.into_owned()))
        }
        "binary" => {
            let media = part.required("mimeType")?.string()?.into_owned();
            let location = match (text(&part, "url")?, text(&part, "data")?, text(&part, "id")?) {
                (Some(url), ..) => Location::Url(url),
                (_, Some(data), _) => Location::Data(data),
                (.., Some(id)) => Location::Handle(id),
                _ => return Err(node.invalid("a binary part needs 'url', 'data' or 'id'")),
            };
            let kind = media.split('/').next().unwrap_or("").to_owned();
            Source { location, media: Some(media) }.body(&kind, text(&part, "filename")?)
        }
        other => {
            let known = "text, image, audio, video, document, binary";
            return Err(kind.invalid(format!("unknown part type '{other}': must be one of {known}")));
        }
    };

    Ok(Content::new(body))
}

/// Location of a part's bytes.
enum Location {
    Url(String),
    /// Base64.
    Data(String),
    Handle(String),
}

struct Source {
    location: Location,
    media: Option<String>,
}

impl Source {
    fn parse(source: &Object<'_>) -> Result<Self, Fault> {
        let kind = source.required("type")?;
        let value = source.required("value")?.string()?.into_owned();
        let location = match kind.string()?.as_ref() {
            "url" => Location::Url(value),
            "data" => Location::Data(value),
            "file" => Location::Handle(value),
            other => return Err(kind.invalid(format!("unknown source type '{other}': must be one of url, data, file"))),
        };
        Ok(Self { location, media: text(source, "mimeType")? })
    }

    fn body(self, kind: &str, name: Option<String>) -> Body {
        let media = self.media.as_deref().unwrap_or("application/octet-stream");
        let data_url = |data: String| format!("data:{media};base64,{data}");
        match (kind, self.location) {
            ("image", Location::Url(url)) => Body::Image(Some(url)),
            ("image", Location::Data(data)) => Body::Image(Some(data_url(data))),
            ("video", Location::Url(url)) => Body::Video(Some(url)),
            ("video", Location::Data(data)) => Body::Video(Some(data_url(data))),
            ("audio", Location::Url(data) | Location::Data(data)) => {
                Body::Audio { data: Some(data), format: self.media }
            }
            (_, Location::Url(url)) => Body::File(File { url: Some(url), name, ..File::default() }),
            (_, Location::Data(data)) => {
                let data = Some(data_url(data));
                Body::File(File { data, name, ..File::default() })
            }
            (_, Location::Handle(id)) => Body::File(File { id: Some(id), name, ..File::default() }),
        }
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

fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(|text| text.into_owned()))
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
