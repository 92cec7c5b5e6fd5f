//! Shared parts of adapters' options: their JSON Schema, derived from their types, the switch, and options that are one
//! of several words. Sizes and durations have their own modules.

use std::borrow::Cow;
use std::fmt;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// The settings of every JSON Schema of configuration: draft 7, which TOML editors support, without null, which TOML
/// does not have.
#[must_use]
pub fn schema_settings() -> SchemaSettings {
    SchemaSettings::draft07().with_transform(RecursiveTransform(fit_to_toml))
}

/// The options of an adapter that has none: every key is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}

/// The JSON Schema of an options type, without references, so that it can become part of another schema.
///
/// ```
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Options {
///     /// Maximum number of tasks.
///     max_tasks: u32,
/// }
///
/// let schema = interlingua_core::options::schema::<Options>();
/// assert_eq!(schema["properties"]["max_tasks"]["description"], "Maximum number of tasks.");
/// assert_eq!(schema["additionalProperties"], false);
/// ```
#[must_use]
pub fn schema<O: JsonSchema>() -> Value {
    let settings = schema_settings().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<O>();
    // Only the root of a schema names its draft.
    schema.remove("$schema");
    schema.to_value()
}

/// Removes what applies to the Rust types but not to TOML.
fn fit_to_toml(schema: &mut Schema) {
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            for (key, value) in only {
                // A description at the place of use is more specific.
                if schema.get(&key).is_none() {
                    schema.insert(key, value);
                }
            }
        }
    }

    // The names of Rust types mean nothing to a reader of the file.
    schema.remove("title");
}

/// Defines an option that is one of several words, which are its variants in snake case. The crate that uses it depends
/// on `serde` and `schemars`.
#[macro_export]
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, ::serde::Deserialize, ::schemars::JsonSchema, ::serde::Serialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),+ }
    };
}

/// On or off: `"on"`, `"off"`, `true`, `false`. Protocols document their switches as words, and TOML has booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch(pub bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchVisitor;
        impl Visitor<'_> for SwitchVisitor {
            type Value = Switch;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("\"on\" or \"off\"")
            }

            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Switch, E> {
                Ok(Switch(on))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Switch, E> {
                match word {
                    "on" => Ok(Switch(true)),
                    "off" => Ok(Switch(false)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(SwitchVisitor)
    }
}

impl Serialize for Switch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0 { "on" } else { "off" })
    }
}

impl JsonSchema for Switch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Switch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": ["on", "off", true, false] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_a_word_or_a_boolean() {
        let parse = |text: &str| serde_json::from_str::<Switch>(text).ok();
        for (text, expected) in [
            ("\"on\"", Some(Switch(true))),
            ("false", Some(Switch(false))),
            ("\"off\"", Some(Switch(false))),
            ("\"maybe\"", None),
            ("1", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn an_optional_field_has_no_null_in_its_schema() {
        #[derive(Default, serde::Deserialize, JsonSchema)]
        #[serde(default)]
        struct Fields {
            _limit: Option<u32>,
            _ttl: Option<crate::duration::Ttl>,
        }

        let schema = schema::<Fields>();
        assert_eq!(schema["properties"]["_limit"]["type"], "integer");
        assert!(schema["properties"]["_ttl"]["anyOf"].is_array());
        assert!(!schema.to_string().contains("null"), "{schema}");
    }
}
