//! Contents of users' messages as parts.

use std::borrow::Cow;

use interlingua_adapter_kit::data_url::{DataUrl, base64, is_data_url};
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Body, Content, File};
use interlingua_core::{Extra, Json};
use serde_json::{Value, json};

use super::options::Parts;

/// A user's words: one text, or parts.
pub(super) fn user_content(contents: &[Content], parts: Parts, losses: &mut Losses) -> Json {
    if let [only] = contents
        && let Body::Text(text) = &only.body
    {
        return Json::from_serialize(text);
    }
    let parts: Vec<Value> = contents.iter().filter_map(|content| part(content, parts, losses)).collect();
    Json::from_serialize(&parts)
}

/// The texts of a message that can hold nothing else.
pub(super) fn plain_text(contents: &[Content], losses: &mut Losses) -> String {
    let texts: Vec<String> = contents.iter().filter_map(|content| as_text(content, losses)).collect();
    texts.join("\n\n")
}

fn as_text(content: &Content, losses: &mut Losses) -> Option<String> {
    let text = match &content.body {
        Body::Text(text) | Body::Refusal(text) => text.clone(),
        Body::Data(data) if data.is_null() => return None,
        Body::Data(data) => {
            losses.changed(ContentKind::DataIn, "the protocol has no data in messages: sent as text");
            data.text().to_owned()
        }
        Body::Other(_) => {
            losses.changed(ContentKind::DataIn, "contents of unknown types are sent as text");
            Json::from_serialize(content).text().to_owned()
        }
        Body::Image(_) => return lost(ContentKind::ImageIn, losses),
        Body::Audio { .. } => return lost(ContentKind::AudioIn, losses),
        Body::Video(_) => return lost(ContentKind::VideoIn, losses),
        Body::File(_) => return lost(ContentKind::FileIn, losses),
    };
    (!text.is_empty()).then_some(text)
}

fn lost<T>(kind: ContentKind, losses: &mut Losses) -> Option<T> {
    losses.lost(kind, "only messages of users have media in this protocol");
    None
}

/// Where a medium is.
enum Source<'a> {
    Url(&'a str),
    /// Base64.
    Data(Cow<'a, str>),
    /// An id that the agent knows.
    File(&'a str),
}

/// A medium, whatever its kind.
struct Medium<'a> {
    kind: &'static str,
    source: Source<'a>,
    media_type: Option<String>,
    name: Option<&'a str>,
}

impl<'a> Medium<'a> {
    /// From a URL, which may hold the data itself.
    fn from_url(kind: &'static str, url: &'a str) -> Self {
        let (source, media_type) = match DataUrl::parse(url) {
            Some(inline) => (Source::Data(inline.data), Some(inline.full_type.into_owned())),
            None => (Source::Url(url), None),
        };
        Self { kind, source, media_type: media_type.filter(|name| !name.is_empty()), name: None }
    }

    fn from_audio(data: &'a str, format: Option<&str>) -> Self {
        let named =
            format.map(|format| if format.contains('/') { format.to_owned() } else { format!("audio/{format}") });
        if is_data_url(data) || data.contains("://") {
            let medium = Self::from_url("audio", data);
            return Self { media_type: medium.media_type.or(named), ..medium };
        }
        let media_type = named.or_else(|| Some("audio/wav".to_owned()));
        Self { kind: "audio", source: Source::Data(base64(data)), media_type, name: None }
    }

    fn from_file(file: &'a File) -> Option<Self> {
        let name = file.name.as_deref();
        if let Some(data) = &file.data {
            let mut medium = Self::from_url("document", data);
            if let Source::Url(plain) = medium.source {
                // Base64 without a media type.
                medium.source = Source::Data(base64(plain));
            }
            return Some(Self { name, ..medium });
        }
        if let Some(url) = &file.url {
            return Some(Self { name, ..Self::from_url("document", url) });
        }
        let source = Source::File(file.id.as_deref()?);
        Some(Self { kind: "document", source, media_type: None, name })
    }

    fn to_typed(&self) -> Value {
        let media_type = self.media_type.as_deref();
        let mut source = match &self.source {
            Source::Url(url) => json!({ "type": "url", "value": url }),
            Source::Data(data) => json!({ "type": "data", "value": data }),
            Source::File(id) => json!({ "type": "file", "value": id }),
        };
        let default = matches!(self.source, Source::Data(_)).then_some("application/octet-stream");
        if let Some(media_type) = media_type.or(default) {
            source["mimeType"] = media_type.into();
        }
        let mut part = json!({ "type": self.kind, "source": source });
        if let Some(name) = self.name {
            part["metadata"] = json!({ "filename": name });
        }
        part
    }

    /// The form before 1.0, which demands a media type.
    fn to_binary(&self) -> Value {
        let general = match self.kind {
            "image" => "image/png",
            "audio" => "audio/wav",
            "video" => "video/mp4",
            _ => "application/octet-stream",
        };
        let mut part = json!({ "type": "binary", "mimeType": self.media_type.as_deref().unwrap_or(general) });
        match &self.source {
            Source::Url(url) => part["url"] = (*url).into(),
            Source::Data(data) => part["data"] = data.as_ref().into(),
            Source::File(id) => part["id"] = (*id).into(),
        }
        if let Some(name) = self.name {
            part["filename"] = name.into();
        }
        part
    }
}

/// The medium of a content, if it is one and has data.
fn medium(content: &Content) -> Option<Medium<'_>> {
    match &content.body {
        Body::Image(url) => Some(Medium::from_url("image", url.as_deref()?)),
        Body::Video(url) => Some(Medium::from_url("video", url.as_deref()?)),
        Body::Audio { data, format } => Some(Medium::from_audio(data.as_deref()?, format.as_deref())),
        Body::File(file) => Medium::from_file(file),
        _ => None,
    }
}

