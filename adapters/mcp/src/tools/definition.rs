//! The definitions of tools, as `tools/list` shows them (docs/protocols/mcp.md#tools).

use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::result;
use crate::tools::attachments::MAX_ATTACHMENTS;
use crate::tools::declared::DeclaredArguments;

/// The texts and settings that a definition shows.
pub(super) struct ToolTexts<'a> {
    pub(super) name: &'a str,
    pub(super) title: Option<&'a str>,
    pub(super) description: &'a str,
    pub(super) arguments: Option<&'a DeclaredArguments>,
    pub(super) takes_attachments: bool,
    pub(super) is_read_only: bool,
}

/// The definition of an agent's tool.
pub(super) fn agent(tool: &ToolTexts<'_>, options: &Options) -> Value {
    let schema = match tool.arguments {
        Some(declared) => with_session(declared.schema(), options),
        None => plain_schema(tool.takes_attachments, options),
    };
    let mut definition = Map::new();
    definition.insert("name".to_owned(), json!(tool.name));
    if let Some(title) = tool.title {
        definition.insert("title".to_owned(), json!(title));
    }
    definition.insert("description".to_owned(), json!(tool.description));
    definition.insert("inputSchema".to_owned(), schema);
    let annotations = json!({ "readOnlyHint": tool.is_read_only, "openWorldHint": true });
    definition.insert("annotations".to_owned(), annotations);
    finished(definition, options)
}

/// The definition of the tool that answers what a run waits for.
pub(super) fn answer(name: &str, options: &Options) -> Value {
    let who_decides = if options.answer_tool_approves {
        "Ask the person before you answer for them."
    } else {
        "Ask the person first: only a person may approve a call or confirm a login, and not with this tool."
    };
    let description =
        format!("Answers the question that a run waits for, and returns what the agent then says. {who_decides}");
    let definition = json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "run": { "type": "string", "description": "The run that waits." },
                "item": {
                    "type": "string",
                    "description": "The item to answer. Leave it out if the run waits for one item only.",
                },
                "decision": {
                    "type": "string",
                    "enum": ["accept", "edit", "respond", "reject", "cancel"],
                    "description": "The decision on the item.",
                },
                "text": { "type": "string", "description": "The answer in words, or the reason for a rejection." },
                "value": { "description": "The answer as JSON, if the question has a schema." },
                "arguments": { "type": "object", "description": "Other arguments for the call, with the decision edit." },
            },
            "required": ["run"],
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true },
    });
    finished(into_map(definition), options)
}

/// The definition of the tool that waits for a run.
pub(super) fn wait(name: &str, options: &Options) -> Value {
    let definition = json!({
        "name": name,
        "description": "Waits for a run that is still working, and returns what the agent says.",
        "inputSchema": {
            "type": "object",
            "properties": { "run": { "type": "string", "description": "The run that is still working." } },
            "required": ["run"],
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true, "openWorldHint": true },
    });
    finished(into_map(definition), options)
}

/// The definition for clients of 2025-03-26, which has neither titles nor output schemas.
pub(super) fn without_structure(definition: &Value) -> Value {
    let mut definition = definition.clone();
    if let Value::Object(fields) = &mut definition {
        fields.remove("title");
        fields.remove("outputSchema");
    }
    definition
}

fn finished(mut definition: Map<String, Value>, options: &Options) -> Value {
    if options.structured {
        definition.insert("outputSchema".to_owned(), result::output_schema());
    }
    Value::Object(definition)
}

fn plain_schema(takes_attachments: bool, options: &Options) -> Value {
    let mut properties = Map::new();
    properties.insert("message".to_owned(), json!({ "type": "string", "description": "What to say to the agent." }));
    properties.insert("session".to_owned(), session(options));
    if takes_attachments {
        let text = json!({ "type": "string" });
        let items = json!({
            "type": "object",
            "properties": {
                "name": text, "mime_type": text, "url": text,
                "data": { "type": "string", "description": "base64" }, "text": text,
            },
        });
        let attachments = json!({ "type": "array", "maxItems": MAX_ATTACHMENTS, "items": items });
        properties.insert("attachments".to_owned(), attachments);
    }
    json!({ "type": "object", "properties": properties, "required": ["message"], "additionalProperties": false })
}

/// A declared schema, with the argument `session` besides its own.
fn with_session(declared: &Map<String, Value>, options: &Options) -> Value {
    let mut schema = declared.clone();
    schema.entry("type").or_insert_with(|| json!("object"));
    if let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) {
        properties.insert("session".to_owned(), session(options));
    }
    Value::Object(schema)
}

fn session(options: &Options) -> Value {
    let mut description = "The session of an earlier result, to go on with that conversation. \
        Leave it out to begin a new one."
        .to_owned();
    if options.session_note && !options.structured {
        description.push_str(" The last line of a result names its session: [session ID].");
    }
    json!({ "type": "string", "description": description })
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
