//! Requests of every form, and the errors for invalid ones. Streams are in `streams.rs`.

mod support;

use interlingua_ag_kit::AgKit;
use interlingua_core::answer::{Answer, AnswerBody, AskPolicy, NATIVE_DECISIONS};
use interlingua_core::call::{Busy, Reply, RunView, Target};
use interlingua_core::exchange::Next;
use interlingua_core::model::Message;
use interlingua_core::pending::Pending;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Json, Out, ProtocolAdapter, RunCall, Thread};
use proptest::prelude::*;
use support::*;

/// The run that a body requests, in a new conversation.
fn run_call(body: &str, options: &str) -> RunCall {
    let mut exchange = open("/send-message", options);
    run_call_from(&mut *exchange, body)
}

fn run_call_from(exchange: &mut dyn Exchange, body: &str) -> RunCall {
    let call = match decode(exchange, body).expect("a request") {
        Call::Fetch(_) => exchange.on_not_found(&Fault::not_found("the run")).expect("the request continues"),
        call => call,
    };
    match call {
        Call::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

fn rejected(body: &str) -> String {
    let mut exchange = open("/send-message", "{}");
    let fault = decode(&mut *exchange, body).expect_err("the request is invalid");
    let mut out = Out::new();
    exchange.fail(&fault, &mut out);
    format!("{} {}", out.head.status, String::from_utf8_lossy(&out.body))
}

fn input(run: &RunCall) -> String {
    run.request.input.iter().map(|message| format!("{}\n", Json::from_serialize(message).text())).collect()
}

#[test]
fn messages_of_every_role_are_converted() {
    let run = run_call(
        r#"{"conversationId":"c1","messages":[
            {"role":"system","content":"Be brief."},
            {"role":"user","content":"hi","id":"m1"},
            {"role":"assistant","id":"m2","content":"Hello","toolCalls":[
                {"id":"t1","type":"function","function":{"name":"a","arguments":"{\"x\":1}"}},
                {"id":"t2","type":"function","function":{"name":"b","arguments":{"y":2}}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"t3","function":{"name":"c"}}]},
            {"role":"tool","toolCallId":"t1","content":"one"},
            {"role":"tool","tool_call_id":"t2","content":""},
            {"role":"user","content":[
                {"type":"text","text":"look"},
                {"type":"image","source":{"type":"url","value":"https://example.com/a.png"}},
                {"type":"image","source":{"type":"data","value":"AAAA","mimeType":"image/png"}},
                {"type":"audio","source":{"type":"data","value":"BBBB","mimeType":"audio/wav"}},
                {"type":"document","source":{"type":"file","value":"file_7"}},
                {"type":"binary","mimeType":"image/jpeg","data":"CCCC"},
                {"type":"binary","mimeType":"application/pdf","url":"https://example.com/f.pdf","filename":"f.pdf"}]}
        ],"state":{"a":1},"context":[],"forwardedProps":{"b":2},"odd":7}"#,
        "{}",
    );
    insta::assert_snapshot!(input(&run));

    assert_eq!(run.request.session_id.as_deref(), Some("c1"));
    assert_eq!(run.thread, Thread::Session("c1".into()));
    assert_eq!(
        Json::from_serialize(&run.request.extra).text(),
        r#"{"state":{"a":1},"context":[],"forwarded_props":{"b":2}}"#
    );
    assert_eq!((run.policy.busy, run.answer_policy.asking), (Some(Busy::Refuse), AskPolicy::OneByOne));
    assert!(!run.policy.detached && run.policy.stored);
}

