//! Any schema in, a legal form out; and any answer in, no approval out.

use proptest::prelude::*;

use super::super::schema::{FormPart, fit};
use super::*;

/// True if a value is a form that every revision after `revision` allows.
fn is_legal_form(form: &Value, revision: Revision) -> bool {
    let Some(properties) = form["properties"].as_object() else { return false };
    let is_text = |value: &Value| value.is_string();
    let texts = |value: &Value| value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_text));
    let titled = |value: &Value| {
        let is_option = |option: &Value| option["const"].is_string() && option["title"].is_string();
        value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_option))
    };
    let is_new = revision > Revision::June2025;
    let is_property = |property: &Value| {
        let fields = property.as_object().expect("an object");
        let has = |name: &str| fields.contains_key(name);
        let is_typed = |name: &str, test: &dyn Fn(&Value) -> bool| fields.get(name).is_none_or(test);
        let structure = ["$ref", "allOf", "anyOf", "not", "if", "const", "properties"];
        let common =
            is_typed("title", &is_text) && is_typed("description", &is_text) && structure.iter().all(|name| !has(name));
        let special = match fields["type"].as_str() {
            Some("string") => {
                let formats = ["email", "uri", "date", "date-time"];
                is_typed("default", &is_text)
                    && is_typed("enum", &texts)
                    && is_typed("enumNames", &texts)
                    && is_typed("oneOf", &|value| is_new && titled(value))
                    && is_typed("minLength", &Value::is_u64)
                    && is_typed("maxLength", &Value::is_u64)
                    && is_typed("format", &|format| formats.iter().any(|known| format == known))
            }
            Some("number" | "integer") => {
                is_typed("default", &Value::is_number) && is_typed("minimum", &Value::is_number) && !has("enum")
            }
            Some("boolean") => is_typed("default", &Value::is_boolean) && !has("enum") && !has("oneOf"),
            Some("array") => {
                let items = &fields["items"];
                is_new && (texts(&items["enum"]) || titled(&items["anyOf"])) && is_typed("minItems", &Value::is_u64)
            }
            _ => false,
        };
        common && special
    };
    let is_required = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    form["type"] == "object"
        && properties.values().all(is_property)
        && form
            .get("required")
            .is_none_or(|required| required.as_array().is_some_and(|all| all.iter().all(is_required)))
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "type",
        "title",
        "description",
        "default",
        "enum",
        "enumNames",
        "oneOf",
        "anyOf",
        "allOf",
        "not",
        "if",
        "const",
        "$ref",
        "$defs",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "minItems",
        "minLength",
        "maximum",
        "minimum",
        "format",
        "pattern",
        "x",
    ])
    .prop_map(str::to_owned)
}

fn leaf() -> impl Strategy<Value = Value> {
    let words = ["object", "string", "integer", "number", "boolean", "array", "null", "email", "time", "a", "b"];
    prop_oneof![
        3 => prop::sample::select(words.to_vec()).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => (-3_i64..9).prop_map(Value::from),
        1 => Just(json!(1.5)),
        1 => Just(Value::Null),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 48, 5, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            4 => prop::collection::btree_map(word(), inner.clone(), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            2 => prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|properties| {
                let properties: Map<String, Value> = properties.into_iter().collect();
                json!({"type": "object", "properties": properties})
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_schema_becomes_a_legal_form(schema in schema()) {
        for revision in [Revision::June2025, Revision::November2025, MODERN] {
            let form = only(&input(Some(schema.clone())).clone(), revision, FORM)["requestedSchema"].clone();
            prop_assert!(is_legal_form(&form, revision), "{schema} {form}");
        }
    }

    #[test]
    fn no_answer_approves_unless_it_says_so(content in schema(), action in "accept|decline|cancel|[a-z]{0,4}") {
        let item = approval(json!(["accept", "edit", "respond", "reject"]));
        let says_so = action == "accept" && content["decision"] == "accept";
        let result = json!({"action": action, "content": content});
        if let Reading::Answer(answer) = read(&item, MODERN, FORM, false, &result) {
            let decided = interlingua_core::answer::decide(&item, &answer.given, &offered(&item)).expect("checked");
            prop_assert!(decided.decision != Decision::Accept || says_so);
        }
    }
}

#[test]
fn schemas_without_a_form_are_answered_as_json() {
    for schema in [
        json!({}),
        json!(true),
        json!({"type": "object"}),
        json!({"type": "null"}),
        json!({"type": ["string", "null"]}),
        json!({"const": "x"}),
        json!({"enum": []}),
        json!({"enum": [1, 2]}),
        json!({"type": "integer", "enum": [1]}),
        json!({"type": "string", "oneOf": [{"const": 1}]}),
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}),
        json!({"type": "array", "items": {"type": "integer"}}),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}),
        json!({"type": "object", "properties": {"a": true}}),
        json!({"type": "object", "properties": {}, "required": ["a"]}),
        json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {}, "allOf": []}),
    ] {
        let fitted = fit(&Json::from_serialize(&schema), MODERN);
        assert!(matches!(fitted, FormPart::Other(_)), "{schema}: {fitted:?}");
    }
    let dropped =
        json!({"type": "string", "title": 7, "format": "time", "default": 5, "minLength": -1, "pattern": "x"});
    let kept = FormPart::Value(json!({"type": "string", "pattern": "x"}));
    assert_eq!(fit(&Json::from_serialize(&dropped), MODERN), kept);
}
