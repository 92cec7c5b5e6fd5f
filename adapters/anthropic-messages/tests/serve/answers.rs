//! Answers of each kind, one snapshot per kind (docs/protocols/anthropic-messages.md#answers).

use interlingua_core::End;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, Content, ContentType, File, MessageType};
use interlingua_core::run::{CallHead, MessageEnd, RunError};

use crate::strict;
use crate::support::{HELLO, RunBuilder, route, transcript};

const DECLARES: &str = r#"{"model":"demo","max_tokens":100,"messages":[{"role":"user","content":"hi"}],"stream":true,
    "thinking":{"type":"adaptive"},"tools":[{"name":"get_weather","input_schema":{"type":"object"}}]}"#;

fn streamed(options: &str, body: &str, end: End, build: impl FnOnce(&mut RunBuilder)) -> String {
    let mut run = RunBuilder::begin();
    build(&mut run);
    let answer = route(options).create(body).stream(&run.finish(end));
    strict::read(&answer.body);
    transcript(&answer.body)
}

#[test]
fn a_text_byte_by_byte() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["Hel", "lo"]);
    let answer = route("{}").create(HELLO).stream(&run.finish(End::Completed));
    assert_eq!(answer.head.get("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(answer.head.get("request-id"), answer.head.get("x-request-id"));
    insta::assert_snapshot!(answer.body);
}

#[test]
fn calls_of_the_client_and_of_the_agent() {
    insta::assert_snapshot!(streamed("{}", DECLARES, End::Completed, |run| {
        run.say(MessageType::Message, &["Let me look."]);
        run.call(MessageType::PluginCall, "call_1", "get_time", &["{\"zone\":", "\"CET\"}"]);
        run.output(MessageType::PluginCallOutput, "call_1", r#"[{"type":"text","text":"noon"}]"#);
        run.call(MessageType::FunctionCall, "call_2", "get_weather", &["{\"city\":", "\"Paris\"}"]);
        run.call(MessageType::FunctionCall, "call_3", "get_weather", &[]);
        run.call(MessageType::FunctionCall, "call_4", "inner", &["{}"]);
        run.output(MessageType::FunctionCallOutput, "call_4", "done");
        run.call(MessageType::FunctionCall, "call_5", "outer", &["not JSON"]);
        run.output(MessageType::McpCallOutput, "call_0", "sent");
    }));
}

#[test]
fn an_output_that_comes_while_a_text_is_open_waits_for_its_end() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::McpCall, "call_1", "get_time", &["{}"]);
        let message = run.message(MessageType::Message);
        let text = run.record.start_content(message, ContentType::Text, None);
        run.record.push(message, text, "While I ");
        run.output(MessageType::McpCallOutput, "call_1", "noon");
        run.record.push(message, text, "wait");
        run.record.finish_content(message, text, None, Extra::new());
        run.end(message);
    }));
}

#[test]
fn a_failed_tool_and_one_without_an_output() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
        run.call(MessageType::PluginCall, "call_2", "b", &["[1]"]);
        let output = run.message(MessageType::PluginCallOutput);
        run.value(output, Content::data(&serde_json::json!({ "call_id": "call_1", "output": "no such city" })));
        run.record.finish_message(output, MessageEnd::new(End::Failed));
    }));
}

#[test]
fn tools_in_text_and_hidden() {
    let build = |run: &mut RunBuilder| {
        run.call(MessageType::PluginCall, "call_1", "a", &["{\"x\":1}"]);
        run.output(MessageType::PluginCallOutput, "call_1", "y");
        run.say(MessageType::Message, &["z"]);
    };
    let text = streamed(r#"{"tool_items":"text"}"#, HELLO, End::Completed, build);
    let hidden = streamed(r#"{"tool_items":"hide"}"#, HELLO, End::Completed, build);
    insta::assert_snapshot!(format!("text\n{text}\nhide\n{hidden}"));
}

/// Agents that do not say at first whose a call is.
#[test]
fn a_call_that_is_the_clients_after_all() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::PluginCall);
        let head = CallHead { call_id: "call_1".to_owned(), name: "locate".to_owned(), server_label: None };
        let content = run.record.start_content(message, ContentType::Data, Some(head));
        run.record.push(message, content, "{\"a\":1}");
        run.record.finish_content(message, content, None, Extra::new());
        run.record.finish_message(
            message,
            MessageEnd { kind: Some(MessageType::FunctionCall), ..MessageEnd::new(End::Completed) },
        );
    }));
}

