//! Each kind of content as a client gets it (docs/protocols/chat-completions.md#what-a-client-receives).

use interlingua_core::End;
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Body, Content, ContentType, File, MessageType, Role};
use interlingua_core::run::{CallHead, MessageEnd, MessageStart};
use serde_json::{Value, json};

use crate::strict;
use crate::support::{HELLO, RunBuilder, route, transcript};

const DECLARES: &str = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"tools":[
    {"type":"function","function":{"name":"get_weather"}},{"type":"custom","custom":{"name":"run_code"}}]}"#;

fn streamed(options: &str, body: &str, end: End, build: impl FnOnce(&mut RunBuilder)) -> String {
    let mut run = RunBuilder::begin();
    build(&mut run);
    transcript(&route(options).create(body).stream(&run.finish(end)).body)
}

fn whole(options: &str, body: &str, build: impl FnOnce(&mut RunBuilder)) -> Value {
    let mut run = RunBuilder::begin();
    build(&mut run);
    route(options).create(body).whole(&run.finish(End::Completed)).json()
}

#[test]
fn a_text_byte_by_byte() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &["Hel", "lo\u{2028}"]);
    let body = r#"{"model":"de\"mo","messages":[{"role":"user","content":"hi"}],"stream":true,
                   "stream_options":{"include_usage":true},"service_tier":"flex"}"#;
    insta::assert_snapshot!(route(r#"{"any_model":true}"#).create(body).stream(&run.finish(End::Completed)).body);
}

#[test]
fn a_whole_answer() {
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"metadata":{"a":"b"}}"#;
    insta::assert_json_snapshot!(whole("{}", body, |run| {
        run.say(MessageType::Reasoning, &["Let me think."]);
        run.say(MessageType::Message, &["See ", "there."]);
        run.call(MessageType::FunctionCall, "call_1", "get_weather", &[]);
    }));
}

