//! The events of each kind of output, one snapshot per kind (docs/protocols/responses.md#sequences).

mod support;

use interlingua_core::End;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, Content, ContentType, File, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart};
use interlingua_core_testkit::RunBuilder;
use support::{HELLO, stream, transcript};

const DECLARES: &str = r#"{"model":"demo","input":"hi","stream":true,"tools":[
    {"type":"function","name":"get_weather","parameters":{"type":"object"}},
    {"type":"custom","name":"run_code"},
    {"type":"namespace","name":"crm","tools":[{"type":"function","name":"find"}]}]}"#;

fn streamed(options: &str, body: &str, end: End, build: impl FnOnce(&mut RunBuilder)) -> String {
    let mut run = RunBuilder::begin_later();
    build(&mut run);
    transcript(&stream(options, body, &run.finish(end)).body)
}

#[test]
fn a_text_byte_by_byte() {
    let mut run = RunBuilder::begin_later();
    run.say(MessageType::Message, &["Hel", "lo"]);
    insta::assert_snapshot!(stream("{}", HELLO, &run.finish(End::Completed)).body);
}

#[test]
fn a_function_the_client_declared() {
    insta::assert_snapshot!(streamed("{}", DECLARES, End::Completed, |run| {
        run.call(MessageType::FunctionCall, "call_1", "get_weather", &["{\"city\":", "\"Paris\"}"]);
        run.call(MessageType::FunctionCall, "call_2", "find", &["{}"]);
        run.call(MessageType::FunctionCall, "call_3", "run_code", &[r#"{"input":"#, r#""print(\"x\")"}"#]);
    }));
}

#[test]
fn an_undeclared_function() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::FunctionCall, "call_1", "inner", &["{\"a\":1}"]);
        run.call(MessageType::FunctionCall, "call_2", "outer", &["{}"]);
        run.say(MessageType::Message, &["between"]);
        run.output(MessageType::FunctionCallOutput, "call_1", "\"done\"");
    }));
}

/// Agents that do not say at first whose a call is: the tool that they seemed to run is the client's.
#[test]
fn a_call_that_is_the_clients_after_all() {
    for (name, options) in [("shown", "{}"), ("hidden", r#"{"tool_items":"hide"}"#)] {
        let read = streamed(options, HELLO, End::Completed, |run| {
            let message = run.message(MessageType::PluginCall);
            let head = CallHead { call_id: "call_1".to_owned(), name: "locate".to_owned(), server_label: None };
            let content = run.record.start_content(message, ContentType::Data, Some(head));
            run.record.push(message, content, "{\"a\":1}");
            run.record.finish_content(message, content, None, Extra::new());
            run.record.finish_message(
                message,
                MessageEnd { kind: Some(MessageType::FunctionCall), ..MessageEnd::new(End::Completed) },
            );
        });
        insta::assert_snapshot!(format!("a_call_that_is_the_clients_after_all_{name}"), read);
    }
}

#[test]
fn tools_the_agent_runs_itself() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::PluginCall, "call_1", "get_weather", &["{\"city\":\"Paris\"}"]);
        run.call(MessageType::McpCall, "call_2", "get_time", &["{}"]);
        run.output(MessageType::McpCallOutput, "call_2", "noon");
        run.output(MessageType::PluginCallOutput, "call_1", r#"[{"type":"text","text":"18 C"}]"#);
        run.say(MessageType::Message, &["18 C at noon"]);
    }));
}

#[test]
fn a_failed_tool_and_one_without_an_output() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
        run.call(MessageType::PluginCall, "call_2", "b", &["{}"]);
        let output = run.message(MessageType::PluginCallOutput);
        run.json(output, r#"{"call_id":"call_1","output":"no such city"}"#);
        run.record.finish_message(output, MessageEnd::new(End::Failed));
    }));
}

