//! Headers that the gateway adds to requests to an upstream.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::diagnostics::Diagnostic;
use super::located::{Entries, WithSpan};
use super::mask;
use super::secret::{SecretTable, Sources};
use super::tree::RejectedEntries;
use super::upstream_settings::Header;
use interlingua_base::identity::{CALLER_HEADER, TOKEN_HEADER};

/// Headers that the gateway sets itself, depending on the request, or that belong to one connection (RFC 9110, section
/// 7.6.1).
const RESERVED: [&str; 15] = [
    CALLER_HEADER,
    TOKEN_HEADER,
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The reserved headers that belong to one connection (RFC 9110, section 7.6.1), and further ones that do.
const OF_A_CONNECTION: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of a client that the gateway reads or sets itself.
const OF_THE_GATEWAY: [&str; 5] = ["host", "traceparent", "tracestate", "user-agent", "origin"];

/// A header value in the file: a literal, or a reference to a secret.
pub(super) enum HeaderValue {
    Literal(String),
    Secret(SecretTable),
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderValueVisitor;
        impl<'de> Visitor<'de> for HeaderValueVisitor {
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
        deserializer.deserialize_any(HeaderValueVisitor)
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

/// Checks the names and reads the values. An error in one header does not stop the others from being checked.
pub(super) fn resolve(
    headers: &Entries<HeaderValue>,
    folder: &Path,
    env: &Sources<'_>,
    rejected: &RejectedEntries,
    found: &mut Vec<Diagnostic>,
) -> Vec<Header> {
    let mut resolved: Vec<Header> = Vec::new();
    for (name, located) in headers.iter() {
        let lower = name.value.to_ascii_lowercase();
        if !is_token(&lower) {
            let message = format!("{:?} is not a valid header name", name.value);
            let label = "use letters, digits and dashes";
            found.push(Diagnostic::error(message).at(&name.span).label(label));
            continue;
        }

        if RESERVED.contains(&lower.as_str()) {
            let message = format!("header {lower:?} is set by the gateway itself");
            found.push(Diagnostic::error(message).at(&name.span).label("leave it out"));
            continue;
        }

        if resolved.iter().any(|header| header.name == lower) {
            let message = format!("header {lower:?} is given twice");
            found.push(Diagnostic::error(message).at(&name.span).label("header names are case-insensitive"));
            continue;
        }
        let value = match &located.value {
            // An error in this table is reported already. Its key may have been a misspelled source.
            HeaderValue::Secret(_) if rejected.any_in(&located.span) => continue,
            HeaderValue::Literal(_) if mask::is_secret_name(&lower) => {
                Err(Diagnostic::error(format!("header {lower:?} holds a secret, which must not be in this file"))
                    .at(&located.span)
                    .label("write { env = \"NAME\" } or { file = \"path\" }")
                    .help("a scheme goes into prefix = \"Bearer \""))
            }
            HeaderValue::Literal(text) => Ok(SecretString::from(text.as_str())),
            HeaderValue::Secret(table) => table.read(&located.span, folder, env, found),
        };
        match value {
            Ok(value) if is_field_value(value.expose_secret()) => {
                resolved.push(Header { name: lower, value });
            }
            Ok(_) => found.push(
                Diagnostic::error(format!("header {lower:?} has a value that cannot be sent"))
                    .at(&located.span)
                    .label("must be one line of printable ASCII"),
            ),
            Err(error) => found.push(error),
        }
    }
    resolved
}

/// Checks the names of the forwarded client headers. `headers`: the headers that the gateway always adds.
pub(super) fn forward(names: &[WithSpan<String>], headers: &[Header], found: &mut Vec<Diagnostic>) -> Vec<String> {
    let mut resolved: Vec<String> = Vec::new();
    for name in names {
        let lower = name.value.to_ascii_lowercase();
        let known = lower.as_str();
        let error = |message: String, label: &str| Diagnostic::error(message).at(&name.span).label(label.to_owned());
        let cannot = |label: &str| error(format!("header {known:?} cannot be forwarded"), label);
        if !is_token(known) {
            found.push(error(format!("{:?} is not a valid header name", name.value), "use letters, digits and dashes"));
        } else if OF_A_CONNECTION.contains(&known) {
            found.push(cannot("it belongs to one connection"));
        } else if RESERVED.contains(&known) || OF_THE_GATEWAY.contains(&known) {
            found.push(cannot("the gateway sets it itself"));
        } else if resolved.iter().any(|other| other == known) {
            found.push(error(format!("header {known:?} is given twice"), "header names are case-insensitive"));
        } else if headers.iter().any(|header| header.name == known) {
            let message = format!("header {known:?} is forwarded and set");
            found.push(error(message, "the value in \"headers\" would win"));
        } else {
            if known == "cookie" || mask::is_secret_name(known) {
                let message = format!("{known:?} of callers is passed to the agent");
                let warning = Diagnostic::warning(message).at(&name.span);
                found.push(warning.label("their credentials for the gateway may be in it"));
            }
            resolved.push(lower);
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
