//! The table of docs/protocols/a2a.md#data-model: every type in every dialect, and lenient parsing.

use std::borrow::Cow;
use std::fmt::Write as _;

use interlingua_core::tree::Node;

use super::read::{self, Faults};
use super::*;

const FORMS: [(&str, WireFormat); 3] =
    [("1.0", WireFormat::V1), ("0.3 JSON-RPC", WireFormat::V03), ("0.3 REST", WireFormat::V03Rest)];

fn json(text: &str) -> Raw<'static> {
    to_raw(&Json::parse(text).expect("JSON"))
}

fn part(content: Content<'static>) -> Part<'static> {
    Part { content, filename: Some("a.b".into()), media_type: Some("x/y".into()), metadata: Some(json(r#"{"m":1}"#)) }
}

fn message() -> Message<'static> {
    let mut message = Message::agent(
        "m-1",
        vec![
            Part::text("hi"),
            part(Content::Text("rich".into())),
            part(Content::Bytes("AQID".into())),
            part(Content::Url("https://x/y".into())),
            part(Content::Data(json(r#"{"a":1}"#))),
            Part::data(json("[1,2.50]")),
        ],
    )
    .in_task("T", "C");
    message.metadata = Some(json(r#"{"z":1,"a":2}"#));
    message.extensions = vec!["https://e/1".into()];
    message.references = vec!["T0".into()];
    message
}

#[test]
fn every_type_is_encoded_in_every_dialect() {
    let status = |state, message| Status { state, message, at: 1_795_168_800_123 };
    let artifact =
        Artifact { id: "a-1".into(), name: Some("answer".into()), parts: vec![Part::text("x")], metadata: None };

    let items = [
        ("message", Item::Message(message())),
        (
            "task",
            Item::Task(Task {
                id: "T".into(),
                context: "C".into(),
                status: status(
                    TaskState::Canceled,
                    Some(Message::agent("s-1", vec![Part::text("stopped")]).in_task("T", "C")),
                ),
                artifacts: Some(vec![artifact.clone()]),
                history: Some(vec![message()]),
                metadata: Some(json(r#"{"agent_api":{}}"#)),
            }),
        ),
        (
            "bare task",
            Item::Task(Task {
                id: "T".into(),
                context: "C".into(),
                status: status(TaskState::Submitted, None),
                artifacts: None,
                history: None,
                metadata: None,
            }),
        ),
        (
            "status",
            Item::Status(StatusUpdate {
                task: "T".into(),
                context: "C".into(),
                status: status(TaskState::InputRequired, None),
                metadata: None,
                closes: true,
            }),
        ),
        (
            "artifact",
            Item::Artifact(ArtifactUpdate {
                task: "T".into(),
                context: "C".into(),
                artifact,
                append: true,
                last_chunk: false,
            }),
        ),
    ];
    let mut table = String::new();
    for (name, item) in &items {
        let _ = writeln!(table, "{name}");
        for (form_name, form) in FORMS {
            let _ = writeln!(table, "  {form_name:<13}{}", Json::from_serialize(&EncodedValue(item, form)).text());
        }
    }

    insta::assert_snapshot!(table);
}

#[test]
fn every_state_name_is_parsed_in_every_dialect() {
    let mut table = String::new();
    for state in TaskState::ALL {
        let _ = writeln!(
            table,
            "{:<28}{:<18}{}",
            state.name(WireFormat::V1),
            state.name(WireFormat::V03),
            state.name(WireFormat::V03Rest)
        );
        for (_, form) in FORMS {
            assert_eq!(TaskState::parse(state.name(form)), Some(state));
        }
    }
    assert_eq!(
        (TaskState::parse("4"), TaskState::parse("9"), TaskState::parse("done")),
        (Some(TaskState::Failed), None, None)
    );

    insta::assert_snapshot!(table);
}

#[test]
fn an_encoded_message_is_parsed_in_every_dialect() {
    for (name, form) in FORMS {
        let mut message = message();
        if form == WireFormat::V03Rest {
            // The 0.3 protobuf has no such field.
            message.references.clear();
        }
        let written = Json::from_serialize(&EncodedValue(&message, form));
        let mut faults = Faults::default();
        let parsed = read::message(&Node::with_path("message", written.raw()), form, &mut faults);
        faults.check().expect("no errors");
        assert_eq!(
            Json::from_serialize(&parsed.expect("a message")).text(),
            Json::from_serialize(&message).text(),
            "{name}"
        );
    }
}

#[test]
fn a2ui_parts_round_trip() {
    for form in [WireFormat::V03, WireFormat::V03Rest] {
        for metadata in [None, Some(json(r#"{"k":1}"#))] {
            let content = Content::Data(json(r#"{"surface":1}"#));
            let part = Part { content, filename: None, media_type: Some(crate::A2UI.into()), metadata };
            let mut message = message();
            message.parts = vec![part];
            message.references.clear();

            let written = Json::from_serialize(&EncodedValue(&message, form));
            assert!(written.text().contains(r#""mimeType":"application/json+a2ui""#), "{}", written.text());
            let mut faults = Faults::default();
            let parsed = read::message(&Node::with_path("message", written.raw()), form, &mut faults);
            faults.check().expect("no errors");
            assert_eq!(Json::from_serialize(&parsed.expect("a message")).text(), Json::from_serialize(&message).text());
        }
    }
}

#[test]
fn lenient_requests_are_parsed() {
    let mut table = String::new();
    for (form, parts) in [
        (WireFormat::V1, r#"[{"text":"a","media_type":"text/html"}]"#),
        (WireFormat::V1, r#"[{"text":"a","raw":null,"metadata":null,"filename":""}]"#),
        (WireFormat::V1, r#"[{"raw":"_-8"}]"#),
        (WireFormat::V1, r#"[{"kind":"text","text":"half-migrated"}]"#),
        (WireFormat::V1, r#"[{"kind":null,"text":"of no kind"}]"#),
        (WireFormat::V1, r#"[{"kind":null,"data":null}]"#),
        (WireFormat::V1, r#"[{"kind":"file","file":{"bytes":"AQID","mimeType":"image/png","name":"a"}}]"#),
        (WireFormat::V1, r#"[{"kind":"data","data":{"data":{"x":1}}}]"#),
        (WireFormat::V1, r#"[{"data":{"data":{"x":1}}}]"#),
        (WireFormat::V1, r#"[{"data":null}]"#),
        (WireFormat::V1, r#"[{"text":"","unknown":[1]}]"#),
        (WireFormat::V03, r#"[{"text":"of the other generation"}]"#),
        (WireFormat::V03, r#"[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true,"k":1}}]"#),
        (WireFormat::V03, r#"[{"kind":"text","text":"a","metadata":{"mediaType":"text/html","filename":"f"}}]"#),
        (WireFormat::V03, r#"[{"kind":"text","text":"the kind decides","data":{}}]"#),
        (WireFormat::V03, r#"[{"kind":"data","data":null}]"#),
        (
            WireFormat::V03,
            r#"[{"kind":"data","data":{},"metadata":{"mediaType":"application/json+a2ui","mimeType":"application/json+a2ui"}}]"#,
        ),
        (WireFormat::V03, r#"[{"kind":"data","data":{},"metadata":{"mediaType":"x/y","mimeType":"x/y"}}]"#),
        (WireFormat::V03Rest, r#"[{"data":{"data":{"x":1}}}]"#),
        (WireFormat::V03Rest, r#"[{"kind":null,"data":{"data":{"x":1}}}]"#),
        (WireFormat::V03Rest, r#"[{"data":{"x":1}}]"#),
        (WireFormat::V03Rest, r#"[{"file":{"file_with_uri":"https://x/y","mime_type":"a/b"}}]"#),
    ] {
        let text = format!(r#"{{"message_id":"m","role":1,"content":{parts},"context_id":null}}"#);
        let node = Node::parse(text.as_bytes()).expect("JSON");
        let mut faults = Faults::default();
        let parsed = read::message(&node, form, &mut faults);
        faults.check().expect("no errors");
        let _ = writeln!(table, "{parts}\n  {}", Json::from_serialize(&parsed.expect("a message").parts).text());
    }

    insta::assert_snapshot!(table);
}

#[test]
fn every_invalid_field_is_named_by_its_path() {
    let mut table = String::new();
    for text in [
        r#"{}"#,
        r#"{"messageId":"","role":"robot","parts":[]}"#,
        r#"{"messageId":7,"role":"user","parts":"x"}"#,
        r#"{"messageId":"m","role":"user","parts":[{"text":"a"},{}, {"text":"a","url":"b"}, {"kind":"video"}, 7]}"#,
        r#"{"messageId":"m","role":"user","parts":[{"raw":"*"},{"url":""},{"file":{}},{"file":{"bytes":"AQ","uri":"x"}}]}"#,
        r#"{"messageId":"m","role":"user","parts":[{"kind":null,"text":"a","data":{}},{"kind":"text","text":"a","data":{}},{"kind":"text","data":null},{"kind":"file","data":null},{"kind":7,"text":"a"}]}"#,
        r#"{"messageId":"m","role":"user","parts":[{"text":"a"}],"metadata":[],"contextId":1,"extensions":"x"}"#,
        r#"[]"#,
    ] {
        let node = Node::parse(text.as_bytes()).expect("JSON");
        let holder = Node::with_path("message", node.raw());
        let mut faults = Faults::default();
        assert!(read::message(&holder, WireFormat::V1, &mut faults).is_none(), "{text}");

        let fault = faults.check().expect_err("errors");
        let _ = writeln!(table, "{text}\n  {}: {}", fault.field.as_deref().unwrap_or(""), fault.message);
        for (field, message) in &fault.violations {
            let _ = writeln!(table, "  {field}: {message}");
        }
    }

    insta::assert_snapshot!(table);
}

#[test]
fn borrowed_text_is_not_copied() {
    let text = "x".repeat(100);
    let part = Part::text(text.as_str());
    assert!(matches!(part.content, Content::Text(Cow::Borrowed(_))));
}
