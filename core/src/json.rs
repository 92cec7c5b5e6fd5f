//! JSON that is passed on and not looked into: its text is kept, so numbers, key order and spelling survive.
//!
//! Not here: reading JSON with field paths ([`crate::tree`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::tree::{Bounds, exceeded};

/// One JSON value, kept as its text.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    /// Keeps a copy of a value that was read.
    #[must_use]
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned())
    }

    /// Writes a value down. Values that cannot be JSON (a map with keys that are no text) become `null`.
    #[must_use]
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Self {
        serde_json::value::to_raw_value(value).map_or_else(|_| Self::null(), Self)
    }

    /// `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// Reads a text that is one JSON value. None for other texts, and for one nested deeper than clients can read:
    /// JSON in a string passes every check of the JSON around it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bounds = Bounds { values: usize::MAX, ..Bounds::DEFAULT };
        if exceeded(text.as_bytes(), bounds).is_some() {
            return None;
        }
        serde_json::from_str::<Box<RawValue>>(text).ok().map(Self)
    }

    /// The text, as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The raw value, for those who read further.
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

    /// Reads it as a type. None where it does not fit, or is nested deeper than a parser should follow.
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

/// Fields this version has no name for, in the order they came, kept to be passed on. Nearly always there are none, which
/// takes a word; a clone is the same fields until one of the two is changed.
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

    /// Adds a field, or puts a new value in the place of an old one.
    pub fn set(&mut self, name: impl Into<Box<str>>, value: Json) {
        let name = name.into();
        let fields = self.fields_mut();
        match fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => fields.push((name, value)),
        }
    }

    /// Adds a field to the end without looking for an older one of that name: linear for readers of long objects.
    pub fn push(&mut self, name: impl Into<Box<str>>, value: Json) {
        self.fields_mut().push((name.into(), value));
    }

    /// Sets each field of another object. Linear, however many there are.
    pub fn merge(&mut self, newer: Self) {
        /// Below this, looking through all names is faster than a table of them.
        const FEW: usize = 16;
        if newer.is_empty() {
            return;
        }
        if self.len() + newer.len() <= FEW {
            newer.into_iter().for_each(|(name, value)| self.set(name, value));
            return;
        }
        let mut places: HashMap<Box<str>, usize> = HashMap::with_capacity(self.len() + newer.len());
        for (place, (name, _)) in self.fields().iter().enumerate() {
            places.entry(name.clone()).or_insert(place);
        }
        let fields = self.fields_mut();
        for (name, value) in newer {
            match places.get(&name) {
                Some(&place) => fields[place].1 = value,
                None => {
                    places.insert(name.clone(), fields.len());
                    fields.push((name, value));
                }
            }
        }
    }

    /// Roughly the memory it takes, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.fields().iter().map(|(name, value)| size_of::<(Box<str>, Json)>() + name.len() + value.text().len()).sum()
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields().len()
    }

    /// The value of a field; the last one where a name came twice.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.fields().iter().rev().find(|(known, _)| **known == *name).map(|(_, value)| value)
    }

    /// Takes a field out.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let at = self.fields().iter().rposition(|(known, _)| **known == *name)?;
        Some(self.fields_mut().remove(at).1)
    }

    /// True if there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields().is_empty()
    }

    /// All fields in order.
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
        let mut kept = Vec::with_capacity(1 + fields.size_hint().0);
        kept.push(first);
        kept.extend(fields);
        kept.shrink_to_fit();
        Self(Some(Arc::new(kept)))
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
    fn json_in_a_string_is_read_as_deep_as_clients_can_read() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(&nested(128)).is_some());
        assert!(Json::parse(&nested(129)).is_none() && Json::parse(&nested(100_000)).is_none());
    }
}