#[test]
fn tool_parameters_are_an_object_or_a_json_string() {
    let tools = |parameters: &str| {
        let body = format!(
            r#"{{"conversationId":"c","messages":[{{"role":"user","content":"x"}}],"tools":[{{"name":"set_bg","description":"d"{parameters}}}]}}"#
        );
        run_call(&body, "{}").request.tools.expect("tools")[0].text().to_owned()
    };

    let expected = |parameters: &str| {
        format!(r#"{{"type":"function","function":{{"name":"set_bg","description":"d","parameters":{parameters}}}}}"#)
    };

    let schema = r#"{"type":"object","properties":{"color":{"type":"string"}}}"#;
    assert_eq!(tools(&format!(r#","parameters":{schema}"#)), expected(schema));
    assert_eq!(tools(&format!(r#","parameters":{}"#, Json::from_serialize(schema).text())), expected(schema));
    assert_eq!(tools(""), expected(r#"{"properties":{},"type":"object"}"#));
}

#[test]
fn a_request_without_conversation_id_starts_a_new_thread() {
    for body in [
        r#"{"messages":[{"role":"user","content":"x"}]}"#,
        r#"{"conversationId":"","messages":[{"role":"user","content":"x"}]}"#,
    ] {
        let mut exchange = open("/send-message", "{}");
        let Ok(Call::Run(run)) = decode(&mut *exchange, body) else { panic!("there is no conversation to look up") };
        assert_eq!((run.thread, run.request.session_id), (Thread::New, None));
    }
}

#[test]
fn an_answer_to_an_interrupt_may_be_any_json() {
    for (payload, expected) in [
        (r#","payload":"{\"approved\":true}""#, AnswerBody::Text("{\"approved\":true}".into())),
        (r#","payload":{"approved":true}"#, AnswerBody::Payload(Json::parse(r#"{"approved":true}"#).expect("JSON"))),
        (r#","payload":false"#, AnswerBody::Payload(Json::parse("false").expect("JSON"))),
        ("", AnswerBody::Payload(Json::null())),
    ] {
        let run = run_call(&format!(r#"{{"conversationId":"c4","resume":{{"interruptId":"int-1"{payload}}}}}"#), "{}");
        assert_eq!(run.answers, [Answer::new("int-1".into(), expected)]);
        assert!(run.request.input.is_empty());
    }
}

#[test]
fn bad_requests_are_refused_with_the_path_of_the_field() {
    let deep = "[".repeat(100_000);
    let mut table = String::new();
    for body in [
        "",
        "not json",
        "[]",
        "\"text\"",
        "{",
        r#"{"conversationId":7}"#,
        r#"{"messages":{}}"#,
        r#"{"conversationId":"c"}"#,
        r#"{"conversationId":"c","messages":[]}"#,
        r#"{"messages":[7]}"#,
        r#"{"messages":[{"content":"x"}]}"#,
        r#"{"messages":[{"role":"robot","content":"x"}]}"#,
        r#"{"messages":[{"role":"user"}]}"#,
        r#"{"messages":[{"role":"user","content":7}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"smell"}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"disk","value":"x"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"binary","mimeType":"a/b"}]}]}"#,
        r#"{"messages":[{"role":"system","content":["x"]}]}"#,
        r#"{"messages":[{"role":"tool","content":"x"}]}"#,
        r#"{"messages":[{"role":"tool","content":{"a":1},"toolCallId":"t"}]}"#,
        r#"{"messages":[{"role":"assistant","toolCalls":[{"function":{"name":"a"}}]}]}"#,
        r#"{"messages":[{"role":"assistant","toolCalls":[{"id":"a","function":{"arguments":"{}"}}]}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"tools":{}}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"tools":[{"description":"d"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"a","parameters":"{"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"a","parameters":"[]"}]}"#,
        r#"{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"a","parameters":[]}]}"#,
        r#"{"conversationId":"c","resume":{}}"#,
        r#"{"conversationId":"c","resume":{"interruptId":7}}"#,
        r#"{"conversationId":"c","resume":{"interruptId":""}}"#,
        r#"{"conversationId":"c","resume":"int-1"}"#,
        r#"{"threadId":"t","runId":"r","messages":[{"role":"user","content":"x","id":"1"}]}"#,
        deep.as_str(),
    ] {
        let label = if body.len() > 200 { "100,000 brackets" } else { body };
        table.push_str(&format!("{label}\n    {}\n", rejected(body)));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn only_json_is_accepted() {
    for (media, accepted) in [
        ("application/json", true),
        ("application/json; charset=utf-8", true),
        ("", true),
        ("text/plain", false),
        ("application/x-www-form-urlencoded", false),
    ] {
        let mut exchange = open("/send-message", "{}");
        let body = br#"{"messages":[{"role":"user","content":"x"}]}"#;
        match decode_with(&mut *exchange, body, media, &[]) {
            Ok(_) => assert!(accepted, "{media}"),
            Err(fault) => assert!(!accepted && fault.kind == FaultKind::UnsupportedMedia, "{media}: {fault}"),
        }
    }
    let mut exchange = open("/send-message", "{}");
    let fault = decode_with(&mut *exchange, b"{\"conversationId\":\"\xff\"}", "application/json", &[]);
    assert_eq!(fault.expect_err("invalid UTF-8").kind, FaultKind::Malformed);
}

#[test]
fn the_path_selects_among_several_agents() {
    let cloud = "/v1/aibot/bots/{agentId}/send-message";
    let body = br#"{"messages":[{"role":"user","content":"x"}]}"#;
    let ask = |agents: &[&str], path: &str, id: &str, options: &str| {
        let agents = agents.iter().map(|name| card(name, NATIVE_DECISIONS)).collect();
        let mut exchange = open_for(agents, path, options);
        match decode_with(&mut *exchange, body, "application/json", &[("agentId".into(), id.into())]) {
            Ok(Call::Run(run)) => run.agent,
            Ok(other) => panic!("{other:?}"),
            Err(fault) => fault.to_string(),
        }
    };

    assert_eq!(ask(&["a"], cloud, "whatever", "{}"), "a");
    assert_eq!(ask(&["a", "b"], cloud, "b", "{}"), "b");
    assert_eq!(ask(&["a", "b"], cloud, "c", "{}"), "AGENT_NOT_FOUND: unknown agent 'c': must be one of a, b");
    assert_eq!(ask(&["a", "b"], "/send-message", "", r#"{"agent":"b"}"#), "b");
    assert!(ask(&["a", "b"], "/send-message", "", "{}").starts_with("AGENT_NOT_FOUND: name the agent"));

    assert!(AgKit::mount(&mount(vec![card("a", NATIVE_DECISIONS)]), options(r#"{"agent":"c"}"#)).is_err());
}

#[test]
fn tools_stay_in_effect_until_the_next_request_with_tools() {
    let record =
        record(vec![data_message("c", "function_call", r#"{"call_id":"t1","name":"set_bg","arguments":"{}"}"#)]);
    let mut before = about(Json::null());
    before.request.tools =
        Some(vec![Json::parse(r#"{"type":"function","function":{"name":"set_bg"}}"#).expect("JSON")]);
    let next = |body: &str, options: &str| {
        let mut exchange = open("/send-message", options);
        let Ok(Call::Fetch(Target::Latest(session))) = decode(&mut *exchange, body) else {
            panic!("the conversation is looked up")
        };
        assert_eq!(session, "c2");
        let view = RunView { record: &record, info: &before, pending: &[] };
        match exchange.reply(Reply::Run(view), &mut Out::new()) {
            Ok(Next::Call(Call::Run(run))) => *run,
            other => panic!("{other:?}"),
        }
    };

    let result = r#"{"conversationId":"c2","messages":[{"role":"tool","content":"done","toolCallId":"t1"}]}"#;
    assert_eq!(next(result, "{}").request.tools, before.request.tools);
    assert_eq!(next(result, r#"{"sticky_tools":"off"}"#).request.tools, None);

    let none = r#"{"conversationId":"c2","tools":[],"messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(next(none, "{}").request.tools, Some(Vec::new()));
    assert_eq!(next(result, "{}").labels.text(), r#"{"calls":[{"id":"t1","done":false}]}"#);
}

#[test]
fn an_empty_request_needs_the_option_and_an_existing_conversation() {
    let body = r#"{"conversationId":"c"}"#;
    let mut exchange = open("/send-message", r#"{"allow_empty":true}"#);
    assert!(matches!(decode(&mut *exchange, body), Ok(Call::Fetch(_))));

    let missing = Fault::not_found("the run");
    assert!(exchange.on_not_found(&missing).is_none());
    let mut out = Out::new();
    exchange.fail(&missing, &mut out);
    assert_eq!(out.head.status, 400);
    assert!(String::from_utf8_lossy(&out.body).contains("\"path\":\"messages\""));
}

#[test]
fn the_user_id_comes_from_the_configured_header() {
    let body = r#"{"conversationId":"c","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(run_call(body, r#"{"user_header":"X-User"}"#).request.user_id.as_deref(), Some("ada"));
    assert_eq!(run_call(body, "{}").request.user_id, None);
}

#[test]
fn a_pending_interrupt_is_sent_again() {
    let interrupted = record(vec![
        data_message("t", "function_call", r#"{"call_id":"t1","name":"set_bg","arguments":"{}"}"#),
        data_message("a", "mcp_approval_request", r#"{"id":"appr_1","name":"send","arguments":"{}"}"#),
        data_message("b", "mcp_approval_request", r#"{"id":"appr_2","name":"send","arguments":"{}"}"#),
    ]);
    let all = interrupted.run().pending();
    let about = about(Json::null());
    let repeated = |pending: &[Pending], reason: Option<&str>| {
        let mut exchange = open("/send-message", "{}");
        run_call_from(&mut *exchange, r#"{"conversationId":"c","messages":[{"role":"user","content":"hello?"}]}"#);
        let mut out = Out::new();
        let view = RunView { record: &interrupted, info: &about, pending };
        assert!(matches!(exchange.reply(Reply::Waiting(view, reason), &mut out), Ok(Next::Done)));
        assert_eq!((out.head.status, out.head.get("content-type")), (200, Some("text/event-stream; charset=utf-8")));
        String::from_utf8(out.body.to_vec()).expect("UTF-8")
    };

    let output = replay(&interrupted, "{}", Json::null());
    let again = repeated(&all, None);
    assert!(output.ends_with(&again), "the same interrupt: {output}");
    assert!(repeated(&all[2..], None).contains(r#""id":"appr_2""#), "the next interrupt, once the first is answered");
    let explained = repeated(&all, Some("not understood"));
    let reason = "data: {\"type\":\"text\",\"content\":\"not understood\"}\n\n";
    assert_eq!(explained, format!("{reason}{again}"), "the reason comes first");
}

#[test]
fn interrupted_streams_end_with_an_error_and_quiet_ones_get_comments() {
    let mut exchange = open("/send-message", "{}");
    let mut out = Out::new();
    exchange.heartbeat(&mut out);
    exchange.interrupt(&Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down"), &mut out);
    let body =
        ": keep-alive\n\ndata: {\"type\":\"error\",\"error\":\"the gateway is shutting down\"}\n\ndata: [DONE]\n\n";
    assert_eq!(out.body, body.as_bytes());
    let mut out = Out::new();
    open("/send-message", r#"{"heartbeat":false}"#).heartbeat(&mut out);
    assert!(out.body.is_empty());
    exchange.head(&mut out.head);
    assert_eq!(out.head.get("cache-control"), Some("no-cache, no-transform"));
}

#[test]
fn health_is_reported_as_json() {
    let mut exchange = open("/healthz", "{}");
    assert!(matches!(decode(&mut *exchange, ""), Ok(Call::Nothing)));
    let mut out = Out::new();
    exchange.reply(Reply::Done, &mut out).expect("an answer");
    let body = String::from_utf8_lossy(&out.body).into_owned();
    let body = body.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    assert_eq!(
        body,
        r#"{"status":"healthy","timestamp":"2026-11-20T10:00:00Z","service":"interlingua","version":"VERSION","base_path":"/ag-kit"}"#
    );
}

#[test]
fn options_are_validated() {
    for invalid in [
        r#"{"agui":"auto"}"#,
        r#"{"reasoning":"loud"}"#,
        r#"{"separator":"perhaps"}"#,
        r#"{"colour":"red"}"#,
        r#"{"interrupt_ttl":"soon"}"#,
    ] {
        assert!(serde_json::from_str::<interlingua_ag_kit::Options>(invalid).is_err(), "{invalid}");
    }

    let schema = AgKit::options_schema();
    let properties = schema["properties"].as_object().expect("properties");
    // The schema has exactly the fields of the options.
    for name in properties.keys() {
        let error = serde_json::from_str::<interlingua_ag_kit::Options>(&format!("{{\"{name}\":[]}}"));
        assert!(!error.expect_err("options are never lists").to_string().contains("unknown field"), "{name}");
    }

    let error = serde_json::from_str::<interlingua_ag_kit::Options>(r#"{"?":1}"#).expect_err("unknown").to_string();
    assert_eq!(error.matches('`').count() / 2 - 1, properties.len(), "{error}");
}

#[test]
fn every_converted_message_can_be_parsed_again() {
    let run = run_call(r#"{"conversationId":"c","messages":[{"role":"tool","toolCallId":"t","content":"x"}]}"#, "{}");
    let text = Json::from_serialize(&run.request.input[0]);
    let node = interlingua_core::tree::Node::with_path("", text.raw());
    assert_eq!(Message::parse(&node).expect("a valid message"), run.request.input[0]);
}

/// JSON made of the protocol's field names and values.
fn near_miss_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("7".to_owned()),
        Just("\"{}\"".to_owned()),
        Just("\"user\"".to_owned()),
        Just("\"tool\"".to_owned()),
        Just("\"image\"".to_owned()),
        "[a-zé\u{1F600}]{0,4}".prop_map(|text| format!("{text:?}")),
    ];
    let name = prop::sample::select(vec![
        "conversationId",
        "messages",
        "tools",
        "resume",
        "interruptId",
        "payload",
        "role",
        "content",
        "toolCallId",
        "toolCalls",
        "id",
        "function",
        "name",
        "arguments",
        "parameters",
        "type",
        "source",
        "value",
        "mimeType",
    ]);

    leaf.prop_recursive(5, 64, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name.clone(), inner), 0..6).prop_map(|fields| {
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_json_body_is_accepted_or_refused_with_a_field(body in near_miss_json()) {
        let mut exchange = open("/send-message", "{}");
        if let Err(fault) = decode(&mut *exchange, &body) {
            let mut out = Out::new();
            exchange.fail(&fault, &mut out);
            prop_assert_eq!(out.head.status, 400);
            let output: serde_json::Value = serde_json::from_slice(&out.body).expect("JSON");
            prop_assert_eq!(output["error"]["path"].is_string(), fault.kind != FaultKind::Malformed, "{}", body);
        }
    }

    #[test]
    fn no_input_causes_a_panic(body in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode_with(&mut *open("/send-message", "{}"), &body, "application/json", &[]);
    }
}
