//! Parsing of canonical requests: strict about anything ambiguous, tolerant of harmless deviations
//! (docs/protocols/agent-api.md#request, docs/protocols/agent-api.md#writer-8). Every error names its field.

use std::collections::HashSet;

use crate::client_tool;
use crate::fault::{Fault, FaultKind};
use crate::json::Json;
use crate::model::{AgentRequest, Body, Content, File, Message, MessageType, Role, Sampling, Status, Stop};
use crate::tree::{Kind, Node, Object};

const REQUEST_FIELDS: &[&str] = &[
    "input",
    "stream",
    "id",
    "response_id",
    "session_id",
    "user_id",
    "model",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "max_tokens",
    "stop",
    "n",
    "seed",
    "tools",
];

impl AgentRequest {
    /// Parses a request.
    ///
    /// # Errors
    /// The first invalid field, with its path.
    pub fn parse(object: &Object<'_>) -> Result<Self, Fault> {
        let input = object.required("input")?.array()?;
        let input = input.parse_each(Message::parse)?.into();
        let id = object.get_any(&["id", "response_id"]).map(|node| owned(&node)).transpose()?;
        let tools = object.get("tools").map(|node| tools(&node)).transpose()?;
        object.boolean("stream")?;

        Ok(Self {
            input,
            id,
            session_id: text(object, "session_id")?,
            user_id: text(object, "user_id")?,
            model: text(object, "model")?,
            sampling: Sampling::parse(object)?,
            tools,
            extra: object.fields_except(REQUEST_FIELDS),
        })
    }
}

impl Sampling {
    fn parse(object: &Object<'_>) -> Result<Self, Fault> {
        let n = object.integer("n")?;
        if let (Some(count), Some(node)) = (n, object.get("n"))
            && !(1..=5).contains(&count)
        {
            return Err(node.invalid("must be between 1 and 5"));
        }

        let stop = object
            .get("stop")
            .map(|node| match node.kind() {
                Kind::String => owned(&node).map(Stop::One),
                Kind::Array => node.array()?.map(|word| owned(&word)).collect::<Result<_, _>>().map(Stop::Many),
                _ => Err(node.wrong_type("a string or a list of strings")),
            })
            .transpose()?;

        Ok(Self {
            temperature: object.number("temperature")?,
            top_p: object.number("top_p")?,
            frequency_penalty: object.number("frequency_penalty")?,
            presence_penalty: object.number("presence_penalty")?,
            max_tokens: object.integer("max_tokens")?,
            stop,
            n,
            seed: object.integer("seed")?,
        })
    }
}

impl Message {
    /// Parses a message of a request. Only `content` is required, and it may be a plain string.
    ///
    /// # Errors
    /// The first invalid field, with its path.
    pub fn parse(node: &Node<'_>) -> Result<Self, Fault> {
        const FIELDS: &[&str] = &[
            "object",
            "sequence_number",
            "error",
            "id",
            "type",
            "role",
            "status",
            "content",
            "code",
            "message",
            "usage",
            "metadata",
        ];
        let object = node.object()?;

        let role = object
            .get("role")
            .map(|node| {
                let word = node.string()?;
                match Role::from(word.as_ref()) {
                    Role::Other(_) if word == "developer" => Ok(Role::System),
                    Role::Other(_) => Err(node.invalid(format!(
                        "unknown role '{word}': must be 'assistant', 'system', 'developer', 'user' or 'tool'"
                    ))),
                    role => Ok(role),
                }
            })
            .transpose()?;

        let kind = match object.string("type")?.as_deref() {
            // Examples in both published specifications use `assistant`, which no enum contains
            // (docs/protocols/agent-api.md#type-assistant).
            None | Some("assistant") => MessageType::Message,
            Some(word) => MessageType::from(word),
        };

        let content = object.required("content")?;
        let content = match content.kind() {
            Kind::String => vec![Content::text(content.string()?)],
            Kind::Array => content.array()?.parse_each(Content::parse)?,
            _ => return Err(content.wrong_type("a list of contents or a string")),
        };

        Ok(Self {
            id: text(&object, "id")?,
            kind,
            role,
            status: object.string("status")?.map(|word| Status::from(word.as_ref())),
            content,
            code: text(&object, "code")?,
            message: text(&object, "message")?,
            usage: object.get("usage").map(|node| node.json_object()).transpose()?,
            metadata: object.get("metadata").map(|node| node.json_object()).transpose()?,
            extra: object.fields_except(FIELDS),
        })
    }
}

impl Content {
    /// Parses a content of a request. `type` is optional if there is a `text`.
    ///
    /// # Errors
    /// The first invalid field, with its path.
    pub fn parse(node: &Node<'_>) -> Result<Self, Fault> {
        if node.kind() == Kind::String {
            return Ok(Self::text(node.string()?));
        }

        let object = node.object()?;

        let word = match object.string("type")? {
            Some(word) => word,
            None if object.has("text") => "text".into(),
            None => {
                let message = "missing required field 'type'";
                return Err(Fault::new(FaultKind::Missing, message).with_field(object.path_of("type")));
            }
        };

        let mut known_fields: Vec<&str> =
            vec!["type", "object", "status", "sequence_number", "error", "index", "delta", "msg_id"];
        let body = match word.as_ref() {
            "text" => {
                known_fields.push("text");
                Body::Text(text(&object, "text")?.unwrap_or_default())
            }
            "refusal" => {
                known_fields.push("refusal");
                Body::Refusal(text(&object, "refusal")?.unwrap_or_default())
            }
            "image" => {
                known_fields.push("image_url");
                Body::Image(text(&object, "image_url")?)
            }
            "data" => {
                known_fields.push("data");
                Body::Data(object.required("data")?.json_object()?)
            }
            "audio" => {
                known_fields.extend(["data", "format"]);
                Body::Audio { data: text(&object, "data")?, format: text(&object, "format")? }
            }
            "video" => {
                known_fields.push("video_url");
                Body::Video(text(&object, "video_url")?)
            }
            "file" => {
                // The web client sends `file_name`.
                known_fields.extend(["file_url", "file_id", "filename", "file_name", "file_data"]);
                Body::File(File {
                    url: text(&object, "file_url")?,
                    id: text(&object, "file_id")?,
                    name: object.get_any(&["filename", "file_name"]).map(|node| owned(&node)).transpose()?,
                    data: text(&object, "file_data")?,
                })
            }
            other => {
                let known = "text, image, data, audio, file, refusal, video";
                return Err(Fault::invalid(
                    object.path_of("type"),
                    format!("unknown content type '{other}': must be one of {known}"),
                ));
            }
        };

        Ok(Self { body, extra: object.fields_except(&known_fields) })
    }
}

fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(std::borrow::Cow::into_owned))
}

fn owned(node: &Node<'_>) -> Result<String, Fault> {
    node.string().map(std::borrow::Cow::into_owned)
}
/// Tools, each with a name of its own.
fn tools(node: &Node<'_>) -> Result<Vec<Json>, Fault> {
    let (mut tools, mut declared) = (Vec::new(), HashSet::new());
    for node in node.array()? {
        let tool = node.json_object()?;
        if let Some(name) = client_tool::name(&tool) {
            client_tool::declare(&name, &mut declared, || node.path())?;
        }
        tools.push(tool);
    }
    Ok(tools)
}
