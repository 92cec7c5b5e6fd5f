//! Parses the parts of a message (docs/protocols/chat-completions.md#messages-and-parts) into contents of the canonical
//! model.

use interlingua_adapter_kit::model_options::RefusalInput;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::model::{Body, Content, File};
use interlingua_core::tree::fields::{quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};

use crate::options::{Options, ToolParts};

/// The content of a message.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) contents: Vec<Content>,
    /// Reasoning that stands among the parts, as some servers write it.
    pub(super) reasoning: String,
}

/// Parses the content of a message: a string, or a list of parts.
pub(super) fn parse(node: &Node<'_>, options: &Options) -> Result<Parts, Fault> {
    let mut parts = Parts::default();
    match node.kind() {
        // Most messages have one content: no room for more.
        Kind::String => parts.contents = vec![Content::text(node.string()?)],
        Kind::Array => {
            for part in node.array()? {
                parse_part(&part, options, &mut parts)?;
            }
            if parts.contents.is_empty() && parts.reasoning.is_empty() {
                parts.contents.push(Content::text(""));
            }
            parts.contents.shrink_to_fit();
        }
        _ => return Err(node.wrong_type("a string or a list of parts")),
    }
    Ok(parts)
}

fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    text(object, name)?.ok_or_else(|| missing(object.path_of(name)))
}

fn parse_part(node: &Node<'_>, options: &Options, parts: &mut Parts) -> Result<(), Fault> {
    let object = node.object()?;
    let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
    let content = match kind.as_ref() {
        "text" => Content::text(required(&object, "text")?),
        "refusal" => refusal(required(&object, "refusal")?, options),
        "image_url" => image(&object)?,
        "input_audio" => audio(&object)?,
        "file" => file(&object)?,
        "video_url" => Content::new(Body::Video(Some(url(&object, "video_url")?.0))),
        "thinking" | "reasoning" => {
            parts.reasoning.push_str(&thought(&object, &kind)?);
            return Ok(());
        }
        other => {
            let known = quoted_list(&["text", "image_url", "input_audio", "file", "video_url", "refusal", "thinking"]);
            let message = format!("unknown type '{}': must be one of {known}", truncate(other));
            return Err(Fault::invalid(object.path_of("type"), message));
        }
    };
    parts.contents.push(content);
    Ok(())
}

/// A refusal in the client's history, as the route's option says.
pub(super) fn refusal(text: String, options: &Options) -> Content {
    match options.refusal_input {
        RefusalInput::Refusal => Content::new(Body::Refusal(text)),
        RefusalInput::Text => Content::text(text),
    }
}

/// The text of a part with reasoning: some servers nest a list of texts.
fn thought(object: &Object<'_>, kind: &str) -> Result<String, Fault> {
    let Some(node) = object.get_any(&[kind, "text"]) else { return Ok(String::new()) };
    if node.kind() != Kind::Array {
        return Ok(node.string()?.into_owned());
    }
    let mut joined = String::new();
    for part in node.array()? {
        joined.push_str(&text(&part.object()?, "text")?.unwrap_or_default());
    }
    Ok(joined)
}

/// A URL, nested in an object or bare, and the object.
fn url<'a>(object: &Object<'a>, name: &str) -> Result<(String, Option<Object<'a>>), Fault> {
    let node = object.get(name).ok_or_else(|| missing(object.path_of(name)))?;
    if node.kind() == Kind::String {
        return Ok((node.string()?.into_owned(), None));
    }
    let nested = node.object()?;
    Ok((required(&nested, "url")?, Some(nested)))
}

fn image(object: &Object<'_>) -> Result<Content, Fault> {
    let (url, nested) = url(object, "image_url")?;
    let detail = nested.as_ref().map(|nested| text(nested, "detail")).transpose()?.flatten();
    let mut extra = Extra::new();
    if let Some(detail) = detail {
        extra.push("detail", Json::from_serialize(&detail));
    }
    Ok(Content { body: Body::Image(Some(url)), extra })
}

fn audio(object: &Object<'_>) -> Result<Content, Fault> {
    let node = object.get("input_audio").ok_or_else(|| missing(object.path_of("input_audio")))?;
    let audio = node.object()?;
    Ok(Content::new(Body::Audio { data: Some(required(&audio, "data")?), format: text(&audio, "format")? }))
}

fn file(object: &Object<'_>) -> Result<Content, Fault> {
    let node = object.get("file").ok_or_else(|| missing(object.path_of("file")))?;
    let file = node.object()?;
    let data = text(&file, "file_data")?;
    let is_url = data.as_deref().is_some_and(|data| data.starts_with("https://") || data.starts_with("http://"));
    let (url, data) = if is_url { (data, None) } else { (text(&file, "file_url")?, data) };
    let file_id = text(&file, "file_id")?;
    if url.is_none() && data.is_none() && file_id.is_none() {
        return Err(missing(file.path_of("file_data")));
    }
    Ok(Content::new(Body::File(File { url, id: file_id, name: text(&file, "filename")?, data })))
}

/// Parses the output of a tool into one string. Texts are joined; a list with anything else is its JSON, or its texts
/// alone.
pub(super) fn output(node: &Node<'_>, options: &Options) -> Result<String, Fault> {
    match node.kind() {
        Kind::String => Ok(node.string()?.into_owned()),
        Kind::Array => {
            let (mut joined, mut is_text) = (String::new(), true);
            for part in node.array()? {
                let part = part.object()?;
                match part.string("type")?.as_deref() {
                    Some("text") => joined.push_str(&required(&part, "text")?),
                    Some(_) => is_text = false,
                    None => return Err(missing(part.path_of("type"))),
                }
            }
            let as_json = !is_text && options.tool_parts == ToolParts::Json;
            Ok(if as_json { node.text().to_owned() } else { joined })
        }
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}
