//! Contents that have no block of their own, as text (docs/protocols/anthropic-messages.md#what-a-client-receives), and
//! sources of a text.

use interlingua_adapter_kit::data_url::normal;
use interlingua_adapter_kit::shown_text::{Show, content_text, inline_image};
use interlingua_core::model::{Body, Content};
use interlingua_core::{Extra, Json};
use serde_json::json;

use crate::options::{InlineImages, Options};
use interlingua_adapter_kit::model_options::DataDisplay;

/// Longer data URLs of sounds and files are notes in any case, in bytes.
const MAX_INLINE: usize = 32 * 1024;

/// A content in words. `None`: there is nothing to show.
pub(super) fn in_words(content: &Content, options: &Options) -> Option<String> {
    if let Body::Image(Some(url)) = &content.body
        && let Some(image) = inline_image(url)
    {
        return Some(match options.inline_images {
            InlineImages::Markdown => format!("![image]({})", normal(url)),
            // Base64 encodes three bytes in four characters.
            InlineImages::Note => {
                format!(
                    "[image: {}, {} bytes]",
                    image.format.as_deref().unwrap_or("unknown format"),
                    image.data.len() / 4 * 3
                )
            }
        });
    }
    let max_inline = if options.inline_images == InlineImages::Markdown { MAX_INLINE } else { 0 };
    content_text(content, Show { data: options.data == DataDisplay::Text, max_inline })
}

/// A source with a URL, in the form that clients know without a search of their own.
pub(super) fn citation(annotation: &Json) -> Option<Json> {
    let fields: Extra = annotation.decode()?;
    let nested: Extra = fields.get("url_citation").and_then(Json::decode).unwrap_or_default();
    let word = |name: &str| fields.get(name).or_else(|| nested.get(name)).and_then(Json::decode::<String>);
    let url = word("url").filter(|url| !url.is_empty())?;
    Some(Json::from_serialize(&json!({
        "type": "web_search_result_location",
        "url": url,
        "title": word("title"),
        "cited_text": word("cited_text").unwrap_or_default(),
        "encrypted_index": "",
    })))
}
