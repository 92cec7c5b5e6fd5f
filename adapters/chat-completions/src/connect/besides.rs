//! Content of an answer beside its text, piece by piece: speech, details of reasoning, sources, tools the server ran.
//!
//! See `docs/protocols/chat-completions.md#choices-and-content`.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use interlingua_adapter_kit::held::BufferedBytes;
use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_core::agent_event::{
    AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Extra, Fault, Json};
use serde_json::value::RawValue;

/// Pieces may be padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A spoken answer. Every piece is base64 of its own.
#[derive(Debug, Default)]
pub(super) struct Audio(Vec<u8>);

impl Audio {
    /// Takes a piece. False: it is no base64.
    pub(super) fn push(&mut self, piece: &str) -> bool {
        let decoded = BASE64.decode(piece);
        decoded.map(|bytes| self.0.extend(bytes)).is_ok()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of it, in base64. None: there was none.
    pub(super) fn take(&mut self) -> Option<String> {
        let bytes = std::mem::take(&mut self.0);
        (!bytes.is_empty()).then(|| BASE64.encode(bytes))
    }
}

/// Entries of lists that come in several chunks: appended, as they are.
#[derive(Debug, Default)]
pub(super) struct Entries {
    waiting: Vec<Json>,
    has_come: bool,
}

impl Entries {
    pub(super) fn push(&mut self, list: &RawValue, held: &mut BufferedBytes) -> Result<(), Fault> {
        held.add(list.get().len())?;
        self.has_come = true;
        match serde_json::from_str::<Vec<Json>>(list.get()) {
            Ok(entries) => self.waiting.extend(entries),
            Err(_) => self.waiting.push(Json::from_raw(list)),
        }
        Ok(())
    }

    /// True if nothing came since it was taken last.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True once any entry came.
    pub(super) const fn has_come(&self) -> bool {
        self.has_come
    }

    /// Takes the new details, if there are any.
    pub(super) fn take(&mut self) -> Option<Vec<Json>> {
        (!self.waiting.is_empty()).then(|| std::mem::take(&mut self.waiting))
    }
}

/// Details of reasoning, which the server expects unchanged.
#[derive(Debug, Default)]
pub(super) struct Details {
    waiting: Vec<Extra>,
    has_come: bool,
}

/// Fields of a detail that come in pieces.
const TEXTS: [&str; 3] = ["text", "summary", "thinking"];

impl Details {
    /// Reads the details of a chunk. A text that continues the last one is appended to it. Returns the new text.
    pub(super) fn push(&mut self, list: &RawValue, held: &mut BufferedBytes) -> Result<String, Fault> {
        held.add(list.get().len())?;
        self.has_come = true;
        let mut new = String::new();
        for entry in serde_json::from_str::<Vec<Extra>>(list.get()).unwrap_or_default() {
            let last = self.waiting.last_mut().filter(|last| continues(last, &entry));
            // The block that brings the signature may repeat the whole thought.
            let is_repeated = last.as_ref().is_some_and(|last| {
                let thought = word(last, "thinking");
                !thought.is_empty() && thought == word(&entry, "thinking") && !word(&entry, "signature").is_empty()
            });
            for name in TEXTS.into_iter().filter(|_| !is_repeated) {
                new.push_str(&word(&entry, name));
            }

            match last {
                Some(last) => {
                    for (name, value) in entry.iter() {
                        let joined = match name {
                            "thinking" if is_repeated => continue,
                            "text" | "summary" | "data" | "thinking" | "signature" => {
                                Json::from_serialize(&(word(last, name) + &word(&entry, name)))
                            }
                            _ if value.is_null() => continue,
                            _ => value.clone(),
                        };
                        last.set(name, joined);
                    }
                }
                None => self.waiting.push(entry),
            }
        }
        Ok(new)
    }

    /// True if nothing came since it was taken last.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True once any entry came.
    pub(super) const fn has_come(&self) -> bool {
        self.has_come
    }

    /// Takes the new sources, if there are any.
    pub(super) fn take(&mut self) -> Option<Vec<Json>> {
        if self.waiting.is_empty() {
            return None;
        }

        Some(std::mem::take(&mut self.waiting).iter().map(Json::from_serialize).collect())
    }
}

/// A detail is a piece of the last one if it has its type and its index, and no other id. Thinking blocks have no
/// index: they continue until the signature came.
fn continues(last: &Extra, entry: &Extra) -> bool {
    let same = |name: &str| last.get(name) == entry.get(name);
    let id = word(entry, "id");
    let is_block = || word(entry, "type") == "thinking" && word(last, "signature").is_empty();
    let is_placed = || same("index") && entry.get("index").is_some();
    same("type") && (id.is_empty() || id == word(last, "id")) && (is_placed() || is_block())
}

fn word(fields: &Extra, name: &str) -> String {
    fields.get(name).and_then(Json::decode).unwrap_or_default()
}

/// Tools that the server ran itself.
#[derive(Debug, Default)]
pub(super) struct ExecutedTools {
    all: Vec<Extra>,
    emitted: usize,
}

impl ExecutedTools {
    pub(super) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Takes the entries of a chunk. One that was there before is known by its index, and gets its output later.
    pub(super) fn push(&mut self, list: &RawValue, held: &mut BufferedBytes) -> Result<(), Fault> {
        held.add(list.get().len())?;
        for entry in serde_json::from_str::<Vec<Extra>>(list.get()).unwrap_or_default() {
            let known = entry.get("index").and_then(|index| {
                self.all.iter_mut().skip(self.emitted).find(|known| known.get("index") == Some(index))
            });
            match known {
                Some(known) => known.merge(entry),
                None => self.all.push(entry),
            }
        }
        Ok(())
    }

