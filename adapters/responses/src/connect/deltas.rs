//! Deltas of texts, the events that nearly all streams consist of.
//!
//! Not here: all other events ([`super::reader`]).

use std::borrow::Cow;

use interlingua_adapter_kit::delta_template::ChangingValues;
use interlingua_core::agent_event::{AgentEvent, ContentEvent, ContentUpdate, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::{Fault, json_string};

use super::reader::Reader;
use super::slots::SlotKind;
use super::wire::{Event, index, lent_text};

impl Reader {
    /// The hot path: a delta that differs from the last event in nothing but text, number and padding. `None`: the event
    /// has to be parsed.
    #[inline]
    pub(super) fn next_delta(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Option<Result<(), Fault>> {
        // The text may borrow from the template's memory.
        let mut template = std::mem::take(&mut self.template);
        let read = template.read(data).map(|delta| {
            if delta.number.is_some_and(|sequence| self.is_repeated(sequence)) {
                return sink.emit(&AgentEvent::KeepAlive);
            }
            let (place, index) = self.delta_place;
            self.append(place, index, delta.text, sink)
        });
        self.template = template;
        read
    }

    pub(super) fn text_delta(&mut self, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Message, sink)? else { return Ok(()) };
        self.delta_place = (place, index(event.content_index));
        if let Some(text) = event.delta.and_then(|raw| json_string::quoted(raw.get())) {
            let (number, padding) = (event.sequence_number, event.obfuscation);
            self.template.learn(data, ChangingValues { text, number, padding });
        }

        let mut scratch = std::mem::take(&mut self.scratch);
        let delta = lent_text(event.delta, &mut scratch);
        let read = self.append(place, index(event.content_index), delta, sink);
        self.scratch = scratch;
        read
    }

    #[inline]
    fn append(&mut self, place: usize, index: Option<u32>, text: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if text.is_empty() {
            return sink.emit(&AgentEvent::KeepAlive);
        }
        let slot = &mut self.slots.all[place];
        slot.has_spoken = true;
        let content = ContentEvent {
            message: Some(Cow::Borrowed(&slot.id)),
            index,
            update: ContentUpdate::Append,
            value: ContentValue::Text(Cow::Borrowed(text)),
            extra: Vec::new(),
        };
        sink.emit(&AgentEvent::Content(content))
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core_testkit::EventTexts;

    use super::*;

    #[test]
    fn deltas_report_the_same_whether_they_are_parsed_or_not() {
        let item = |kind: &str, number: usize, id: &str| {
            format!(
                r#"{{"type":"response.output_item.{kind}","sequence_number":{number},"output_index":0,"item":{{"id":"{id}","type":"message","role":"assistant","content":[]}}}}"#
            )
        };
        let delta = |number: usize, text: &str, id: &str| {
            format!(
                r#"{{"type":"response.output_text.delta","sequence_number":{number},"item_id":"{id}","output_index":0,"content_index":0,"delta":"{text}","logprobs":[],"obfuscation":"{}"}}"#,
                "x".repeat(number % 5)
            )
        };
        let events = [
            item("added", 1, "m1"),
            delta(2, "Hel", "m1"),
            delta(3, "lo", "m1"),
            delta(4, "a\\n\\u4f60", "m1"),
            delta(5, "", "m1"),
            delta(6, "x", "m1"),
            item("done", 7, "m1"),
            delta(8, "late", "m1"),
            item("added", 9, "m2"),
            delta(10, "one", "m2"),
            delta(11, "two", "m2"),
            delta(12, "\\ud83d", "m2"),
            delta(13, "x", "m2").replace("13", "\"13\""),
            delta(14, "x", "m2").replace("14", "\"14\""),
            delta(15, "one", "m2"),
            // Repeated after a cut.
            delta(14, "two", "m2"),
            delta(15, "one", "m2"),
            delta(16, "three", "m2"),
            delta(17, "four", "m2"),
        ];

        let (mut whole, mut parsed) = (EventTexts::default(), EventTexts::default());
        let mut reader = Reader::new("answer".to_owned(), String::new());
        let mut parser = Reader::new("answer".to_owned(), String::new());
        for (nth, event) in events.iter().enumerate() {
            if nth == 15 {
                (reader.repeated, parser.repeated) = (reader.sequence, parser.sequence);
            }
            reader.read(event.as_bytes(), None, &mut whole).expect("an event");
            parser.template.forget();
            parser.read(event.as_bytes(), None, &mut parsed).expect("an event");
            assert_eq!(reader.sequence, parser.sequence, "{event}");
        }
        assert_eq!(whole.0, parsed.0);
    }

    /// The position of the last delta's text, and the number of deltas.
    #[derive(Default)]
    struct DeltaPosition {
        count: usize,
        at: usize,
    }

    impl EventSink for DeltaPosition {
        fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
            let AgentEvent::Content(content) = event else { return Ok(()) };
            let ContentValue::Text(Cow::Borrowed(text)) = content.value else { panic!("{event:?} owns its text") };
            assert!(matches!(content.message, Some(Cow::Borrowed(_))), "{event:?} owns its id");
            assert_eq!(content.extra.capacity(), 0);
            self.count += 1;
            self.at = text.as_ptr().addr();
            Ok(())
        }
    }

    #[test]
    fn a_text_delta_allocates_nothing() {
        let mut reader = Reader::new("answer".to_owned(), String::new());
        let mut sink = DeltaPosition::default();
        let added = br#"{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message"}}"#;
        reader.read(added, None, &mut sink).expect("an item");

        let plain = br#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"Hello"}"#;
        reader.read(plain, None, &mut sink).expect("a delta");
        let frame = plain.as_ptr_range();
        assert!((frame.start.addr()..frame.end.addr()).contains(&sink.at), "the text is that of the frame");

        let escaped = br#"{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"\"a\"\n\u00e9"}"#;
        reader.read(escaped, None, &mut sink).expect("a delta");
        let first = sink.at;
        for _ in 0..10 {
            reader.read(escaped, None, &mut sink).expect("a delta");
            assert_eq!(sink.at, first, "the memory for unescaping is used again");
        }
        assert_eq!(sink.count, 12);
    }
}
