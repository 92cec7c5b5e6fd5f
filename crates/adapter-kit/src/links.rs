//! Messages as plain text, for protocols whose messages hold nothing else.
//!
//! Not here: media in protocols that have a place for some of it, and what clients are shown.

use crate::output_parts;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Body, Content, Message, MessageType};

/// The text of a message, line by line: data as JSON, media as links where they have a URL. `nothing_else`: why the
/// rest is lost.
pub fn as_text(message: &Message, nothing_else: &'static str, losses: &mut Losses) -> String {
    let mut text = String::new();
    for content in &message.content {
        let piece = match &content.body {
            Body::Text(piece) | Body::Refusal(piece) => piece.clone(),
            Body::Data(data) => {
                losses.changed(ContentKind::DataIn, "sent as JSON in the text");
                data.text().to_owned()
            }
            _ => link(content, nothing_else, losses).unwrap_or_default(),
        };
        if !text.is_empty() && !piece.is_empty() {
            text.push('\n');
        }
        text.push_str(&piece);
    }
    text
}

/// The output of a tool as a text. Media become links. `nothing_else`: the reported reason for losing the rest.
pub fn output_as_text(output: &str, message: &Message, nothing_else: &'static str, losses: &mut Losses) -> String {
    match output_parts::parts(output, message) {
        Some(parts) => as_text(&Message::new(MessageType::Message, None, parts), nothing_else, losses),
        None => output.to_owned(),
    }
}

fn link(content: &Content, nothing_else: &'static str, losses: &mut Losses) -> Option<String> {
    let (kind, url, name) = match &content.body {
        Body::Image(url) => (ContentKind::ImageIn, url.as_deref(), "image"),
        Body::Video(url) => (ContentKind::VideoIn, url.as_deref(), "video"),
        Body::Audio { data, .. } => (ContentKind::AudioIn, data.as_deref(), "audio"),
        Body::File(file) => (ContentKind::FileIn, file.url.as_deref(), file.name.as_deref().unwrap_or("file")),
        _ => (ContentKind::DataIn, None, ""),
    };
    let is_link = |url: &&str| url.starts_with("https://") || url.starts_with("http://");
    match url.filter(is_link) {
        Some(url) => {
            losses.changed(kind, "sent as a link in the text");
            Some(format!("[{name}]({url})"))
        }
        None => {
            losses.lost(kind, nothing_else);
            None
        }
    }
}
