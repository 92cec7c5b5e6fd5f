//! The media in a content: a link or bytes, with the media type that clients are given.

use std::borrow::Cow;

use interlingua_core::model::{Body, Content};
use serde_json::{Value, json};

use crate::media::{self, Source};

/// The media in a content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Media<'a> {
    /// `image`, `audio`, `video` or `file`.
    pub(crate) kind: &'static str,
    /// The link or the bytes. Bytes always have a media type.
    pub(crate) source: Source<'a>,
    /// The file's name for people.
    pub(crate) name: Option<&'a str>,
}

impl<'a> Media<'a> {
    /// The media in a content. `None`: it has none, or only an id.
    pub(crate) fn of(content: &'a Content) -> Option<Self> {
        let (kind, source, name, fallback) = match &content.body {
            Body::Image(url) => ("image", source_of_url(url.as_deref()?), None, "image/png"),
            Body::Video(url) => ("video", source_of_url(url.as_deref()?), None, "video/mp4"),
            Body::Audio { data, .. } => ("audio", Source::parse(data.as_deref()?, true), None, "audio/wav"),
            Body::File(file) => {
                let data = file.data.as_deref().map(|data| Source::parse(data, true));
                let source = data.or_else(|| file.url.as_deref().map(source_of_url))?;
                ("file", source, file.name.as_deref(), media::UNKNOWN)
            }
            _ => return None,
        };
        let Source::Bytes { media_type, base64 } = source else { return Some(Self { kind, source, name }) };

        let of_format = match &content.body {
            Body::Audio { format: Some(format), .. } => media::of_audio_format(format).map(Cow::Owned),
            _ => None,
        };
        let media_type = of_format.or(media_type).or_else(|| name.and_then(media::of_name).map(Cow::Borrowed));
        let media_type = Some(media_type.unwrap_or(Cow::Borrowed(fallback)));
        Some(Self { kind, source: Source::Bytes { media_type, base64 }, name })
    }
}

/// A field for URLs. Some agents write base64 without a scheme into it, which is too long for a path.
fn source_of_url(text: &str) -> Source<'_> {
    const MAX_PATH: usize = 512;
    Source::parse(text, text.len() >= MAX_PATH)
}

/// The contents of a resource: `text` if the bytes are text of that type, else `blob`.
pub(crate) fn resource_contents(uri: &str, media_type: &str, base64: &str) -> Value {
    let text = media::is_text(media_type).then(|| media::decode(base64)).flatten();
    match text.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(text) => json!({ "uri": uri, "mimeType": media_type, "text": text }),
        None => json!({ "uri": uri, "mimeType": media_type, "blob": base64 }),
    }
}
