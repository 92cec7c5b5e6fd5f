//! Events as protobuf messages: the wire format, and a table of the fields that events have
//! (docs/protocols/ag-ui.md#protobuf).
//!
//! Field numbers are those of the published package `@ag-ui/proto` 1.0. Events are written from their JSON, so that
//! there is one place that makes them; only fragments of texts have a shorter way. Not here: reading protobuf, which
//! clients do not send.

use bytes::{BufMut, BytesMut};
use serde_json::{Map, Value};

/// A field of a message: its name in JSON, its number, and its type.
type Field = (&'static str, u32, Kind);

/// The type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Flag,
    /// Any JSON.
    Any,
    /// A JSON object.
    Fields,
    Texts,
    Message(&'static [Field]),
    Messages(&'static [Field]),
    /// Operations of a JSON patch.
    Patch,
    /// A text under this field's number; a list of parts, or an object, under these.
    Content {
        parts: u32,
        fields: u32,
    },
}

use Kind::{Any, Content, Fields, Flag, Integer, Message, Messages, Patch, Text, Texts};

/// An event: its type, its number in the envelope, its number as a type, and its fields.
type EventRow = (&'static str, u32, u32, &'static [Field]);

const MESSAGE: u32 = 2;
const SUBAGENT: &str = "subagentRunId";

const USAGE: &[Field] = &[
    ("provider", 1, Text),
    ("model", 2, Text),
    ("inputTokens", 3, Integer),
    ("outputTokens", 4, Integer),
    ("totalTokens", 5, Integer),
    ("reasoningTokens", 6, Integer),
    ("cachedInputTokens", 7, Integer),
    ("cacheWriteInputTokens", 8, Integer),
];
const INTERRUPT: &[Field] = &[
    ("id", 1, Text),
    ("reason", 2, Text),
    ("message", 3, Text),
    ("toolCallId", 4, Text),
    ("responseSchema", 5, Any),
    ("expiresAt", 6, Text),
    ("metadata", 7, Any),
    (SUBAGENT, 8, Text),
];
const FUNCTION: &[Field] = &[("name", 1, Text), ("arguments", 2, Text)];
const TOOL_CALL: &[Field] = &[
    ("id", 1, Text),
    ("type", 2, Text),
    ("function", 3, Message(FUNCTION)),
    ("metadata", 4, Fields),
    ("encryptedValue", 5, Text),
];
const MESSAGE_FIELDS: &[Field] = &[
    ("id", 1, Text),
    ("role", 2, Text),
    ("content", 3, Content { parts: 8, fields: 13 }),
    ("name", 4, Text),
    ("toolCalls", 5, Messages(TOOL_CALL)),
    ("toolCallId", 6, Text),
    ("error", 7, Text),
    ("metadata", 9, Fields),
    (SUBAGENT, 10, Text),
    ("encryptedValue", 11, Text),
    ("activityType", 12, Text),
];

const EVENTS: &[EventRow] = &[
    ("TEXT_MESSAGE_START", 1, 0, &[("messageId", 2, Text), ("role", 3, Text), ("name", 4, Text), (SUBAGENT, 5, Text)]),
    ("TEXT_MESSAGE_CONTENT", 2, 1, &[("messageId", 2, Text), ("delta", 3, Text), (SUBAGENT, 4, Text)]),
    ("TEXT_MESSAGE_END", 3, 2, &[("messageId", 2, Text), (SUBAGENT, 3, Text)]),
    (
        "TOOL_CALL_START",
        4,
        3,
        &[("toolCallId", 2, Text), ("toolCallName", 3, Text), ("parentMessageId", 4, Text), (SUBAGENT, 5, Text)],
    ),
    ("TOOL_CALL_ARGS", 5, 4, &[("toolCallId", 2, Text), ("delta", 3, Text), (SUBAGENT, 4, Text)]),
    ("TOOL_CALL_END", 6, 5, &[("toolCallId", 2, Text), (SUBAGENT, 3, Text)]),
    ("STATE_SNAPSHOT", 7, 6, &[("snapshot", 2, Any), (SUBAGENT, 3, Text)]),
    ("STATE_DELTA", 8, 7, &[("delta", 2, Patch), (SUBAGENT, 3, Text)]),
    ("MESSAGES_SNAPSHOT", 9, 8, &[("messages", 2, Messages(MESSAGE_FIELDS))]),
    ("RAW", 10, 9, &[("event", 2, Any), ("source", 3, Text), (SUBAGENT, 4, Text)]),
    ("CUSTOM", 11, 10, &[("name", 2, Text), ("value", 3, Any), (SUBAGENT, 4, Text)]),
    (
        "RUN_STARTED",
        12,
        11,
        &[("threadId", 2, Text), ("runId", 3, Text), ("parentRunId", 4, Text), ("protocolVersion", 6, Text)],
    ),
    (
        "RUN_FINISHED",
        13,
        12,
        &[
            ("threadId", 2, Text),
            ("runId", 3, Text),
            ("result", 4, Any),
            ("outcome", 5, Text),
            ("interrupts", 6, Messages(INTERRUPT)),
            ("usage", 7, Messages(USAGE)),
            ("pendingToolCallIds", 8, Texts),
        ],
    ),
    ("RUN_ERROR", 14, 13, &[("code", 2, Text), ("message", 3, Text), ("usage", 4, Messages(USAGE))]),
    ("STEP_STARTED", 15, 14, &[("stepName", 2, Text), (SUBAGENT, 3, Text)]),
    ("STEP_FINISHED", 16, 15, &[("stepName", 2, Text), (SUBAGENT, 3, Text)]),
    (
        "SUBAGENT_STARTED",
        19,
        16,
        &[
            (SUBAGENT, 2, Text),
            ("name", 3, Text),
            ("description", 4, Text),
            ("parentSubagentRunId", 5, Text),
            ("parentToolCallId", 6, Text),
            ("parentMessageId", 7, Text),
        ],
    ),
    (
        "SUBAGENT_FINISHED",
        20,
        17,
        &[(SUBAGENT, 2, Text), ("result", 3, Any), ("outcome", 4, Text), ("interruptIds", 5, Texts)],
    ),
    ("SUBAGENT_ERROR", 21, 18, &[(SUBAGENT, 2, Text), ("message", 3, Text), ("code", 4, Text)]),
    (
        "TOOL_CALL_RESULT",
        22,
        21,
        &[
            (SUBAGENT, 2, Text),
            ("messageId", 3, Text),
            ("toolCallId", 4, Text),
            ("content", 5, Content { parts: 7, fields: 7 }),
            ("role", 6, Text),
        ],
    ),
    (
        "ACTIVITY_SNAPSHOT",
        23,
        22,
        &[
            (SUBAGENT, 2, Text),
            ("messageId", 3, Text),
            ("activityType", 4, Text),
            ("content", 5, Fields),
            ("replace", 6, Flag),
        ],
    ),
    (
        "ACTIVITY_DELTA",
        24,
        23,
        &[(SUBAGENT, 2, Text), ("messageId", 3, Text), ("activityType", 4, Text), ("patch", 5, Patch)],
    ),
    ("REASONING_START", 25, 24, &[(SUBAGENT, 2, Text), ("messageId", 3, Text)]),
    ("REASONING_MESSAGE_START", 26, 25, &[(SUBAGENT, 2, Text), ("messageId", 3, Text), ("role", 4, Text)]),
    ("REASONING_MESSAGE_CONTENT", 27, 26, &[(SUBAGENT, 2, Text), ("messageId", 3, Text), ("delta", 4, Text)]),
    ("REASONING_MESSAGE_END", 28, 27, &[(SUBAGENT, 2, Text), ("messageId", 3, Text)]),
    ("REASONING_END", 30, 29, &[(SUBAGENT, 2, Text), ("messageId", 3, Text)]),
    (
        "REASONING_ENCRYPTED_VALUE",
        31,
        30,
        &[(SUBAGENT, 2, Text), ("subtype", 3, Text), ("entityId", 4, Text), ("encryptedValue", 5, Text)],
    ),
];

/// Writes an event, with its length in front of it. One that the schema does not have, such as the reasoning events of
/// the time before it, is left out.
pub(super) fn write(event: &Value, out: &mut BytesMut) {
    let Some(fields) = event.as_object() else { return };
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("");
    let Some((_, number, type_number, schema)) = EVENTS.iter().find(|row| row.0 == kind) else { return };

    let mut base = Vec::new();
    enumeration(&mut base, 1, *type_number);
    if let Some(at) = fields.get("timestamp").and_then(Value::as_u64) {
        integer(&mut base, 2, at);
    }
    if let Some(metadata) = fields.get("metadata").and_then(Value::as_object) {
        message(&mut base, 4, &object(metadata));
    }

    let mut body = Vec::new();
    message(&mut body, 1, &base);
    match outcome(fields) {
        Some(flat) => write_fields(&flat, schema, &mut body),
        None => write_fields(fields, schema, &mut body),
    }

    let mut envelope = Vec::with_capacity(body.len() + 6);
    message(&mut envelope, *number, &body);
    out.put_u32(u32::try_from(envelope.len()).unwrap_or(u32::MAX));
    out.put_slice(&envelope);
}

/// The event of a run's end contains its outcome directly.
fn outcome(fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    let outcome = fields.get("outcome")?.as_object()?;
    let mut flat = fields.clone();
    flat.remove("outcome");
    for (name, value) in outcome {
        let name = if name == "type" { "outcome" } else { name };
        flat.insert(name.to_owned(), value.clone());
    }
    Some(flat)
}

/// Writes a fragment of a text, reasoning or arguments, without making its JSON first.
pub(super) fn write_delta(kind: &str, id: &str, delta: &str, out: &mut BytesMut) {
    // The number of the event, its number as a type, and the numbers of id and fragment.
    let (number, type_number, id_number, delta_number): (u32, u8, u8, u8) = match kind {
        "TEXT_MESSAGE_CONTENT" => (2, 1, 2, 3),
        "TOOL_CALL_ARGS" => (5, 4, 2, 3),
        "REASONING_MESSAGE_CONTENT" => (27, 26, 3, 4),
        // What the schema does not have.
        _ => return,
    };

    // Every number below is one byte: the base event has a tag and a type, and stands behind a tag and its length.
    let body = 4 + text_length(id) + text_length(delta);
    // A number of the envelope above 15 has a tag of two bytes.
    let tag = if number < 16 { 1 } else { 2 };
    let envelope = tag + varint_length(body as u64) + body;
    out.put_u32(u32::try_from(envelope).unwrap_or(u32::MAX));
    put_varint(out, u64::from((number << 3) | MESSAGE));
    put_varint(out, body as u64);
    out.put_slice(&[(1 << 3) | 2, 2, 1 << 3, type_number]);
    for (number, text) in [(id_number, id), (delta_number, delta)] {
        out.put_u8((number << 3) | 2);
        put_varint(out, text.len() as u64);
        out.put_slice(text.as_bytes());
    }
}

/// The length of a text field with a number below 16.
const fn text_length(text: &str) -> usize {
    1 + varint_length(text.len() as u64) + text.len()
}

const fn varint_length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation, reason = "seven bits")]
    out.put_u8(value as u8);
}

