//! Event streams, read strictly.

use serde_json::Value;

/// The events of a complete stream.
#[derive(Clone, Debug)]
pub struct Frames {
    /// The name, or empty, and the data of each.
    pub events: Vec<(String, String)>,
}

impl Frames {
    /// Splits a stream into its events. Comments are left out.
    ///
    /// # Panics
    /// If it ends within an event, or an event has other lines than `event:`, `id:` and one `data:`.
    #[must_use]
    pub fn split(text: &str) -> Self {
        assert!(text.is_empty() || text.ends_with("\n\n"), "the stream ends within an event: {text:?}");
        let mut events = Vec::new();
        for block in text.split("\n\n").filter(|block| !block.is_empty()) {
            let (mut name, mut data) = (String::new(), None);
            for line in block.lines().filter(|line| !line.starts_with(':')) {
                match line.split_once(": ") {
                    Some(("event", value)) => value.clone_into(&mut name),
                    Some(("data", value)) => assert!(data.replace(value.to_owned()).is_none(), "data twice: {block}"),
                    Some(("id", _)) => {}
                    _ => panic!("an unknown line {line:?} in {text:?}"),
                }
            }
            events.extend(data.map(|data| (name, data)));
        }
        Self { events }
    }

    /// The data of all events as JSON.
    ///
    /// # Panics
    /// If one is no JSON object.
    #[must_use]
    pub fn json(&self) -> Vec<Value> {
        let objects = self.events.iter().map(|(_, data)| {
            let value: Value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            assert!(value.is_object(), "an event that is no object: {data}");
            value
        });
        objects.collect()
    }

    /// Takes the last event away if its data is this text.
    #[must_use]
    pub fn ends_with(&mut self, text: &str) -> bool {
        let ends = self.events.last().is_some_and(|(_, data)| data == text);
        if ends {
            self.events.pop();
        }
        ends
    }
}

/// A text field.
///
/// # Panics
/// If it is missing or no text.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name:?} in {value}"))
}

/// A list; empty if it is missing or null.
pub(crate) fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value[name].as_array().into_iter().flatten()
}
