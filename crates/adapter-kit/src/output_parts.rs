//! Outputs of tools that hold pictures or files, in any of the forms in which clients send them.
//!
//! An output is one text in the model. A client of Anthropic Messages, Chat Completions, Responses or MCP sends parts,
//! and the text is their JSON. Connectors parse it here and send parts of their own protocol instead of base64 in a
//! text. Not here: writing them (the connectors).

use crate::data_url::media_type;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, Content, File, Message};

/// The parts of an output, in order. `None`: it is plain text, or JSON without media.
///
/// ```
/// use interlingua_core::model::{Body, Message, MessageType};
/// use interlingua_adapter_kit::output_parts::parts;
///
/// let message = Message::new(MessageType::FunctionCallOutput, None, Vec::new());
/// let output = r#"[{"type":"text","text":"seen"},{"type":"image","data":"AAAA","mimeType":"image/png"}]"#;
/// let found = parts(output, &message).unwrap();
/// assert_eq!(found[1].body, Body::Image(Some("data:image/png;base64,AAAA".into())));
/// assert_eq!(parts(r#"[{"type":"text","text":"seen"}]"#, &message), None);
/// ```
#[must_use]
pub fn parts(output: &str, message: &Message) -> Option<Vec<Content>> {
    if let Some(parts) = written(output) {
        return Some(parts);
    }

    // Media beside the output, from clients that have contents in such a message.
    let media: Vec<Content> = message.content.iter().filter(|content| is_medium(content)).cloned().collect();
    if media.is_empty() {
        return None;
    }
    let text = (!output.is_empty()).then(|| Content::text(output));
    Some(text.into_iter().chain(media).collect())
}

/// The text of parts, without media.
#[must_use]
pub fn text_of(parts: &[Content]) -> String {
    parts.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// True for an image, a video, sound or a file.
#[must_use]
pub const fn is_medium(content: &Content) -> bool {
    matches!(content.body, Body::Image(_) | Body::Video(_) | Body::Audio { .. } | Body::File(_))
}

fn written(output: &str) -> Option<Vec<Content>> {
    let text = output.trim();
    let list: Vec<Json> = match text.as_bytes().first()? {
        b'[' => Json::parse(text)?.decode()?,
        // A result of MCP, or a part alone.
        b'{' => {
            let fields: Extra = Json::parse(text)?.decode()?;
            let is_result = fields
                .iter()
                .all(|(name, _)| matches!(name, "content" | "isError" | "is_error" | "structuredContent" | "_meta"));
            match fields.get("content") {
                Some(content) if is_result => content.decode()?,
                _ => vec![Json::parse(text)?],
            }
        }
        _ => return None,
    };

    let parts: Vec<Content> = list.iter().map(part).collect::<Option<_>>()?;
    parts.iter().any(is_medium).then_some(parts)
}

fn part(part: &Json) -> Option<Content> {
    let fields: Extra = part.decode()?;
    let word = |name: &str| fields.get(name).and_then(Json::decode::<String>);
    let object = |name: &str| fields.get(name).and_then(Json::decode::<Extra>);
    let body = match word("type")?.as_str() {
        "text" | "input_text" | "output_text" => Body::Text(word("text")?),
        "image" => Body::Image(Some(source(&fields, "image/png")?)),
        "image_url" | "input_image" => {
            let nested = object("image_url").and_then(|image| image.get("url")?.decode::<String>());
            Body::Image(Some(nested.or_else(|| word("image_url"))?))
        }
        "video" => Body::Video(Some(source(&fields, "video/mp4")?)),
        "video_url" | "input_video" => {
            let nested = object("video_url").and_then(|video| video.get("url")?.decode::<String>());
            Body::Video(Some(nested.or_else(|| word("video_url"))?))
        }
        "audio" => Body::Audio { data: Some(source(&fields, "audio/wav")?), format: None },
        "input_audio" => {
            let audio = object("input_audio").unwrap_or_else(|| fields.clone());
            let word = |name: &str| audio.get(name).and_then(Json::decode::<String>);
            Body::Audio { data: Some(word("data")?), format: word("format") }
        }
        "document" => document(&fields)?,
        "file" | "input_file" => {
            let file = object("file").unwrap_or_else(|| fields.clone());
            let word = |name: &str| file.get(name).and_then(Json::decode::<String>);
            let file = File {
                url: word("file_url"),
                id: word("file_id"),
                name: word("filename"),
                data: word("file_data").or_else(|| source(&file, "application/octet-stream")),
            };
            if file.url.is_none() && file.id.is_none() && file.data.is_none() {
                return None;
            }
            Body::File(file)
        }
        "resource" => resource(&object("resource")?)?,
        "resource_link" => Body::File(File { url: Some(word("uri")?), name: word("name"), ..File::default() }),
        _ => return None,
    };
    let mut content = Content::new(body);
    if let Some(detail) = fields.get("detail").filter(|detail| !detail.is_null()) {
        content.extra.push("detail", detail.clone());
    }
    Some(content)
}

/// The address of a medium: in a `source`, or beside the type as in MCP.
fn source(fields: &Extra, fallback: &str) -> Option<String> {
    let nested: Option<Extra> = fields.get("source").and_then(Json::decode);
    let place = nested.as_ref().unwrap_or(fields);
    let word = |name: &str| place.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty());
    if let Some(data) = word("data") {
        if crate::data_url::is_data_url(&data) {
            return Some(data);
        }
        let named = word("media_type").or_else(|| word("mimeType")).or_else(|| word("mime_type"));
        return Some(format!("data:{};base64,{data}", media_type(named.as_deref().unwrap_or(fallback))));
    }
    word("url")
}