fn write_fields(fields: &Map<String, Value>, schema: &[Field], out: &mut Vec<u8>) {
    for (name, number, kind) in schema {
        if let Some(value) = fields.get(*name).filter(|value| !value.is_null() || matches!(kind, Any)) {
            write_field(value, *number, *kind, out);
        }
    }
}

fn write_field(value: &Value, number: u32, kind: Kind, out: &mut Vec<u8>) {
    match (kind, value) {
        (Text | Content { .. }, Value::String(value)) => text(out, number, value),
        (Integer, value) => {
            if let Some(value) = value.as_u64() {
                integer(out, number, value);
            }
        }
        (Flag, Value::Bool(value)) => integer(out, number, u64::from(*value)),
        (Any, value) => message(out, number, &any(value)),
        (Fields, Value::Object(fields)) => message(out, number, &object(fields)),
        (Texts, Value::Array(texts)) => texts.iter().filter_map(Value::as_str).for_each(|one| text(out, number, one)),
        (Message(schema), Value::Object(fields)) => write_message(fields, number, schema, out),
        (Messages(schema), Value::Array(entries)) => {
            let objects = entries.iter().filter_map(Value::as_object);
            objects.for_each(|fields| write_message(fields, number, schema, out));
        }
        (Patch, Value::Array(operations)) => {
            let objects = operations.iter().filter_map(Value::as_object);
            objects.for_each(|operation| message(out, number, &patch(operation)));
        }
        (Content { parts, .. }, Value::Array(content)) => {
            content.iter().filter_map(part).for_each(|part| message(out, parts, &part));
        }
        (Content { fields, .. }, Value::Object(content)) => message(out, fields, &object(content)),
        _ => {}
    }
}

