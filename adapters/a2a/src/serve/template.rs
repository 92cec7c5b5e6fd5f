//! Items of a stream that differ in a few values only, as those of one content's deltas do: they are encoded once, and
//! copied around the new values. Not here: which deltas have such items (`stream`).

use interlingua_core::Out;
use interlingua_core::event::Millis;
use interlingua_core::time::push_rfc3339_millis;

use super::writer::Writer;
use crate::wire::{Content, Item};

/// A value that differs from item to item.
#[derive(Clone, Copy)]
enum Hole {
    /// The text of the delta.
    Text,
    /// A number at the end of the message's id.
    Number,
    /// When the delta came.
    Time,
}

/// An encoded item without the values that differ.
pub(super) struct DeltaTemplate {
    pub(super) message: u32,
    pub(super) content: u32,
    /// The bytes before each value.
    pieces: Vec<(Vec<u8>, Hole)>,
    after: Vec<u8>,
    /// Reused for each time.
    time: String,
}

impl DeltaTemplate {
    /// Serializes an item and cuts it at the values that differ between deltas of the same content: the text, and in a
    /// status the time and the number at the end of the message's id. `id`: that id without the number. `None`: the
    /// item has another form.
    pub(super) fn from_item(
        message: u32,
        content: u32,
        item: &mut Item<'_>,
        id: &str,
        writer: &Writer,
    ) -> Option<Self> {
        let text = std::mem::replace(text_of(item)?, "".into());
        let mut out = Out::new();
        writer.stream_item(item, &mut out);
        if let Some(hole) = text_of(item) {
            *hole = text;
        }

        let mut holes = vec![(after(&out.body, r#""text":"""#)? - 2, 2, Hole::Text)];
        if matches!(item, Item::Status(_)) {
            let known = serde_json::to_string(id).ok()?;
            let at = after(&out.body, &format!(r#""messageId":{}"#, known.trim_end_matches('"')))?;
            let digits = out.body[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            holes.push((at, digits, Hole::Number));

            let at = after(&out.body, r#""timestamp":""#)?;
            let length = out.body[at..].iter().position(|byte| *byte == b'"')?;
            holes.push((at, length, Hole::Time));
        }
        holes.sort_by_key(|(at, ..)| *at);

        let mut from = 0;
        let mut pieces = Vec::with_capacity(holes.len());
        for (at, length, hole) in holes {
            pieces.push((out.body.get(from..at)?.to_vec(), hole));
            from = at + length;
        }
        Some(Self { message, content, pieces, after: out.body.get(from..)?.to_vec(), time: String::new() })
    }

    /// True if its items are statuses, whose messages are numbered.
    pub(super) fn is_status(&self) -> bool {
        self.pieces.len() > 1
    }

    /// Writes an item. `number` is that of its message, if the items are statuses.
    pub(super) fn write(&mut self, text: &str, number: u32, at: Millis, out: &mut Out) {
        for (before, hole) in &self.pieces {
            out.write_raw(before);
            match hole {
                Hole::Text => out.write_json(text),
                Hole::Number => out.number(number.into()),
                Hole::Time => {
                    self.time.clear();
                    push_rfc3339_millis(at, &mut self.time);
                    out.write_raw(self.time.as_bytes());
                }
            }
        }
        out.write_raw(&self.after);
    }
}

/// The text of an item that has one part.
fn text_of<'i, 'r>(item: &'i mut Item<'r>) -> Option<&'i mut std::borrow::Cow<'r, str>> {
    let parts = match item {
        Item::Artifact(update) => &mut update.artifact.parts,
        Item::Status(update) => &mut update.status.message.as_mut()?.parts,
        _ => return None,
    };
    match parts.as_mut_slice() {
        [part] => match &mut part.content {
            Content::Text(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The position after this text, if it occurs exactly once: what an agent adds to its messages may have them, too.
fn after(body: &[u8], words: &str) -> Option<usize> {
    let is_here = |window: &[u8]| window == words.as_bytes();
    let at = body.windows(words.len()).position(is_here)?;
    (body.windows(words.len()).rposition(is_here) == Some(at)).then_some(at + words.len())
}