#[test]
fn an_output_that_arrives_before_the_arguments_are_complete() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        for (kind, call_id) in [(MessageType::PluginCall, "call_1"), (MessageType::FunctionCall, "call_2")] {
            let call = run.message(kind);
            let head = CallHead { call_id: call_id.into(), name: "a".into(), server_label: None };
            let arguments = run.record.start_content(call, ContentType::Data, Some(head));
            run.output(MessageType::PluginCallOutput, call_id, "early");
            run.record.push(call, arguments, "{}");
            run.record.finish_content(call, arguments, None, Extra::new());
            run.end(call);
        }
    }));
}

#[test]
fn an_agent_that_never_reports_outputs() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
    }));
}

#[test]
fn an_output_without_its_call() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        run.output(MessageType::McpCallOutput, "call_9", "sent");
        run.output(MessageType::FunctionCallOutput, "call_8", "the client's own");
    }));
}

#[test]
fn tools_hidden_and_in_pairs() {
    let build = |run: &mut RunBuilder| {
        run.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
        run.output(MessageType::PluginCallOutput, "call_1", "x");
        run.call(MessageType::FunctionCall, "call_2", "b", &["{}"]);
        run.output(MessageType::FunctionCallOutput, "call_2", "y");
    };

    let hidden = streamed(r#"{"tool_items":"hide"}"#, HELLO, End::Completed, build);
    let pairs = streamed(r#"{"tool_items":"pair"}"#, HELLO, End::Completed, build);
    insta::assert_snapshot!(format!("hide\n{hidden}\npair\n{pairs}"));
}

#[test]
fn reasoning_in_its_four_forms() {
    let build = |run: &mut RunBuilder| {
        let reasoning = run.message(MessageType::Reasoning);
        run.text(reasoning, ContentType::Text, &["Let me", " think."]);
        run.end(reasoning);
        run.say(MessageType::Message, &["42"]);
    };

    let mut all = String::new();
    for form in ["summary", "text", "both", "hide"] {
        let events = streamed(&format!(r#"{{"reasoning":"{form}"}}"#), HELLO, End::Completed, build);
        all.push_str(&format!("{form}\n{events}\n"));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn an_answer_that_starts_before_the_reasoning_ends() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let reasoning = run.message(MessageType::Reasoning);
        let thinking = run.record.start_content(reasoning, ContentType::Text, None);
        run.record.push(reasoning, thinking, "Let me");
        let answer = run.message(MessageType::Message);
        run.text(answer, ContentType::Text, &["42"]);
        run.record.push(reasoning, thinking, " think.");
        run.record.finish_content(reasoning, thinking, None, Extra::new());
        run.end(reasoning);
        run.text(answer, ContentType::Text, &[" is", " it."]);
        run.end(answer);
    }));
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
fn unsuccessful_ends() {
    let mut all = String::new();
    for end in [End::Failed, End::Rejected, End::Incomplete, End::Canceled] {
        let events = streamed("{}", DECLARES, end, |run| {
            run.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
            let call = run.message(MessageType::FunctionCall);
            let head = CallHead { call_id: "call_2".into(), name: "get_weather".into(), server_label: None };
            let arguments = run.record.start_content(call, ContentType::Data, Some(head));
            run.record.push(call, arguments, "{\"ci");
            let message = run.message(MessageType::Message);
            let text = run.record.start_content(message, ContentType::Text, None);
            run.record.push(message, text, "Partial");
            run.record.push(message, text, " answer");
        });
        all.push_str(&format!("{}\n{events}\n", end.as_str()));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn approvals_questions_and_logins() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        for data in [
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
            r#"{"id":"appr_2","name":"pay","arguments":"{}","interrupt":{"kind":"approval","message":"Pay?"}}"#,
            r#"{"id":"ask_1","name":"date","arguments":"","interrupt":{"kind":"input","message":"When?","response_schema":{"type":"string"}}}"#,
            r#"{"id":"auth_1","name":"login","interrupt":{"kind":"auth","payload":{"url":"https://a/b"}}}"#,
        ] {
            let message = run.message(MessageType::McpApprovalRequest);
            run.json(message, data);
            run.end(message);
        }
    }));
}

#[test]
fn media_data_and_tool_lists() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::Message);
        run.text(message, ContentType::Text, &["See: "]);
        run.value(message, Content::new(Body::Image(Some("https://a/b.png".into()))));
        run.value(message, Content::new(Body::Image(Some("data:image/png;base64,AAAA".into()))));
        run.value(
            message,
            Content::new(Body::File(File {
                url: Some("https://a/b.pdf".into()),
                name: Some("b.pdf".into()),
                ..File::default()
            })),
        );
        run.json(message, r#"{"a":1}"#);
        run.end(message);
        let tools = run.message(MessageType::McpListTools);
        run.json(tools, r#"{"id":"x","server_label":"weather","tools":[{"name":"t","input_schema":{},"description":null,"annotations":null}],"error":null}"#);
        run.end(tools);
    }));
}