fn write_message(fields: &Map<String, Value>, number: u32, schema: &[Field], out: &mut Vec<u8>) {
    let mut body = Vec::new();
    write_fields(fields, schema, &mut body);
    message(out, number, &body);
}

/// One operation of a JSON patch.
fn patch(operation: &Map<String, Value>) -> Vec<u8> {
    const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];
    let name = operation.get("op").and_then(Value::as_str).unwrap_or("");
    let place = OPERATIONS.iter().position(|known| *known == name).unwrap_or(0);
    let mut body = Vec::new();
    enumeration(&mut body, 1, u32::try_from(place).unwrap_or(0));
    write_fields(operation, &[("path", 2, Text), ("from", 3, Text), ("value", 4, Any)], &mut body);
    body
}

/// A part of a message. `None`: of a type that the schema does not have.
fn part(part: &Value) -> Option<Vec<u8>> {
    let fields = part.as_object()?;
    let kind = fields.get("type")?.as_str()?;
    let mut body = Vec::new();
    let number = match kind {
        "text" => {
            write_fields(fields, &[("text", 1, Text), ("id", 2, Text), ("metadata", 3, Any)], &mut body);
            1
        }
        "image" | "audio" | "video" | "document" => {
            message(&mut body, 1, &source(fields.get("source")?)?);
            write_fields(fields, &[("metadata", 2, Any), ("id", 3, Text)], &mut body);
            match kind {
                "image" => 2,
                "audio" => 3,
                "video" => 4,
                _ => 5,
            }
        }
        _ => return None,
    };

    let mut whole = Vec::new();
    message(&mut whole, number, &body);
    Some(whole)
}

