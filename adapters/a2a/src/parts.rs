//! Converts between A2A parts and Agent API contents: text, files by bytes or link, data
//! (docs/protocols/a2a.md#what-a-client-receives).
//!
//! Not here: which artifact or status a content goes to (`updates`), and which parts are answers (`input`).

use std::borrow::Cow;

use interlingua_adapter_kit::data_url::DataUrl;
use interlingua_core::model::{Body, Content, File};
use interlingua_core::run::Slot;
use interlingua_core::{Extra, Json};
use serde_json::json;

use crate::wire::{self, Part, Raw, as_raw, base64, to_raw};

/// Converts a content to a part. `None` if the content is empty.
pub(crate) fn of_content(content: &Content) -> Option<Part<'_>> {
    Some(match &content.body {
        Body::Text(text) => Part::text(text.as_str()),
        Body::Refusal(text) => refusal(text),
        Body::Image(url) => media(Field::Url(url.as_deref()?), None, None, "image/*"),
        Body::Video(url) => media(Field::Url(url.as_deref()?), None, None, "video/*"),
        Body::Audio { data, format } => {
            let format = format.as_deref();
            let known_type = format.and_then(|format| media_type_of(format, "audio"));
            media(Field::Data(data.as_deref()?), known_type, None, "audio/*")
        }
        Body::File(file) => return of_file(file),
        Body::Data(data) => Part::data(as_raw(data)),
        Body::Other(kind) => {
            let mut fields = Extra::new();
            fields.push("type", Json::from_serialize(kind));
            for (name, value) in content.extra.iter() {
                fields.push(name, value.clone());
            }
            Part::data(to_raw(&fields))
        }
    })
}

/// Converts a finished content to a part.
pub(crate) fn of_slot(slot: &Slot) -> Option<Part<'_>> {
    of_content(slot.value.as_ref()?)
}

/// A refusal: a text part marked in its metadata.
pub(crate) fn refusal<'a>(text: impl Into<Cow<'a, str>>) -> Part<'a> {
    Part::text(text).with_metadata(to_raw(&json!({ "refusal": true })))
}

fn of_file(file: &File) -> Option<Part<'_>> {
    let name = file.name.as_deref();
    let url = || file.url.as_deref().map(Field::Url);
    if let Some(field) = file.data.as_deref().map(Field::Data).or_else(url) {
        return Some(media(field, None, name, ""));
    }

    let id = file.id.as_deref()?;
    let mut fields = Extra::new();
    fields.push("file_id", Json::from_serialize(id));
    if let Some(name) = name {
        fields.push("filename", Json::from_serialize(name));
    }

    Some(Part::data(to_raw(&fields)))
}

/// A file field of the Agent API. Either field may hold a data URL, a link or plain base64.
enum Field<'a> {
    /// A field meant for links.
    Url(&'a str),
    /// A field meant for base64.
    Data(&'a str),
}

/// Converts a file field to a part. `fallback`: media type if none can be found; empty for none.
fn media<'a>(
    field: Field<'a>,
    media_type: Option<Cow<'a, str>>,
    name: Option<&'a str>,
    fallback: &'static str,
) -> Part<'a> {
    let (Field::Url(text) | Field::Data(text)) = field;
    let from_name = || {
        // Without a file name, use the last path segment of a link.
        let named = name.or_else(|| text.contains("://").then(|| text.split(['?', '#']).next().unwrap_or("")));
        let (_, suffix) = named?.rsplit('/').next()?.rsplit_once('.')?;
        media_type_of(suffix, "").map(Cow::into_owned)
    };

    let (content, inline) = match data_url(text) {
        Some((media_type, bytes)) => (wire::Content::Bytes(bytes), Some(media_type)),
        None if text.contains(':') => (wire::Content::Url(Cow::Borrowed(text)), None),
        None if matches!(field, Field::Url(_)) && !base64::is_certainly_base64(text) => {
            (wire::Content::Url(Cow::Borrowed(text)), None)
        }
        None => match base64::to_standard(text) {
            Some(bytes) => (wire::Content::Bytes(bytes), None),
            None => (wire::Content::Url(Cow::Borrowed(text)), None),
        },
    };

    let media_type = inline.filter(|inline| !inline.is_empty()).or(media_type);
    let media_type = media_type.or_else(|| from_name().map(Cow::Owned));
    let media_type = media_type.or_else(|| (!fallback.is_empty()).then_some(Cow::Borrowed(fallback)));

    Part { content, filename: name.map(Cow::Borrowed), media_type, metadata: None }
}

