//! Tests of the forms in which this crate stores documents, with every document that an earlier version wrote
//! (`tests/upgrades`): fields may be missing, newer versions may add some, and damaged ones are refused.
//!
//! Not here: gateways that use such documents (`tests/upgrades`).

use std::collections::BTreeSet;
use std::path::Path;

use interlingua_core::Json;
use interlingua_core::call::RunInfo;
use interlingua_core::journal::{self, SerializedValue};
use serde_json::{Map, Value, json};

use crate::pending::parse_entry;
use crate::sessions::{Entry, OpenItems, SessionDoc};

/// Fields that hold what an agent, a client or a connector wrote: this crate does not read inside.
const OPAQUE: &[&str] = &[
    "payload",
    "extension",
    "request",
    "labels",
    "memory",
    "parameters",
    "response_schema",
    "message",
    "metadata",
    "extra",
    "input",
    "tools",
];

/// A column of a table in the dump of the PostgreSQL store, decoded.
fn column(table: &str, column: &str, collection: Option<&str>) -> Vec<Vec<u8>> {
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upgrades/89b47047/store.sql");
    let dump = std::fs::read_to_string(dump).expect("the dump");
    let start = dump.find(&format!("COPY interlingua.{table} (")).expect("the table");
    let (head, rows) = dump[start..].split_once(") FROM stdin;\n").expect("rows");
    let columns = head.split_once('(').expect("columns").1;
    let place = columns.split(", ").position(|name| name == column).expect("the column");
    let rows = rows.lines().take_while(|row| *row != "\\.").map(|row| row.split('\t').collect::<Vec<_>>());
    let found: Vec<Vec<u8>> = rows
        .filter(|row| collection.is_none_or(|collection| row[0] == collection))
        .map(|row| row[place].strip_prefix("\\\\x").expect("bytes"))
        .map(|hex| {
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            (0..hex.len()).step_by(2).map(byte).collect()
        })
        .collect();
    assert!(!found.is_empty(), "{table}.{column} {collection:?}");
    found
}

fn documents(collection: &str) -> Vec<Value> {
    let values = column("documents", "value", Some(collection));
    values.iter().map(|value| serde_json::from_slice(value).expect("JSON")).collect()
}

/// The paths of all fields: `[]` stands for every item of a list.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if !OPAQUE.contains(&name.as_str()) {
                    paths(field, &path, found);
                }
                found.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{path}[]"), found)),
        _ => {}
    }
}

/// Calls `change` with every object at a path.
fn at(value: &mut Value, path: &[&str], change: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some((step, rest)) = path.split_first() else {
        if let Value::Object(fields) = value {
            change(fields);
        }
        return;
    };
    let Some(field) = value.get_mut(step.trim_end_matches("[]")) else { return };
    match field {
        Value::Array(items) => items.iter_mut().for_each(|item| at(item, rest, change)),
        field => at(field, rest, change),
    }
}

/// A document without the field of a path.
fn without(document: &Value, path: &str) -> Value {
    let mut steps: Vec<&str> = path.split('.').collect();
    let name = steps.pop().expect("a field");
    let mut document = document.clone();
    at(&mut document, &steps, &mut |fields| drop(fields.remove(name)));
    document
}

/// A document with a further field in every object that this crate reads.
fn with_unknown_fields(document: &Value) -> Value {
    let mut found = BTreeSet::new();
    paths(document, "", &mut found);
    let mut document = document.clone();
    let later = |fields: &mut Map<String, Value>| drop(fields.insert("later".into(), json!({ "list": [1, "two"] })));
    for path in found {
        let steps: Vec<&str> = path.split('.').collect();
        // The keys of these are data. An entry is one of several, by its name.
        let is_read = steps.iter().all(|step| !OPAQUE.contains(step) && *step != "handed_over" && *step != "tags");
        if is_read {
            at(&mut document, &steps, &mut |fields| later(fields));
        }
    }
    if let Value::Object(fields) = &mut document {
        later(fields);
    }
    document
}

/// One kind of stored document: its values, how they are read, and the fields without which one is refused.
struct Kind {
    name: &'static str,
    documents: Vec<Value>,
    read: fn(&[u8]) -> Result<Value, String>,
    required: &'static [&'static str],
}

