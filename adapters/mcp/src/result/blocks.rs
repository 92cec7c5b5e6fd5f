//! The contents of an answer as content blocks (docs/protocols/mcp.md#results).
//!
//! Each content of the answer has a number, counted from 1 over all runs of a call: resources name contents by it.

use interlingua_core::model::{Body, Content, ContentType, File, MessageType, Role};
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::{Json, RunId};
use serde_json::{Value, json};

use crate::media::{self, Source};
use crate::result::content_media::{Media, resource_contents};
use crate::result::uris::part_uri;

/// A content block of a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    /// The block on the wire.
    pub(super) value: Value,
    /// The number of the content whose bytes are in the block. `None`: the block has no bytes.
    pub(super) part: Option<usize>,
}

impl Block {
    /// A block of text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { value: json!({ "type": "text", "text": text.into() }), part: None }
    }

    /// A link to a resource.
    pub(super) fn link(uri: &str, name: &str, media_type: Option<&str>) -> Self {
        let mut value = json!({ "type": "resource_link", "uri": uri, "name": name });
        if let Some(media_type) = media_type {
            value["mimeType"] = json!(media_type);
        }
        Self { value, part: None }
    }

    /// The length of the block on the wire, in bytes.
    pub(super) fn size(&self) -> usize {
        json_size(&self.value)
    }
}

/// The length of a value as JSON, in bytes.
pub(super) fn json_size(value: &Value) -> usize {
    /// Counts bytes without keeping them: media are large.
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // A value of JSON can be written, and the counter takes every byte.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// True for a message that is part of the answer.
pub(crate) fn is_answer(message: &Message) -> bool {
    match message.kind {
        MessageType::Message => !matches!(message.role, Role::User | Role::System),
        MessageType::Other(_) => true,
        _ => false,
    }
}

/// A content of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// A content of a message.
    Slot(&'a Slot),
    /// A message of an unknown type, as a whole.
    Message(&'a Message),
}

/// The contents of an answer in order. The first one has the number 1.
pub(crate) fn parts<'a>(runs: impl Iterator<Item = &'a Run>) -> impl Iterator<Item = Part<'a>> {
    let messages = runs.flat_map(|run| run.messages.iter()).filter(|message| is_answer(message));
    messages.flat_map(|message| {
        let whole = matches!(message.kind, MessageType::Other(_)).then_some(Part::Message(message));
        let slots = message.slots.iter().filter(move |_| whole.is_none()).map(Part::Slot);
        whole.into_iter().chain(slots)
    })
}

/// The texts of an answer's messages, one for each message that has text.
pub(super) fn texts<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<String> {
    let messages = runs.flat_map(|run| run.messages.iter()).filter(|message| message.kind == MessageType::Message);
    let text = |message: &Message| -> String {
        let slots = message.slots.iter().filter(|slot| slot.call.is_none());
        slots.filter(|slot| matches!(slot.kind, ContentType::Text | ContentType::Refusal)).map(Slot::text).collect()
    };
    messages.filter(|message| is_answer(message)).map(text).filter(|text| !text.is_empty()).collect()
}

/// The blocks of an answer. `first`: the run whose id names its resources.
pub(super) fn blocks<'a>(first: RunId, runs: impl Iterator<Item = &'a Run>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut number = 0;
    for message in runs.flat_map(|run| run.messages.iter()).filter(|message| is_answer(message)) {
        if matches!(message.kind, MessageType::Other(_)) {
            number += 1;
            blocks.push(Block::text(Json::from_serialize(&message.to_model()).text()));
            continue;
        }

        // All texts of a message are one block, at the position of the first one.
        let mut text_block: Option<usize> = None;
        for slot in &message.slots {
            number += 1;
            if slot.kind == ContentType::Text && slot.call.is_none() {
                if slot.text().is_empty() {
                    continue;
                }
                match text_block {
                    Some(place) => append(&mut blocks[place], slot.text()),
                    None => {
                        text_block = Some(blocks.len());
                        blocks.push(Block::text(slot.text()));
                    }
                }
                continue;
            }
            let open;
            let content = match &slot.value {
                Some(value) => value,
                None => {
                    open = slot.content();
                    &open
                }
            };
            blocks.extend(block(content, first, number));
        }
    }
    blocks
}

fn append(block: &mut Block, text: &str) {
    if let Some(Value::String(joined)) = block.value.get_mut("text") {
        joined.push_str(text);
    }
}

/// The block of a content other than text. `None`: the content is empty.
pub(super) fn block(content: &Content, run: RunId, number: usize) -> Option<Block> {
    match &content.body {
        Body::Text(text) | Body::Refusal(text) => return (!text.is_empty()).then(|| Block::text(text.as_str())),
        Body::Data(data) => return (!data.is_null()).then(|| Block::text(data.text())),
        Body::Other(_) => return Some(Block::text(Json::from_serialize(content).text())),
        _ => {}
    }
    let Some(Media { kind, source, name, .. }) = Media::of(content) else {
        let Body::File(File { id: Some(id), name, .. }) = &content.body else { return None };
        return Some(Block::text(match name {
            Some(name) => format!("[file {name}, id {id}]"),
            None => format!("[file, id {id}]"),
        }));
    };
    let (base64, media_type) = match source {
        Source::Link(url) => return Some(link(url, name, kind)),
        Source::Other(text) => return Some(unreadable(name.unwrap_or(kind), text)),
        Source::Bytes { base64, media_type } => (base64, media_type.unwrap_or_default()),
    };
    let value = match kind {
        "image" | "audio" => json!({ "type": kind, "data": base64, "mimeType": media_type }),
        _ => {
            let mut resource = resource_contents(&part_uri(run, number), &media_type, &base64);
            if let Some(name) = name {
                resource["_meta"] = json!({ "interlingua/name": name });
            }
            json!({ "type": "resource", "resource": resource })
        }
    };
    Some(Block { value, part: Some(number) })
}

fn link(url: &str, name: Option<&str>, fallback: &str) -> Block {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let after_host = path.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    let from_url = after_host.rsplit('/').next().filter(|segment| !segment.is_empty());
    let media_type = name.and_then(media::of_name).or_else(|| media::of_name(url));
    Block::link(url, name.or(from_url).unwrap_or(fallback), media_type)
}

/// A text instead of media that clients could not read. Broken data would break the whole result.
fn unreadable(kind: &str, text: &str) -> Block {
    const MAX_SHOWN: usize = 1024;
    if text.is_empty() || text.len() > MAX_SHOWN || interlingua_adapter_kit::data_url::is_data_url(text) {
        return Block::text(format!("[{kind}]"));
    }
    Block::text(format!("[{kind} {text}]"))
}
