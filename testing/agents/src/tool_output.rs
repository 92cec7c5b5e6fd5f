//! Outputs of client tools as agents receive them: a text, parts of a protocol, or a text with links.
//!
//! Not here: which call an output belongs to.

use interlingua_core::loss::ContentKind as K;
use interlingua_core_testkit::scenario::Item;
use serde_json::Value;

/// The text and the pictures of an output. A link in the text is no picture.
pub(crate) fn items(output: &Value) -> Vec<Item> {
    let written = output.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok()).filter(Value::is_array);
    let parts = written.as_ref().unwrap_or(output).as_array();
    let Some(parts) = parts else {
        let text = output.as_str().unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !is_link(line)).collect();
        // Other outputs have no links.
        let text = if lines.len() == text.lines().count() { text.to_owned() } else { lines.join("\n") };
        return vec![Item::new(K::ClientOutput, text)];
    };
    let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
    let text = Item::new(K::ClientOutput, texts.join("\n"));
    std::iter::once(text).chain(parts.iter().filter_map(picture)).collect()
}

fn is_link(line: &str) -> bool {
    line.starts_with('[') && line.contains("](") && line.ends_with(')')
}

/// A picture in a part of any protocol.
fn picture(part: &Value) -> Option<Item> {
    let source = &part["source"];
    let places = [&source["url"], &source["data"], &source["value"], &part["image_url"]["url"], &part["image_url"]];
    places.into_iter().find_map(Value::as_str).map(|url| Item::new(K::ImageIn, url))
}
