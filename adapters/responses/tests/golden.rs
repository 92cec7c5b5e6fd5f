//! What each kind of answer becomes: one snapshot a kind, told event by event (sections 10 and 16).

mod support;

use interlingua_core::End;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, Content, ContentType, File, MessageType, Role};
use interlingua_core::run::{Announced, CallHead, MessageEnd};
use support::{HELLO, Tale, stream, tale};

const DECLARES: &str = r#"{"model":"demo","input":"hi","stream":true,"tools":[
    {"type":"function","name":"get_weather","parameters":{"type":"object"}},
    {"type":"custom","name":"run_code"},
    {"type":"namespace","name":"crm","tools":[{"type":"function","name":"find"}]}]}"#;

fn shown(options: &str, body: &str, end: End, tell: impl FnOnce(&mut Tale)) -> String {
    let mut told = Tale::begin();
    tell(&mut told);
    tale(&stream(options, body, &told.finish(end)).body)
}

#[test]
fn a_text_byte_by_byte() {
    let mut told = Tale::begin();
    told.says(&["Hel", "lo"]);
    insta::assert_snapshot!(stream("{}", HELLO, &told.finish(End::Completed)).body);
}

#[test]
fn a_function_the_client_declared() {
    insta::assert_snapshot!(shown("{}", DECLARES, End::Completed, |told| {
        told.call(MessageType::FunctionCall, "call_1", "get_weather", &["{\"city\":", "\"Paris\"}"]);
        told.call(MessageType::FunctionCall, "call_2", "find", &["{}"]);
        told.call(MessageType::FunctionCall, "call_3", "run_code", &[r#"{"input":"#, r#""print(\"x\")"}"#]);
    }));
}

#[test]
fn a_function_nobody_declared() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        told.call(MessageType::FunctionCall, "call_1", "inner", &["{\"a\":1}"]);
        told.call(MessageType::FunctionCall, "call_2", "outer", &["{}"]);
        told.says(&["between"]);
        told.output(MessageType::FunctionCallOutput, "call_1", "\"done\"");
    }));
}

#[test]
fn tools_the_agent_runs_itself() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        told.call(MessageType::PluginCall, "call_1", "get_weather", &["{\"city\":\"Paris\"}"]);
        told.call(MessageType::McpCall, "call_2", "get_time", &["{}"]);
        told.output(MessageType::McpCallOutput, "call_2", "noon");
        told.output(MessageType::PluginCallOutput, "call_1", r#"[{"type":"text","text":"18 C"}]"#);
        told.says(&["18 C at noon"]);
    }));
}

#[test]
fn a_tool_that_fails_and_one_without_an_end() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        told.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
        told.call(MessageType::PluginCall, "call_2", "b", &["{}"]);
        let output = told.message(MessageType::PluginCallOutput);
        told.data(output, r#"{"call_id":"call_1","output":"no such city"}"#);
        told.0.finish_message(output, MessageEnd::new(End::Failed));
    }));
}

#[test]
fn an_output_that_comes_before_the_arguments_are_whole() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        for (kind, call_id) in [(MessageType::PluginCall, "call_1"), (MessageType::FunctionCall, "call_2")] {
            let call = told.message(kind);
            let head = CallHead { call_id: call_id.into(), name: "a".into(), server_label: None };
            let arguments = told.0.start_content(call, ContentType::Data, Some(head));
            told.output(MessageType::PluginCallOutput, call_id, "early");
            told.0.push(call, arguments, "{}");
            told.0.finish_content(call, arguments, None, Extra::new());
            told.end(call);
        }
    }));
}

#[test]
fn an_agent_that_never_tells_outputs() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        told.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
    }));
}

#[test]
fn an_output_without_its_call() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        told.output(MessageType::McpCallOutput, "call_9", "sent");
        told.output(MessageType::FunctionCallOutput, "call_8", "the client's own");
    }));
}