/// A medium as a part. `None`: the content is no medium.
pub(crate) fn media_part(content: &Content) -> Option<Json> {
    medium(content).map(|medium| Json::from_serialize(&medium.to_typed()))
}

/// A user's words, as [`user_content`] without what clients of older versions need.
pub(crate) fn user_parts(contents: &[Content]) -> Json {
    user_content(contents, Parts::Typed, &mut Losses::new())
}

fn part(content: &Content, parts: Parts, losses: &mut Losses) -> Option<Value> {
    if let Some(medium) = medium(content) {
        return Some(match parts {
            Parts::Typed => medium.to_typed(),
            Parts::Binary => medium.to_binary(),
        });
    }
    let is_text = matches!(content.body, Body::Text(_) | Body::Refusal(_) | Body::Data(_) | Body::Other(_));
    let text = is_text.then(|| as_text(content, losses)).flatten()?;
    Some(json!({ "type": "text", "text": text }))
}

/// A tool of the client. `None`: this protocol cannot declare it.
pub(super) fn tool(tool: &Json) -> Option<Json> {
    let outer: Extra = tool.decode()?;
    let kind = outer.get("type").and_then(Json::decode::<String>);
    let fields: Extra = match outer.get("function").and_then(Json::decode) {
        Some(function) => function,
        None if kind.is_none_or(|kind| kind == "function") => outer,
        None => return None,
    };

    let name: String = fields.get("name").and_then(Json::decode)?;
    let text: Option<String> = fields.get("description").and_then(Json::decode);
    let parameters = fields.get("parameters").filter(|parameters| parameters.is_object()).cloned();
    let mut declared = Extra::new();
    declared.push("name", Json::from_serialize(&name));
    // Servers before 1.0 demand all of them.
    declared.push("description", Json::from_serialize(&text.unwrap_or_default()));
    declared.push(
        "parameters",
        parameters.unwrap_or_else(|| Json::from_serialize(&json!({ "type": "object", "properties": {} }))),
    );
    Some(Json::from_serialize(&declared))
}

/// The name of a tool as [`tool`] declares it.
pub(super) fn tool_name(declared: &Json) -> Option<String> {
    let fields: Extra = declared.decode()?;
    fields.get("name").and_then(Json::decode)
}
