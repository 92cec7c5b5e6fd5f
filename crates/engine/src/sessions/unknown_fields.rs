//! Reads a struct together with the fields that it does not have, in one pass.
//!
//! `#[serde(flatten)]` would read every value into an intermediate form, which keeps neither the text of numbers nor
//! deep values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use interlingua_core::Json;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

type Unknown = BTreeMap<String, Json>;

/// Parses a JSON object. Also returns the fields that `T` does not have, as they were written.
pub(super) fn from_slice<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> serde_json::Result<(T, Unknown)> {
    let mut unknown = Unknown::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = T::deserialize(Collector { inner: &mut json, unknown: &mut unknown })?;
    json.end()?;
    Ok((value, unknown))
}

/// Deserializes one struct.
struct Collector<'a, D> {
    inner: D,
    unknown: &'a mut Unknown,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Collector<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, known, Fields { inner: visitor, known, unknown: self.unknown })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The visitor or the fields of the struct, without the unknown ones.
struct Fields<'a, T> {
    inner: T,
    known: &'static [&'static str],
    unknown: &'a mut Unknown,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Fields<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Fields { inner: map, known: self.known, unknown: self.unknown })
    }
}

/// The name of a field, borrowed unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Name(name)) = self.inner.next_key()? {
            if self.known.contains(&&*name) {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            self.unknown.insert(name.into_owned(), self.inner.next_value()?);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }
}