/// Where a part's bytes are.
fn source(source: &Value) -> Option<Vec<u8>> {
    let fields = source.as_object()?;
    let (number, schema): (u32, &[Field]) = match fields.get("type")?.as_str()? {
        "data" => (1, &[("value", 1, Text), ("mimeType", 2, Text)]),
        "url" => (2, &[("value", 1, Text), ("mimeType", 2, Text)]),
        "file" => (3, &[("value", 1, Text), ("provider", 2, Text), ("mimeType", 3, Text)]),
        _ => return None,
    };
    let mut whole = Vec::new();
    write_message(fields, number, schema, &mut whole);
    Some(whole)
}

/// Any JSON, as `google.protobuf.Value`.
fn any(value: &Value) -> Vec<u8> {
    let mut body = Vec::new();
    match value {
        Value::Null => integer(&mut body, 1, 0),
        Value::Number(number) => {
            tag(&mut body, 2, 1);
            body.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::String(value) => text(&mut body, 3, value),
        Value::Bool(value) => integer(&mut body, 4, u64::from(*value)),
        Value::Object(fields) => message(&mut body, 5, &object(fields)),
        Value::Array(values) => {
            let mut list = Vec::new();
            values.iter().for_each(|value| message(&mut list, 1, &any(value)));
            message(&mut body, 6, &list);
        }
    }
    body
}

/// A JSON object, as `google.protobuf.Struct`.
fn object(fields: &Map<String, Value>) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let mut entry = Vec::new();
        text(&mut entry, 1, name);
        message(&mut entry, 2, &any(value));
        message(&mut body, 1, &entry);
    }
    body
}

fn tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    put_varint(out, u64::from((number << 3) | wire_type));
}

/// The first value of an enumeration is its default and is not written.
fn enumeration(out: &mut Vec<u8>, number: u32, value: u32) {
    if value > 0 {
        integer(out, number, u64::from(value));
    }
}

