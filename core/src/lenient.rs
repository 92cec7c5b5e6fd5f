//! Reading JSON whose types cannot be relied on: a value of another type than expected is absent, not an error.
//!
//! Texts are borrowed from the frame unless they hold escapes. Everything is read in one pass.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
// For `lenient_fields`.
#[doc(hidden)]
pub use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Implements the visits of scalars that mean nothing here.
macro_rules! absent {
    ($value:expr; $($visit:ident: $type:ty),+) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok($value)
        })+

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok($value)
        }

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }
    };
}

fn skip_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_object<'de, A: MapAccess<'de>>(mut object: A) -> Result<(), A::Error> {
    while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The name of a field, borrowed where it has no escapes.
pub struct Name<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyName;
        impl<'de> Visitor<'de> for AnyName {
            type Value = Name<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }
            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(AnyName)
    }
}

/// A text, or a number by its digits. Empty texts are absent: servers send them where others send nothing.
#[derive(Debug, Default)]
pub struct Text<'a>(pub Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;
        impl<'de> Visitor<'de> for AnyText {
            type Value = Text<'de>;
            absent! { Text(None); visit_bool: bool }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text((!text.is_empty()).then_some(Cow::Borrowed(text))))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text((!text.is_empty()).then(|| Cow::Owned(text.to_owned()))))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(number.to_string()))))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(number.to_string()))))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(number.to_string()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                skip_list(list).map(|()| Text(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
                skip_object(object).map(|()| Text(None))
            }
        }
        deserializer.deserialize_any(AnyText)
    }
}

/// A whole number, also if it is written as a float or in quotes.
#[derive(Debug, Default)]
pub struct Number(pub Option<i64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;
        impl<'de> Visitor<'de> for AnyNumber {
            type Value = Number;
            absent! { Number(None); visit_bool: bool }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Number(i64::try_from(number).ok()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Number(Some(number)))
            }
            fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
                #[allow(clippy::cast_possible_truncation, reason = "a float saturates, and an absurd index is one")]
                Ok(Number(Some(number as i64)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Number(text.trim().parse().ok()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                skip_list(list).map(|()| Number(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
                skip_object(object).map(|()| Number(None))
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}

/// JSON that stays as it is. `null` is absent.
#[derive(Debug, Default)]
pub struct Raw<'a>(pub Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self((raw.get() != "null").then_some(raw)))
    }
}

/// JSON text: the content of a string, or the text of any other value. Empty for `null`.
#[derive(Debug, Default)]
pub struct JsonText<'a>(pub Cow<'a, str>);

impl<'de> Deserialize<'de> for JsonText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyJson;
        impl<'de> Visitor<'de> for AnyJson {
            type Value = JsonText<'de>;
            absent! { JsonText::default(); visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64 }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonText(Cow::Owned(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut text = String::from("[");
                while let Some(value) = list.next_element::<&RawValue>()? {
                    separate(&mut text);
                    text.push_str(value.get());
                }
                text.push(']');
                Ok(JsonText(Cow::Owned(text)))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
                let mut text = String::from("{");
                while let Some((Name(name), value)) = object.next_entry::<Name<'de>, &RawValue>()? {
                    separate(&mut text);
                    text.push_str(&serde_json::to_string(&name).map_err(A::Error::custom)?);
                    text.push(':');
                    text.push_str(value.get());
                }
                text.push('}');
                Ok(JsonText(Cow::Owned(text)))
            }
        }

        fn separate(text: &mut String) {
            if text.len() > 1 {
                text.push(',');
            }
        }
        deserializer.deserialize_any(AnyJson)
    }
}

/// A type that is read field by field.
pub trait Fields<'de>: Default {
    /// Reads the value of one field. Called once for each, with the value to be taken from `object`.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, object: &mut A) -> Result<(), A::Error>;

    /// The value for a bare string instead of the object.
    fn from_text(text: Cow<'de, str>) -> Option<Self> {
        let _ = text;
        None
    }
}

