//! Contents of messages as parts. What the server does not take becomes a line of text, so that the model knows of it.

use interlingua_adapter_kit::data_url::normal;
use interlingua_adapter_kit::transcript::{audio_part, text_part};
use interlingua_core::model::{Body, Content, File};
use interlingua_core::{Extra, Json, Losses};
use serde_json::{Value, json};

use crate::connect::options::{Part, UpstreamOptions};

/// Media of tools' outputs as the content of a user message: a `tool` message takes text alone. `None`: no media.
pub(super) fn media_content(
    outputs: &[(String, Vec<Content>)],
    options: &UpstreamOptions,
    losses: &mut Losses,
) -> Option<Json> {
    let mut parts = Vec::new();
    for (name, media) in outputs.iter().filter(|(_, media)| !media.is_empty()) {
        parts.push(json!({ "type": "text", "text": format!("[output of {name}]") }));
        parts.extend(media.iter().filter_map(|content| part(content, options, losses)));
    }
    (!parts.is_empty()).then(|| Json::from_serialize(&parts))
}

/// The content of a user's message: one text, or parts.
pub(super) fn user_content(contents: &[Content], options: &UpstreamOptions, losses: &mut Losses) -> Json {
    let parts: Vec<Value> = contents.iter().filter_map(|content| part(content, options, losses)).collect();
    match parts.as_slice() {
        [] => Json::from_serialize(""),
        [only] if only["type"] == "text" => Json::from_serialize(&only["text"]),
        parts => Json::from_serialize(parts),
    }
}

fn part(content: &Content, options: &UpstreamOptions, losses: &mut Losses) -> Option<Value> {
    let taken = match &content.body {
        Body::Image(Some(url)) if options.takes(Part::Image) => Some(image(&normal(url), &content.extra)),
        Body::Audio { data: Some(data), format } if options.takes(Part::Audio) => audio_part(data, format.as_deref()),
        Body::File(found) if options.takes(Part::File) => file(found),
        Body::Video(Some(url)) if options.takes(Part::Video) => {
            Some(json!({ "type": "video_url", "video_url": { "url": normal(url) } }))
        }
        _ => None,
    };

    taken.or_else(|| text_part(content, "text", losses))
}

fn image(url: &str, extra: &Extra) -> Value {
    match extra.get("detail").and_then(Json::decode::<String>) {
        Some(detail) => json!({ "type": "image_url", "image_url": { "url": url, "detail": detail } }),
        None => json!({ "type": "image_url", "image_url": { "url": url } }),
    }
}

/// An inline file, or a file of the server. This protocol takes no links to files.
fn file(file: &File) -> Option<Value> {
    let mut fields = serde_json::Map::new();
    if let Some(data) = &file.data {
        fields.insert("file_data".to_owned(), normal(data).into());
    } else {
        fields.insert("file_id".to_owned(), file.id.as_deref()?.into());
    }

    if let Some(name) = &file.name {
        fields.insert("filename".to_owned(), name.as_str().into());
    }

    Some(json!({ "type": "file", "file": fields }))
}
