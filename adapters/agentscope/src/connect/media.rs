//! Media of the service: blocks that come piece by piece, blocks that are whole, and how they are written in requests.
//!
//! Every piece is base64 of its own, padded or not: pieces are decoded, joined, and encoded again.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use interlingua_adapter_kit::data_url::DataUrl;
use interlingua_adapter_kit::held::BufferedBytes;
use interlingua_core::Fault;
use interlingua_core::agent_event::ContentValue;
use interlingua_core::loss::ContentKind;
use interlingua_core::model::File;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A block of media that is not complete.
#[derive(Debug, Default)]
pub(super) struct MediaBlock {
    pub(super) id: String,
    pub(super) media_type: String,
    pub(super) name: Option<String>,
    bytes: Vec<u8>,
    url: Option<String>,
}

impl MediaBlock {
    pub(super) fn new(id: &str, media_type: &str, name: Option<&str>) -> Self {
        Self { id: id.to_owned(), media_type: media_type.to_owned(), name: name.map(str::to_owned), ..Self::default() }
    }

    /// Takes a piece. False: it is no base64.
    pub(super) fn push(&mut self, piece: &str, held: &mut BufferedBytes) -> Result<bool, Fault> {
        held.add(piece.len())?;
        let Ok(bytes) = BASE64.decode(piece) else { return Ok(false) };
        self.bytes.extend(bytes);
        Ok(true)
    }

    /// The block is at this URL.
    pub(super) fn set_url(&mut self, url: &str, held: &mut BufferedBytes) -> Result<(), Fault> {
        held.add(url.len())?;
        self.url = Some(url.to_owned());
        Ok(())
    }

    /// The block as a content. None: it is empty.
    pub(super) fn value(self) -> Option<ContentValue<'static>> {
        let name = self.name;
        match self.url {
            Some(url) => Some(value(&self.media_type, Source::Url(url), name)),
            None if self.bytes.is_empty() => None,
            None => Some(value(&self.media_type, Source::Base64(BASE64.encode(self.bytes)), name)),
        }
    }
}

/// Where bytes are.
#[derive(Debug)]
pub(super) enum Source {
    Url(String),
    Base64(String),
}

pub(super) fn value(media_type: &str, source: Source, name: Option<String>) -> ContentValue<'static> {
    let (kind, subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    let in_url = |source| match source {
        Source::Url(url) => url,
        Source::Base64(data) => format!("data:{media_type};base64,{data}"),
    };
    match (kind, source) {
        ("image", source) => ContentValue::Image(Some(Cow::Owned(in_url(source)))),
        ("video", source) => ContentValue::Video(Some(Cow::Owned(in_url(source)))),
        ("audio", Source::Base64(data) | Source::Url(data)) => {
            let format = (!subtype.is_empty()).then(|| Cow::Owned(subtype.to_owned()));
            ContentValue::Audio { data: Some(Cow::Owned(data)), format }
        }
        (_, Source::Url(url)) => ContentValue::File(File { url: Some(url), name, ..File::default() }),
        (_, source) => ContentValue::File(File { data: Some(in_url(source)), name, ..File::default() }),
    }
}

/// The kind of content that is reported as lost for a block of this media type.
pub(super) fn output_kind(media_type: &str) -> ContentKind {
    match media_type.split('/').next().unwrap_or_default() {
        "image" => ContentKind::ImageOut,
        "audio" => ContentKind::AudioOut,
        "video" => ContentKind::VideoOut,
        _ => ContentKind::FileOut,
    }
}

/// A URL, or base64 from a `data:` URL, with its media type. `fallback`: of a URL that does not say it.
pub(super) fn source_of(text: &str, fallback: &'static str) -> (Source, String) {
    if let Some(inline) = DataUrl::parse(text) {
        let media_type = Some(inline.media_type()).filter(|media_type| media_type.contains('/')).unwrap_or(fallback);
        return (Source::Base64(inline.data.as_ref().to_owned()), media_type.to_owned());
    }
    (Source::Url(text.to_owned()), by_extension(text).unwrap_or(fallback).to_owned())
}

/// The media type by the end of a URL's path or of a name.
pub(super) fn by_extension(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let extension = path.rsplit_once('.')?.1.to_ascii_lowercase();
    Some(match extension.as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/quicktime",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" => "text/html",
        "json" => "application/json",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_with_padding_of_their_own_make_one_block() {
        let mut held = BufferedBytes::default();
        let mut block = MediaBlock::new("b", "image/png", None);
        for piece in ["aA==", "aWhv", "bw"] {
            assert!(block.push(piece, &mut held).expect("within the limit"));
        }
        assert!(!block.push("%", &mut held).expect("within the limit"));
        let Some(ContentValue::Image(Some(url))) = block.value() else { panic!("an image") };
        assert_eq!(url, "data:image/png;base64,aGlob28=");
    }

    #[test]
    fn the_kind_of_media_is_read_from_its_url() {
        for (text, media_type) in [
            ("data:audio/wav;base64,aGk=", "audio/wav"),
            ("data:;base64,aGk=", "image/png"),
            ("https://x/a.JPG?b=c.pdf", "image/jpeg"),
            ("https://x/a", "image/png"),
        ] {
            assert_eq!(source_of(text, "image/png").1, media_type, "{text}");
        }
        assert!(MediaBlock::new("b", "image/png", None).value().is_none());
    }
}
