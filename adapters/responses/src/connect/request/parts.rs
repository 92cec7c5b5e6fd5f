//! Contents of messages as parts. What the server does not take becomes a line of text, so that the model knows of it.

use interlingua_adapter_kit::data_url::normal;
use interlingua_adapter_kit::transcript::{audio_part, sent_as_text, text_part};
use interlingua_core::loss::Losses;
use interlingua_core::model::{Body, Content, File};
use interlingua_core::{Extra, Json};
use serde_json::{Map, Value, json};

use crate::connect::options::{Part, UpstreamOptions};

/// The parts of a user's message.
pub(super) fn user(contents: &[Content], options: &UpstreamOptions, losses: &mut Losses) -> Vec<Value> {
    contents.iter().filter_map(|content| part(content, options, losses)).collect()
}

/// The parts of a message of the assistant, which has texts and refusals only.
pub(super) fn assistant(contents: &[Content], losses: &mut Losses) -> Vec<Value> {
    let parts = contents.iter().filter_map(|content| match &content.body {
        Body::Refusal(refusal) => Some(json!({ "type": "refusal", "refusal": refusal })),
        _ => {
            let text = sent_as_text(content, losses);
            let annotations =
                content.extra.get("annotations").cloned().unwrap_or_else(|| Json::from_serialize(&[(); 0]));
            (!text.is_empty()).then(|| json!({ "type": "output_text", "text": text, "annotations": annotations }))
        }
    });
    parts.collect()
}

fn part(content: &Content, options: &UpstreamOptions, losses: &mut Losses) -> Option<Value> {
    let taken = match &content.body {
        Body::Image(Some(url)) if options.takes(Part::Image) => Some(image(&normal(url), &content.extra)),
        Body::Audio { data: Some(data), format } if options.takes(Part::Audio) => audio_part(data, format.as_deref()),
        Body::File(found) if options.takes(Part::File) => file(found),
        Body::Video(Some(url)) if options.takes(Part::Video) => {
            Some(json!({ "type": "input_video", "video_url": normal(url) }))
        }
        _ => None,
    };

    taken.or_else(|| text_part(content, "input_text", losses))
}

fn image(url: &str, extra: &Extra) -> Value {
    match extra.get("detail").and_then(Json::decode::<String>) {
        Some(detail) => json!({ "type": "input_image", "image_url": url, "detail": detail }),
        None => json!({ "type": "input_image", "image_url": url }),
    }
}

fn file(file: &File) -> Option<Value> {
    let mut fields = Map::new();
    fields.insert("type".to_owned(), "input_file".into());
    let (name, value) = match file {
        File { data: Some(data), .. } => ("file_data", data),
        File { url: Some(url), .. } => ("file_url", url),
        File { id: Some(id), .. } => ("file_id", id),
        _ => return None,
    };
    fields.insert(name.to_owned(), normal(value).into());
    if let Some(name) = &file.name {
        fields.insert("filename".to_owned(), name.as_str().into());
    }
    Some(Value::Object(fields))
}
