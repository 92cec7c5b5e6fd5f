//! Reading a request (sections 3 and 10): every complaint names its field. More tolerant than the reference where
//! that cannot be misunderstood.

use interlingua_core::answer::{Answer, Given};
use interlingua_core::model::{self, Body, Content, File, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json, Request};
use serde::Serialize;

/// A request as it is meant.
#[derive(Debug, Default)]
pub(crate) struct SendMessage {
    /// None: a conversation of one exchange.
    pub(crate) conversation: Option<String>,
    pub(crate) input: Vec<Message>,
    /// None: the request does not speak of tools.
    pub(crate) tools: Option<Vec<Json>>,
    pub(crate) resume: Option<Answer>,
    /// `state`, `context` and `forwardedProps`, under their native names.
    pub(crate) extra: Extra,
}

impl SendMessage {
    /// Reads the body of a request.
    pub(crate) fn read(request: &Request<'_>) -> Result<Self, Fault> {
        let media = request.media_type();
        if !(media.is_empty() || media == "application/json" || media.ends_with("+json")) {
            let message = format!("the content type must be application/json, not {media}");
            return Err(Fault::new(FaultKind::UnsupportedMedia, message));
        }
        let body = Node::parse_object(request.body)?;
        let conversation = body.string("conversationId")?.filter(|id| !id.is_empty()).map(|id| id.into_owned());
        if conversation.is_none()
            && let Some(other) = body.any(&["threadId", "runId"])
        {
            let message = format!("'{}' belongs to AG-UI, and this route speaks AG-Kit", other.path());
            return Err(Fault::new(FaultKind::Unsupported, message).with_field(other.path()));
        }
        let mut read = Self { conversation, ..Self::default() };
        let mut messages = body.array("messages")?;
        if let Some(first) = messages.next() {
            read_message(&first, &mut read.input)?;
            // Nearly always one each. Not before one of them was good.
            read.input.reserve_exact(messages.left());
        }
        for message in messages {
            read_message(&message, &mut read.input)?;
        }
        read.tools =
            body.get("tools").map(|tools| tools.array()?.map(|tool| read_tool(&tool)).collect()).transpose()?;
        read.resume = body.get("resume").map(|resume| read_resume(&resume)).transpose()?;
        for (name, native) in [("state", "state"), ("context", "context"), ("forwardedProps", "forwarded_props")] {
            if let Some(value) = body.get(name) {
                read.extra.push(native, value.to_json());
            }
        }
        Ok(read)
    }

    /// True if nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.resume.is_none()
    }
}

