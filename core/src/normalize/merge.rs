//! Merges fragments of contents that are not text, by the rule of the runtime's builder
//! (docs/protocols/agent-api.md#deltas): strings and lists are joined, numbers added, objects merged, all else
//! replaced. Keys keep their order.
//!
//! A value that grows by many fragments is parsed once, not with every fragment: the cost of [`Growing`] is
//! proportional to the fragments. Values without fragments are never parsed and stay verbatim.

use std::collections::HashMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::{Extra, Json};

/// Objects nested deeper than this are replaced, not merged: no agent sends that in fragments.
const MAX_DEPTH: usize = 32;

/// The URL of an image with a fragment added.
pub(super) fn address(mut old: String, fragment: String) -> String {
    if is_address(&fragment) {
        return fragment;
    }
    old.push_str(&fragment);
    old
}

/// True for a complete URL. Servers send it as a whole; fragments of one do not begin like a URL.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("data:") || text.contains("://")
}

/// Data that grows by fragments.
#[derive(Debug)]
pub(super) enum Growing {
    /// Unchanged.
    Kept(Json),
    Text(String),
    List(Vec<Json>),
    Object(Fields),
}

#[derive(Debug, Default)]
pub(super) struct Fields {
    places: HashMap<String, usize>,
    all: Vec<(String, Growing)>,
}

impl Growing {
    pub(super) fn merge(&mut self, fragment: &Json) {
        self.merge_at(fragment, 0);
    }

    fn merge_at(&mut self, fragment: &Json, depth: usize) {
        self.take_apart(fragment);
        match self {
            Self::Text(text) => {
                if let Some(more) = fragment.decode::<String>() {
                    text.push_str(&more);
                    return;
                }
            }
            Self::List(list) => {
                if let Some(more) = fragment.decode::<Vec<Json>>() {
                    list.extend(more);
                    return;
                }
            }
            Self::Object(fields) if depth < MAX_DEPTH => {
                if let Some(more) = fragment.decode::<Extra>() {
                    fields.merge(&more, depth);
                    return;
                }
            }
            Self::Kept(old) => {
                if let Some(sum) = sum(old, fragment) {
                    *old = sum;
                    return;
                }
            }
            Self::Object(_) => {}
        }
        *self = Self::Kept(fragment.clone());
    }

    /// Parses a value if it has the fragment's type.
    fn take_apart(&mut self, fragment: &Json) {
        let Self::Kept(old) = self else { return };
        let taken = match (old.text().as_bytes().first(), fragment.text().as_bytes().first()) {
            (Some(b'"'), Some(b'"')) => old.decode().map(Self::Text),
            (Some(b'['), Some(b'[')) => old.decode().map(Self::List),
            (Some(b'{'), Some(b'{')) => old.decode::<Extra>().map(|old| {
                let mut fields = Fields::default();
                for (name, value) in old.iter() {
                    fields.set(name, value);
                }
                Self::Object(fields)
            }),
            _ => None,
        };
        if let Some(taken) = taken {
            *self = taken;
        }
    }

    /// The data so far.
    pub(super) fn into_json(self) -> Json {
        match self {
            Self::Kept(json) => json,
            grown => Json::from_serialize(&grown),
        }
    }
}

impl Fields {
    fn set(&mut self, name: &str, value: &Json) {
        let value = Growing::Kept(value.clone());
        match self.places.get(name) {
            Some(&place) => self.all[place].1 = value,
            None => {
                self.places.insert(name.to_owned(), self.all.len());
                self.all.push((name.to_owned(), value));
            }
        }
    }

    fn merge(&mut self, more: &Extra, depth: usize) {
        for (name, value) in more.iter() {
            match self.places.get(name) {
                Some(&place) => self.all[place].1.merge_at(value, depth + 1),
                None => self.set(name, value),
            }
        }
    }
}

impl Serialize for Growing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Kept(json) => json.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.all.len()))?;
                for (name, value) in &fields.all {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// The sum of two numbers. `None` if one of the values is no number.
fn sum(old: &Json, new: &Json) -> Option<Json> {
    if let (Some(old), Some(new)) = (old.decode::<i64>(), new.decode::<i64>())
        && let Some(sum) = old.checked_add(new)
    {
        return Some(Json::from_serialize(&sum));
    }
    Some(Json::from_serialize(&(old.decode::<f64>()? + new.decode::<f64>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(fragments: &[&str]) -> String {
        let mut all = fragments.iter().map(|text| serde_json::from_str::<Json>(text).expect("JSON"));
        let mut growing = Growing::Kept(all.next().expect("a fragment"));
        all.for_each(|fragment| growing.merge(&fragment));
        growing.into_json().text().to_owned()
    }

    #[test]
    fn fragments_of_data_merge_like_the_builder_does() {
        let old = r#"{"s":"a","l":[1],"n":1,"o":{"x":"p"},"b":true}"#;
        let fragment = r#"{"s":"b","l":[2],"n":2.5,"o":{"x":"q","y":1},"b":false,"new":null}"#;
        let wanted = r#"{"s":"ab","l":[1,2],"n":3.5,"o":{"x":"pq","y":1},"b":false,"new":null}"#;
        assert_eq!(merged(&[old, fragment]), wanted);
        assert_eq!(merged(&[r#"{"b":1,"a":1.50}"#, r#"{"c":[ 1 ]}"#]), r#"{"b":1,"a":1.50,"c":[ 1 ]}"#);
        assert_eq!(merged(&["1", "{}", "[1]", "[2]", "null", "true"]), "true");
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        assert_eq!(merged(&[&deep, &deep]).len(), deep.len());
    }

    #[test]
    fn pieces_of_an_address_are_joined_and_whole_ones_replace() {
        assert_eq!(address("https://exa".into(), "mple.com".into()), "https://example.com");
        assert_eq!(address("https://a".into(), "https://b".into()), "https://b");
        assert_eq!(address(String::new(), "data:image/png;base64,".into()), "data:image/png;base64,");
    }
}
