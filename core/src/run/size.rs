//! The memory of parts of a run. Approximate, and cheap to compute.

use crate::json::Json;
use crate::model::{self, Body};

/// Approximate memory of a content's value in bytes, without unknown fields. Constant time.
pub(crate) fn content_size(content: &model::Content) -> usize {
    match &content.body {
        Body::Text(text) | Body::Refusal(text) => text.len(),
        Body::Image(url) | Body::Video(url) => url.as_ref().map_or(0, String::len),
        Body::Data(data) => data.text().len(),
        Body::Audio { data, .. } => data.as_ref().map_or(0, String::len),
        Body::File(file) => file.data.as_ref().map_or(0, String::len) + file.url.as_ref().map_or(0, String::len),
        Body::Other(_) => 0,
    }
}

pub(crate) fn json_size(json: Option<&Json>) -> usize {
    json.map_or(0, |json| json.text().len())
}

/// Reserves capacity for exactly one element. Most of these lists hold one, `Vec` would reserve four, and thousands of
/// waiting runs have such lists.
pub(crate) fn reserve_one<T>(list: &mut Vec<T>) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
}