fn read_message(node: &Node<'_>, input: &mut Vec<Message>) -> Result<(), Fault> {
    let message = node.object()?;
    let role = message.required("role")?;
    let id = message.string("id")?.filter(|id| !id.is_empty()).map(|id| id.into_owned());
    let first = input.len();
    match role.string()?.as_ref() {
        "system" => input.push(said(Role::System, vec![Content::text(message.required("content")?.string()?)])),
        "user" => input.push(said(Role::User, read_content(&message.required("content")?)?)),
        "assistant" => {
            let text = message.string("content")?.filter(|text| !text.is_empty());
            input.extend(text.map(|text| said(Role::Assistant, vec![Content::text(text)])));
            if let Some(calls) = message.any(&["toolCalls", "tool_calls"]) {
                for call in calls.array()? {
                    input.push(read_call(&call)?);
                }
            }
        }
        "tool" => {
            let call_id = message.any(&["toolCallId", "tool_call_id"]);
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
    // One message may have become several; an id belongs to one.
    if let Some(first) = input.get_mut(first) {
        first.id = id;
    }
    Ok(())
}

const fn said(role: Role, content: Vec<Content>) -> Message {
    Message::new(MessageType::Message, Some(role), content)
}

fn read_call(node: &Node<'_>) -> Result<Message, Fault> {
    let call = node.object()?;
    let function = call.required("function")?.object()?;
    let arguments = match function.get("arguments") {
        None => "{}".to_owned(),
        // Not what the page says, but plain what is meant.
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

/// A text, or a list of parts as AG-UI has them, the old form included.
fn read_content(node: &Node<'_>) -> Result<Vec<Content>, Fault> {
    match node.kind() {
        Kind::String => Ok(vec![Content::text(node.string()?)]),
        Kind::Array => node.array()?.read_each(read_part),
        _ => Err(node.wrong("a string or a list of parts")),
    }
}

fn read_part(node: &Node<'_>) -> Result<Content, Fault> {
    if node.kind() == Kind::String {
        return Ok(Content::text(node.string()?));
    }
    let part = node.object()?;
    let kind = part.required("type")?;
    let word = kind.string()?;
    let body = match word.as_ref() {
        "text" => Body::Text(part.required("text")?.string()?.into_owned()),
        "image" | "audio" | "video" | "document" | "file" => {
            Source::read(&part.required("source")?.object()?)?.body(&word, text(&part, "filename")?)
        }
        // The form of chat completions, which front ends carry over.
        "image_url" => {
            let image = part.required("image_url")?;
            let url = if image.kind() == Kind::Object { image.object()?.required("url")? } else { image };
            Body::Image(Some(url.string()?.into_owned()))
        }
        "binary" => {
            let media = part.required("mimeType")?.string()?.into_owned();
            let place = match (text(&part, "url")?, text(&part, "data")?, text(&part, "id")?) {
                (Some(url), ..) => Place::Url(url),
                (_, Some(data), _) => Place::Data(data),
                (.., Some(id)) => Place::Handle(id),
                _ => return Err(node.invalid("a binary part needs 'url', 'data' or 'id'")),
            };
            let kind = media.split('/').next().unwrap_or("").to_owned();
            Source { place, media: Some(media) }.body(&kind, text(&part, "filename")?)
        }
        other => {
            let known = "text, image, audio, video, document, binary";
            return Err(kind.invalid(format!("unknown part type '{other}': must be one of {known}")));
        }
    };
    Ok(Content::new(body))
}

/// Where a part's bytes are.
enum Place {
    Url(String),
    /// base64
    Data(String),
    Handle(String),
}

struct Source {
    place: Place,
    media: Option<String>,
}

impl Source {
    fn read(source: &Object<'_>) -> Result<Self, Fault> {
        let kind = source.required("type")?;
        let value = source.required("value")?.string()?.into_owned();
        let place = match kind.string()?.as_ref() {
            "url" => Place::Url(value),
            "data" => Place::Data(value),
            "file" => Place::Handle(value),
            other => return Err(kind.invalid(format!("unknown source type '{other}': must be one of url, data, file"))),
        };
        Ok(Self { place, media: text(source, "mimeType")? })
    }

    fn body(self, kind: &str, name: Option<String>) -> Body {
        let media = self.media.as_deref().unwrap_or("application/octet-stream");
        let data_url = |data: String| format!("data:{media};base64,{data}");
        match (kind, self.place) {
            ("image", Place::Url(url)) => Body::Image(Some(url)),
            ("image", Place::Data(data)) => Body::Image(Some(data_url(data))),
            ("video", Place::Url(url)) => Body::Video(Some(url)),
            ("video", Place::Data(data)) => Body::Video(Some(data_url(data))),
            ("audio", Place::Url(data) | Place::Data(data)) => Body::Audio { data: Some(data), format: self.media },
            (_, Place::Url(url)) => Body::File(File { url: Some(url), name, ..File::default() }),
            (_, Place::Data(data)) => {
                let data = Some(data_url(data));
                Body::File(File { data, name, ..File::default() })
            }
            (_, Place::Handle(id)) => Body::File(File { id: Some(id), name, ..File::default() }),
        }
    }
}

/// A client tool in the native form.
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

fn read_tool(node: &Node<'_>) -> Result<Json, Fault> {
    let tool = node.object()?;
    let name = tool.required("name")?;
    if name.string()?.is_empty() {
        return Err(name.invalid("must not be empty"));
    }
    let parameters = match tool.get("parameters") {
        None => Json::from_serialize(&serde_json::json!({ "type": "object", "properties": {} })),
        // The documentation shows the schema as JSON text; an object is as common.
        Some(parameters) if parameters.kind() == Kind::String => Json::parse(&parameters.string()?)
            .filter(Json::is_object)
            .ok_or_else(|| parameters.invalid("must be a JSON object, or the text of one"))?,
        Some(parameters) => parameters.json_object()?,
    };
    let (name, description) = (name.string()?, tool.string("description")?.unwrap_or_default());
    let function = Function { name: &name, description: &description, parameters };
    Ok(Json::from_serialize(&Tool { r#type: "function", function }))
}

fn read_resume(node: &Node<'_>) -> Result<Answer, Fault> {
    let resume = node.object()?;
    let id = resume.required("interruptId")?;
    if id.string()?.is_empty() {
        return Err(id.invalid("must not be empty"));
    }
    let given = match resume.get("payload") {
        None => Given::Payload(Json::null()),
        Some(payload) if payload.kind() == Kind::String => Given::Text(payload.string()?.into_owned()),
        Some(payload) => Given::Payload(payload.to_json()),
    };
    Ok(Answer::new(id.string()?.into_owned(), given))
}

fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(|text| text.into_owned()))
}

/// The request as the agent gets it.
pub(crate) fn native(read: &mut SendMessage, user: Option<String>) -> model::AgentRequest {
    model::AgentRequest {
        input: std::mem::take(&mut read.input).into(),
        session_id: read.conversation.clone(),
        user_id: user,
        tools: read.tools.take(),
        extra: std::mem::take(&mut read.extra),
        ..model::AgentRequest::default()
    }
}
