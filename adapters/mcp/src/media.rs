//! Media types, and the forms in which contents hold media: links, data URLs and base64.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interlingua_adapter_kit::data_url::{self, DataUrl};
use interlingua_core::http_url::Url;

/// The media type of bytes of an unknown kind.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

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

/// A value of a content: a link, or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// An http or https URL.
    Link(&'a str),
    /// Bytes as base64 in the standard form.
    Bytes {
        /// The media type that the value names, without parameters.
        media_type: Option<Cow<'a, str>>,
        /// Base64 in the standard alphabet, with padding.
        base64: Cow<'a, str>,
    },
    /// Neither: a path, a URL of another scheme, or data that is no base64.
    Other(&'a str),
}

impl<'a> Source<'a> {
    /// Reads a field. `is_data`: it is meant for base64, so that a text without a scheme is not a path.
    pub(crate) fn parse(text: &'a str, is_data: bool) -> Self {
        if let Some(DataUrl { full_type, data }) = DataUrl::parse(text) {
            let media_type = match full_type {
                Cow::Borrowed(full) => Cow::Borrowed(without_parameters(full)),
                Cow::Owned(full) => Cow::Owned(without_parameters(&full).to_owned()),
            };
            return match is_base64(&data) {
                true => Self::Bytes { media_type: (!media_type.is_empty()).then_some(media_type), base64: data },
                false => Self::Other(text),
            };
        }
        if data_url::is_data_url(text) {
            return Self::from_plain_data_url(text).unwrap_or(Self::Other(text));
        }
        if is_link(text) {
            return Self::Link(text);
        }
        if is_data {
            let base64 = data_url::base64(text.trim());
            if is_base64(&base64) {
                return Self::Bytes { media_type: None, base64 };
            }
        }
        Self::Other(text)
    }

    /// A data URL whose data is percent-encoded text.
    fn from_plain_data_url(text: &'a str) -> Option<Self> {
        let (head, data) = text.trim_start().get("data:".len()..)?.split_once(',')?;
        let media_type = data_url::media_type(without_parameters(head).trim()).into_owned();
        let bytes = percent_decoded(data)?;
        let media_type = if media_type.is_empty() { "text/plain".to_owned() } else { media_type };
        Some(Self::Bytes { media_type: Some(Cow::Owned(media_type)), base64: Cow::Owned(STANDARD.encode(bytes)) })
    }
}

/// True for an http or https URL that every client's check of URLs accepts.
pub(crate) fn is_link(text: &str) -> bool {
    Url::parse(text).is_some() && !text.contains(char::is_whitespace)
}

/// True for non-empty base64 in the standard form that strict decoders accept.
pub(crate) fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let has_form = text.len().is_multiple_of(4) && text.len() - body.len() <= 2 && body.bytes().all(is_digit);
    // Only the last four digits can have bits that strict decoders refuse.
    has_form && text.len() >= 4 && text.get(text.len() - 4..).is_some_and(|end| STANDARD.decode(end).is_ok())
}

/// The bytes of base64 in the standard form.
pub(crate) fn decode(base64: &str) -> Option<Vec<u8>> {
    STANDARD.decode(base64).ok()
}

/// Bytes as base64 in the standard form.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The media type for a file name or the path of a link. `None`: its suffix is unknown.
pub(crate) fn of_name(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next()?;
    let (_, suffix) = path.rsplit('/').next()?.rsplit_once('.')?;
    let suffix = suffix.to_ascii_lowercase();
    SUFFIXES.iter().find(|(known, _)| *known == suffix).map(|(_, media_type)| *media_type)
}

/// The media type for the format of audio: `wav`, `mp3`, or a media type already. `None`: no usable format.
pub(crate) fn of_audio_format(format: &str) -> Option<String> {
    let format = format.trim();
    if format.contains('/') {
        return Some(without_parameters(&data_url::media_type(format)).to_owned());
    }
    let format = format.trim_start_matches('.').to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
    if format.is_empty() || !format.bytes().all(is_plain) {
        return None;
    }
    Some(match format.as_str() {
        "mp3" => "audio/mpeg".to_owned(),
        "m4a" => "audio/mp4".to_owned(),
        _ => format!("audio/{format}"),
    })
}

/// True for types whose bytes are text: `text/*`, JSON and XML.
pub(crate) fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || interlingua_core::exchange::is_json(media_type)
        || media_type == "application/xml"
        || (media_type.starts_with("application/") && media_type.ends_with("+xml"))
}

fn without_parameters(full_type: &str) -> &str {
    full_type.split(';').next().unwrap_or_default()
}

/// Decodes `%41`. `None`: a percent sign without two digits.
pub(crate) fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let &[high, low, ref after @ ..] = rest else { return None };
        bytes.push(digit(high)? << 4 | digit(low)?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_links_or_bytes() {
        let bytes = |media_type: Option<&'static str>, base64: &'static str| Source::Bytes {
            media_type: media_type.map(Cow::Borrowed),
            base64: Cow::Borrowed(base64),
        };
        for (text, is_data, source) in [
            ("https://x/a.png", false, Source::Link("https://x/a.png")),
            ("http://x", true, Source::Link("http://x")),
            ("https://x/a b.png", false, Source::Other("https://x/a b.png")),
            ("https://", false, Source::Other("https://")),
            ("s3://bucket/a", false, Source::Other("s3://bucket/a")),
            ("static/a.png", false, Source::Other("static/a.png")),
            ("data:image/png;base64,AQID", false, bytes(Some("image/png"), "AQID")),
            ("data:IMAGE/JPG;base64,AQ", false, bytes(Some("image/jpeg"), "AQ==")),
            ("data:text/plain;charset=utf-8;base64,aGk=", false, bytes(Some("text/plain"), "aGk=")),
            ("data:;base64,AQID", false, bytes(None, "AQID")),
            ("data:image/png;base64,no base64!", false, Source::Other("data:image/png;base64,no base64!")),
            ("data:image/svg+xml,%3Csvg/>", false, bytes(Some("image/svg+xml"), "PHN2Zy8+")),
            ("data:,a%4", false, Source::Other("data:,a%4")),
            ("AQID", true, bytes(None, "AQID")),
            ("AQID", false, Source::Other("AQID")),
            ("-_8", true, bytes(None, "+/8=")),
            ("AR==", true, Source::Other("AR==")),
            ("", true, Source::Other("")),
        ] {
            assert_eq!(Source::parse(text, is_data), source, "{text}");
        }
    }

    #[test]
    fn media_types_follow_from_names_and_formats() {
        assert_eq!(
            [of_name("a.PDF"), of_name("https://x/y/b.mp4?z=1.png")],
            [Some("application/pdf"), Some("video/mp4")]
        );
        assert_eq!([of_name("a"), of_name("https://x.png/a"), of_name("")], [None, None, None]);
        let format = |format: &str| of_audio_format(format);
        assert_eq!(
            [format("wav"), format("mp3"), format(".OPUS")],
            ["audio/wav", "audio/mpeg", "audio/opus"].map(|name| Some(name.to_owned()))
        );
        assert_eq!([format("audio/x-wav; a=b"), format(""), format("a b")], [Some("audio/wav".to_owned()), None, None]);
    }

    #[test]
    fn some_types_are_text() {
        for media_type in
            ["text/csv", "application/json", "application/ld+json", "application/xml", "application/atom+xml"]
        {
            assert!(is_text(media_type), "{media_type}");
        }
        for media_type in ["image/svg+xml", "application/pdf", UNKNOWN, "textual/x", ""] {
            assert!(!is_text(media_type), "{media_type}");
        }
    }
}
