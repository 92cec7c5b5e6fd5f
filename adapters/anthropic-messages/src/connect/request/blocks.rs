//! Contents as blocks. What the protocol does not take becomes a line of text, so that the model knows of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interlingua_adapter_kit::data_url::{DataUrl, base64, is_data_url};
use interlingua_adapter_kit::output_parts;
use interlingua_adapter_kit::transcript::sent_as_text;
use interlingua_core::model::{Body, Content, File, Message};
use interlingua_core::{Extra, Json, Losses};
use serde_json::{Map, Value, json};

/// Images that models can look at.
const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";
/// The first characters of a PDF in base64.
const PDF_BASE64: &str = "JVBERi";

/// A text block. None: an empty one, which servers refuse.
pub(super) fn text(text: &str) -> Option<Json> {
    (!text.trim().is_empty()).then(|| Json::from_serialize(&json!({ "type": "text", "text": text })))
}

/// The content of a user's message.
pub(super) fn of_user(contents: &[Content], losses: &mut Losses) -> Vec<Json> {
    contents.iter().filter_map(|content| block(content, losses)).collect()
}

/// The content of a message that allows only text.
pub(super) fn texts(contents: &[Content], losses: &mut Losses) -> Vec<Json> {
    contents.iter().filter_map(|content| text(&sent_as_text(content, losses))).collect()
}

pub(super) fn block(content: &Content, losses: &mut Losses) -> Option<Json> {
    let taken = match &content.body {
        Body::Image(Some(url)) => image(url),
        Body::File(file) => document(file, &content.extra),
        _ => None,
    };
    if let Some(taken) = taken {
        return Some(Json::from_serialize(&taken));
    }

    text(&sent_as_text(content, losses))
}

fn image(url: &str) -> Option<Value> {
    let source = match DataUrl::parse(url) {
        Some(inline) if IMAGES.contains(&inline.media_type()) => {
            json!({ "type": "base64", "media_type": inline.media_type(), "data": inline.data })
        }
        Some(_) => return None,
        None if is_data_url(url) => return None,
        None => link(url)?,
    };
    Some(json!({ "type": "image", "source": source }))
}

/// A PDF, or plain text.
fn document(file: &File, extra: &Extra) -> Option<Value> {
    let source = match (file.data.as_deref(), file.url.as_deref()) {
        (Some(data), _) => inline(data, file.name.as_deref())?,
        (None, Some(url)) => match DataUrl::parse(url) {
            Some(_) => inline(url, file.name.as_deref())?,
            // Servers fetch nothing but PDFs.
            None if is_named(url, ".pdf") || file.name.as_deref().is_some_and(|name| is_named(name, ".pdf")) => {
                link(url)?
            }
            None => return None,
        },
        (None, None) => return None,
    };

    let mut document = Map::new();
    document.insert("type".into(), "document".into());
    document.insert("source".into(), source);
    if let Some(name) = &file.name {
        document.insert("title".into(), name.as_str().into());
    }
    if let Some(context) = extra.get("context").and_then(Json::decode::<String>) {
        document.insert("context".into(), context.into());
    }
    Some(Value::Object(document))
}

/// The source of an inline document: a data URL, or bare base64.
fn inline(data: &str, name: Option<&str>) -> Option<Value> {
    let (media_type, data) = match DataUrl::parse(data) {
        Some(inline) => (inline.media_type().to_owned(), inline.data),
        None if data.starts_with(PDF_BASE64) => (PDF.to_owned(), base64(data)),
        None if name.is_some_and(|name| is_named(name, ".txt") || is_named(name, ".md")) => {
            ("text/plain".to_owned(), base64(data))
        }
        None => return None,
    };
    if media_type == PDF {
        return Some(json!({ "type": "base64", "media_type": PDF, "data": data }));
    }
    if !media_type.starts_with("text/") && media_type != "application/json" {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(data.as_bytes()).ok()?).ok()?;
    (!text.is_empty()).then(|| json!({ "type": "text", "media_type": "text/plain", "data": text }))
}

