//! Opaque JSON: values and fields that are passed on as text, so numbers, key order and escapes survive unchanged.
//!
//! Not here: parsing JSON with field paths ([`crate::tree`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::tree::check::{Bounds, exceeded};

/// One JSON value, stored as its text.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Copies a parsed raw value.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }

    /// Serializes a value. Values that JSON cannot express, such as maps with non-string keys, become `null`.
    #[must_use]
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Self {
        serde_json::value::to_raw_value(value).map_or_else(|_| Self::null(), Self)
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Parses a text that is one JSON value. `None` for any other text, and for nesting beyond [`Bounds::DEFAULT`]:
    /// JSON inside a string bypasses every check of the surrounding JSON.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bounds = Bounds { values: usize::MAX, ..Bounds::DEFAULT };
        if exceeded(text.as_bytes(), bounds).is_some() {
            return None;
        }
        serde_json::from_str::<Box<RawValue>>(text).ok().map(Self)
    }

    /// The JSON text, verbatim.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The raw value, for further deserialization.
    #[must_use]
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// True for `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }

    /// True for an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.text().starts_with('{')
    }

    /// Deserializes the value. `None` if the type does not match or the nesting exceeds serde_json's limit.
    #[must_use]
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.text()).ok()
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}
impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}

/// True for `{}` and `[]`, however they are written.
#[must_use]
pub fn is_empty_value(json: &str) -> bool {
    let inner = |open, close| json.trim().strip_prefix(open)?.strip_suffix(close);
    inner('{', '}').or_else(|| inner('[', ']')).is_some_and(|inner| inner.trim().is_empty())
}

/// True if two texts are the same JSON value, however they are written: the order of fields and the forms of numbers do
/// not count, and nothing at all is an empty object, as in arguments of calls. Texts that are no JSON are compared as
/// they are.
#[must_use]
pub fn is_same_value(one: &str, other: &str) -> bool {
    let parse =
        |text: &str| if text.trim().is_empty() { Some(Value::Object(Map::new())) } else { Json::parse(text)?.decode() };
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => is_equal(&one, &other),
        _ => one.trim() == other.trim(),
    }
}

/// JavaScript writes `1.0` as `1`. Whole numbers are compared exactly: a large one is another call's argument if its
/// last digit differs.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let is_float = one.is_f64() || other.is_f64();
            one == other || (is_float && one.as_f64() == other.as_f64())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in_other =
                |(name, value): (&String, &Value)| other.get(name).is_some_and(|other| is_equal(value, other));
            one.len() == other.len() && one.iter().all(is_in_other)
        }
        _ => one == other,
    }
}

/// Unknown fields of an object, in order of arrival, preserved to be passed on. Most objects have none, so the empty
/// case is one pointer wide. Clones share the fields until one of them is changed.
#[derive(Clone, Default)]
pub struct Extra(Option<Arc<Fields>>);

/// Names and values, in order.
type Fields = Vec<(Box<str>, Json)>;

