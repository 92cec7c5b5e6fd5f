//! Parts and native contents, both ways: texts, files by bytes or by link, data (sections 13 and 14).
//!
//! Not here: which content becomes part of what (`updates`), and which parts are answers (`input`).

use std::borrow::Cow;

use interlingua_core::model::{Body, Content, File};
use interlingua_core::run::Slot;
use interlingua_core::{Extra, Json};
use serde_json::json;

use crate::wire::{self, Part, Raw, base64, made, raw};

/// The part a native content becomes. None for contents that hold nothing.
pub(crate) fn of_content(content: &Content) -> Option<Part<'_>> {
    Some(match &content.body {
        Body::Text(text) => Part::text(text.as_str()),
        Body::Refusal(text) => refusal(text),
        Body::Image(url) => media(Field::Url(url.as_deref()?), None, None, "image/*"),
        Body::Video(url) => media(Field::Url(url.as_deref()?), None, None, "video/*"),
        Body::Audio { data, format } => {
            let format = format.as_deref();
            let told = format.and_then(|format| media_type_of(format, "audio"));
            media(Field::Data(data.as_deref()?), told, None, "audio/*")
        }
        Body::File(file) => return of_file(file),
        Body::Data(data) => Part::data(raw(data)),
        Body::Other(word) => {
            let mut fields = Extra::new();
            fields.push("type", Json::from_serialize(word));
            for (name, value) in content.extra.iter() {
                fields.push(name, value.clone());
            }
            Part::data(made(&fields))
        }
    })
}

/// The part of a content that has ended.
pub(crate) fn of_slot(slot: &Slot) -> Option<Part<'_>> {
    of_content(slot.value.as_ref()?)
}

/// A refusal is text, and marked.
pub(crate) fn refusal<'a>(text: impl Into<Cow<'a, str>>) -> Part<'a> {
    Part::text(text).with(made(&json!({ "refusal": true })))
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
    Some(Part::data(made(&fields)))
}

/// A native field for a file. Either may hold a data URL, a link, or plain base64.
enum Field<'a> {
    /// Where links belong.
    Url(&'a str),
    /// Where bytes belong.
    Data(&'a str),
}

/// A file, by what stands in a native field: a data URL, a link, or plain base64.
fn media<'a>(field: Field<'a>, told: Option<Cow<'a, str>>, name: Option<&'a str>, fallback: &'static str) -> Part<'a> {
    let (Field::Url(text) | Field::Data(text)) = field;
    let by_name = || {
        // Without a name, a link's own end will do.
        let named = name.or_else(|| text.contains("://").then(|| text.split(['?', '#']).next().unwrap_or("")));
        let (_, suffix) = named?.rsplit('/').next()?.rsplit_once('.')?;
        media_type_of(suffix, "").map(Cow::into_owned)
    };
    let (content, inline) = match data_url(text) {
        Some((media_type, bytes)) => (wire::Content::Bytes(bytes), Some(media_type)),
        None if text.contains(':') => (wire::Content::Url(Cow::Borrowed(text)), None),
        None if matches!(field, Field::Url(_)) && !base64::is_no_path(text) => {
            (wire::Content::Url(Cow::Borrowed(text)), None)
        }
        None => match base64::standard(text) {
            Some(bytes) => (wire::Content::Bytes(bytes), None),
            None => (wire::Content::Url(Cow::Borrowed(text)), None),
        },
    };
    let media_type = inline.filter(|told| !told.is_empty()).map(Cow::Borrowed).or(told);
    let media_type = media_type.or_else(|| by_name().map(Cow::Owned));
    let media_type = media_type.or_else(|| (!fallback.is_empty()).then_some(Cow::Borrowed(fallback)));
    Part { content, filename: name.map(Cow::Borrowed), media_type, metadata: None }
}

/// The media type and the bytes of a data URL in base64.
fn data_url(text: &str) -> Option<(&str, Cow<'_, str>)> {
    let (head, body) = text.strip_prefix("data:")?.split_once(',')?;
    let head = head.strip_suffix(";base64")?;
    Some((head.split(';').next().unwrap_or(""), base64::standard(body)?))
}

/// The media type a word stands for: one already, or a file's suffix. `family`: what an unknown suffix is of.
fn media_type_of<'a>(word: &'a str, family: &str) -> Option<Cow<'a, str>> {
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
    if word.contains('/') {
        return Some(Cow::Borrowed(word));
    }
    let word = word.trim_start_matches('.').to_ascii_lowercase();
    if let Some((_, media_type)) = SUFFIXES.iter().find(|(suffix, _)| *suffix == word) {
        return Some(Cow::Borrowed(media_type));
    }
    let known = !family.is_empty() && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    known.then(|| Cow::Owned(format!("{family}/{word}")))
}

/// The native content a client's part becomes.
pub(crate) fn to_content(part: &Part<'_>) -> Content {
    let name = part.filename.as_deref();
    let told = part.media_type.as_deref();
    let guessed = || name.and_then(|name| media_type_of(name.rsplit_once('.')?.1, ""));
    let media_type = told.map(Cow::Borrowed).or_else(guessed);
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
            let by_bytes = matches!(part.content, wire::Content::Bytes(_));
            let (data, url) = if by_bytes { (Some(text), None) } else { (None, Some(text)) };
            Body::File(File { url, id: None, name: name.map(str::to_owned), data })
        }
    };
    Content::new(body)
}

/// What a native content has no field for, kept in the message's metadata (section 14). None: nothing.
pub(crate) fn extras(part: &Part<'_>) -> Option<Json> {
    let is_file = matches!(part.content, wire::Content::Bytes(_) | wire::Content::Url(_));
    // A file's entry is written in any case: it says what was told and what was guessed.
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

/// A client's part, as it was sent: the way back of [`to_content`] and [`extras`].
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
    fn every_native_content_has_its_part() {
        let file = |url: Option<&str>, id: Option<&str>, name: Option<&str>, data: Option<&str>| {
            let own = |text: Option<&str>| text.map(str::to_owned);
            Content::new(Body::File(File { url: own(url), id: own(id), name: own(name), data: own(data) }))
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
        // Bits that strict readers refuse, missing padding, the other alphabet.
        for link in [format!("{bytes}AB=="), format!("{bytes}AB"), format!("{bytes}AB-_")] {
            assert_eq!(url(&link), format!(r#"{{"url":"{link}","mediaType":"image/*"}}"#));
        }
    }

    #[test]
    fn a_clients_part_comes_back_as_it_was_sent() {
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
            let message = wire::read::message(&node, crate::dialect::Form::V1, &mut faults).expect("a message");
            let part = &message.parts[0];
            let content = to_content(part);
            let back = as_sent(&content, extras(part).as_ref()).expect("a part");
            assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
        }
    }
}