#[test]
fn error_messages_and_unknown_types() {
    insta::assert_snapshot!(streamed(r#"{"custom_items":"extension"}"#, HELLO, End::Completed, |run| {
        let error = run.message(MessageType::Error);
        let end = MessageEnd {
            code: Some("TOOL_NOT_FOUND".into()),
            message: Some("no such tool".into()),
            ..MessageEnd::new(End::Failed)
        };
        run.record.finish_message(error, end);
        let custom = run.message(MessageType::Other("a2ui_thing".into()));
        run.json(custom, r#"{"b":2}"#);
        run.end(custom);
        let empty = run.message(MessageType::Message);
        run.text(empty, ContentType::Text, &[]);
        run.end(empty);
    }));
}

#[test]
fn annotations_and_the_phase_of_an_answer() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let mut announced = MessageStart::new("", MessageType::Message, Role::Assistant);
        announced.metadata = Json::parse(r#"{"phase":"final_answer"}"#);
        let message = run.record.start_message(announced);
        run.text(message, ContentType::Text, &["see there"]);
        let annotations =
            r#"{"annotations":[{"type":"url_citation","url":"https://a","title":"A","start_index":0,"end_index":3}]}"#;
        let end = MessageEnd { metadata: Json::parse(annotations), ..MessageEnd::new(End::Completed) };
        run.record.finish_message(message, end);
    }));
}

#[test]
fn sent_text_is_never_retracted() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        for (first, second, third) in [("Hel", "Hello", "!"), ("Hel", "Good bye", "!"), ("", "whole", " text")] {
            let message = run.message(MessageType::Message);
            let content = run.record.start_content(message, ContentType::Text, None);
            run.record.push(message, content, first);
            run.record.replace(message, content, second);
            run.record.push(message, content, third);
            run.record.finish_content(message, content, None, Extra::new());
            run.end(message);
        }
    }));
}

#[test]
fn a_version_that_extends_the_sent_text_continues_it() {
    let events = streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::Message);
        let content = run.record.start_content(message, ContentType::Text, None);
        run.record.push(message, content, "Hello");
        run.record.replace(message, content, "Good bye");
        run.record.push(message, content, "!");
        run.record.replace(message, content, "Hell");
        run.record.push(message, content, "o you");
        run.record.push(message, content, " there");
        run.record.finish_content(message, content, None, Extra::new());
        run.end(message);
    });

    let deltas: Vec<&str> =
        events.lines().filter_map(|line| line.split("\"delta\":\"").nth(1)?.split('"').next()).collect();
    assert_eq!(deltas, ["Hello", " you", " there"], "{events}");
    assert!(events.contains(r#""text":"Hello you there""#), "{events}");
}

#[test]
fn a_background_stream_is_queued_first() {
    let body = r#"{"model":"demo","input":"hi","stream":true,"background":true}"#;
    insta::assert_snapshot!(streamed("{}", body, End::Completed, |run| run.say(MessageType::Message, &["done"])));
}

#[test]
fn a_component_without_a_fixed_form() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let call = run.message(MessageType::ComponentCall);
        run.json(call, r#"{"component":"chart","rows":[1,2]}"#);
        run.end(call);
        let output = run.message(MessageType::ComponentCallOutput);
        run.json(output, r#"{"drawn":true}"#);
        run.end(output);
    }));
}
