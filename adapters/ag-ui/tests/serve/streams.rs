//! Streams of single cases: outcomes, versions, state, and what stands for things that messages here do not have.

use interlingua_core::agent_event::{
    AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent,
};
use interlingua_core::model::{Body, Content, MessageType, Role};
use interlingua_core::{End, Event, Json, Out, Record};
use interlingua_core_testkit::{self as testkit, RunBuilder, TestRun};
use serde_json::{Value, json};

use super::support::{events, hello, info, kinds, record, started, stream, stream_of};
use super::verify::verify;

fn last(output: &str) -> Value {
    events(output).pop().expect("an end")
}

#[test]
fn outcomes_are_those_that_the_client_knows() {
    let of = |script: &str, version: Option<&str>| {
        last(&stream_of(&testkit::script(script).record(), "{}", &hello(version)))["outcome"].clone()
    };
    assert_eq!(of("greeting", Some("1.0")), Value::Null);
    assert_eq!(of("client_tool", Some("1.0"))["type"], "success");
    assert_eq!(of("client_tool", None), Value::Null);
    assert_eq!(of("canceled", Some("1.0")), json!({ "type": "cancelled" }));
    assert_eq!(of("canceled", None), Value::Null);
    assert_eq!(of("approval", None)["type"], "interrupt");
    assert_eq!(of("approval", Some("2.7"))["type"], "interrupt");
}

