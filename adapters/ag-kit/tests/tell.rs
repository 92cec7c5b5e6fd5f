//! What clients are told: golden transcripts, and the laws every stream keeps. Requests are in `ask.rs`.

mod support;

use interlingua_core::call::RunView;
use interlingua_core::exchange::Flow;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{Announced, CallHead, MessageEnd, Record, Run};
use interlingua_core::testkit::{NOW, RUN};
use interlingua_core::{End, Extra, Json, Out};
use proptest::prelude::*;
use support::*;

fn golden(messages: Vec<Vec<String>>) -> String {
    replay(&record(messages), "{}", Json::null())
}

#[test]
fn a_greeting_is_a_row_of_texts() {
    insta::assert_snapshot!(golden(vec![said("m", "message", &["Hello", " there!"])]));
}

#[test]
fn a_client_tool_is_a_call_without_a_result() {
    insta::assert_snapshot!(golden(vec![whole(
        "c",
        "function_call",
        r#"{"call_id":"call_1","name":"set_bg","arguments":"{\"color\": \"blue\"}"}"#,
    )]));
}

#[test]
fn a_tool_of_the_agent_is_followed_by_its_result() {
    insta::assert_snapshot!(golden(vec![
        whole("c", "plugin_call", r#"{"call_id":"call_2","name":"get_weather","arguments":"{\"city\":\"Paris\"}"}"#),
        whole("o", "plugin_call_output", r#"{"call_id":"call_2","name":"get_weather","output":"18 C"}"#),
        said("m", "message", &["It is 18 C."]),
    ]));
}

#[test]
fn calls_run_beside_one_another_and_results_find_their_call() {
    let call = |id: &str, call: &str| {
        let body = format!(r#"{{"call_id":"{call}","name":"look","arguments":""}}"#);
        whole(id, "mcp_call", &body)
    };
    let output =
        |id: &str, call: &str| whole(id, "mcp_call_output", &format!(r#"{{"call_id":"{call}","output":"of {call}"}}"#));
    insta::assert_snapshot!(golden(vec![
        call("a", "c1"),
        call("b", "c2"),
        output("y", "c2"),
        output("x", "c1"),
        // Told twice, and told of a call nobody heard of.
        output("z", "c1"),
        whole("w", "plugin_call_output", r#"{"call_id":"c9","name":"secret","output":"[1]"}"#),
    ]));
}

#[test]
fn a_call_of_the_agent_s_never_looks_like_one_for_the_client() {
    insta::assert_snapshot!(golden(vec![
        said("m", "message", &["Let me see."]),
        whole("c", "plugin_call", r#"{"call_id":"call_1","name":"look","arguments":"{}"}"#),
    ]));
}

#[test]
fn a_call_that_is_made_up_for_its_result_has_an_id_of_its_own() {
    let output = |text: &str| format!(r#"{{"output":{text:?}}}"#);
    let kind = "plugin_call_output";
    let two = vec![
        message("a", kind, "in_progress"),
        data("a", 0, &output("one")),
        data("a", 1, &output("two")),
        message("a", kind, "completed"),
    ];
    // The second content's would be the other message's.
    let record = record(vec![whole("a_1", kind, &output("zero")), two]);
    let told = replay(&record, "{}", Json::null());
    keeps_the_order_rules(&told, &record);
    assert_eq!(told.matches("tool-result").count(), 3, "{told}");
}

#[test]
fn reasoning_is_told_as_the_route_wants() {
    let messages = || vec![said("r", "reasoning", &["Let me", " think."]), said("m", "message", &["42"])];
    for (name, options) in [("drop", "{}"), ("text", r#"{"reasoning":"text"}"#), ("event", r#"{"reasoning":"event"}"#)]
    {
        insta::assert_snapshot!(format!("reasoning_as_{name}"), replay(&record(messages()), options, Json::null()));
    }
}

#[test]
fn two_messages_are_told_apart_unless_a_call_stands_between() {
    let messages = || {
        vec![
            said("a", "message", &["One."]),
            said("b", "message", &["Two."]),
            whole("c", "component_call", r#"{"call_id":"c1","name":"show","arguments":"{}"}"#),
            whole("o", "component_call_output", r#"{"call_id":"c1","output":"shown"}"#),
            said("d", "message", &["Three."]),
        ]
    };
    insta::assert_snapshot!(golden(messages()));
    let joined = replay(&record(messages()), r#"{"separator":"off"}"#, Json::null());
    assert!(!joined.contains("\\n\\n"), "{joined}");
}

#[test]
fn messages_that_overlap_are_told_one_after_the_other() {
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
    insta::assert_snapshot!(tell(&frames, "{}"));
}

#[test]
fn media_become_links_and_data_become_text() {
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
fn an_approval_is_an_interrupt_and_makes_no_call() {
    insta::assert_snapshot!(golden(vec![
        said("m", "message", &["May I?"]),
        whole(
            "a",
            "mcp_approval_request",
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
        ),
    ]));
}

#[test]
fn a_source_s_own_payload_is_told_unchanged_and_only_the_first_question_is_asked() {
    insta::assert_snapshot!(golden(vec![
        whole("c", "plugin_call", r#"{"call_id":"call_9","name":"pay","arguments":"{}"}"#),
        whole(
            "a",
            "mcp_approval_request",
            r#"{"id":"int-1","name":"input_required","arguments":"","interrupt":{"kind":"input","reason":"agent requested interrupt","payload":{"steps":[ 1.0 ]}}}"#,
        ),
        whole("b", "mcp_approval_request", r#"{"id":"appr_2","name":"x","arguments":"{}"}"#),
    ]));
}

#[test]
fn a_question_shows_its_schema() {
    let asked = golden(vec![whole(
        "a",
        "mcp_approval_request",
        r#"{"id":"q1","name":"city","arguments":"","interrupt":{"kind":"input","message":"Which city?","response_schema":{"type":"string"}}}"#,
    )]);
    assert!(
        asked.contains(r#"{"type":"interrupt","id":"q1","reason":"city","payload":{"message":"Which city?","response_schema":{"type":"string"}}}"#),
        "{asked}"
    );
}

#[test]
fn ends_are_told_as_the_page_says() {
    let failed = r#"{"object":"response","status":"failed","id":"r","error":{"code":"AGENT_ERROR","message":"the model is gone"}}"#;
    let canceled = r#"{"object":"response","status":"canceled","id":"r"}"#;
    let rejected = r#"{"object":"response","status":"rejected","id":"r"}"#;
    let error =
        r#"{"object":"message","status":"completed","id":"e","type":"error","code":"TOOL","message":"the tool broke"}"#;
    let hello = text("m", "Hel");
    let call = data("c", 0, r#"{"call_id":"c1","name":"look","arguments":"{}"}"#);
    let (created, completed) = (created(), completed());
    let mut table = String::new();
    for (name, frames) in [
        ("nothing at all", vec![created.as_str(), completed.as_str()]),
        ("failed before output", vec![created.as_str(), failed]),
        ("failed after output", vec![created.as_str(), &hello, failed]),
        ("failed in a call", vec![created.as_str(), &call, failed]),
        ("broken off", vec![created.as_str(), &hello]),
        ("rejected", vec![created.as_str(), rejected]),
        ("canceled before output", vec![created.as_str(), canceled]),
        ("canceled after output", vec![created.as_str(), &hello, canceled]),
        ("a complaint alone", vec![created.as_str(), error, completed.as_str()]),
        ("a complaint on the way", vec![created.as_str(), error, &hello, completed.as_str()]),
        ("a bare error", vec![r#"{"error":"Task u1:S is already in RUNNING state."}"#]),
    ] {
        table.push_str(&format!("# {name}\n{}", tell(&frames, "{}")));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn blocks_of_text_are_unwrapped_by_option() {
    let messages =
        |output: &str| vec![whole("o", "plugin_call_output", &format!(r#"{{"call_id":"c","output":{output:?}}}"#))];
    let told = |output: &str| replay(&record(messages(output)), r#"{"unwrap_tool_output":true}"#, Json::null());
    assert!(
        told(r#"[{"type": "text", "text": "18 C"}, {"type": "text", "text": ", sunny"}]"#).contains("\"18 C, sunny\"")
    );
    for kept in [r#"[{"type":"image"}]"#, "[]", "18 C", "[{\"type\":\"text\"}]"] {
        assert!(told(kept).contains(&format!("\"result\":{}", Json::from_serialize(kept).text())), "{kept}");
    }
}

#[test]
fn a_call_told_before_the_pause_is_not_told_again_after_it() {
    let labels = Json::parse(r#"{"calls":[{"id":"c9","done":false},{"id":"c8","done":true}]}"#).expect("JSON");
    let record = record(vec![
        whole("c", "plugin_call", r#"{"call_id":"c9","name":"send_mail","arguments":"{}"}"#),
        whole("o", "plugin_call_output", r#"{"call_id":"c9","output":"sent"}"#),
        whole("p", "plugin_call_output", r#"{"call_id":"c8","output":"old"}"#),
        said("m", "message", &["Done."]),
    ]);
    insta::assert_snapshot!(replay(&record, "{}", labels));
}

#[test]
fn a_text_said_anew_is_told_as_far_as_it_agrees() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.start_turn(Vec::new());
    let message = record.start_message(Announced::new("m", MessageType::Message, Role::Assistant));
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
    let told = replay(&record, "{}", Json::null());
    let texts: Vec<&str> = told.lines().filter_map(|line| line.split("\"content\":").nth(1)).collect();
    assert_eq!(texts, ["\"Hel\"}", "\"lo\"}", "\" you\"}"]);
}

#[test]
fn a_text_that_was_contradicted_goes_on_once_it_agrees_again() {
    let mut record = Record::new(Run::new(RUN, "demo", "s", NOW));
    record.start_turn(Vec::new());
    let message = record.start_message(Announced::new("m", MessageType::Message, Role::Assistant));
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
    let told = replay(&record, "{}", Json::null());
    let texts: Vec<&str> = told.lines().filter_map(|line| line.split("\"content\":").nth(1)).collect();
    assert_eq!(texts, ["\"Hello\"}", "\" you\"}", "\" there\"}"]);
}

// Laws

#[derive(Clone, Debug)]
enum Act {
    Begin(u8, u8),
    Grow(u8, String),
    End(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0..6_u8, 0..7_u8).prop_map(|(id, kind)| Act::Begin(id, kind)),
        (0..6_u8, "[a-z\"\\\\é{}]{0,4}").prop_map(|(id, text)| Act::Grow(id, text)),
        (0..6_u8).prop_map(Act::End),
    ];
    prop::collection::vec(act, 0..40)
}

/// Grows a record by whatever can be done at each point; `watch` sees it after each act.
fn perform(acts: &[Act], end: End, mut watch: impl FnMut(&Record)) -> Record {
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
    for act in acts {
        match act {
            Act::Begin(id, kind) => {
                if let Some(before) = open.remove(id) {
                    close(&mut record, before);
                }
                let announced = match kind {
                    0 | 1 => MessageType::Message,
                    2 => MessageType::PluginCall,
                    3 => MessageType::FunctionCall,
                    4 | 5 => MessageType::PluginCallOutput,
                    _ => MessageType::Reasoning,
                };
                let message = record.start_message(Announced::new(String::new(), announced.clone(), Role::Assistant));
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
            Act::Grow(id, text) => {
                if let Some((message, Some(content), kind)) = open.get(id)
                    && !matches!(kind, 4 | 5)
                {
                    record.push(*message, *content, text);
                }
            }
            Act::End(id) => {
                if let Some(before) = open.remove(id) {
                    close(&mut record, before);
                }
            }
        }
        watch(&record);
    }
    record.cut(end, None);
    watch(&record);
    record
}

/// Tells a record while it grows.
fn live(acts: &[Act], end: End, options: &str) -> (String, Record) {
    let mut exchange = open("/send-message", options);
    let about = about(Json::null());
    let mut out = Out::new();
    let mut next = 0;
    let mut begun = false;
    let record = perform(acts, end, |record| {
        if !begun {
            exchange.begin(RunView { record, about: &about, pending: &[] }, &mut out);
            begun = true;
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
    fn a_replay_is_what_was_told_live(acts in acts(), end in ends(), option in 0..3_usize) {
        let options = ["{}", r#"{"reasoning":"text"}"#, r#"{"reasoning":"event"}"#][option];
        let (live, record) = live(&acts, end, options);
        prop_assert_eq!(live, replay(&record, options, Json::null()));
    }

    #[test]
    fn every_stream_keeps_the_order_rules(acts in acts(), end in ends()) {
        let (told, record) = live(&acts, end, "{}");
        keeps_the_order_rules(&told, &record);
        nothing_is_lost(&told, &record);
    }
}
