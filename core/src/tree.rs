//! Reading requests: JSON looked at level by level, so that every complaint names the path of its field.
//!
//! A [`Node`] is a value and its place; nothing is parsed before it is asked for, strings borrow from the body, and what
//! nobody asks for is kept as text. Depth costs nothing: a level is read only when its parent was asked for. Lists cost
//! nothing: their elements are read one by one. Paths cost nothing before one is written into a complaint.
//!
//! Before anything is read, [`check`] bounds how many values and levels there are.
//!
//! Not here: the upstream's frames, which are read in one pass ([`crate::heard`]).

mod check;
mod place;

use std::borrow::Cow;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fault::{Fault, FaultKind};
use crate::json::{Extra, Json};
use place::{Place, Step};

pub use check::{Bounds, Exceeded, check, check_upstream, exceeded};

/// What a value is, told by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

impl Kind {
    const fn named(self) -> &'static str {
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

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node<'a> {
    raw: &'a RawValue,
    place: Place<'a>,
}

impl<'a> Node<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`] if it is no UTF-8 or no JSON.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(body)
            .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not UTF-8: {error}")))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let raw = serde_json::from_str::<&RawValue>(text)
            .map_err(|error| Fault::new(FaultKind::Malformed, format!("the body is not JSON: {error}")))?;
        Ok(Self { raw, place: Place::default() })
    }

    /// Reads a body that has to be an object.
    ///
    /// # Errors
    /// [`FaultKind::Malformed`] if it is no UTF-8, no JSON or no object.
    pub fn parse_object(body: &'a [u8]) -> Result<Object<'a>, Fault> {
        let node = Self::parse(body)?;
        if node.kind() != Kind::Object {
            let message = format!("the body must be a JSON object, not {}", node.kind().named());
            return Err(Fault::new(FaultKind::Malformed, message));
        }
        node.object()
    }

    /// A value that was found elsewhere, under a path of its own.
    #[must_use]
    pub fn with_path(path: impl Into<String>, raw: &'a RawValue) -> Self {
        Self { raw, place: Place::at(path.into()) }
    }

    /// The path, such as `input[2].content[0].text`. Empty at the root.
    #[must_use]
    pub fn path(&self) -> String {
        self.place.path()
    }

    /// The value's text.
    #[must_use]
    pub fn text(&self) -> &'a str {
        self.raw.get()
    }

    /// The value, kept.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::from_raw(self.raw)
    }

    /// The raw value.
    #[must_use]
    pub const fn raw(&self) -> &'a RawValue {
        self.raw
    }

    /// What it is.
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

    /// True if lists and objects in it are nested in more than so many levels: `[[]]` has two.
    #[must_use]
    pub fn is_deeper_than(&self, levels: usize) -> bool {
        exceeded(self.text().as_bytes(), Bounds { depth: levels, values: usize::MAX }).is_some()
    }

    /// A complaint about this value's type.
    #[must_use]
    pub fn wrong(&self, expected: &str) -> Fault {
        Fault::new(FaultKind::WrongType, format!("must be {expected}, not {}", self.kind().named()))
            .with_field(self.path())
    }

    /// A complaint about this value.
    #[must_use]
    pub fn invalid(&self, message: impl Into<String>) -> Fault {
        Fault::invalid(self.path(), message)
    }

    fn read<T: Deserialize<'a>>(&self, expected: &str) -> Result<T, Fault> {
        serde_json::from_str(self.raw.get()).map_err(|_| self.wrong(expected))
    }

    /// A string.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`] for anything else. So for all the readers below.
    pub fn string(&self) -> Result<Cow<'a, str>, Fault> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        if self.kind() != Kind::String {
            return Err(self.wrong("a string"));
        }
        self.read::<Text<'a>>("a string of valid Unicode").map(|text| text.0)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn boolean(&self) -> Result<bool, Fault> {
        self.read("a boolean")
    }

    /// A whole number. `3.0` counts as one, as clients in dynamic languages write it so.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn integer(&self) -> Result<i64, Fault> {
        if let Ok(number) = serde_json::from_str::<i64>(self.raw.get()) {
            return Ok(number);
        }
        let number: f64 = self.read("an integer")?;
        #[expect(clippy::cast_possible_truncation, reason = "checked: it is whole and far inside the range")]
        if number.fract() == 0.0 && number.abs() < 9e15 { Ok(number as i64) } else { Err(self.wrong("an integer")) }
    }

    /// Any number.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn number(&self) -> Result<f64, Fault> {
        self.read("a number")
    }

    /// A list, whose elements are read one by one.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn array(&self) -> Result<Items<'a>, Fault> {
        let inner = self.text().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let rest = inner.ok_or_else(|| self.wrong("a list"))?;
        Ok(Items { rest, index: 0, list: Some(Rc::new(self.place.clone())) })
    }

    /// An object.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn object(&self) -> Result<Object<'a>, Fault> {
        if self.kind() != Kind::Object {
            return Err(self.wrong("an object"));
        }
        let fields = self.read::<Fields<'a>>("an object")?.0;
        Ok(Object { fields, place: Rc::new(self.place.clone()) })
    }

    /// An object kept as text.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn json_object(&self) -> Result<Json, Fault> {
        if self.kind() == Kind::Object { Ok(self.to_json()) } else { Err(self.wrong("an object")) }
    }
}

/// The elements of a list. The list was read as JSON before, so none of them can be broken.
#[derive(Clone, Debug, Default)]
pub struct Items<'a> {
    rest: &'a str,
    index: usize,
    list: Option<Rc<Place<'a>>>,
}

