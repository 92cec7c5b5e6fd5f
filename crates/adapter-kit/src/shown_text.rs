//! Contents as text for clients whose protocol has no other form for them: links, data, outputs of tools.
//!
//! Not here: contents as text for agents ([`crate::links`]), and which contents a protocol has a form for.

use std::borrow::Cow;

use serde::Deserialize;

use crate::data_url::{DataUrl, is_data_url};
use interlingua_core::json::Json;
use interlingua_core::model::{Body, Content};

/// The parts of a content that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Show {
    /// Whether data is shown, as JSON.
    pub data: bool,
    /// Inline bytes up to this length are linked as a data URL. Longer ones are replaced by name and size: clients
    /// render the text, and a model reads it again.
    pub max_inline: usize,
}

/// An image embedded in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineImage<'a> {
    /// Base64-encoded bytes.
    pub data: Cow<'a, str>,
    /// `png`, `jpeg` …
    pub format: Option<String>,
}

/// Parses a base64 data URL of an image.
#[must_use]
pub fn inline_image(url: &str) -> Option<InlineImage<'_>> {
    let url = DataUrl::parse(url)?;
    let format = url.media_type().strip_prefix("image/").filter(|format| !format.is_empty()).map(str::to_owned);
    Some(InlineImage { data: url.data, format })
}

/// A content as text. `None` for contents that are empty or shown in another way.
#[must_use]
pub fn content_text(content: &Content, show: Show) -> Option<String> {
    match &content.body {
        Body::Text(text) | Body::Refusal(text) => Some(text.clone()),
        Body::Image(url) => {
            let url = url.as_deref().filter(|url| !url.is_empty())?;
            inline_image(url).is_none().then(|| format!("![image]({url})"))
        }
        Body::Video(url) => link(url.as_deref(), "video", show),
        Body::Audio { data, format } => {
            let data = data.as_deref().filter(|data| !data.is_empty())?;
            if is_link(data) {
                return link(Some(data), "audio", show);
            }
            // Bare base64 becomes a data URL, so that clients can play it.
            let media = format.as_deref().unwrap_or("wav");
            let media = if media.contains('/') { media.to_owned() } else { format!("audio/{media}") };
            link(Some(&format!("data:{media};base64,{data}")), "audio", show)
        }
        Body::File(file) => {
            let name = file.name.as_deref().or(file.id.as_deref()).unwrap_or("file");
            let inline = || {
                let data = file.data.as_deref()?;
                Some(if is_link(data) {
                    data.to_owned()
                } else {
                    format!("data:application/octet-stream;base64,{data}")
                })
            };
            match file.url.clone().filter(|url| !url.is_empty()).or_else(inline) {
                Some(url) => link(Some(&url), name, show),
                None => file.id.as_ref().map(|id| format!("[{name}: {id}]")),
            }
        }
        Body::Data(data) => (show.data && !data.is_null()).then(|| data.text().to_owned()),
        Body::Other(_) => show.data.then(|| Json::from_serialize(content).text().to_owned()),
    }
}

fn is_link(text: &str) -> bool {
    is_data_url(text) || text.contains("://")
}

fn link(url: Option<&str>, name: &str, show: Show) -> Option<String> {
    let url = url.filter(|url| !url.is_empty())?;

    if is_data_url(url) && url.len() > show.max_inline {
        // Base64 encodes three bytes in four characters.
        let size = url.split_once(',').map_or(0, |(_, data)| data.len() / 4 * 3);
        return Some(format!("[{name}: {size} bytes]"));
    }
    Some(format!("[{name}]({url})"))
}

/// Unwraps a tool output: joins a JSON list of text blocks, unquotes a JSON string, and leaves everything else
/// unchanged.
#[must_use]
pub fn unwrap_output(output: &str) -> String {
    #[derive(Deserialize)]
    struct Block {
        #[serde(rename = "type")]
        kind: String,
        text: String,
    }

    match output.trim_start().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(output).ok(),
        Some(b'[') => serde_json::from_str::<Vec<Block>>(output)
            .ok()
            .filter(|blocks| !blocks.is_empty() && blocks.iter().all(|block| block.kind == "text"))
            .map(|blocks| blocks.into_iter().map(|block| block.text).collect()),
        _ => None,
    }
    .unwrap_or_else(|| output.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use interlingua_core::model::File;

    const SHOW: Show = Show { data: true, max_inline: 32 * 1024 };

    #[test]
    fn only_text_blocks_and_strings_are_unwrapped() {
        for (raw, expected) in [
            (r#"[{"type": "text", "text": "18 C"}]"#, "18 C"),
            (r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "ab"),
            (
                r#"[{"type":"text","text":"a"},{"type":"image","url":"x"}]"#,
                r#"[{"type":"text","text":"a"},{"type":"image","url":"x"}]"#,
            ),
            (r#""18 C""#, "18 C"),
            ("18 C", "18 C"),
            ("[]", "[]"),
            ("[1,2]", "[1,2]"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#""broken"#, r#""broken"#),
            ("", ""),
        ] {
            assert_eq!(unwrap_output(raw), expected, "{raw}");
        }
    }

    #[test]
    fn contents_without_a_part_type_become_links() {
        let render = |body| content_text(&Content::new(body), SHOW);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(render(Body::Image(text("https://a/b.png"))), text("![image](https://a/b.png)"));
        assert_eq!(render(Body::Image(text("data:image/png;base64,AAAA"))), None);
        assert_eq!(render(Body::Image(None)), None);
        assert_eq!(render(Body::Video(text("https://a/b.mp4"))), text("[video](https://a/b.mp4)"));

        let audio = Body::Audio { data: text("AAAA"), format: text("mp3") };
        assert_eq!(render(audio.clone()), text("[audio](data:audio/mp3;base64,AAAA)"));
        let none = Show { max_inline: 0, ..SHOW };
        assert_eq!(content_text(&Content::new(audio), none), text("[audio: 3 bytes]"));

        let file = File { url: text("https://a/b.pdf"), name: text("b.pdf"), ..File::default() };
        assert_eq!(render(Body::File(file)), text("[b.pdf](https://a/b.pdf)"));
        let long = File { data: Some("A".repeat(40_000)), name: text("b.bin"), ..File::default() };
        assert_eq!(render(Body::File(long)), text("[b.bin: 30000 bytes]"));

        let data = Body::Data(Json::parse(r#"{"a": 1}"#).expect("JSON"));
        assert_eq!(render(data.clone()), text(r#"{"a": 1}"#));
        assert_eq!(content_text(&Content::new(data), Show { data: false, ..SHOW }), None);
    }

    #[test]
    fn an_inline_image_is_parsed() {
        let url = "data:image/jpeg;base64,QUJD";
        assert_eq!(inline_image(url), Some(InlineImage { data: "QUJD".into(), format: Some("jpeg".to_owned()) }));
        for other in ["https://a/b.png", "data:image/svg+xml,<svg/>", "data:", "data:image/png;base64"] {
            assert_eq!(inline_image(other), None, "{other}");
        }
    }
}
