//! Contents of messages as parts. What the server does not take becomes a line of text, so that the model knows of it.

use interlingua_core::model::{Body, Content, File};
use interlingua_core::{Extra, Json};
use serde_json::{Value, json};

use crate::connect::options::{Part, UpstreamOptions};

/// What a user's message holds: one text, or parts.
pub(super) fn user_content(contents: &[Content], options: &UpstreamOptions) -> Json {
    let parts: Vec<Value> = contents.iter().filter_map(|content| part(content, options)).collect();
    match parts.as_slice() {
        [] => Json::from_serialize(""),
        [only] if only["type"] == "text" => Json::from_serialize(&only["text"]),
        parts => Json::from_serialize(parts),
    }
}

/// The texts of a message that can hold nothing else, joined with a blank line.
pub(super) fn plain_text(contents: &[Content]) -> String {
    let texts: Vec<String> = contents.iter().map(as_line).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

fn part(content: &Content, options: &UpstreamOptions) -> Option<Value> {
    let taken = match &content.body {
        Body::Image(Some(url)) if options.takes(Part::Image) => Some(image(url, &content.extra)),
        Body::Audio { data: Some(data), format } if options.takes(Part::Audio) => audio(data, format.as_deref()),
        Body::File(found) if options.takes(Part::File) => file(found),
        Body::Video(Some(url)) if options.takes(Part::Video) => {
            Some(json!({ "type": "video_url", "video_url": { "url": url } }))
        }
        _ => None,
    };

    taken.or_else(|| {
        let text = as_line(content);
        (!text.is_empty()).then(|| json!({ "type": "text", "text": text }))
    })
}

fn image(url: &str, extra: &Extra) -> Value {
    match extra.get("detail").and_then(Json::decode::<String>) {
        Some(detail) => json!({ "type": "image_url", "image_url": { "url": url, "detail": detail } }),
        None => json!({ "type": "image_url", "image_url": { "url": url } }),
    }
}

/// Sound that is there as base64. This protocol takes no links to it.
fn audio(data: &str, format: Option<&str>) -> Option<Value> {
    let (media, data) = match data.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,").map(|(media, data)| (Some(media), data))?,
        None if data.contains("://") => return None,
        None => (None, data),
    };

    let named = media.or(format).unwrap_or("wav");
    let suffix = named.rsplit('/').next().unwrap_or(named);
    let format = match suffix.split(';').next().unwrap_or(suffix) {
        "mpeg" | "mp3" => "mp3",
        "x-wav" | "wave" | "vnd.wave" | "wav" => "wav",
        other => other,
    };

    Some(json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } }))
}

/// A file that is there, or that the server has. This protocol takes no links to files.
fn file(file: &File) -> Option<Value> {
    let mut fields = serde_json::Map::new();
    if let Some(data) = &file.data {
        fields.insert("file_data".to_owned(), data.as_str().into());
    } else {
        fields.insert("file_id".to_owned(), file.id.as_deref()?.into());
    }

    if let Some(name) = &file.name {
        fields.insert("filename".to_owned(), name.as_str().into());
    }

    Some(json!({ "type": "file", "file": fields }))
}

/// A content as text: as it is, or as a note that says where it can be found.
fn as_line(content: &Content) -> String {
    // Megabytes of base64 are no help to a model that cannot look at them.
    let note = |kind: &str, known: Option<&str>| match known.filter(|known| !known.starts_with("data:")) {
        Some(known) if !known.is_empty() => format!("[{kind}: {known}]"),
        _ => format!("[{kind}]"),
    };

    match &content.body {
        Body::Text(text) | Body::Refusal(text) => text.clone(),
        Body::Data(data) if data.is_null() => String::new(),
        Body::Data(data) => data.text().to_owned(),
        Body::Image(url) => note("image", url.as_deref()),
        Body::Video(url) => note("video", url.as_deref()),
        Body::Audio { data, .. } => note("audio", data.as_deref().filter(|data| data.contains("://"))),
        Body::File(file) => note("file", file.url.as_deref().or(file.name.as_deref()).or(file.id.as_deref())),
        Body::Other(_) => Json::from_serialize(content).text().to_owned(),
    }
}