/// Media type and base64 payload of a data URL.
fn data_url(text: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let url = DataUrl::parse(text)?;
    base64::to_standard(&url.data)?;
    let media_type = match url.full_type {
        Cow::Borrowed(full) => Cow::Borrowed(full.split(';').next().unwrap_or_default()),
        Cow::Owned(full) => Cow::Owned(full.split(';').next().unwrap_or_default().to_owned()),
    };
    Some((media_type, url.data))
}

/// The media type for a format: a media type already, or a file suffix. `family`: top-level type for unknown suffixes.
fn media_type_of<'a>(format: &'a str, family: &str) -> Option<Cow<'a, str>> {
    const SUFFIXES: &[(&str, &str)] = &[
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("gif", "image/gif"),
        ("webp", "image/webp"),
        ("svg", "image/svg+xml"),
        ("mp3", "audio/mpeg"),
        ("wav", "audio/wav"),
        ("ogg", "audio/ogg"),
        ("flac", "audio/flac"),
        ("m4a", "audio/mp4"),
        ("mp4", "video/mp4"),
        ("webm", "video/webm"),
        ("mov", "video/quicktime"),
        ("pdf", "application/pdf"),
        ("txt", "text/plain"),
        ("md", "text/markdown"),
        ("csv", "text/csv"),
        ("html", "text/html"),
        ("xml", "application/xml"),
        ("json", "application/json"),
        ("zip", "application/zip"),
    ];

    if format.contains('/') {
        return Some(Cow::Borrowed(format));
    }

    let format = format.trim_start_matches('.').to_ascii_lowercase();
    if let Some((_, media_type)) = SUFFIXES.iter().find(|(suffix, _)| *suffix == format) {
        return Some(Cow::Borrowed(media_type));
    }

    let known = !family.is_empty() && !format.is_empty() && format.bytes().all(|byte| byte.is_ascii_alphanumeric());
    known.then(|| Cow::Owned(format!("{family}/{format}")))
}

/// Converts a client's part to a content.
pub(crate) fn to_content(part: &Part<'_>) -> Content {
    let name = part.filename.as_deref();
    let known_type = part.media_type.as_deref();
    let guessed = || name.and_then(|name| media_type_of(name.rsplit_once('.')?.1, ""));
    let media_type = known_type.map(Cow::Borrowed).or_else(guessed);

    let text = match &part.content {
        wire::Content::Text(text) => return Content::text(text.as_ref()),
        wire::Content::Data(data) => return Content::new(Body::Data(Json::from_raw(data))),
        wire::Content::Url(url) => url.clone().into_owned(),
        wire::Content::Bytes(bytes) => {
            format!("data:{};base64,{bytes}", media_type.as_deref().unwrap_or("application/octet-stream"))
        }
    };

    let family = media_type.as_deref().unwrap_or("").split('/').next().unwrap_or("");
    let body = match family {
        "image" => Body::Image(Some(text)),
        "video" => Body::Video(Some(text)),
        "audio" => Body::Audio { data: Some(text), format: media_type.map(Cow::into_owned) },
        _ => {
            let is_bytes = matches!(part.content, wire::Content::Bytes(_));
            let (data, url) = if is_bytes { (Some(text), None) } else { (None, Some(text)) };
            Body::File(File { url, id: None, name: name.map(str::to_owned), data })
        }
    };

    Content::new(body)
}

/// Part fields that a content cannot hold; stored in the message's metadata
/// (docs/protocols/a2a.md#what-the-agent-receives). `None`: nothing is lost.
pub(crate) fn extras(part: &Part<'_>) -> Option<Json> {
    let is_file = matches!(part.content, wire::Content::Bytes(_) | wire::Content::Url(_));
    // Files always get an entry: it shows which media type the client sent and which was guessed.
    if !is_file && part.metadata.is_none() && part.media_type.is_none() && part.filename.is_none() {
        return None;
    }
    let mut fields = Extra::new();
    if let Some(metadata) = &part.metadata {
        fields.push("metadata", Json::from_raw(metadata));
    }
    if let Some(media_type) = &part.media_type {
        fields.push("mediaType", Json::from_serialize(media_type));
    }
    if let Some(filename) = &part.filename {
        fields.push("filename", Json::from_serialize(filename));
    }
    Some(Json::from_serialize(&fields))
}