#[test]
fn calls_of_the_client_and_of_the_agent() {
    let build = |run: &mut RunBuilder| {
        run.call(MessageType::PluginCall, "call_0", "look_up", &["{}"]);
        run.output(MessageType::PluginCallOutput, "call_0", r#"[{"type":"text","text":"18 C"}]"#);
        run.say(MessageType::Message, &["Let me see."]);
        run.call(MessageType::FunctionCall, "call_1", "get_weather", &["{\"city\":", "\"Paris\"}"]);
        run.call(MessageType::FunctionCall, "call_2", "run_code", &[r#"{"input":"#, r#""print(\"x\")"}"#]);
        run.call(MessageType::FunctionCall, "call_3", "inner", &["{\"a\":1}"]);
        run.call(MessageType::FunctionCall, "call_4", "outer", &[]);
        run.output(MessageType::FunctionCallOutput, "call_3", "\"done\"");
    };
    let mut all = String::new();
    for options in ["{}", r#"{"tool_items":"reasoning"}"#, r#"{"tool_items":"text"}"#] {
        all.push_str(&format!("{options}\n{}\n", streamed(options, DECLARES, End::Completed, build)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn the_deprecated_form_has_one_call() {
    let body =
        r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"functions":[{"name":"a"}]}"#;
    insta::assert_snapshot!(streamed("{}", body, End::Completed, |run| {
        run.call(MessageType::FunctionCall, "call_1", "a", &["{\"x\":", "1}"]);
        run.call(MessageType::FunctionCall, "call_2", "a", &["{\"x\":2}"]);
    }));
}

#[test]
fn a_call_that_is_the_clients_after_all() {
    let read = streamed("{}", DECLARES, End::Completed, |run| {
        let message = run.message(MessageType::PluginCall);
        let head = CallHead { call_id: "call_1".to_owned(), name: "get_weather".to_owned(), server_label: None };
        let content = run.record.start_content(message, ContentType::Data, Some(head));
        run.record.push(message, content, "{\"a\":1}");
        run.record.finish_content(message, content, None, Extra::new());
        let end = MessageEnd { kind: Some(MessageType::FunctionCall), ..MessageEnd::new(End::Completed) };
        run.record.finish_message(message, end);
    });
    assert!(read.contains(r#""id":"call_1""#) && read.contains("finish tool_calls"), "{read}");
}

#[test]
fn texts_are_joined_and_overlapping_ones_follow_each_other() {
    insta::assert_snapshot!(streamed("{}", HELLO, End::Completed, |run| {
        let reasoning = run.message(MessageType::Reasoning);
        let thought = run.record.start_content(reasoning, ContentType::Text, None);
        run.record.push(reasoning, thought, "Let me");
        let (one, other) = (run.message(MessageType::Message), run.message(MessageType::Message));
        let (first, second) = (
            run.record.start_content(one, ContentType::Text, None),
            run.record.start_content(other, ContentType::Text, None),
        );
        run.record.push(one, first, "One");
        run.record.push(other, second, "Two");
        run.record.push(reasoning, thought, " think.");
        run.record.push(one, first, ".");
        for (message, content) in [(reasoning, thought), (one, first), (other, second)] {
            run.record.finish_content(message, content, None, Extra::new());
            run.end(message);
        }
    }));
}

#[test]
fn reasoning_in_its_four_forms() {
    let build = |run: &mut RunBuilder| {
        run.say(MessageType::Reasoning, &["Let me", " think."]);
        run.say(MessageType::Reasoning, &["So."]);
        run.say(MessageType::Message, &["42"]);
    };
    let mut all = String::new();
    for form in ["reasoning_content", "reasoning", "both", "hide"] {
        let chunks = streamed(&format!(r#"{{"reasoning":"{form}"}}"#), HELLO, End::Completed, build);
        all.push_str(&format!("{form}\n{chunks}\n"));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn media_data_errors_and_refusals() {
    let body =
        r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"modalities":["text","audio"]}"#;
    let build = |run: &mut RunBuilder| {
        let message = run.message(MessageType::Message);
        run.text(message, ContentType::Text, &["See: "]);
        for value in [
            Body::Image(Some("https://a/b.png".into())),
            Body::Image(Some("data:image/png;base64,AAAA".into())),
            Body::Audio { data: Some("AAAA".into()), format: Some("wav".into()) },
            Body::Video(Some("https://a/b.mp4".into())),
            Body::File(File { data: Some("AAAAAAAA".into()), name: Some("b.bin".into()), ..File::default() }),
            Body::Data(Json::parse(r#"{"a":1}"#).expect("JSON")),
        ] {
            run.value(message, Content::new(value));
        }
        run.text(message, ContentType::Refusal, &["I cannot ", "help."]);
        run.end(message);
        let error = run.message(MessageType::Error);
        let end = MessageEnd { message: Some("no such tool".into()), ..MessageEnd::new(End::Failed) };
        run.record.finish_message(error, end);
    };
    let shown = streamed("{}", body, End::Completed, build);
    let other = streamed(r#"{"inline_images":"markdown","data":"hide"}"#, HELLO, End::Completed, build);
    insta::assert_snapshot!(format!("{shown}\n{other}"));
}

/// Servers send the extra content of a call before or after it; both forms are shown, once.
#[test]
fn extra_content_of_calls_reaches_the_client() {
    let signed = |value: &str| json!({ "google": { "thought_signature": value } });
    let metadata = |value: &str| Json::parse(&json!({ "extra_content": signed(value), "origin": "x" }).to_string());
    let build = |run: &mut RunBuilder| {
        for (number, name) in [(1, "get_weather"), (2, "get_weather"), (3, "run_code"), (4, "undeclared")] {
            let mut start = MessageStart::new("", MessageType::FunctionCall, Role::Assistant);
            start.metadata = metadata("early").filter(|_| number == 1);
            let message = run.record.start_message(start);
            let head = CallHead { call_id: format!("call_{number}"), name: name.to_owned(), server_label: None };
            let content = run.record.start_content(message, ContentType::Data, Some(head));
            run.record.push(message, content, r#"{"input":"x"}"#);
            run.record.finish_content(message, content, None, Extra::new());
            let late = metadata(if number == 1 { "early" } else { "late" });
            run.record.finish_message(message, MessageEnd { metadata: late, ..MessageEnd::new(End::Completed) });
        }
    };

    let calls = &whole("{}", &DECLARES.replace("\"stream\":true,", ""), build)["choices"][0]["message"]["tool_calls"];
    let found: Vec<&Value> = calls.as_array().expect("calls").iter().map(|call| &call["extra_content"]).collect();
    assert_eq!(found, [&signed("early"), &signed("late"), &signed("late"), &signed("late")]);

    let mut run = RunBuilder::begin();
    build(&mut run);
    let stream = route("{}").create(DECLARES).stream(&run.finish(End::Completed)).body;
    let pieces = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let pieces: Vec<Value> = pieces.map(|chunk| chunk["choices"][0]["delta"]["tool_calls"][0].clone()).collect();
    let with_extra: Vec<_> = pieces.iter().filter(|piece| piece.get("extra_content").is_some()).collect();
    let shown: Vec<_> = with_extra.iter().map(|piece| (piece["index"].as_u64(), &piece["extra_content"])).collect();
    let expected = [signed("early"), signed("late"), signed("late"), signed("late")];
    assert_eq!(shown, (0..).map(Some).zip(&expected).collect::<Vec<_>>());
    assert_eq!(with_extra[0]["id"], "call_1", "in the piece that opens the call, if it is known by then");
    assert_eq!(with_extra[1]["function"]["arguments"], "", "readers take a function for granted");
    assert_eq!(with_extra[3]["id"], "call_4");
    assert!(!stream.contains("origin"));

    let old = DECLARES.replace(r#""tools":["#, r#""functions":[{"name":"get_weather"}],"tools":["#);
    assert!(!streamed("{}", &old, End::Completed, build).contains("extra_content"), "the old form has no place for it");
}

#[test]
fn citations_are_moved_to_where_their_text_is() {
    let read = whole("{}", HELLO, |run| {
        run.say(MessageType::Message, &["Zuerst: ä."]);
        let message = run.message(MessageType::Message);
        run.text(message, ContentType::Text, &["see there"]);
        let notes = r#"{"annotations":[{"type":"url_citation","url":"https://a","title":"A","start_index":4,"end_index":9},
                        {"type":"file_citation","file_id":"f"}]}"#;
        let end = MessageEnd { metadata: Json::parse(notes), ..MessageEnd::new(End::Completed) };
        run.record.finish_message(message, end);
    });
    let message = &read["choices"][0]["message"];
    let [note] = message["annotations"].as_array().expect("a list").as_slice() else { panic!("{message}") };
    let (start, end) = (&note["url_citation"]["start_index"], &note["url_citation"]["end_index"]);
    let text: Vec<char> = message["content"].as_str().expect("a text").chars().collect();
    let place = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("small");
    assert_eq!(text[place(start)..place(end)].iter().collect::<String>(), "there");
}

#[test]
fn sent_text_is_never_retracted() {
    let chunks = streamed("{}", HELLO, End::Completed, |run| {
        let message = run.message(MessageType::Message);
        let content = run.record.start_content(message, ContentType::Text, None);
        run.record.push(message, content, "Hello");
        run.record.replace(message, content, "Good bye");
        run.record.push(message, content, "!");
        run.record.replace(message, content, "Hello you");
        run.record.finish_content(message, content, None, Extra::new());
        run.end(message);
    });
    assert!(chunks.contains(r#"{"content":"Hello"}"#) && chunks.contains(r#"{"content":" you"}"#), "{chunks}");
    assert!(!chunks.contains("bye"), "{chunks}");
}

#[test]
fn unsuccessful_ends_are_errors_or_have_a_reason() {
    let mut all = String::new();
    for end in [End::Failed, End::Rejected, End::Incomplete, End::Canceled] {
        let build = |run: &mut RunBuilder| {
            let call = run.message(MessageType::FunctionCall);
            let head = CallHead { call_id: "call_2".into(), name: "get_weather".into(), server_label: None };
            let arguments = run.record.start_content(call, ContentType::Data, Some(head));
            run.record.push(call, arguments, "{\"ci");
            let message = run.message(MessageType::Message);
            let text = run.record.start_content(message, ContentType::Text, None);
            run.record.push(message, text, "Partial");
        };
        let mut run = RunBuilder::begin();
        build(&mut run);
        let record = run.finish(end);
        let chunks = transcript(&route("{}").create(DECLARES).stream(&record).body);
        let reply = route("{}").create(DECLARES).whole(&record);
        all.push_str(&format!("{}\n{chunks}whole: {}\n\n", end.as_str(), reply.line()));
    }
    insta::assert_snapshot!(all);
}

/// The approvals and questions of a run.
fn asks(run: &mut RunBuilder) {
    for data in [
        r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a@b.c\"}","server_label":"mailer"}"#,
        r#"{"id":"ask_1","name":"date","arguments":"","interrupt":{"kind":"input","message":"When?","response_schema":{"type":"string"}}}"#,
        r#"{"id":"auth_1","name":"login","interrupt":{"kind":"auth","payload":{"url":"https://a/b"}}}"#,
    ] {
        run.data(MessageType::McpApprovalRequest, data);
    }
}

#[test]
fn a_person_is_asked_in_words_or_by_calls() {
    let declares = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}],"stream":true,"tools":[
        {"type":"function","function":{"name":"request_approval"}},{"type":"function","function":{"name":"request_input"}}]}"#;
    let build = |run: &mut RunBuilder| {
        run.say(MessageType::Message, &["One moment."]);
        asks(run);
    };
    let mut all = String::new();
    for (options, body) in [
        ("{}", HELLO),
        ("{}", declares),
        (r#"{"approvals":"text"}"#, declares),
        (r#"{"approvals":"tool"}"#, HELLO),
        (r#"{"approvals":"refuse"}"#, HELLO),
    ] {
        all.push_str(&format!("{options}\n{}\n", streamed(options, body, End::Completed, build)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_session_that_waits_is_answered_with_the_question() {
    let mut run = RunBuilder::begin();
    asks(&mut run);
    let record = run.finish(End::Completed);
    let streamed = route("{}").create(HELLO).waiting(&record);
    assert_eq!(streamed.head.get("content-type"), Some("text/event-stream; charset=utf-8"));
    let read = strict::read(&streamed.body);
    let whole = route("{}").create(&HELLO.replace("true", "false")).waiting(&record).json();
    assert_eq!(whole["choices"][0]["message"], Value::Object(read.message));
    let text = whole["choices"][0]["message"]["content"].as_str().expect("a text");
    assert!(text.ends_with("\n[approval appr_1]"), "{text}");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");

    let refused = route(r#"{"approvals":"refuse"}"#).create(HELLO).waiting(&record).body;
    assert_eq!(strict::read(&refused).error["code"], json!("approval_required"));
}