    /// True if a tool has an output, so that call and output can be emitted.
    pub(super) fn is_ready(&self) -> bool {
        self.all.get(self.emitted).is_some_and(|tool| !word(tool, "output").is_empty())
    }

    /// Emits the named tools. A tool without a name is metadata.
    pub(super) fn emit(&mut self, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<Option<Json>, Fault> {
        let mut unnamed = Vec::new();
        for tool in &self.all[self.emitted..] {
            let name = ["name", "type"].map(|field| word(tool, field)).into_iter().find(|name| !name.is_empty());
            match name {
                Some(name) => emit_tool(tool, &name, ids, sink)?,
                None => unnamed.push(tool.clone()),
            }
        }

        self.emitted = self.all.len();
        Ok((!unnamed.is_empty()).then(|| Json::from_serialize(&unnamed)))
    }
}

fn emit_tool(tool: &Extra, name: &str, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let arguments = tool.get("arguments").filter(|arguments| !arguments.is_null());
    let arguments = arguments.map(|json| json.decode::<String>().unwrap_or_else(|| json.text().to_owned()));
    let (message, call_id) = (ids.message(), ids.call(""));
    let call = ContentValue::Call(CallPart {
        call_id: call_id.as_str().into(),
        name: name.into(),
        arguments: arguments.unwrap_or_else(|| "{}".to_owned()).into(),
        server_label: None,
    });
    sink.emit(&whole(&message, MessageType::PluginCall, Role::Assistant, call, None))?;

    let Some(output) = tool.get("output").filter(|output| !output.is_null()) else { return Ok(()) };
    let output = output.decode::<String>().unwrap_or_else(|| output.text().to_owned());
    let data = serde_json::json!({ "call_id": call_id, "name": name, "output": output });
    let value = ContentValue::OwnedData(Json::from_serialize(&data));
    // Such as the pages that a search found.
    let rest: Extra = tool
        .iter()
        .filter(|(field, value)| {
            !matches!(*field, "name" | "type" | "arguments" | "output" | "index") && !value.is_null()
        })
        .map(|(field, value)| (field, value.clone()))
        .collect();
    let metadata = (!rest.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(&rest)));
    sink.emit(&whole(&ids.message(), MessageType::PluginCallOutput, Role::Tool, value, metadata))
}

fn whole<'a>(
    id: &'a str,
    kind: MessageType,
    role: Role,
    value: ContentValue<'a>,
    metadata: Option<JsonRef<'a>>,
) -> AgentEvent<'a> {
    AgentEvent::Message(MessageEvent {
        id: Some(id.into()),
        kind: Some(kind),
        role: Some(role),
        end: Some(End::Completed),
        contents: vec![ContentEvent::new(id, ContentUpdate::Final, value)],
        metadata,
        ..MessageEvent::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("JSON")
    }

    #[test]
    fn pieces_of_speech_are_joined_by_their_bytes() {
        let mut audio = Audio::default();
        assert!(audio.push("YQ==") && audio.push("YmM") && !audio.push("!"));
        assert_eq!(audio.take().as_deref(), Some("YWJj"));
        assert_eq!(audio.take(), None);
    }

    #[test]
    fn details_of_reasoning_are_joined_as_they_came() {
        let (mut details, mut held) = (Details::default(), BufferedBytes::default());
        let mut push = |text: &str| details.push(&raw(text), &mut held).expect("small");
        assert_eq!(push(r#"[{"type":"reasoning.text","text":"I ","index":0,"signature":null}]"#), "I ");
        assert_eq!(push(r#"[{"type":"reasoning.text","text":"see","index":0,"signature":"s"}]"#), "see");
        assert_eq!(push(r#"[{"type":"reasoning.encrypted","data":"x","index":1},7]"#), "");
        assert_eq!(push(r#"[{"type":"reasoning.encrypted","data":"x","index":1}]"#), "");
        assert_eq!(
            Json::from_serialize(&details.take().expect("details")).text(),
            r#"[{"type":"reasoning.text","text":"I see","index":0,"signature":"s"},{"type":"reasoning.encrypted","data":"x","index":1}]"#
        );
    }
}
