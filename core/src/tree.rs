//! Request parsing: JSON inspected level by level, so that every error names the path of its field.
//!
//! A [`Node`] is a value and its path. Values are parsed on access, strings borrow from the body, and everything else
//! stays raw text. Nesting is free: a level is parsed only when its parent is accessed. Lists are parsed one element at
//! a time. Paths are built only for errors.
//!
//! Before anything is parsed, [`check`] limits the number of values and levels.
//!
//! Not here: the upstream's frames, which are parsed in one pass ([`crate::agent_api`]).

pub(crate) mod check;
pub mod fields;
mod place;

use std::borrow::Cow;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fault::{Fault, FaultKind};
use crate::json::{Extra, Json};
use crate::json_string;
use place::{Location, Step};

pub use check::{Bounds, ExceededLimit, check, check_upstream, exceeded};

/// The type of a JSON value, determined by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    const fn with_article(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "a list",
            Self::Object => "an object",
        }
    }
}

/// A raw value and its path.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    raw: &'a RawValue,
    location: Location<'a>,
}

impl<'a> Node<'a> {
    /// Parses a body.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`] if it is not UTF-8 or not JSON.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(body)
            .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}")))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let raw = serde_json::from_str::<&RawValue>(text)
            .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not JSON: {error}")))?;
        Ok(Self { raw, location: Location::default() })
    }

    /// Parses a body that must be an object.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`] if it is not UTF-8, not JSON or not an object.
    pub fn parse_object(body: &'a [u8]) -> Result<Object<'a>, Fault> {
        let node = Self::parse(body)?;
        if node.kind() != Kind::Object {
            let message = format!("the body must be a JSON object, not {}", node.kind().with_article());
            return Err(Fault::new(FaultKind::Malformed, message));
        }
        node.object()
    }

    /// A raw value from elsewhere, with its own path.
    #[must_use]
    pub fn with_path(path: impl Into<String>, raw: &'a RawValue) -> Self {
        Self { raw, location: Location::from_path(path.into()) }
    }

    /// The path, such as `input[2].content[0].text`. Empty at the root.
    #[must_use]
    pub fn path(&self) -> String {
        self.location.path()
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.raw.get()
    }

    /// Copies the value.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::from_raw(self.raw)
    }

    /// The value as `serde_json` keeps it, for deserializing.
    #[must_use]
    pub const fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// The type of the value.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.text().as_bytes().first() {
            Some(b'n') => Kind::Null,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'"') => Kind::String,
            Some(b'[') => Kind::Array,
            Some(b'{') => Kind::Object,
            _ => Kind::Number,
        }
    }

    /// True if the value nests arrays and objects more than `levels` deep: `[[]]` has two levels.
    #[must_use]
    pub fn is_deeper_than(&self, levels: usize) -> bool {
        exceeded(self.text().as_bytes(), Bounds { depth: levels, values: usize::MAX }).is_some()
    }

    /// The fault for a value of the wrong type. `expected` is a noun phrase, such as "a string".
    #[must_use]
    pub fn wrong_type(&self, expected: &str) -> Fault {
        Fault::new(FaultKind::WrongType, format!("must be {expected}, not {}", self.kind().with_article()))
            .with_field(self.path())
    }

    /// The fault for an invalid value.
    #[must_use]
    pub fn invalid(&self, message: impl Into<String>) -> Fault {
        Fault::invalid(self.path(), message)
    }

    fn decode<T: Deserialize<'a>>(&self, expected: &str) -> Result<T, Fault> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.wrong_type(expected))
    }

    /// The value as a string.
    ///
    /// Half of a surrogate pair, which clients send that cut a text inside of an emoji, becomes U+FFFD.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`] for any other type, as for all accessors below.
    pub fn string(&self) -> Result<Cow<'a, str>, Fault> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        if self.kind() != Kind::String {
            return Err(self.wrong_type("a string"));
        }
        match self.decode::<Text<'a>>("a string of valid Unicode") {
            Ok(text) => Ok(text.0),
            Err(fault) => json_string::text(self.raw).ok_or(fault),
        }
    }

    /// The value as a boolean.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn boolean(&self) -> Result<bool, Fault> {
        self.decode("a boolean")
    }

    /// The value as an integer. Accepts `3.0`, because clients in dynamic languages write integers that way.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn integer(&self) -> Result<i64, Fault> {
        if let Ok(number) = serde_json::from_str::<i64>(self.raw.get()) {
            return Ok(number);
        }
        let number: f64 = self.decode("an integer")?;
        #[expect(clippy::cast_possible_truncation, reason = "checked: it is whole and far inside the range")]
        if number.fract() == 0.0 && number.abs() < 9e15 {
            Ok(number as i64)
        } else {
            Err(self.wrong_type("an integer"))
        }
    }

    /// The value as a number.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn number(&self) -> Result<f64, Fault> {
        self.decode("a number")
    }

    /// The value as an array, whose elements are parsed one by one.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn array(&self) -> Result<Items<'a>, Fault> {
        let inner = self.text().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let rest = inner.ok_or_else(|| self.wrong_type("a list"))?;
        Ok(Items { rest, index: 0, list: Some(Rc::new(self.location.clone())) })
    }

    /// The value as an object.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn object(&self) -> Result<Object<'a>, Fault> {
        if self.kind() != Kind::Object {
            return Err(self.wrong_type("an object"));
        }
        let fields = self.decode::<Fields<'a>>("an object")?.0;
        Ok(Object { fields, location: Rc::new(self.location.clone()) })
    }

    /// The value as opaque JSON that must be an object.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn json_object(&self) -> Result<Json, Fault> {
        if self.kind() == Kind::Object { Ok(self.to_json()) } else { Err(self.wrong_type("an object")) }
    }
}