impl Extra {
    /// No fields.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    fn fields(&self) -> &[(Box<str>, Json)] {
        self.0.as_ref().map_or(&[], |fields| fields)
    }

    fn fields_mut(&mut self) -> &mut Vec<(Box<str>, Json)> {
        Arc::make_mut(self.0.get_or_insert_default())
    }

    /// Adds a field or replaces the value of an existing one.
    pub fn set(&mut self, name: impl Into<Box<str>>, value: Json) {
        let name = name.into();
        let fields = self.fields_mut();
        match fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => fields.push((name, value)),
        }
    }

    /// Appends a field without checking for an existing one, so that parsing a long object stays linear.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Json) {
        self.fields_mut().push((name.into(), value));
    }

    /// Sets every field of `newer`. Linear in the number of fields.
    pub fn merge(&mut self, newer: Self) {
        /// Up to this many fields, a linear search is faster than a hash table.
        const MAX_LINEAR_SEARCH: usize = 16;
        if newer.is_empty() {
            return;
        }

        if self.len() + newer.len() <= MAX_LINEAR_SEARCH {
            newer.into_iter().for_each(|(name, value)| self.set(name, value));
            return;
        }

        let mut indexes: HashMap<Box<str>, usize> = HashMap::with_capacity(self.len() + newer.len());
        for (index, (name, _)) in self.fields().iter().enumerate() {
            indexes.entry(name.clone()).or_insert(index);
        }

        let fields = self.fields_mut();
        for (name, value) in newer {
            match indexes.get(&name) {
                Some(&index) => fields[index].1 = value,
                None => {
                    indexes.insert(name.clone(), fields.len());
                    fields.push((name, value));
                }
            }
        }
    }

    /// Approximate heap memory, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.fields().iter().map(|(name, value)| size_of::<(Box<str>, Json)>() + name.len() + value.text().len()).sum()
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields().len()
    }

    /// The value of a field; the last one if the name occurs more than once.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.fields().iter().rev().find(|(known, _)| **known == *name).map(|(_, value)| value)
    }

    /// Removes a field and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let index = self.fields().iter().rposition(|(known, _)| **known == *name)?;
        Some(self.fields_mut().remove(index).1)
    }

    /// True if there are no fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields().is_empty()
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.fields().iter().map(|(name, value)| (name.as_ref(), value))
    }
}

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        self.fields() == other.fields()
    }
}
impl Eq for Extra {}

impl fmt::Debug for Extra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Extra").field(&self.fields()).finish()
    }
}

impl IntoIterator for Extra {
    type Item = (Box<str>, Json);
    type IntoIter = std::vec::IntoIter<(Box<str>, Json)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.map(Arc::unwrap_or_clone).unwrap_or_default().into_iter()
    }
}

impl<N: Into<Box<str>>> FromIterator<(N, Json)> for Extra {
    fn from_iter<I: IntoIterator<Item = (N, Json)>>(fields: I) -> Self {
        let mut fields = fields.into_iter().map(|(name, value)| (name.into(), value));
        let Some(first) = fields.next() else { return Self::new() };

        let mut collected = Vec::with_capacity(1 + fields.size_hint().0);
        collected.push(first);
        collected.extend(fields);
        collected.shrink_to_fit();
        Self(Some(Arc::new(collected)))
    }
}

impl Serialize for Extra {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Extra {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = Extra;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Extra, A::Error> {
                let mut fields = Extra::new();
                while let Some((name, value)) = map.next_entry::<Box<str>, Json>()? {
                    fields.push(name, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_accepted_up_to_the_default_nesting_depth() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(&nested(128)).is_some());
        assert!(Json::parse(&nested(129)).is_none() && Json::parse(&nested(100_000)).is_none());
    }

    #[test]
    fn an_empty_value_has_no_members() {
        for empty in ["{}", "[]", "{ }", "[\n\t]", " {} "] {
            assert!(is_empty_value(empty), "{empty:?}");
        }
        for other in ["", " ", "{", "[}", "{]", "null", "\"\"", "[[]]", r#"{"":{}}"#, "[ 0 ]"] {
            assert!(!is_empty_value(other), "{other:?}");
        }
    }

    #[test]
    fn values_are_the_same_however_they_are_written() {
        for (one, other) in [
            (r#"{"a":1,"b":[2.0]}"#, r#"{ "b": [2], "a": 1 }"#),
            ("", "{}"),
            (" ", r"{ }"),
            (r#""\u0061""#, r#""a""#),
            ("{not json", " {not json "),
            ("9007199254740993", "9007199254740993"),
        ] {
            assert!(is_same_value(one, other) && is_same_value(other, one), "{one} {other}");
        }
        for (one, other) in [
            (r#"{"a":1}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1}"#, r#"{"b":1}"#),
            ("[1,2]", "[2,1]"),
            (r#""1""#, "1"),
            ("{not json", "{}"),
            ("null", "{}"),
        ] {
            assert!(!is_same_value(one, other) && !is_same_value(other, one), "{one} {other}");
        }
    }
}
