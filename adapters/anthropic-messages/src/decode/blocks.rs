//! Parses blocks of content (docs/protocols/anthropic-messages.md#messages-and-blocks).

use interlingua_core::model::{Body, Content, File};
use interlingua_core::tree::fields::{text, truncate};
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, Json};

use crate::fault::missing;

pub(super) fn required_text(block: &Object<'_>) -> Result<String, Fault> {
    match block.string("type")?.as_deref() {
        Some("text") => {}
        None => return Err(missing(block.path_of("type"))),
        Some(other) => {
            let message = format!("unknown type '{}': must be 'text'", truncate(other));
            return Err(Fault::invalid(block.path_of("type"), message));
        }
    }
    required(block, "text")
}

pub(super) fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    text(object, name)?.ok_or_else(|| missing(object.path_of(name)))
}

/// The `source` of a block, and its type.
fn source<'a>(block: &Object<'a>) -> Result<(Object<'a>, String), Fault> {
    let source = block.get("source").ok_or_else(|| missing(block.path_of("source")))?.object()?;
    let kind = required(&source, "type")?;
    if kind == "file" {
        return Err(Fault::unsupported(source.path_of("type"), "files stored at Anthropic are not accessible"));
    }
    Ok((source, kind))
}

fn unknown_source(source: &Object<'_>, kind: &str, known: &str) -> Fault {
    Fault::invalid(source.path_of("type"), format!("unknown source '{}': must be {known}", truncate(kind)))
}

pub(super) fn image(block: &Object<'_>) -> Result<Content, Fault> {
    let (source, kind) = source(block)?;
    let url = match kind.as_str() {
        "base64" => format!("data:{};base64,{}", required(&source, "media_type")?, required(&source, "data")?),
        "url" => required(&source, "url")?,
        other => return Err(unknown_source(&source, other, "'base64' or 'url'")),
    };
    Ok(Content::new(Body::Image(Some(url))))
}

/// A document: a file, or its text under its title. One made of blocks is those blocks.
pub(super) fn document(block: &Object<'_>) -> Result<Vec<Content>, Fault> {
    let (source, kind) = source(block)?;
    let title = text(block, "title")?;
    let mut contents = match kind.as_str() {
        "base64" => {
            let data = format!("data:{};base64,{}", required(&source, "media_type")?, required(&source, "data")?);
            vec![Content::new(Body::File(File { data: Some(data), name: title, ..File::default() }))]
        }
        "url" => {
            let url = Some(required(&source, "url")?);
            vec![Content::new(Body::File(File { url, name: title, ..File::default() }))]
        }
        "text" => vec![Content::text(titled(title, &required(&source, "data")?))],
        "content" => {
            let node = source.get("content").ok_or_else(|| missing(source.path_of("content")))?;
            let mut contents: Vec<Content> = title.map(Content::text).into_iter().collect();
            match node.kind() {
                Kind::String => contents.push(Content::text(node.string()?)),
                _ => {
                    for part in node.array()? {
                        let part = part.object()?;
                        contents.push(match part.string("type")?.as_deref() {
                            Some("image") => image(&part)?,
                            _ => Content::text(required_text(&part)?),
                        });
                    }
                }
            }
            contents
        }
        other => return Err(unknown_source(&source, other, "'base64', 'text', 'content' or 'url'")),
    };
    if let Some(first) = contents.first_mut() {
        for name in ["context", "citations"] {
            if let Some(value) = block.get(name) {
                first.extra.push(name, value.to_json());
            }
        }
    }
    Ok(contents)
}

fn titled(title: Option<String>, text: &str) -> String {
    match title.filter(|title| !title.is_empty()) {
        Some(title) => format!("{title}\n{text}"),
        None => text.to_owned(),
    }
}

/// A result of a search of the client's own: title, source and text.
pub(super) fn search_result(block: &Object<'_>) -> Result<Content, Fault> {
    let mut lines = vec![required(block, "title")?, required(block, "source")?];
    for part in block.array("content")? {
        lines.push(required_text(&part.object()?)?);
    }
    Ok(Content::text(lines.join("\n")))
}

/// The content of a result as one text. Blocks that are all text are joined with line breaks, others stay JSON.
pub(super) fn output(node: Option<&Node<'_>>) -> Result<String, Fault> {
    let Some(node) = node else { return Ok(String::new()) };
    match node.kind() {
        Kind::String => Ok(node.string()?.into_owned()),
        Kind::Array => {
            let mut lines = Vec::new();
            let mut is_text = true;
            for part in node.array()? {
                let part = part.object()?;
                match part.string("type")?.as_deref() {
                    Some("text") => lines.push(required(&part, "text")?),
                    Some(_) => is_text = false,
                    None => return Err(missing(part.path_of("type"))),
                }
            }
            Ok(if is_text { lines.join("\n") } else { node.text().to_owned() })
        }
        // Of tools that Anthropic runs.
        Kind::Object => Ok(node.text().to_owned()),
        _ => Err(node.wrong_type("a string or a list of blocks")),
    }
}

/// The input of a call as text. Arguments that were wrapped, because they are no object, are unwrapped.
pub(super) fn arguments(block: &Object<'_>) -> Result<(Json, String), Fault> {
    let node = block.get("input");
    let input = match &node {
        Some(node) => node.json_object()?,
        None => Json::from_serialize(&serde_json::Map::new()),
    };
    let fields: Extra = input.decode().unwrap_or_default();
    let wrapped = fields.get(crate::encode::ARGUMENTS).and_then(Json::decode::<String>);
    let arguments = wrapped.unwrap_or_else(|| input.text().to_owned());
    Ok((input, arguments))
}

/// The tools that a result of a search refers to.
pub(super) fn references(content: &Node<'_>) -> Result<Vec<String>, Fault> {
    let mut names = Vec::new();
    if content.kind() == Kind::Array {
        for part in content.array()? {
            let part = part.object()?;
            if part.string("type")?.as_deref() == Some("tool_reference") {
                names.extend(text(&part, "tool_name")?);
            }
        }
    }
    Ok(names)
}