/// The elements of an array. The array was already validated as JSON, so no element is malformed.
#[derive(Clone, Debug, Default)]
pub struct Items<'a> {
    rest: &'a str,
    index: usize,
    list: Option<Rc<Location<'a>>>,
}

impl<'a> Items<'a> {
    /// Parses every element with `read`. Allocates once with the exact capacity, and only after the first element has
    /// been parsed successfully.
    ///
    /// # Errors
    /// The first error of `read`.
    pub fn parse_each<T>(mut self, mut read: impl FnMut(&Node<'a>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let Some(first) = self.next() else { return Ok(Vec::new()) };
        let first = read(&first)?;

        let mut all = Vec::with_capacity(1 + self.remaining());
        all.push(first);
        for node in self {
            all.push(read(&node)?);
        }

        Ok(all)
    }

    /// The number of remaining elements. Linear in the length of the text.
    #[must_use]
    pub fn remaining(&self) -> usize {
        check::elements(self.rest.as_bytes())
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r', ',']);
        let raw = <&'a RawValue>::deserialize(&mut serde_json::Deserializer::from_str(rest)).ok()?;
        self.rest = &rest[raw.get().len()..];
        let location = Location { parent: self.list.clone(), step: Step::Index(self.index) };
        self.index += 1;
        Some(Node { raw, location })
    }
}

/// The fields of an object and its path.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
    location: Rc<Location<'a>>,
}

impl<'a> Object<'a> {
    /// The path, such as `input[2]`. Empty at the root.
    #[must_use]
    pub fn path(&self) -> String {
        self.location.path()
    }

    /// The path of a field with this name.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        let mut path = self.path();
        place::add_name(&mut path, name);
        path
    }

    fn field(&self, name: &Cow<'a, str>, raw: &'a RawValue) -> Node<'a> {
        Node { raw, location: Location { parent: Some(Rc::clone(&self.location)), step: Step::Name(name.clone()) } }
    }

    /// A field, unless it is missing or `null`. If the name occurs more than once, the last field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Node<'a>> {
        let (name, raw) = self.fields.iter().rev().find(|(known, _)| known == name)?;
        (raw.get() != "null").then(|| self.field(name, raw))
    }

    /// The first of several alternative names that is present and not `null`.
    #[must_use]
    pub fn get_any(&self, names: &[&str]) -> Option<Node<'a>> {
        names.iter().find_map(|name| self.get(name))
    }

    /// True if the field is present, even if it is `null`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == name)
    }

    /// A required field.
    ///
    /// # Errors
    /// [`FaultKind::Missing`]
    pub fn required(&self, name: &str) -> Result<Node<'a>, Fault> {
        self.get(name).ok_or_else(|| {
            Fault::new(FaultKind::Missing, format!("missing required field '{name}'")).with_field(self.path_of(name))
        })
    }

    /// An optional string field.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`], as for all accessors below.
    pub fn string(&self, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        self.get(name).map(|node| node.string()).transpose()
    }

    /// An optional boolean field.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        self.get(name).map(|node| node.boolean()).transpose()
    }

    /// An optional integer field.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Fault> {
        self.get(name).map(|node| node.integer()).transpose()
    }

    /// An optional number field.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn number(&self, name: &str) -> Result<Option<f64>, Fault> {
        self.get(name).map(|node| node.number()).transpose()
    }

    /// An array field; empty if it is missing.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn array(&self, name: &str) -> Result<Items<'a>, Fault> {
        self.get(name).map_or_else(|| Ok(Items::default()), |node| node.array())
    }

    /// All fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Node<'a>)> {
        self.fields.iter().map(|(name, raw)| (name.as_ref(), self.field(name, raw)))
    }

    /// Copies all fields except the named ones.
    #[must_use]
    pub fn fields_except(&self, named: &[&str]) -> Extra {
        self.fields
            .iter()
            .filter(|(name, _)| !named.contains(&name.as_ref()))
            .map(|(name, raw)| (Box::<str>::from(name.as_ref()), Json::from_raw(raw)))
            .collect()
    }
}

