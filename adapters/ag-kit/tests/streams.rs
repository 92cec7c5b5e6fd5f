//! Streams: golden transcripts, and the properties of every stream. Requests are in `requests.rs`.

mod support;

use interlingua_core::call::RunView;
use interlingua_core::exchange::Flow;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart, Record, Run};
use interlingua_core::{End, Extra, Json, Out};
use interlingua_core_testkit::{NOW, RUN};
use proptest::prelude::*;
use support::*;

fn golden(messages: Vec<Vec<String>>) -> String {
    replay(&record(messages), "{}", Json::null())
}

#[test]
fn a_greeting_is_a_sequence_of_text_events() {
    insta::assert_snapshot!(golden(vec![text_message("m", "message", &["Hello", " there!"])]));
}

#[test]
fn a_client_tool_is_a_call_without_a_result() {
    insta::assert_snapshot!(golden(vec![data_message(
        "c",
        "function_call",
        r#"{"call_id":"call_1","name":"set_bg","arguments":"{\"color\": \"blue\"}"}"#,
    )]));
}

#[test]
fn a_tool_of_the_agent_is_followed_by_its_result() {
    insta::assert_snapshot!(golden(vec![
        data_message(
            "c",
            "plugin_call",
            r#"{"call_id":"call_2","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}"#
        ),
        data_message("o", "plugin_call_output", r#"{"call_id":"call_2","name":"get_weather","output":"18 C"}"#),
        text_message("m", "message", &["It is 18 C."]),
    ]));
}

#[test]
fn parallel_calls_are_matched_with_their_results() {
    let call = |id: &str, call: &str| {
        let body = format!(r#"{{"call_id":"{call}","name":"look","arguments":""}}"#);
        data_message(id, "mcp_call", &body)
    };

    let output = |id: &str, call: &str| {
        data_message(id, "mcp_call_output", &format!(r#"{{"call_id":"{call}","output":"of {call}"}}"#))
    };
    insta::assert_snapshot!(golden(vec![
        call("a", "c1"),
        call("b", "c2"),
        output("y", "c2"),
        output("x", "c1"),
        // The first is sent twice; the second is for an unknown call.
        output("z", "c1"),
        data_message("w", "plugin_call_output", r#"{"call_id":"c9","name":"secret","output":"[1]"}"#),
    ]));
}

#[test]
fn an_agent_side_call_always_gets_a_result() {
    insta::assert_snapshot!(golden(vec![
        text_message("m", "message", &["Let me see."]),
        data_message("c", "plugin_call", r#"{"call_id":"call_1","name":"look","arguments":"{}"}"#),
    ]));
}

#[test]
fn a_call_created_for_a_result_has_a_unique_id() {
    let output = |text: &str| format!(r#"{{"output":{text:?}}}"#);
    let kind = "plugin_call_output";
    let two = vec![
        message("a", kind, "in_progress"),
        data("a", 0, &output("one")),
        data("a", 1, &output("two")),
        message("a", kind, "completed"),
    ];
    // The id derived for the second content is the id of the other message.
    let record = record(vec![data_message("a_1", kind, &output("zero")), two]);
    let output = replay(&record, "{}", Json::null());
    keeps_the_order_rules(&output, &record);
    assert_eq!(output.matches("tool-result").count(), 3, "{output}");
}

#[test]
fn reasoning_is_sent_as_configured() {
    let messages =
        || vec![text_message("r", "reasoning", &["Let me", " think."]), text_message("m", "message", &["42"])];
    for (name, options) in [("drop", "{}"), ("text", r#"{"reasoning":"text"}"#), ("event", r#"{"reasoning":"event"}"#)]
    {
        insta::assert_snapshot!(format!("reasoning_as_{name}"), replay(&record(messages()), options, Json::null()));
    }
}

#[test]
fn two_messages_are_separated_unless_a_call_is_in_between() {
    let messages = || {
        vec![
            text_message("a", "message", &["One."]),
            text_message("b", "message", &["Two."]),
            data_message("c", "component_call", r#"{"call_id":"c1","name":"show","arguments":"{}"}"#),
            data_message("o", "component_call_output", r#"{"call_id":"c1","output":"shown"}"#),
            text_message("d", "message", &["Three."]),
        ]
    };

    insta::assert_snapshot!(golden(messages()));

    let joined = replay(&record(messages()), r#"{"separator":"off"}"#, Json::null());
    assert!(!joined.contains("\\n\\n"), "{joined}");
}

#[test]
fn overlapping_messages_are_sent_one_after_the_other() {
    let frames = [
        created(),
        message("a", "message", "in_progress"),
        text("a", "first "),
        message("b", "message", "in_progress"),
        text("b", "second "),
        message("c", "plugin_call", "in_progress"),
        data("c", 0, r#"{"call_id":"c1","name":"look","arguments":"{}"}"#),
        text("a", "still first"),
        text("b", "still second"),
        message("b", "message", "completed"),
        message("a", "message", "completed"),
        completed(),
    ];
    let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
    insta::assert_snapshot!(stream(&frames, "{}"));
}

#[test]
fn media_become_links_and_data_becomes_text() {
    let content = |index: usize, fields: &str| {
        format!(r#"{{"object":"content","status":"completed","index":{index},"msg_id":"m",{fields}}}"#)
    };

    let frames = || {
        vec![vec![
            message("m", "message", "in_progress"),
            content(0, r#""type":"image","image_url":"https://example.com/a cat (1).png""#),
            content(1, r#""type":"image","image_url":"data:image/png;base64,AAAA""#),
            content(2, r#""type":"file","file_url":"http://example.com/f.pdf","filename":"the [final] file.pdf""#),
            content(3, r#""type":"audio","data":"https://example.com/a.mp3","format":"mp3""#),
            content(4, r#""type":"video","video_url":"javascript:alert(1)""#),
            content(5, r#""type":"data","data":{"n":1.50}"#),
            content(6, r#""type":"refusal","refusal":"I had rather not.""#),
            message("m", "message", "completed"),
        ]]
    };

    insta::assert_snapshot!(golden(frames()));

    let dropped = replay(&record(frames()), r#"{"media":"drop","data":"drop"}"#, Json::null());
    assert_eq!(dropped, "data: {\"type\":\"text\",\"content\":\"I had rather not.\"}\n\ndata: [DONE]\n\n");
}

#[test]
fn an_approval_is_an_interrupt_without_a_call() {
    insta::assert_snapshot!(golden(vec![
        text_message("m", "message", &["May I?"]),
        data_message(
            "a",
            "mcp_approval_request",
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
        ),
    ]));
}

#[test]
fn the_source_payload_is_unchanged_and_only_the_first_question_is_asked() {
    insta::assert_snapshot!(golden(vec![
        data_message("c", "plugin_call", r#"{"call_id":"call_9","name":"pay","arguments":"{}"}"#),
        data_message(
            "a",
            "mcp_approval_request",
            r#"{"id":"int-1","name":"input_required","arguments":"","interrupt":{"kind":"input","reason":"agent requested interrupt","payload":{"steps":[ 1.0 ]}}}"#,
        ),
        data_message("b", "mcp_approval_request", r#"{"id":"appr_2","name":"x","arguments":"{}"}"#),
    ]));
}

#[test]
fn a_question_includes_its_schema() {
    let output = golden(vec![data_message(
        "a",
        "mcp_approval_request",
        r#"{"id":"q1","name":"city","arguments":"","interrupt":{"kind":"input","message":"Which city?","response_schema":{"type":"string"}}}"#,
    )]);
    assert!(
        output.contains(r#"{"type":"interrupt","id":"q1","reason":"city","payload":{"message":"Which city?","response_schema":{"type":"string"}}}"#),
        "{output}"
    );
}

#[test]
fn each_end_has_its_final_events() {
    let failed = r#"{"object":"response","status":"failed","id":"r","error":{"code":"AGENT_ERROR","message":"the model is gone"}}"#;
    let canceled = r#"{"object":"response","status":"canceled","id":"r"}"#;
    let rejected = r#"{"object":"response","status":"rejected","id":"r"}"#;
    let error =
        r#"{"object":"message","status":"completed","id":"e","type":"error","code":"TOOL","message":"the tool broke"}"#;
    let hello = text("m", "Hel");
    let call = data("c", 0, r#"{"call_id":"c1","name":"look","arguments":"{}"}"#);
    let (created, completed) = (created(), completed());
    let for_client = data_message("f", "function_call", r#"{"call_id":"c2","name":"look","arguments":"{}"}"#);
    let after_a_call = |end| {
        let call = for_client.iter().map(String::as_str);
        std::iter::once(created.as_str()).chain(call).chain([end]).collect::<Vec<_>>()
    };

    let mut table = String::new();
    for (name, frames) in [
        ("nothing at all", vec![created.as_str(), completed.as_str()]),
        ("failed before output", vec![created.as_str(), failed]),
        ("failed after output", vec![created.as_str(), &hello, failed]),
        ("failed in a call", vec![created.as_str(), &call, failed]),
        ("failed after a call for the client", after_a_call(failed)),
        ("canceled after a call for the client", after_a_call(canceled)),
        ("completed after a call for the client", after_a_call(&completed)),
        ("broken off", vec![created.as_str(), &hello]),
        ("rejected", vec![created.as_str(), rejected]),
        ("canceled before output", vec![created.as_str(), canceled]),
        ("canceled after output", vec![created.as_str(), &hello, canceled]),
        ("a complaint alone", vec![created.as_str(), error, completed.as_str()]),
        ("a complaint on the way", vec![created.as_str(), error, &hello, completed.as_str()]),
        ("a bare error", vec![r#"{"error":"Task u1:S is already in RUNNING state."}"#]),
    ] {
        table.push_str(&format!("# {name}\n{}", stream(&frames, "{}")));
    }

    insta::assert_snapshot!(table);
}

#[test]
fn text_blocks_are_unwrapped_by_option() {
    let messages = |output: &str| {
        vec![data_message("o", "plugin_call_output", &format!(r#"{{"call_id":"c","output":{output:?}}}"#))]
    };

    let output = |output: &str| replay(&record(messages(output)), r#"{"unwrap_tool_output":true}"#, Json::null());
    assert!(
        output(r#"[{"type": "text", "text": "18 C"}, {"type": "text", "text": ", sunny"}]"#)
            .contains("\"18 C, sunny\"")
    );
    for unchanged in [r#"[{"type":"image"}]"#, "[]", "18 C", "[{\"type\":\"text\"}]"] {
        assert!(
            output(unchanged).contains(&format!("\"result\":{}", Json::from_serialize(unchanged).text())),
            "{unchanged}"
        );
    }
}

#[test]
fn a_call_sent_before_an_interrupt_is_not_repeated_after_it() {
    let labels = Json::parse(r#"{"calls":[{"id":"c9","done":false},{"id":"c8","done":true}]}"#).expect("JSON");
    let record = record(vec![
        data_message("c", "plugin_call", r#"{"call_id":"c9","name":"send_mail","arguments":"{}"}"#),
        data_message("o", "plugin_call_output", r#"{"call_id":"c9","output":"sent"}"#),
        data_message("p", "plugin_call_output", r#"{"call_id":"c8","output":"old"}"#),
        text_message("m", "message", &["Done."]),
    ]);
    insta::assert_snapshot!(replay(&record, "{}", labels));
}

#[test]
fn a_replaced_text_is_sent_as_far_as_it_continues_the_old_one() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.start_turn(Vec::new());
    let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, "Hel");
    record.replace(message, content, "Hello");
    record.push(message, content, " you");
    record.replace(message, content, "Goodbye");
    record.push(message, content, " then");
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    let output = replay(&record, "{}", Json::null());
    let texts: Vec<&str> = output.lines().filter_map(|line| line.split("\"content\":").nth(1)).collect();
    assert_eq!(texts, ["\"Hel\"}", "\"lo\"}", "\" you\"}"]);
}

#[test]
fn a_contradicted_text_continues_once_a_replacement_matches() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.start_turn(Vec::new());
    let message = record.start_message(MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, "Hello");
    record.replace(message, content, "Goodbye");
    record.replace(message, content, "Hel");
    record.push(message, content, "l");
    record.push(message, content, "o you");
    record.push(message, content, " there");
    record.finish_content(message, content, None, Extra::new());
    record.finish_message(message, MessageEnd::new(End::Completed));
    record.finish_turn(End::Completed, None);
    record.finish_run(End::Completed);
    let output = replay(&record, "{}", Json::null());
    let texts: Vec<&str> = output.lines().filter_map(|line| line.split("\"content\":").nth(1)).collect();
    assert_eq!(texts, ["\"Hello\"}", "\" you\"}", "\" there\"}"]);
}

// Properties

#[derive(Clone, Debug)]
enum Action {
    Start(u8, u8),
    Append(u8, String),
    End(u8),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        (0..6_u8, 0..7_u8).prop_map(|(id, kind)| Action::Start(id, kind)),
        (0..6_u8, "[a-z\"\\\\é{}]{0,4}").prop_map(|(id, text)| Action::Append(id, text)),
        (0..6_u8).prop_map(Action::End),
    ];
    prop::collection::vec(action, 0..40)
}

/// Applies the actions that are possible at each point to a record; `observe` sees it after each one.
fn apply(actions: &[Action], end: End, mut observe: impl FnMut(&Record)) -> Record {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.start_turn(Vec::new());
    let mut open: std::collections::BTreeMap<u8, (u32, Option<u32>, u8)> = std::collections::BTreeMap::new();
    let close = |record: &mut Record, (message, content, kind): (u32, Option<u32>, u8)| {
        if let Some(content) = content {
            let call = format!("c{}", kind.wrapping_mul(3) % 4);
            let value = (kind == 4 || kind == 5).then(|| {
                let id = if kind == 5 { String::new() } else { call };
                interlingua_core::model::Content::data(&serde_json::json!({ "call_id": id, "output": "out" }))
            });

            record.finish_content(message, content, value, Extra::new());
        }
        record.finish_message(message, MessageEnd::new(End::Completed));
    };

    for action in actions {
        match action {
            Action::Start(id, kind) => {
                if let Some(open_message) = open.remove(id) {
                    close(&mut record, open_message);
                }

                let announced = match kind {
                    0 | 1 => MessageType::Message,
                    2 => MessageType::PluginCall,
                    3 => MessageType::FunctionCall,
                    4 | 5 => MessageType::PluginCallOutput,
                    _ => MessageType::Reasoning,
                };

                let message =
                    record.start_message(MessageStart::new(String::new(), announced.clone(), Role::Assistant));
                let (slot, head) = match announced {
                    MessageType::PluginCall | MessageType::FunctionCall => {
                        let call_id = format!("c{}", (usize::from(*id) + record.run().messages.len()) % 8);
                        (ContentType::Data, Some(CallHead { call_id, name: "look".into(), server_label: None }))
                    }
                    MessageType::PluginCallOutput => (ContentType::Data, None),
                    _ => (ContentType::Text, None),
                };

                let content = record.start_content(message, slot, head);
                open.insert(*id, (message, Some(content), *kind));
            }
            Action::Append(id, text) => {
                if let Some((message, Some(content), kind)) = open.get(id)
                    && !matches!(kind, 4 | 5)
                {
                    record.push(*message, *content, text);
                }
            }
            Action::End(id) => {
                if let Some(open_message) = open.remove(id) {
                    close(&mut record, open_message);
                }
            }
        }

        observe(&record);
    }

    record.close(end, None);
    observe(&record);
    record
}

/// Encodes a record while it grows.
fn live(actions: &[Action], end: End, options: &str) -> (String, Record) {
    let mut exchange = open("/send-message", options);
    let about = about(Json::null());
    let mut out = Out::new();
    let mut next = 0;
    let mut started = false;
    let record = apply(actions, end, |record| {
        if !started {
            exchange.begin(RunView { record, info: &about, pending: &[] }, &mut out);
            started = true;
        }

        for step in record.steps(next) {
            let flow = exchange.encode(step, &mut out);
            assert_eq!(flow == Flow::Close, record.is_finished() && step.sequence + 1 == record.len());
        }
        next = record.len();
    });

    (String::from_utf8(out.body.to_vec()).expect("UTF-8"), record)
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Completed),
        Just(End::Incomplete),
        Just(End::Failed),
        Just(End::Canceled),
        Just(End::Rejected)
    ]
}

proptest! {
    #[test]
    fn a_replay_equals_the_live_stream(actions in actions(), end in ends(), option in 0..3_usize) {
        let options = ["{}", r#"{"reasoning":"text"}"#, r#"{"reasoning":"event"}"#][option];
        let (live, record) = live(&actions, end, options);
        prop_assert_eq!(live, replay(&record, options, Json::null()));
    }

    #[test]
    fn every_stream_keeps_the_order_rules(actions in actions(), end in ends()) {
        let (output, record) = live(&actions, end, "{}");
        keeps_the_order_rules(&output, &record);
        nothing_is_lost(&output, &record);
    }
}
