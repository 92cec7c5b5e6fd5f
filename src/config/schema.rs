//! The JSON Schema of the configuration file, for editors: `interlingua schema`.

use schemars::Schema;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use serde_json::{Value, json};

use super::document::Document;
use super::protocols::Protocols;

/// The JSON Schema of the file for these protocols, as draft 7, which TOML editors support.
///
/// Constraints between several values, such as conflicting paths, are not part of it. Everything that the schema
/// rejects, [`load`](super::load) rejects too.
pub fn schema(protocols: &Protocols) -> Value {
    let mut schema = SchemaSettings::draft07()
        .with_transform(RecursiveTransform(remove_null))
        .into_generator()
        .into_root_schema_for::<Document>();
    let definitions = schema.get_mut("definitions").and_then(Value::as_object_mut);
    if let Some(definitions) = definitions {
        let clients =
            protocols.clients().iter().map(|protocol| (protocol.name.as_str(), protocol.schema.as_ref(), &[][..]));
        constrain(definitions.get_mut("RouteTable"), &["protocol", "path"], clients);
        let upstreams = protocols.upstreams().iter().map(|protocol| {
            let required: &[&str] = if protocol.built_in { &[] } else { &["url"] };
            (protocol.name.as_str(), protocol.schema.as_ref(), required)
        });
        constrain(definitions.get_mut("UpstreamTable"), &["protocol"], upstreams);
        if let Some(agent) = definitions.get_mut("AgentTable") {
            agent["required"] = json!(["upstream"]);
        }
    }

    schema.to_value()
}

/// Constrains a table to the known protocols: their names, and the options of each.
fn constrain<'a>(
    table: Option<&mut Value>,
    required: &[&str],
    protocols: impl Iterator<Item = (&'a str, Option<&'a Value>, &'a [&'a str])> + Clone,
) {
    let Some(table) = table else { return };
    let names: Vec<&str> = protocols.clone().map(|(name, ..)| name).collect();
    table["required"] = json!(required);
    table["properties"]["protocol"]["type"] = json!("string");
    table["properties"]["protocol"]["enum"] = json!(names);
    let rules: Vec<Value> = protocols
        .filter(|(_, options, required)| options.is_some() || !required.is_empty())
        .map(|(name, options, required)| {
            let mut then = json!({ "required": required });
            if let Some(options) = options {
                then["properties"] = json!({ "options": options });
            }
            json!({ "if": { "properties": { "protocol": { "const": name } } }, "then": then })
        })
        .collect();

    if !rules.is_empty() {
        table["allOf"] = json!(rules);
    }
}

/// Removes what applies to the Rust types but not to TOML, which has no null.
fn remove_null(schema: &mut Schema) {
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