/// Rebuilds the original part of a client: the inverse of [`to_content`] and [`extras`].
pub(crate) fn as_sent<'a>(content: &'a Content, extras: Option<&Json>) -> Option<Part<'a>> {
    let mut part = of_content(content)?;
    let Some(fields) = extras.and_then(Json::decode::<Extra>) else { return Some(part) };

    let text = |name: &str| fields.get(name).and_then(Json::decode::<String>).map(Cow::Owned);
    part.media_type = text("mediaType");
    part.filename = text("filename");
    part.metadata = fields.get("metadata").map(|metadata| -> Raw<'a> { Cow::Owned(metadata.raw().to_owned()) });

    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content: Content) -> String {
        of_content(&content).map_or_else(|| "nothing".into(), |part| serde_json::to_string(&part).expect("JSON"))
    }

    #[test]
    fn every_content_becomes_a_part() {
        let file = |url: Option<&str>, id: Option<&str>, name: Option<&str>, data: Option<&str>| {
            let to_owned_text = |text: Option<&str>| text.map(str::to_owned);
            Content::new(Body::File(File {
                url: to_owned_text(url),
                id: to_owned_text(id),
                name: to_owned_text(name),
                data: to_owned_text(data),
            }))
        };
        let audio = |data: &str, format: &str| {
            Content::new(Body::Audio { data: Some(data.into()), format: Some(format.into()) })
        };
        for (content, part) in [
            (Content::text("hi"), r#"{"text":"hi"}"#),
            (Content::new(Body::Refusal("no".into())), r#"{"text":"no","metadata":{"refusal":true}}"#),
            (
                Content::new(Body::Image(Some("data:image/png;base64,AQID".into()))),
                r#"{"raw":"AQID","mediaType":"image/png"}"#,
            ),
            (
                Content::new(Body::Image(Some("https://x/a.png".into()))),
                r#"{"url":"https://x/a.png","mediaType":"image/png"}"#,
            ),
            (
                Content::new(Body::Image(Some("https://x/a?b.png".into()))),
                r#"{"url":"https://x/a?b.png","mediaType":"image/*"}"#,
            ),
            (Content::new(Body::Image(None)), "nothing"),
            (audio("AQID", "mp3"), r#"{"raw":"AQID","mediaType":"audio/mpeg"}"#),
            (audio("AQID", "opus"), r#"{"raw":"AQID","mediaType":"audio/opus"}"#),
            (audio("https://x/a", "audio/wav"), r#"{"url":"https://x/a","mediaType":"audio/wav"}"#),
            (
                file(None, None, Some("a.pdf"), Some("AQ")),
                r#"{"raw":"AQ==","filename":"a.pdf","mediaType":"application/pdf"}"#,
            ),
            (file(Some("https://x/a"), None, None, None), r#"{"url":"https://x/a"}"#),
            (file(None, Some("f-1"), Some("a"), None), r#"{"data":{"file_id":"f-1","filename":"a"}}"#),
            (Content::data(&json!({"a": 1})), r#"{"data":{"a":1}}"#),
        ] {
            assert_eq!(written(content), part);
        }
    }

    #[test]
    fn a_link_that_looks_like_base64_stays_a_link() {
        let url = |text: &str| written(Content::new(Body::Image(Some(text.into()))));
        for link in ["abc", "abcd", "static/img/1234", "static/img/12345678", "AQ==", "AQID"] {
            assert_eq!(url(link), format!(r#"{{"url":"{link}","mediaType":"image/*"}}"#));
            let file = Content::new(Body::File(File { url: Some(link.into()), ..File::default() }));
            assert_eq!(written(file), format!(r#"{{"url":"{link}"}}"#));
        }

        let bytes = "A".repeat(1024);
        assert_eq!(url(&bytes), format!(r#"{{"raw":"{bytes}","mediaType":"image/*"}}"#));
        // Trailing bits that strict decoders reject, missing padding, the URL alphabet.
        for link in [format!("{bytes}AB=="), format!("{bytes}AB"), format!("{bytes}AB-_")] {
            assert_eq!(url(&link), format!(r#"{{"url":"{link}","mediaType":"image/*"}}"#));
        }
    }

    #[test]
    fn a_client_part_round_trips() {
        for text in [
            r#"{"text":"hi"}"#,
            r#"{"text":"<p>","mediaType":"text/html","metadata":{"b":1,"a":2.50}}"#,
            r#"{"raw":"AQID","mediaType":"image/png"}"#,
            r#"{"raw":"AQID"}"#,
            r#"{"raw":"AQID","filename":"a.mp3"}"#,
            r#"{"url":"https://x/y","filename":"y","mediaType":"video/mp4"}"#,
            r#"{"url":"https://x/y.png"}"#,
            r#"{"data":{"z":1.0,"a":[1e3]},"metadata":{"m":null}}"#,
            r#"{"data":[1,2]}"#,
            r#"{"data":null}"#,
        ] {
            let body = format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{text}]}}"#);

            let node = interlingua_core::tree::Node::parse(body.as_bytes()).expect("JSON");
            let mut faults = wire::read::Faults::default();
            let message = wire::read::message(&node, crate::dialect::WireFormat::V1, &mut faults).expect("a message");
            let part = &message.parts[0];
            let content = to_content(part);
            let back = as_sent(&content, extras(part).as_ref()).expect("a part");
            assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
        }
    }
}