#[test]
fn tools_hidden_and_in_pairs() {
    let tell = |told: &mut Tale| {
        told.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
        told.output(MessageType::PluginCallOutput, "call_1", "x");
        told.call(MessageType::FunctionCall, "call_2", "b", &["{}"]);
        told.output(MessageType::FunctionCallOutput, "call_2", "y");
    };
    let hidden = shown(r#"{"tool_items":"hide"}"#, HELLO, End::Completed, tell);
    let pairs = shown(r#"{"tool_items":"pair"}"#, HELLO, End::Completed, tell);
    insta::assert_snapshot!(format!("hide\n{hidden}\npair\n{pairs}"));
}

#[test]
fn reasoning_in_its_four_forms() {
    let tell = |told: &mut Tale| {
        let thought = told.message(MessageType::Reasoning);
        told.text(thought, ContentType::Text, &["Let me", " think."]);
        told.end(thought);
        told.says(&["42"]);
    };
    let mut all = String::new();
    for form in ["summary", "text", "both", "hide"] {
        let told = shown(&format!(r#"{{"reasoning":"{form}"}}"#), HELLO, End::Completed, tell);
        all.push_str(&format!("{form}\n{told}\n"));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn an_answer_that_begins_before_the_thought_ends() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        let thought = told.message(MessageType::Reasoning);
        let thinking = told.0.start_content(thought, ContentType::Text, None);
        told.0.push(thought, thinking, "Let me");
        let answer = told.message(MessageType::Message);
        told.text(answer, ContentType::Text, &["42"]);
        told.0.push(thought, thinking, " think.");
        told.0.finish_content(thought, thinking, None, Extra::new());
        told.end(thought);
        told.text(answer, ContentType::Text, &[" is", " it."]);
        told.end(answer);
    }));
}

#[test]
fn a_refusal() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        let message = told.message(MessageType::Message);
        told.text(message, ContentType::Refusal, &["I cannot ", "help."]);
        told.end(message);
    }));
}

#[test]
fn ends_that_are_no_success() {
    let mut all = String::new();
    for end in [End::Failed, End::Rejected, End::Incomplete, End::Canceled] {
        let told = shown("{}", DECLARES, end, |told| {
            told.call(MessageType::PluginCall, "call_1", "a", &["{}"]);
            let call = told.message(MessageType::FunctionCall);
            let head = CallHead { call_id: "call_2".into(), name: "get_weather".into(), server_label: None };
            let arguments = told.0.start_content(call, ContentType::Data, Some(head));
            told.0.push(call, arguments, "{\"ci");
            let message = told.message(MessageType::Message);
            let text = told.0.start_content(message, ContentType::Text, None);
            told.0.push(message, text, "Partial");
            told.0.push(message, text, " answer");
        });
        all.push_str(&format!("{}\n{told}\n", end.as_str()));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn approvals_questions_and_logins() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        for data in [
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
            r#"{"id":"appr_2","name":"pay","arguments":"{}","interrupt":{"kind":"approval","message":"Pay?"}}"#,
            r#"{"id":"ask_1","name":"date","arguments":"","interrupt":{"kind":"input","message":"When?","response_schema":{"type":"string"}}}"#,
            r#"{"id":"auth_1","name":"login","interrupt":{"kind":"auth","payload":{"url":"https://a/b"}}}"#,
        ] {
            let message = told.message(MessageType::McpApprovalRequest);
            told.data(message, data);
            told.end(message);
        }
    }));
}

#[test]
fn media_data_and_lists_of_tools() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        let message = told.message(MessageType::Message);
        told.text(message, ContentType::Text, &["See: "]);
        told.value(message, Content::new(Body::Image(Some("https://a/b.png".into()))));
        told.value(message, Content::new(Body::Image(Some("data:image/png;base64,AAAA".into()))));
        told.value(
            message,
            Content::new(Body::File(File {
                url: Some("https://a/b.pdf".into()),
                name: Some("b.pdf".into()),
                ..File::default()
            })),
        );
        told.data(message, r#"{"a":1}"#);
        told.end(message);
        let tools = told.message(MessageType::McpListTools);
        told.data(tools, r#"{"id":"x","server_label":"weather","tools":[{"name":"t","input_schema":{},"description":null,"annotations":null}],"error":null}"#);
        told.end(tools);
    }));
}