#[test]
fn what_an_agent_asks_is_an_interrupt() {
    let mut all = String::new();
    for script in ["approval", "approval_extended", "approvals_parallel", "input_question", "auth"] {
        let output = stream(&testkit::script(script).record());
        all.push_str(&format!(
            "{script}\n{}\n",
            serde_json::to_string_pretty(&last(&output)["outcome"]).expect("JSON")
        ));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn an_older_front_end_also_receives_a_custom_event() {
    let output = stream_of(&testkit::script("approval").record(), r#"{"legacy_on_interrupt":true}"#, &hello(None));
    let events = events(&output);
    let asked: Vec<&Value> = events.iter().filter(|event| event["name"] == "on_interrupt").collect();
    assert!(asked.len() == 1 && asked[0]["value"]["action_request"].is_object(), "{output}");
}

fn kept(event: &str) -> AgentEvent<'static> {
    let data = Json::parse(&format!(r#"{{"protocol":"ag-ui","event":{event}}}"#)).expect("JSON");
    let mut event = AgentEvent::whole("e", MessageType::ProtocolEvent, Role::Assistant, ContentValue::OwnedData(data));
    if let AgentEvent::Message(message) = &mut event {
        message.id = None;
    }
    event
}

#[test]
fn events_of_an_agent_of_this_protocol_are_passed_on() {
    let record = record(&[
        AgentEvent::started(),
        kept(r#"{"type":"STATE_SNAPSHOT","snapshot":{"n":1.50}}"#),
        AgentEvent::text("m", "one"),
        kept(r#"{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":2}]}"#),
        kept(r#"{"type":"STEP_STARTED","stepName":"plan"}"#),
        AgentEvent::text("m", " two"),
        kept(r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"PLAN","content":{}}"#),
        kept(r#"{"type":"CUSTOM","name":"x","value":null}"#),
        AgentEvent::completed(),
    ]);
    let output = stream(&record);
    let events = events(&output);
    verify(&events, true);
    assert!(output.contains(r#""snapshot":{"n":1.50}"#), "byte for byte: {output}");
    let expected = [
        "RUN_STARTED",
        "STATE_SNAPSHOT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "STATE_DELTA",
        "STEP_STARTED",
        "TEXT_MESSAGE_CONTENT",
        "ACTIVITY_SNAPSHOT",
        "CUSTOM",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "RUN_FINISHED",
    ];
    assert_eq!(kinds(&events), expected, "{output}");
}

/// A run with the output of a call, as an agent of this protocol gives it: an image, then the text, then a value that
/// only the agent can read.
fn output_of_this_protocol() -> Record {
    let origin = r#""id":"t1","origin":"ag-ui/travel""#;
    let metadata = |more: &str| Json::parse(&format!("{{{origin}{more}}}")).map(JsonRef::Owned);
    let output = Json::parse(r#"{"call_id":"c1","name":"draw","output":"drawn"}"#).expect("JSON");
    let part = CallPart { call_id: "c1".into(), name: "draw".into(), arguments: "{}".into(), server_label: None };
    let image = ContentValue::Image(Some("https://example.com/a.png".into()));
    let content = |value, index| AgentEvent::Content(ContentEvent::new("t1", ContentUpdate::Final, value).at(index));
    record(&[
        AgentEvent::started(),
        AgentEvent::whole("c1", MessageType::PluginCall, Role::Assistant, ContentValue::Call(part)),
        AgentEvent::Message(MessageEvent {
            id: Some("t1".into()),
            kind: Some(MessageType::PluginCallOutput),
            role: Some(Role::Tool),
            metadata: metadata(""),
            ..MessageEvent::default()
        }),
        content(image, 0),
        content(ContentValue::OwnedData(output), 1),
        AgentEvent::Message(MessageEvent {
            id: Some("t1".into()),
            end: Some(End::Completed),
            metadata: metadata(r#","encrypted_content":"sealed""#),
            ..MessageEvent::default()
        }),
        AgentEvent::completed(),
    ])
}

#[test]
fn an_output_of_an_agent_of_this_protocol_is_sent_before_its_message_ends() {
    let record = output_of_this_protocol();
    let ends_output = |event: &Event| matches!(event, Event::MessageFinished { message: 1 });
    let end = record.steps(0).position(|step| ends_output(&step.event)).expect("the output ends");

    for (version, content) in [(None, json!("drawn")), (Some("1.0"), Value::Null)] {
        let (mut exchange, run) = started("{}", &hello(version));
        let shown = TestRun::with_info(&record, info(&record, run.labels));
        let mut out = Out::new();
        exchange.begin(shown.view(), &mut out);
        for step in record.steps(0).take(end) {
            exchange.encode(step, &mut out);
        }
        let early = events(std::str::from_utf8(&out.body).expect("UTF-8"));
        let results: Vec<&Value> = early.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").collect();
        let [result] = results.as_slice() else { panic!("{early:?}") };
        match version {
            None => assert_eq!(result["content"], content),
            Some(_) => assert_eq!(
                (&result["content"][0]["text"], &result["content"][1]["type"]),
                (&json!("drawn"), &json!("image"))
            ),
        }

        let all = events(&stream_of(&record, "{}", &hello(version)));
        verify(&all, version.is_some());
        assert_eq!(all.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count(), 1, "{all:?}");
        let sealed: Vec<&Value> = all.iter().filter(|event| event["encryptedValue"] == "sealed").collect();
        assert!(sealed.len() == 1 && sealed[0]["entityId"] == result["messageId"], "{all:?}");
    }
    let output = stream_of(&record, r#"{"reasoning":"drop"}"#, &hello(None));
    assert!(!output.contains("REASONING_") && output.contains("TOOL_CALL_RESULT"), "{output}");
}

#[test]
fn reasoning_goes_out_as_configured() {
    let record = testkit::script("reasoning_beside").record();
    let kinds_of = |options: &str| {
        let events = events(&stream_of(&record, options, &hello(None)));
        kinds(&events).into_iter().map(str::to_owned).filter(|kind| !kind.contains("CONTENT")).collect::<Vec<_>>()
    };
    let has = |options: &str, word: &str| kinds_of(options).iter().any(|kind| kind.starts_with(word));
    assert!(has("{}", "REASONING_MESSAGE_START") && !has("{}", "THINKING"));
    assert!(has(r#"{"reasoning":"thinking"}"#, "THINKING_START") && !has(r#"{"reasoning":"thinking"}"#, "REASONING"));
    assert!(!has(r#"{"reasoning":"drop"}"#, "REASONING") && !has(r#"{"reasoning":"drop"}"#, "THINKING"));
}

#[test]
fn media_are_custom_events_and_links() {
    let record = testkit::script("image_url").record();
    let of = |options: &str| stream_of(&record, options, &hello(None));
    let (custom, link) = (r#""name":"content""#, "![image](");
    for (options, has_custom, has_link) in [
        ("{}", true, true),
        (r#"{"media":"custom"}"#, true, false),
        (r#"{"media":"link"}"#, false, true),
        (r#"{"media":"drop"}"#, false, false),
    ] {
        let output = of(options);
        assert_eq!((output.contains(custom), output.contains(link)), (has_custom, has_link), "{options}: {output}");
    }
}

/// A run whose tool answers with a text and a picture.
fn run_with_pictured_result(url: &str) -> Record {
    let mut run = RunBuilder::begin();
    run.call(MessageType::PluginCall, "c1", "draw", &["{}"]);
    let output = run.message(MessageType::PluginCallOutput);
    run.json(output, r#"{"call_id":"c1","output":"drawn"}"#);
    run.value(output, Content::new(Body::Image(Some(url.to_owned()))));
    run.end(output);
    run.finish(End::Completed)
}

#[test]
fn the_option_media_applies_to_tool_results_and_their_snapshot() {
    let record = run_with_pictured_result("https://a.example/p.png");
    let link = json!("drawn\n\n![image](https://a.example/p.png)");
    for version in [None, Some("1.0")] {
        for (media, has_media) in [("both", true), ("custom", true), ("link", false), ("drop", false)] {
            let options = format!(r#"{{"history":"gateway","media":"{media}"}}"#);
            let output = stream_of(&record, &options, &hello(version));
            let events = events(&output);
            let of_type = |kind: &str| events.iter().find(|event| event["type"] == kind).expect("an event");
            let content = &of_type("TOOL_CALL_RESULT")["content"];
            let shown = of_type("MESSAGES_SNAPSHOT")["messages"].as_array().expect("a list");
            let shown = shown.iter().find(|message| message["role"] == "tool").expect("a result");
            assert_eq!(shown["content"], *content, "{options} {version:?}");
            let has_custom = output.contains(r#""name":"content""#);
            match (media, version) {
                ("link", _) => assert_eq!(*content, link),
                (_, Some(_)) if has_media => assert_eq!(content.as_array().expect("parts").len(), 2),
                _ => assert_eq!(*content, "drawn"),
            }
            assert_eq!(has_custom, has_media && version.is_none(), "{options} {version:?}: {output}");
        }
    }
}

#[test]
fn the_whole_conversation_is_sent_to_clients_that_want_it() {
    let output = stream_of(&testkit::script("plugin").record(), r#"{"history":"gateway"}"#, &hello(Some("1.0")));
    let events = events(&output);
    let snapshot = &events[events.len() - 2];
    assert_eq!(snapshot["type"], "MESSAGES_SNAPSHOT");
    insta::assert_json_snapshot!(snapshot["messages"]);
}

#[test]
fn consecutive_calls_belong_to_one_message() {
    let output = stream(&testkit::script("client_tools_parallel").record());
    let parents: Vec<Value> = events(&output)
        .iter()
        .filter(|event| event["type"] == "TOOL_CALL_START")
        .map(|event| event["parentMessageId"].clone())
        .collect();
    assert!(parents.len() > 1 && parents.iter().all(|parent| *parent == parents[0] && parent.is_string()), "{output}");
}

#[test]
fn a_run_that_failed_leaves_its_half_message_open() {
    let record = testkit::script("failure_after_output").record();
    assert_eq!(record.run().end, Some(End::Failed));
    let output = stream(&record);
    assert!(!output.contains("TEXT_MESSAGE_END") && last(&output)["type"] == "RUN_ERROR", "{output}");
}