fn link(url: &str) -> Option<Value> {
    let is_link = ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    is_link.then(|| json!({ "type": "url", "url": url }))
}

/// True if a name or the path of a URL ends so.
fn is_named(name: &str, suffix: &str) -> bool {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    path.len() >= suffix.len() && path.as_bytes()[path.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
}

/// The output of a tool: its text, or blocks where it has images or documents.
pub(super) fn result(output: &str, answer: &Message, losses: &mut Losses) -> Option<Json> {
    let Some(parts) = output_parts::parts(output, answer) else {
        // An empty result is omitted.
        return (!output.is_empty()).then(|| Json::from_serialize(output));
    };
    let blocks: Vec<Json> = parts.iter().filter_map(|part| block(part, losses)).collect();
    Some(Json::from_serialize(&blocks))
}

#[cfg(test)]
mod tests {
    use interlingua_core::model::MessageType;

    use super::*;

    fn sent(content: Content) -> (Value, usize) {
        let mut losses = Losses::new();
        let block = block(&content, &mut losses).expect("a block");
        (serde_json::to_value(block).expect("JSON"), losses.as_slice().len())
    }

    fn file(url: Option<&str>, name: Option<&str>, data: Option<&str>) -> Content {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Content::new(Body::File(File { url: own(url), id: None, name: own(name), data: own(data) }))
    }

    #[test]
    fn media_are_blocks_or_lines_of_text() {
        let image = |url: &str| Content::new(Body::Image(Some(url.to_owned())));
        for (content, kind, source) in [
            (image("data:image/png;base64,AAAA"), "image", "base64"),
            (image("https://a/b.png"), "image", "url"),
            (image("data:image/tiff;base64,AAAA"), "text", ""),
            (image("file:///etc/x"), "text", ""),
            (file(None, Some("a.pdf"), Some("JVBERi0x")), "document", "base64"),
            (file(None, Some("a.txt"), Some("aGk=")), "document", "text"),
            (file(None, None, Some("data:text/csv;charset=utf-8;base64,aGk=")), "document", "text"),
            (file(None, Some("a.zip"), Some("UEsDBA==")), "text", ""),
            (file(None, Some("a.txt"), Some("/w==")), "text", ""),
            (file(Some("https://a/b.PDF?x=1"), None, None), "document", "url"),
            (file(Some("https://a/b.docx"), None, None), "text", ""),
            (Content::new(Body::Video(Some("https://a/b.mp4".to_owned()))), "text", ""),
            (Content::new(Body::Audio { data: Some("AAAA".to_owned()), format: None }), "text", ""),
        ] {
            let (block, losses) = sent(content.clone());
            assert_eq!(block["type"], kind, "{content:?}");
            assert_eq!(block["source"]["type"].as_str().unwrap_or_default(), source, "{content:?}");
            assert_eq!(losses, usize::from(kind == "text"), "{content:?}");
        }
    }

    #[test]
    fn an_output_is_text_unless_it_holds_media() {
        let mut losses = Losses::new();
        let mut result = |output: &str, others: &[Content]| {
            let answer = Message::new(MessageType::FunctionCallOutput, None, others.to_vec());
            super::result(output, &answer, &mut losses).map(|json| json.text().to_owned())
        };
        assert_eq!(result("21 C", &[]).as_deref(), Some("\"21 C\""));
        assert_eq!(result("", &[]), None);
        assert_eq!(result(r#"[{"type":"text","text":"x"}]"#, &[]).map(|text| text.starts_with('"')), Some(true));
        let blocks = r#"[{"type":"image","source":{"type":"url","url":"https://a/b.png"}}]"#;
        let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(result(blocks, &[]).map(|found| value(&found)), Some(value(blocks)));
        let image = Content::new(Body::Image(Some("https://a/b.png".to_owned())));
        assert!(result("seen", &[image]).expect("blocks").contains(r#""text":"seen""#));
    }
}