#[test]
fn errors_within_and_types_nobody_knows() {
    insta::assert_snapshot!(shown(r#"{"custom_items":"extension"}"#, HELLO, End::Completed, |told| {
        let error = told.message(MessageType::Error);
        let end = MessageEnd {
            code: Some("TOOL_NOT_FOUND".into()),
            message: Some("no such tool".into()),
            ..MessageEnd::new(End::Failed)
        };
        told.0.finish_message(error, end);
        let custom = told.message(MessageType::Other("a2ui_thing".into()));
        told.data(custom, r#"{"b":2}"#);
        told.end(custom);
        let empty = told.message(MessageType::Message);
        told.text(empty, ContentType::Text, &[]);
        told.end(empty);
    }));
}

#[test]
fn annotations_and_phases_that_came_with_the_answer() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        let mut announced = Announced::new("", MessageType::Message, Role::Assistant);
        announced.metadata = Json::parse(r#"{"phase":"final_answer"}"#);
        let message = told.0.start_message(announced);
        told.text(message, ContentType::Text, &["see there"]);
        let annotations =
            r#"{"annotations":[{"type":"url_citation","url":"https://a","title":"A","start_index":0,"end_index":3}]}"#;
        let end = MessageEnd { metadata: Json::parse(annotations), ..MessageEnd::new(End::Completed) };
        told.0.finish_message(message, end);
    }));
}

#[test]
fn what_was_told_stands() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        for (first, second, third) in [("Hel", "Hello", "!"), ("Hel", "Good bye", "!"), ("", "whole", " text")] {
            let message = told.message(MessageType::Message);
            let content = told.0.start_content(message, ContentType::Text, None);
            told.0.push(message, content, first);
            told.0.replace(message, content, second);
            told.0.push(message, content, third);
            told.0.finish_content(message, content, None, Extra::new());
            told.end(message);
        }
    }));
}

#[test]
fn what_agrees_again_with_what_was_told_goes_on_from_there() {
    let told = shown("{}", HELLO, End::Completed, |told| {
        let message = told.message(MessageType::Message);
        let content = told.0.start_content(message, ContentType::Text, None);
        told.0.push(message, content, "Hello");
        told.0.replace(message, content, "Good bye");
        told.0.push(message, content, "!");
        told.0.replace(message, content, "Hell");
        told.0.push(message, content, "o you");
        told.0.push(message, content, " there");
        told.0.finish_content(message, content, None, Extra::new());
        told.end(message);
    });
    let deltas: Vec<&str> =
        told.lines().filter_map(|line| line.split("\"delta\":\"").nth(1)?.split('"').next()).collect();
    assert_eq!(deltas, ["Hello", " you", " there"], "{told}");
    assert!(told.contains(r#""text":"Hello you there""#), "{told}");
}

#[test]
fn a_background_stream_is_queued_first() {
    let body = r#"{"model":"demo","input":"hi","stream":true,"background":true}"#;
    insta::assert_snapshot!(shown("{}", body, End::Completed, |told| told.says(&["done"])));
}

#[test]
fn a_component_without_a_fixed_form() {
    insta::assert_snapshot!(shown("{}", HELLO, End::Completed, |told| {
        let call = told.message(MessageType::ComponentCall);
        told.data(call, r#"{"component":"chart","rows":[1,2]}"#);
        told.end(call);
        let output = told.message(MessageType::ComponentCallOutput);
        told.data(output, r#"{"drawn":true}"#);
        told.end(output);
    }));
}
