//! Media and data of the agent. Messages of this protocol are text, so media and data are sent as custom events, and
//! media with a URL also as a link in the text.

use interlingua_adapter_kit::markdown;
use interlingua_core::model::{Body, Content};
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::{Extra, Json, Out};
use serde_json::json;

use super::super::events::Event;
use super::super::options::{Media, Options};
use super::super::thread::Labels;
use super::super::writer::Writer;
use crate::connect::media_part;

/// A content of a message, and where it stands.
pub(super) struct ContentPosition<'a> {
    pub(super) message: &'a Message,
    /// The id that the client knows.
    pub(super) id: &'a str,
    pub(super) index: usize,
    pub(super) options: &'a Options,
}

impl ContentPosition<'_> {
    /// Writes a finished content, unless it is text. Returns what stands for it in the text.
    pub(super) fn write(&self, slot: &Slot, writer: &mut Writer, out: &mut Out) -> Option<String> {
        let value = slot.value.as_ref()?;
        if let Body::Data(data) = &value.body {
            if is_marked_as_state(self.message) {
                writer.event(&Event::StateSnapshot { snapshot: data }, out);
            } else {
                writer.event(&Event::Custom { name: "data", value: data.clone() }, out);
            }
            return None;
        }
        let part = part(slot)?;
        if self.options.media.has_custom() {
            write_part(self.id, self.index, part, writer, out);
        }
        self.options.media.has_links().then(|| markdown::link(&value.body)).flatten()
    }
}

/// True if an agent says that the data of its message are the state of the front end.
fn is_marked_as_state(message: &Message) -> bool {
    let metadata: Option<Extra> = message.announced_metadata.as_ref().and_then(Json::decode);
    metadata.is_some_and(|metadata| metadata.get("state").and_then(Json::decode) == Some(true))
}

/// The media of a tool's result as parts: in a result, a part stands for the custom event.
pub(super) fn result_parts<'c>(contents: impl Iterator<Item = &'c Content>, media: Media) -> Vec<Json> {
    if media.has_custom() { contents.filter_map(media_part).collect() } else { Vec::new() }
}

/// Adds the media of a tool's only result to its text as links. Only where links are the only form: applications may
/// parse the text.
pub(super) fn add_result_links<'c>(text: &mut String, contents: impl Iterator<Item = &'c Content>, media: Media) {
    if media.has_custom() || !media.has_links() {
        return;
    }
    for link in contents.filter_map(|content| markdown::link(&content.body)) {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&link);
    }
}

/// A medium as a part. `None`: the content is no medium.
fn part(slot: &Slot) -> Option<Json> {
    media_part(slot.value.as_ref()?)
}

/// Writes a medium as a custom event.
pub(super) fn write_part(id: &str, index: usize, part: Json, writer: &mut Writer, out: &mut Out) {
    let mut value = Extra::new();
    value.push("messageId", Json::from_serialize(id));
    value.push("index", Json::from_serialize(&index));
    value.push("part", part);
    writer.event(&Event::Custom { name: "content", value: Json::from_serialize(&value) }, out);
}

pub(super) fn text_part(text: &str) -> Json {
    Json::from_serialize(&json!({ "type": "text", "text": text }))
}

/// Writes the notes on the texts of a finished message: its citations.
pub(super) fn write_annotations(message: &Message, run: &Run, labels: &Labels, writer: &mut Writer, out: &mut Out) {
    let is_full = |list: &&Json| list.decode::<Vec<Json>>().is_some_and(|list| !list.is_empty());
    let of_texts = message.slots.iter().filter_map(|slot| slot.extra.get("annotations"));
    let metadata: Option<Extra> = message.metadata.as_ref().and_then(Json::decode);
    let of_message = metadata.as_ref().and_then(|metadata| metadata.get("annotations"));
    for annotations in of_texts.chain(of_message).filter(is_full) {
        let mut value = Extra::new();
        value.push("messageId", Json::from_serialize(&labels.known.shown_id(&message.id, run)));
        value.push("annotations", annotations.clone());
        writer.event(&Event::Custom { name: "annotations", value: Json::from_serialize(&value) }, out);
    }
}
