//! The JSON Schema of the configuration file, for editors: `interlingua schema`.

use interlingua_core::options;
use serde_json::{Value, json};

use super::document::Document;
use super::protocols::Protocols;

/// The JSON Schema of the file for these protocols, as draft 7, which TOML editors support.
///
/// Constraints between several values, such as conflicting paths, are not part of it. Everything that the schema
/// rejects, [`load`](super::load) rejects too.
pub fn schema(protocols: &Protocols) -> Value {
    let mut schema = options::schema_settings().into_generator().into_root_schema_for::<Document>();
    let definitions = schema.get_mut("definitions").and_then(Value::as_object_mut);
    if let Some(definitions) = definitions {
        let clients =
            protocols.clients().iter().map(|protocol| (protocol.name.as_str(), protocol.schema.as_ref(), &[][..]));
        constrain(definitions.get_mut("RouteTable"), &["protocol", "path"], clients);
        let upstreams = protocols.upstreams().iter().map(|protocol| {
            let one_of: &[&str] = if protocol.built_in { &[] } else { &["url", "urls"] };
            (protocol.name.as_str(), protocol.schema.as_ref(), one_of)
        });
        constrain(definitions.get_mut("UpstreamTable"), &["protocol"], upstreams);
        if let Some(agent) = definitions.get_mut("AgentTable") {
            agent["required"] = json!(["upstream"]);
        }
    }

    schema.to_value()
}

/// Constrains a table to the known protocols: their names, the options of each, and keys of which it needs exactly one.
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
        .filter(|(_, options, one_of)| options.is_some() || !one_of.is_empty())
        .map(|(name, options, one_of)| {
            let mut then = json!({});
            if !one_of.is_empty() {
                then["oneOf"] = one_of.iter().map(|key| json!({ "required": [key] })).collect();
            }
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