/// Implements [`Fields`]: the name of a field on the wire, the field of the type, and how its value is read. Fields
/// that are not listed are skipped.
///
/// A value is read as the content of `Text`, `Number`, `Raw`, `JsonText` or `Object`, or by default as the type of the
/// field. A block can read the value in any other way: it takes the value from the second name, and writes to the
/// first. Functions of the trait may follow.
///
/// ```
/// use std::borrow::Cow;
/// use interlingua_core::lenient::{Number, Object, Text};
///
/// #[derive(Default)]
/// struct Piece<'a> {
///     index: Option<i64>,
///     text: Option<Cow<'a, str>>,
///     is_last: bool,
/// }
///
/// interlingua_core::lenient_fields! { Piece { piece, object =>
///     "index" => index: Number,
///     "text" => text: Text,
///     "end" => { piece.is_last = object.next_value::<Text<'_>>()?.0.is_some() },
/// } }
///
/// let piece = serde_json::from_str::<Object<Piece<'_>>>(r#"{"index":"1","text":"hi","end":"stop","x":[]}"#);
/// let piece = piece.unwrap().0.unwrap();
/// assert_eq!((piece.index, piece.text.as_deref(), piece.is_last), (Some(1), Some("hi"), true));
/// ```
#[macro_export]
macro_rules! lenient_fields {
    (
        $type:ident { $this:ident, $object:ident =>
            $($name:literal $(| $other:literal)* => $field:tt $(: $read:ident)?),+ $(,)?
        }
        $($function:item)*
    ) => {
        impl<'de> $crate::lenient::Fields<'de> for $type<'de> {
            fn field<A: $crate::lenient::MapAccess<'de>>(&mut self, name: &str, $object: &mut A) -> Result<(), A::Error> {
                let $this = self;
                match name {
                    $($name $(| $other)* => $crate::lenient_fields!(@read $this, $object, $field $(: $read)?),)+
                    _ => drop($object.next_value::<$crate::lenient::IgnoredAny>()?),
                }
                Ok(())
            }
            $($function)*
        }
    };
    (@read $this:ident, $object:ident, { $($does:tt)* }) => {{ $($does)* }};
    (@read $this:ident, $object:ident, $field:ident) => { $this.$field = $object.next_value()? };
    (@read $this:ident, $object:ident, $field:ident: $read:ident) => {{
        let $crate::lenient::$read(value) = $object.next_value()?;
        $this.$field = value;
    }};
}

/// Reads the fields of an object into an existing value: large types are not moved.
fn read_fields<'de, T: Fields<'de>, A: MapAccess<'de>>(value: &mut T, mut object: A) -> Result<(), A::Error> {
    while let Some(Name(name)) = object.next_key::<Name<'de>>()? {
        value.field(&name, &mut object)?;
    }
    Ok(())
}

/// An object. Absent if the JSON has another type.
#[derive(Debug)]
pub struct Object<T>(pub Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyObject<T>(PhantomData<T>);
        impl<'de, T: Fields<'de>> Visitor<'de> for AnyObject<T> {
            type Value = Object<T>;
            absent! { Object(None); visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64 }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Object(T::from_text(Cow::Borrowed(text))))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Object(T::from_text(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                skip_list(list).map(|()| Object(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
                let mut value = T::default();
                read_fields(&mut value, object)?;
                Ok(Object(Some(value)))
            }
        }
        deserializer.deserialize_any(AnyObject(PhantomData))
    }
}

/// A list of objects; entries of other types are left out. A single object stands for a list of one.
///
/// The first entry needs no allocation: nearly every list in a chunk has one.
#[derive(Debug)]
pub struct List<T> {
    /// The first entry.
    pub first: Option<T>,
    /// The entries after it.
    pub rest: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new() }
    }
}

impl<T> List<T> {
    fn push(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.rest.push(entry);
        }
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

impl<'de, T: Fields<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut list = Self::default();
        Entries(&mut list).deserialize(deserializer)?;
        Ok(list)
    }
}

/// Reads entries into a list. A bare string is an entry if its type says so.
struct Entries<'a, T>(&'a mut List<T>);

impl<'de, T: Fields<'de>> DeserializeSeed<'de> for Entries<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Fields<'de>> Visitor<'de> for Entries<'_, T> {
    type Value = ();
    absent! { (); visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64 }
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        T::from_text(Cow::Borrowed(text)).into_iter().for_each(|entry| self.0.push(entry));
        Ok(())
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        T::from_text(Cow::Owned(text.to_owned())).into_iter().for_each(|entry| self.0.push(entry));
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(Object(entry)) = list.next_element::<Object<T>>()? {
            entry.into_iter().for_each(|entry| self.0.push(entry));
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        let mut entry = T::default();
        read_fields(&mut entry, object)?;
        self.0.push(entry);
        Ok(())
    }
}