fn integer(out: &mut Vec<u8>, number: u32, value: u64) {
    tag(out, number, 0);
    put_varint(out, value);
}

fn text(out: &mut Vec<u8>, number: u32, value: &str) {
    message(out, number, value.as_bytes());
}

fn message(out: &mut Vec<u8>, number: u32, body: &[u8]) {
    tag(out, number, MESSAGE);
    put_varint(out, body.len() as u64);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hex(write: impl FnOnce(&mut BytesMut)) -> String {
        let mut out = BytesMut::new();
        write(&mut out);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn fragments_have_one_form_whichever_way_they_are_written() {
        for (kind, name, id) in [
            ("TEXT_MESSAGE_CONTENT", "messageId", "m1"),
            ("TOOL_CALL_ARGS", "toolCallId", "c1"),
            ("REASONING_MESSAGE_CONTENT", "messageId", &"r".repeat(300)),
        ] {
            for delta in ["hé", "", &"x".repeat(200), &"y".repeat(20_000)] {
                let short = hex(|out| write_delta(kind, id, delta, out));
                let long = hex(|out| write(&json!({ "type": kind, name: id, "delta": delta }), out));
                assert_eq!(short, long, "{kind} {}", delta.len());
            }
        }
    }

    /// Expected bytes: those of `encode` of `@ag-ui/proto` 1.0.0.
    #[test]
    fn events_are_written_as_the_published_package_writes_them() {
        for (event, expected) in EXPECTED {
            let event: Value = serde_json::from_str(event).expect("JSON");
            assert_eq!(hex(|out| write(&event, out))[8..], **expected, "{event}");
        }
    }

    const EXPECTED: &[(&str, &str)] = &[
        (
            r#"{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.0"}"#,
            "620f0a02080b1201741a01723203312e30",
        ),
        (r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}"#, "0a100a0012016d1a09617373697374616e74"),
        (
            r#"{"type":"STATE_SNAPSHOT","snapshot":[true,null,"x",1.5,{"n":{}}]}"#,
            "3a2d0a020806122732250a0220010a0208000a031a01780a0911000000000000f83f0a0b2a090a070a016e12022a00",
        ),
        (
            r#"{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":-2},{"op":"move","from":"/a","path":"/b"}]}"#,
            "42230a0208071211080212022f6e22091100000000000000c0120a080312022f621a022f61",
        ),
        (
            r#"{"type":"TOOL_CALL_RESULT","messageId":"o","toolCallId":"c","content":"18 C","role":"tool"}"#,
            "b201160a0208151a016f2201632a04313820433204746f6f6c",
        ),
        (
            r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"PLAN","content":{"steps":[1]},"replace":true}"#,
            "ba01290a0208161a01612204504c414e2a180a160a057374657073120d320b0a0911000000000000f03f3001",
        ),
        (
            r#"{"type":"CUSTOM","name":"data","value":"v","timestamp":1795168800000,"metadata":{"k":"w"}}"#,
            "5a220a15080a10809a98c39f34220a0a080a016b12031a01771204646174611a031a0176",
        ),
        (
            r#"{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u","role":"user","content":[{"type":"text","text":"hi"},{"type":"image","source":{"type":"url","value":"https://a/b.png"}}]},{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]}"#,
            "4a580a020808122a0a017512047573657242060a040a026869421712150a1312110a0f68747470733a2f2f612f622e706e6712260a01611209617373697374616e742a160a0163120866756e6374696f6e1a070a016612027b7d",
        ),
        (
            r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"tool_call","toolCallId":"c","responseSchema":{"type":"object"}}]},"usage":[{"inputTokens":300,"outputTokens":2}]}"#,
            "6a450a02080c1201741a01722a09696e7465727275707432270a01691209746f6f6c5f63616c6c2201632a142a120a100a047479706512081a066f626a6563743a0518ac022002",
        ),
        (
            r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success","pendingToolCallIds":["c1","c2"]}}"#,
            "6a1b0a02080c1201741a01722a07737563636573734202633142026332",
        ),
        (r#"{"type":"RUN_ERROR","message":"no","code":"X"}"#, "720b0a02080d1201581a026e6f"),
    ];
}