fn kinds() -> [Kind; 4] {
    let values = |bytes: Vec<Vec<u8>>| bytes.iter().map(|bytes| serde_json::from_slice(bytes).expect("JSON")).collect();
    [
        Kind {
            name: "session",
            documents: documents("sessions"),
            read: |bytes| {
                let doc = SessionDoc::parse(bytes).map_err(|fault| fault.detail.unwrap_or_default())?;
                Ok(serde_json::to_value(doc).expect("JSON"))
            },
            required: &[
                "agent",
                "created_at",
                "id",
                "updated_at",
                "waiting.open[].item",
                "waiting.open[].item.arguments",
                "waiting.open[].item.id",
                "waiting.open[].item.kind",
                "waiting.open[].item.name",
                "waiting.open[].run",
            ],
        },
        Kind {
            name: "open items",
            documents: documents("open"),
            read: |bytes| {
                let items: OpenItems = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                Ok(serde_json::to_value(items).expect("JSON"))
            },
            required: &[
                "agent",
                "items",
                "items[].item",
                "items[].item.arguments",
                "items[].item.id",
                "items[].item.kind",
                "items[].item.name",
                "items[].run",
                "owner",
                "session",
            ],
        },
        Kind {
            name: "entry",
            documents: documents("entries"),
            read: |bytes| {
                let entry: Entry = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                Ok(serde_json::to_value(entry).expect("JSON"))
            },
            required: &["said", "said.id", "said.message", "turn", "turn.run", "turn.turn"],
        },
        Kind {
            name: "metadata of a run",
            documents: values(column("runs", "about", None)),
            read: |bytes| {
                let info: SerializedValue<RunInfo> =
                    serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                Ok(serde_json::to_value(SerializedValue(&info.0)).expect("JSON"))
            },
            required: &["changed_at", "delivery", "keeper.route", "owner", "protocol", "request", "state", "stored"],
        },
    ]
}

/// Everything in `written` is in `read`, as it was. Fields that were left out may have got their defaults.
fn assert_kept(written: &Value, read: &Value, what: &str) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (name, field) in written {
                let kept = read.get(name).unwrap_or(&Value::Null);
                assert_kept(field, kept, &format!("{what}.{name}"));
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            assert_eq!(written.len(), read.len(), "{what}");
            written.iter().zip(read).for_each(|(written, read)| assert_kept(written, read, what));
        }
        // An empty list may be left out.
        (Value::Array(written), Value::Null) if written.is_empty() => {}
        _ => assert_eq!(written, read, "{what}"),
    }
}

#[test]
fn every_field_that_is_not_required_may_be_missing() {
    for Kind { name, documents, read, required } in kinds() {
        let mut refused = BTreeSet::new();
        for document in documents {
            assert_kept(&document, &read(document.to_string().as_bytes()).expect(name), name);
            let mut found = BTreeSet::new();
            paths(&document, "", &mut found);
            for path in found {
                let shorter = without(&document, &path);
                match read(shorter.to_string().as_bytes()) {
                    // A document of an earlier version that has all entries in itself counts them when it is read.
                    Ok(kept) => assert_kept(&shorter, &kept, &format!("{name} without {path}")),
                    Err(_) => drop(refused.insert(path)),
                }
            }
        }
        assert_eq!(refused.iter().map(String::as_str).collect::<Vec<_>>(), required, "{name}");
    }
}

#[test]
fn unknown_fields_are_ignored_and_those_of_a_session_are_written_again() {
    for Kind { name, documents, read, .. } in kinds().into_iter().filter(|kind| kind.name != "entry") {
        for document in documents {
            let longer = with_unknown_fields(&document);
            let kept = read(longer.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}: {longer}"));
            assert_kept(&document, &kept, name);
            if name == "session" {
                assert_eq!(kept["later"], longer["later"]);
            }
        }
    }
}

#[test]
fn a_document_that_is_cut_anywhere_is_refused() {
    for Kind { name, documents, read, .. } in kinds() {
        let longest = documents.iter().map(Value::to_string).max_by_key(String::len).expect("documents");
        for end in 0..longest.len() {
            assert!(read(&longest.as_bytes()[..end]).is_err(), "{name} cut at {end}");
        }
    }
}

#[test]
fn the_lines_of_a_run_that_are_cut_anywhere_are_refused_or_give_fewer_events() {
    let mut runs = 0;
    for lines in column("lines", "bytes", None) {
        // Later rows of a run begin in its middle.
        let Ok(whole) = journal::read(&lines) else { continue };
        let whole = whole.len();
        runs += 1;
        for end in (0..lines.len()).step_by(7) {
            if let Ok(record) = journal::read(&lines[..end]) {
                assert!(record.len() < whole || lines[end..] == *b"\n", "cut at {end} of {}", lines.len());
            }
        }
    }
    assert!(runs > 100, "{runs}");
}

#[test]
fn entries_of_the_index_of_open_items_may_have_fewer_and_more_fields() {
    let parse = |text: &str| parse_entry(&Json::parse(text).expect("JSON"));
    for document in documents("asked") {
        let expected: Vec<(String, Option<String>)> = serde_json::from_value(document.clone()).expect("pairs");
        assert_eq!(parse(&document.to_string()), expected);
    }
    let one = |user: Option<&str>| vec![("session".to_owned(), user.map(str::to_owned))];
    for (text, expected) in [
        (r#"["session","ann"]"#, one(Some("ann"))),
        (r#"["session",null]"#, one(None)),
        (r#"[["session"]]"#, one(None)),
        (r#"[["session","ann",{"later":1}]]"#, one(Some("ann"))),
        (r#"[["session",null,true],[],[7],"later"]"#, one(None)),
        ("{}", Vec::new()),
        ("null", Vec::new()),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}
