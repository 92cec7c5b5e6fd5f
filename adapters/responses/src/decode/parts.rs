//! Parses the parts of a message into contents of the canonical model (docs/protocols/responses.md#input-items).

use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::json::is_empty_value;
use interlingua_core::model::{Body, Content, File};
use interlingua_core::tree::fields::{quoted_list, text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};

use crate::options::{Options, RefusalInput};

/// Parses the content of a message: a string, or a list of parts.
pub(super) fn parse(node: &Node<'_>, options: &Options) -> Result<Vec<Content>, Fault> {
    match node.kind() {
        Kind::String => Ok(vec![Content::text(node.string()?)]),
        Kind::Array => node.array()?.parse_each(|part| parse_part(part, options)),
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}

fn parse_part(node: &Node<'_>, options: &Options) -> Result<Content, Fault> {
    let object = node.object()?;
    let kind = object.string("type")?.ok_or_else(|| missing(object.path_of("type")))?;
    let required = |name: &str| text(&object, name)?.ok_or_else(|| missing(object.path_of(name)));

    match kind.as_ref() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            let mut content = Content::text(required("text")?);
            // The agent's own annotations are returned to it unchanged.
            if let Some(annotations) = object.get("annotations").filter(|list| !is_empty_value(list.text())) {
                content.extra.push("annotations", annotations.to_json());
            }
            Ok(content)
        }
        "refusal" => {
            let refusal = required("refusal")?;
            Ok(match options.refusal_input {
                RefusalInput::Refusal => Content::new(Body::Refusal(refusal)),
                RefusalInput::Text => Content::text(refusal),
            })
        }
        "input_image" => image(&object),
        "input_file" => file(&object),
        "input_audio" => {
            let node = object.get("input_audio").ok_or_else(|| missing(object.path_of("input_audio")))?;
            let audio = node.object()?;
            let data = text(&audio, "data")?.ok_or_else(|| missing(audio.path_of("data")))?;
            let format = text(&audio, "format")?;
            Ok(Content::new(Body::Audio { data: Some(data), format }))
        }
        "input_video" => Ok(Content::new(Body::Video(Some(required("video_url")?)))),
        other => {
            let known = quoted_list(&[
                "input_text",
                "input_image",
                "input_file",
                "input_audio",
                "input_video",
                "output_text",
                "refusal",
            ]);
            let message = format!("unknown type '{}': must be one of {known}", truncate(other));
            Err(Fault::invalid(object.path_of("type"), message))
        }
    }
}

fn image(object: &Object<'_>) -> Result<Content, Fault> {
    let url = match object.get("image_url") {
        // Chat Completions nests the URL, and so do clients that were ported from it.
        Some(node) if node.kind() == Kind::Object => text(&node.object()?, "url")?,
        Some(node) => Some(node.string()?.into_owned()),
        None if object.get("file_id").is_some() => {
            let message = "files stored at OpenAI are not accessible: send 'image_url'";
            return Err(Fault::unsupported(object.path_of("file_id"), message));
        }
        None => None,
    };

    let url = url.ok_or_else(|| missing(object.path_of("image_url")))?;
    let mut extra = Extra::new();
    if let Some(detail) = text(object, "detail")? {
        extra.push("detail", Json::from_serialize(&detail));
    }
    Ok(Content { body: Body::Image(Some(url)), extra })
}

fn file(object: &Object<'_>) -> Result<Content, Fault> {
    let file = File {
        url: text(object, "file_url")?,
        id: text(object, "file_id")?,
        name: text(object, "filename")?,
        data: text(object, "file_data")?,
    };

    if file.url.is_none() && file.id.is_none() && file.data.is_none() {
        return Err(missing(object.path_of("file_data")));
    }
    Ok(Content::new(Body::File(file)))
}

/// Parses a tool output into one string. Parts that are all text are joined, others stay JSON
/// (docs/protocols/responses.md#what-the-agent-receives).
pub(super) fn output(node: &Node<'_>) -> Result<String, Fault> {
    match node.kind() {
        Kind::String => Ok(node.string()?.into_owned()),
        Kind::Array => {
            let mut joined = String::new();
            let mut all_text = true;

            for part in node.array()? {
                let part = part.object()?;
                match part.string("type")?.as_deref() {
                    Some("input_text" | "output_text" | "text") => {
                        let text = text(&part, "text")?.ok_or_else(|| missing(part.path_of("text")))?;
                        joined.push_str(&text);
                    }
                    Some(_) => all_text = false,
                    None => return Err(missing(part.path_of("type"))),
                }
            }

            Ok(if all_text { joined } else { node.text().to_owned() })
        }
        _ => Err(node.wrong_type("a string or a list of parts")),
    }
}
