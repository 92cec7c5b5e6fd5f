//! A check of the options of an adapter against their schema.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Checks that every option has a default, that each default of the schema is accepted, and that an unknown name is
/// refused with all the names that are known.
///
/// # Panics
/// With the option that is wrong.
pub fn check_options<O: DeserializeOwned + JsonSchema>() {
    let parse = |options: serde_json::Value| serde_json::from_value::<O>(options).map(|_| ());
    parse(json!({})).expect("every option has a default");

    let schema = interlingua_core::options::schema::<O>();
    let properties = schema["properties"].as_object().expect("an object");
    for (name, property) in properties {
        let Some(value) = property.get("default") else { continue };
        parse(json!({ name: value })).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    let unknown = parse(json!({ "no_such_option": true })).expect_err("a typo").to_string();
    assert!(unknown.contains("unknown field `no_such_option`"), "{unknown}");
    for name in properties.keys() {
        assert!(unknown.contains(&format!("`{name}`")), "{name} is in the schema only: {unknown}");
    }
    assert_eq!(unknown.matches('`').count() / 2 - 1, properties.len(), "{unknown}");
}