/// The fields of an object in order, including repeated names.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name.0, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Visitor).map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_surrogate_pair_in_a_request_is_replaced() {
        let object = Node::parse_object(br#"{"text":"a\ud83d","pair":"\ud83d\ude00"}"#).expect("JSON");
        assert_eq!(object.string("text").expect("a text").as_deref(), Some("a\u{fffd}"));
        assert_eq!(object.string("pair").expect("a text").as_deref(), Some("\u{1f600}"));
    }

    #[test]
    fn every_error_names_its_field() {
        let body = br#"{"input":[{"role":"user"},{"role":7}],"n":3.0,"x":null}"#;
        let object = Node::parse_object(body).expect("an object");
        let mut input = object.array("input").expect("a list");

        let second = input.nth(1).expect("two of them");
        let role = second.object().expect("an object").string("role").expect_err("a number is no role");
        assert_eq!(role.field.as_deref(), Some("input[1].role"));
        assert_eq!(role.message, "must be a string, not a number");

        assert_eq!(object.integer("n").expect("whole"), Some(3));
        assert!(object.get("x").is_none() && object.has("x"));
        assert_eq!(object.required("y").expect_err("absent").kind, FaultKind::Missing);
    }

    #[test]
    fn elements_are_read_one_by_one() {
        let node = Node::parse(b"[ 1 ,[2,\"]\"],{\"a\":[3]}\n,\"x,y\" , null,-0.5e3,true]").expect("JSON");
        let items: Vec<&str> = node.array().expect("a list").map(|item| item.text()).collect();
        let mut left = node.array().expect("a list");
        for number in (0..7).rev() {
            assert_eq!((left.next().is_some(), left.remaining()), (true, number));
        }

        let texts = node.array().expect("a list").parse_each(|item| Ok(item.text())).expect("all are good");
        assert_eq!((texts.as_slice(), texts.capacity()), (items.as_slice(), 7));
        assert_eq!(items, ["1", "[2,\"]\"]", "{\"a\":[3]}", "\"x,y\"", "null", "-0.5e3", "true"]);
        assert!(Node::parse(b"[ ]").expect("JSON").array().expect("a list").next().is_none());
        assert!(Node::parse(b"{}").expect("JSON").array().is_err());

        let path = |node: Node<'_>| node.path();
        let deep = Node::with_path("x", node.raw()).array().expect("a list").nth(2).expect("an object");
        let deep = deep.object().expect("an object").array("a").expect("a list").next().map(path);
        assert_eq!(deep.as_deref(), Some("x[2].a[0]"));
    }

    #[test]
    fn nested_values_are_not_parsed_before_they_are_accessed() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let object = Node::parse_object(deep.as_bytes()).expect("an object");
        assert_eq!(object.required("a").expect("there").kind(), Kind::Array);
        let broken = "[".repeat(100_000);
        assert_eq!(Node::parse(broken.as_bytes()).expect_err("broken").kind, FaultKind::Malformed);
    }

    #[test]
    fn invalid_utf8_is_rejected() {
        assert_eq!(Node::parse(b"{\"a\":\"\xff\"}").expect_err("no UTF-8").kind, FaultKind::Malformed);
    }
}