impl<'a> Items<'a> {
    /// What each of them is read as. The list is made as long as it has to be once, and not before its first element was
    /// found to be good.
    ///
    /// # Errors
    /// Those of `read`: the first one.
    pub fn read_each<T>(mut self, mut read: impl FnMut(&Node<'a>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let Some(first) = self.next() else { return Ok(Vec::new()) };
        let first = read(&first)?;
        let mut all = Vec::with_capacity(1 + self.left());
        all.push(first);
        for node in self {
            all.push(read(&node)?);
        }
        Ok(all)
    }

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> usize {
        check::elements(self.rest.as_bytes())
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let rest = self.rest.trim_start_matches([' ', '\n', '\t', '\r', ',']);
        let raw = <&'a RawValue>::deserialize(&mut serde_json::Deserializer::from_str(rest)).ok()?;
        self.rest = &rest[raw.get().len()..];
        let place = Place { parent: self.list.clone(), step: Step::Index(self.index) };
        self.index += 1;
        Some(Node { raw, place })
    }
}

/// An object's fields and its place.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
    place: Rc<Place<'a>>,
}

impl<'a> Object<'a> {
    /// The path. Empty at the root.
    #[must_use]
    pub fn path(&self) -> String {
        self.place.path()
    }

    /// The path a field of this name has.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        let mut path = self.path();
        place::add_name(&mut path, name);
        path
    }

    fn field(&self, name: &Cow<'a, str>, raw: &'a RawValue) -> Node<'a> {
        Node { raw, place: Place { parent: Some(Rc::clone(&self.place)), step: Step::Name(name.clone()) } }
    }

    /// A field, if it is there and not `null`. The last one where a name came twice.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Node<'a>> {
        let (name, raw) = self.fields.iter().rev().find(|(known, _)| known == name)?;
        (raw.get() != "null").then(|| self.field(name, raw))
    }

    /// The first of several spellings that is there and not `null`.
    #[must_use]
    pub fn any(&self, names: &[&str]) -> Option<Node<'a>> {
        names.iter().find_map(|name| self.get(name))
    }

    /// True if the field is there, `null` or not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == name)
    }

    /// A field that has to be there.
    ///
    /// # Errors
    /// [`FaultKind::Missing`]
    pub fn required(&self, name: &str) -> Result<Node<'a>, Fault> {
        self.get(name).ok_or_else(|| {
            Fault::new(FaultKind::Missing, format!("missing required field '{name}'")).with_field(self.path_of(name))
        })
    }

    /// An optional string.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]; so for all the readers below.
    pub fn string(&self, name: &str) -> Result<Option<Cow<'a, str>>, Fault> {
        self.get(name).map(|node| node.string()).transpose()
    }

    /// An optional boolean.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        self.get(name).map(|node| node.boolean()).transpose()
    }

    /// An optional whole number.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Fault> {
        self.get(name).map(|node| node.integer()).transpose()
    }

    /// An optional number.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn number(&self, name: &str) -> Result<Option<f64>, Fault> {
        self.get(name).map(|node| node.number()).transpose()
    }

    /// A list, empty where there is none.
    ///
    /// # Errors
    /// [`FaultKind::WrongType`]
    pub fn array(&self, name: &str) -> Result<Items<'a>, Fault> {
        self.get(name).map_or_else(|| Ok(Items::default()), |node| node.array())
    }

    /// All fields in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Node<'a>)> {
        self.fields.iter().map(|(name, raw)| (name.as_ref(), self.field(name, raw)))
    }

    /// The fields that are not among the named ones, kept. One pass, one lookup a field.
    #[must_use]
    pub fn rest(&self, named: &[&str]) -> Extra {
        self.fields
            .iter()
            .filter(|(name, _)| !named.contains(&name.as_ref()))
            .map(|(name, raw)| (Box::<str>::from(name.as_ref()), Json::from_raw(raw)))
            .collect()
    }
}

/// An object's fields in order, repeated ones included.
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
    fn every_complaint_names_its_field() {
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
            assert_eq!((left.next().is_some(), left.left()), (true, number));
        }
        let texts = node.array().expect("a list").read_each(|item| Ok(item.text())).expect("all are good");
        assert_eq!((texts.as_slice(), texts.capacity()), (items.as_slice(), 7));
        assert_eq!(items, ["1", "[2,\"]\"]", "{\"a\":[3]}", "\"x,y\"", "null", "-0.5e3", "true"]);
        assert!(Node::parse(b"[ ]").expect("JSON").array().expect("a list").next().is_none());
        assert!(Node::parse(b"{}").expect("JSON").array().is_err());
        let place = |node: Node<'_>| node.path();
        let deep = Node::with_path("x", node.raw()).array().expect("a list").nth(2).expect("an object");
        let deep = deep.object().expect("an object").array("a").expect("a list").next().map(place);
        assert_eq!(deep.as_deref(), Some("x[2].a[0]"));
    }

    #[test]
    fn depth_costs_nothing_before_it_is_asked_for() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let object = Node::parse_object(deep.as_bytes()).expect("an object");
        assert_eq!(object.required("a").expect("there").kind(), Kind::Array);
        let broken = "[".repeat(100_000);
        assert_eq!(Node::parse(broken.as_bytes()).expect_err("broken").kind, FaultKind::Malformed);
    }

    #[test]
    fn lone_surrogates_and_bad_bytes_are_refused_not_replaced() {
        let node = Node::parse(br#"{"a":"\ud800"}"#).expect("its shape is JSON");
        assert!(node.object().expect("an object").string("a").is_err());
        assert_eq!(Node::parse(b"{\"a\":\"\xff\"}").expect_err("no UTF-8").kind, FaultKind::Malformed);
    }
}
