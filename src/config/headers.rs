//! Headers the gateway adds when it asks an upstream.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::diagnostics::Diagnostic;
use super::document::Entries;
use super::mask;
use super::secret::{Env, SecretTable};
use super::settings::Header;
use super::tree::Cuts;

/// Headers that belong to the gateway itself: they follow from what it sends.
const OURS: [&str; 10] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// A header's value in the file: text for everybody to read, or a secret by reference.
pub(super) enum HeaderValue {
    Literal(String),
    Secret(SecretTable),
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = HeaderValue;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string, { env = \"NAME\" } or { file = \"path\" }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HeaderValue, E> {
                Ok(HeaderValue::Literal(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderValue, A::Error> {
                SecretTable::deserialize(MapAccessDeserializer::new(map)).map(HeaderValue::Secret)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

impl JsonSchema for HeaderValue {
    fn schema_name() -> Cow<'static, str> {
        "HeaderValue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let secret = generator.subschema_for::<SecretTable>();
        json_schema!({
            "description": "The value of a header. Secrets only by reference.",
            "anyOf": [{ "type": "string" }, secret],
        })
    }
}

/// Checks names and reads values; what is wrong with one header says nothing about the next.
pub(super) fn resolve(
    headers: &Entries<HeaderValue>,
    folder: &Path,
    surroundings: &Env<'_>,
    cuts: &Cuts,
    found: &mut Vec<Diagnostic>,
) -> Vec<Header> {
    let mut resolved: Vec<Header> = Vec::new();
    for (name, written) in headers.iter() {
        let lower = name.value.to_ascii_lowercase();
        if !is_token(&lower) {
            let message = format!("{:?} is not a name of a header", name.value);
            let label = "letters, digits and dashes make a name";
            found.push(Diagnostic::error(message).at(&name.place).label(label));
            continue;
        }
        if OURS.contains(&lower.as_str()) {
            let message = format!("header {lower:?} is set by the gateway itself");
            found.push(Diagnostic::error(message).at(&name.place).label("leave it out"));
            continue;
        }
        if resolved.iter().any(|header| header.name == lower) {
            let message = format!("header {lower:?} is given twice");
            found.push(
                Diagnostic::error(message)
                    .at(&name.place)
                    .label("names of headers do not tell capital from small letters"),
            );
            continue;
        }
        let value = match &written.value {
            // What is wrong with it has been told; it may have been meant as its source.
            HeaderValue::Secret(_) if cuts.are_in(&written.place) => continue,
            HeaderValue::Literal(_) if mask::is_secret_name(&lower) => {
                Err(Diagnostic::error(format!("header {lower:?} holds a secret, which must not stand in this file"))
                    .at(&written.place)
                    .label("write { env = \"NAME\" } or { file = \"path\" }")
                    .help("a word before the secret goes into prefix = \"Bearer \""))
            }
            HeaderValue::Literal(text) => Ok(SecretString::from(text.as_str())),
            HeaderValue::Secret(table) => table.read(&written.place, folder, surroundings),
        };
        match value {
            Ok(value) if is_field_value(value.expose_secret()) => {
                resolved.push(Header { name: lower, value });
            }
            Ok(_) => found.push(
                Diagnostic::error(format!("header {lower:?} has a value that cannot be sent"))
                    .at(&written.place)
                    .label("one line of printable ASCII is possible"),
            ),
            Err(mistake) => found.push(mistake),
        }
    }
    resolved
}

/// RFC 9110, section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// RFC 9110, section 5.5, without the obsolete bytes above ASCII.
fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) && value.trim().len() == value.len()
}