#[test]
fn thoughts_with_signatures() {
    let build = |run: &mut RunBuilder| {
        let thought = run.message(MessageType::Reasoning);
        run.text(thought, ContentType::Text, &["Let me", " think."]);
        let metadata = Json::parse(r#"{"signature":"c2ln","origin":"anthropic-messages/claude"}"#);
        run.record.finish_message(thought, MessageEnd { metadata, ..MessageEnd::new(End::Completed) });
        let redacted = run.message(MessageType::Reasoning);
        let metadata = Json::parse(r#"{"redacted":"ZGF0YQ=="}"#);
        run.record.finish_message(redacted, MessageEnd { metadata, ..MessageEnd::new(End::Completed) });
        run.say(MessageType::Reasoning, &["Unsigned."]);
        run.say(MessageType::Message, &["42"]);
    };

    let mut all = String::new();
    for thinking in [r#"{"type":"adaptive"}"#, r#"{"type":"adaptive","display":"omitted"}"#, r#"{"type":"disabled"}"#] {
        let body = DECLARES.replace(r#"{"type":"adaptive"}"#, thinking);
        all.push_str(&format!("{thinking}\n{}\n", streamed("{}", &body, End::Completed, build)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn media_data_and_sources() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::Message);
        run.text(message, ContentType::Text, &["See: "]);
        run.value(message, Content::new(Body::Image(Some("https://a/b.png".into()))));
        run.value(message, Content::new(Body::Image(Some("data:image/png;base64,AAAAAAAA".into()))));
        let file = File { url: Some("https://a/b.pdf".into()), name: Some("b.pdf".into()), ..File::default() };
        run.value(message, Content::new(Body::File(file)));
        run.value(message, Content::data(&serde_json::json!({ "a": 1 })));
        run.text(message, ContentType::Text, &["as they say"]);
        let metadata = Json::parse(
            r#"{"annotations":[{"type":"url_citation","url":"https://a","title":"A"},{"type":"file_citation"}]}"#,
        );
        run.record.finish_message(message, MessageEnd { metadata, ..MessageEnd::new(End::Completed) });
    }));
}

#[test]
fn what_the_agent_asks() {
    let build = |run: &mut RunBuilder| {
        for data in [
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
            r#"{"id":"ask_1","name":"date","interrupt":{"kind":"input","message":"When?","response_schema":{"type":"string"}}}"#,
            r#"{"id":"auth_1","name":"login","interrupt":{"kind":"auth","payload":{"url":"https://a/b"}}}"#,
        ] {
            run.data(MessageType::McpApprovalRequest, data);
        }
    };
    let mut all = String::new();
    for form in ["auto", "tool", "refuse"] {
        let options = format!(r#"{{"approvals":"{form}"}}"#);
        all.push_str(&format!("{form}\n{}\n", streamed(&options, HELLO, End::Completed, build)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_session_that_waits_is_answered_with_the_question() {
    let mut run = RunBuilder::begin();
    let asked = r#"{"id":"appr_1","name":"send_mail","arguments":"{}","server_label":"mailer"}"#;
    run.data(MessageType::McpApprovalRequest, asked);
    let record = run.finish(End::Completed);

    let streamed = route("{}").create(HELLO).waiting(&record);
    assert_eq!(streamed.head.get("content-type"), Some("text/event-stream; charset=utf-8"));
    let read = strict::read(&streamed.body);
    let whole = route("{}").create(&HELLO.replace("true", "false")).waiting(&record).json();
    assert_eq!(whole["content"], read.message["content"]);
    assert_eq!(whole["stop_reason"], "end_turn");
    let text = whole["content"][0]["text"].as_str().expect("a text");
    assert!(text.ends_with("\n[approval appr_1]"), "{text}");
}

#[test]
fn ends() {
    let mut all = String::new();
    for (end, code) in [
        (End::Incomplete, "max_output_tokens"),
        (End::Incomplete, "model_context_window_exceeded"),
        (End::Incomplete, "pause_turn"),
        (End::Incomplete, "content_filter"),
        (End::Failed, "MODEL_CONTEXT_LENGTH_EXCEEDED"),
        (End::Failed, "MODEL_QUOTA_EXCEEDED"),
        (End::Failed, "overloaded_error"),
        (End::Failed, "AGENT_UNKNOWN_ERROR"),
        (End::Rejected, ""),
        (End::Canceled, ""),
    ] {
        let mut run = RunBuilder::begin();
        let message = run.message(MessageType::Message);
        let text = run.record.start_content(message, ContentType::Text, None);
        run.record.push(message, text, "Partial answer");
        let error = RunError { code: code.to_owned(), message: "what went wrong".to_owned() };
        run.record.close(end, (!code.is_empty()).then_some(error));
        let record = run.record;
        let mut whole = route("{}").create(&HELLO.replace("true", "false"));
        let whole = whole.whole(&record);
        let last = transcript(&route("{}").create(HELLO).stream(&record).body);
        let last = last.lines().skip_while(|line| !line.contains("Partial")).skip(1).collect::<Vec<_>>().join("\n");
        let retry = whole.head.get("x-should-retry").unwrap_or("-");
        all.push_str(&format!("{} {code}\n{last}\n{} retry {retry}\n\n", end.as_str(), whole.line()));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_refusal() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::Message);
        run.text(message, ContentType::Refusal, &["I cannot ", "help."]);
        run.end(message);
    }));
}

#[test]
fn sent_text_is_never_retracted() {
    insta::assert_snapshot!(streamed("{}", DECLARES, End::Completed, |run| {
        for (first, second, third) in [("Hel", "Hello", "!"), ("Hel", "Good bye", "!"), ("", "whole", " text")] {
            let message = run.message(MessageType::Message);
            let content = run.record.start_content(message, ContentType::Text, None);
            run.record.push(message, content, first);
            run.record.replace(message, content, second);
            run.record.push(message, content, third);
            run.record.finish_content(message, content, None, Extra::new());
            run.end(message);
        }
        for versions in [["{\"a\":", "{\"a\":1}"], ["{\"a\":1", "{\"b\":2}"], ["{}", "{\"c\":3}"]] {
            let message = run.message(MessageType::FunctionCall);
            let head = CallHead { call_id: "call".into(), name: "get_weather".into(), server_label: None };
            let content = run.record.start_content(message, ContentType::Data, Some(head));
            run.record.push(message, content, versions[0]);
            run.record.replace(message, content, versions[1]);
            run.record.finish_content(message, content, None, Extra::new());
            run.end(message);
        }
    }));
}

#[test]
fn a_quiet_stream_gets_pings_once_it_has_begun() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["x"]);
    let record = run.finish(End::Completed);
    let mut sent = route("{}").create(HELLO);
    let info = sent.info(&record);
    let mut out = interlingua_core::Out::new();
    let view = interlingua_core_testkit::TestRun::with_info(&record, info);
    sent.exchange.begin(view.view(), &mut out);
    sent.exchange.heartbeat(&mut out);
    assert_eq!(&out.body[..], b": ping\n\n");
    out.body.clear();
    sent.exchange.encode(record.step(0).expect("a step"), &mut out);
    out.body.clear();
    sent.exchange.heartbeat(&mut out);
    assert_eq!(&out.body[..], b"event: ping\ndata: {\"type\":\"ping\"}\n\n");
}