/// A document of Anthropic Messages: bytes, a link, or plain text.
fn document(fields: &Extra) -> Option<Body> {
    let source: Extra = fields.get("source")?.decode()?;
    let word = |name: &str| source.get(name).and_then(Json::decode::<String>);
    if word("type").as_deref() == Some("text") {
        return Some(Body::Text(word("data")?));
    }
    let name = fields.get("title").and_then(Json::decode);
    if let Some(url) = word("url") {
        return Some(Body::File(File { url: Some(url), name, ..File::default() }));
    }
    let data = self::source(fields, "application/pdf");
    let id = word("file_id");
    (data.is_some() || id.is_some()).then(|| Body::File(File { data, id, name, ..File::default() }))
}

/// An embedded resource of MCP.
fn resource(resource: &Extra) -> Option<Body> {
    let word = |name: &str| resource.get(name).and_then(Json::decode::<String>);
    if let Some(text) = word("text") {
        return Some(Body::Text(text));
    }
    let named = word("mimeType").unwrap_or_else(|| "application/octet-stream".to_owned());
    let url = format!("data:{};base64,{}", media_type(&named), word("blob")?);
    if media_type(&named).starts_with("image/") {
        return Some(Body::Image(Some(url)));
    }
    let name = word("uri").and_then(|uri| uri.rsplit('/').next().map(str::to_owned));
    Some(Body::File(File { data: Some(url), name, ..File::default() }))
}

#[cfg(test)]
mod tests {
    use interlingua_core::model::MessageType;

    use super::*;

    fn read(output: &str) -> Option<Vec<Content>> {
        parts(output, &Message::new(MessageType::FunctionCallOutput, None, Vec::new()))
    }

    #[test]
    fn pictures_are_found_in_every_form() {
        let png = "data:image/png;base64,AAAA";
        for output in [
            r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]"#,
            r#" [{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]"#,
            r#"[{"type":"image_url","image_url":"data:image/png;base64,AAAA"}]"#,
            r#"[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]"#,
            r#"[{"type":"image","data":"AAAA","mimeType":"IMAGE/PNG"}]"#,
            r#"{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}],"isError":false}"#,
            r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#,
            r#"[{"type":"resource","resource":{"uri":"file:///a.png","mimeType":"image/png","blob":"AAAA"}}]"#,
        ] {
            let found = read(output).unwrap_or_else(|| panic!("{output}"));
            assert_eq!(found.iter().map(|part| part.body.clone()).collect::<Vec<_>>(), [Body::Image(Some(png.into()))]);
        }

        let mixed = r#"[{"type":"text","text":"a"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0x"},"title":"t"},{"type":"text","text":"b"}]"#;
        let mixed = read(mixed).expect("parts");
        assert_eq!((mixed.len(), text_of(&mixed).as_str()), (3, "a\nb"));
        assert!(is_medium(&mixed[1]));
    }

    #[test]
    fn other_outputs_are_texts() {
        for output in [
            "21 C",
            "",
            "[1,2]",
            "[",
            r#"{"content":"x"}"#,
            r#"{"type":"weather"}"#,
            r#"[{"type":"text","text":"x"}]"#,
            r#"[{"type":"image","source":{}},7]"#,
            r#"[{"type":"image"}]"#,
            r#"[{"type":"file"}]"#,
        ] {
            assert_eq!(read(output), None, "{output}");
        }
    }
}
