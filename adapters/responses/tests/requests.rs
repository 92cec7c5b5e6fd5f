//! Requests as agents see them (section 15), and what they build on (section 12).

mod support;

use interlingua_core::call::{Reply, SessionCall, SessionItem, SessionView, Target};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Message, MessageType};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{Call, Delivery, End, Thread};
use serde_json::{Value, json};
use support::{Tale, about, pending, response_id, route, run_id};

/// What the agent is asked, as JSON.
fn asked(options: &str, body: &Value) -> Value {
    let asked = route(options).ask("POST", "/responses", &body.to_string());
    let call = asked.run_call();
    let mut value = serde_json::to_value(&call.request).expect("JSON");
    if !call.preamble.is_empty() {
        value["preamble"] = serde_json::to_value(&call.preamble).expect("JSON");
    }
    value
}

#[test]
fn every_setting_reaches_the_agent() {
    insta::assert_json_snapshot!(asked(
        "{}",
        &json!({
            "model": "demo", "instructions": "Be kind.", "input": "hi", "temperature": 0.7, "top_p": 1, "max_output_tokens": 50,
            "presence_penalty": -1, "frequency_penalty": 0.5, "top_logprobs": 3, "parallel_tool_calls": false,
            "max_tool_calls": 4, "metadata": {"a": "b"}, "truncation": "auto", "service_tier": "flex",
            "reasoning": {"effort": "low", "summary": null}, "user": "u-1", "safety_identifier": "s-1",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}, "verbosity": "low"},
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
                {"type": "function", "name": "bare"},
                {"type": "custom", "name": "code", "format": {"type": "text"}},
                {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "f"}]},
                {"type": "mcp", "server_label": "x", "server_url": "https://x", "authorization": "secret", "headers": {"k": "secret"}},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "function", "name": "f"},
        })
    ));
}

#[test]
fn every_item_reaches_the_agent() {
    insta::assert_json_snapshot!(asked(
        "{}",
        &json!({
            "model": "demo",
            "input": [
                {"role": "developer", "content": "rules"},
                {"role": "user", "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "high"},
                    {"type": "input_file", "file_url": "https://a/b.pdf", "filename": "b.pdf"},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
                    {"type": "input_video", "video_url": "https://a/b.mp4"},
                ]},
                {"type": "message", "id": "msg_x", "role": "assistant", "status": "completed", "phase": "commentary", "content": [
                    {"type": "output_text", "text": "I see", "annotations": []}, {"type": "refusal", "refusal": "no"},
                ]},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "xyz"},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                {"type": "custom_tool_call", "call_id": "c2", "name": "code", "input": "print(1)"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_image", "image_url": "u"}]},
                {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": "18 C"},
                {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
                {"type": "compaction_trigger"},
                {"role": "user", "content": "go on"},
            ],
        })
    ));
}

#[test]
fn tools_are_not_offered_where_none_are_to_be_called() {
    let body = json!({"model": "demo", "tools": [{"type": "function", "name": "f"}], "tool_choice": "none"});
    assert!(asked("{}", &body).get("tools").is_none());
    let ignored =
        asked(r#"{"client_tools":"ignore"}"#, &json!({"model": "demo", "tools": [{"type": "function", "name": "f"}]}));
    assert!(ignored.get("tools").is_none());
}

#[test]
fn options_change_what_the_agent_is_told() {
    let json_wanted = json!({"model": "demo", "input": "x", "text": {"format": {"type": "json_object"}}});
    let instructed = asked(r#"{"structured_output":"instruct"}"#, &json_wanted);
    assert!(instructed["preamble"][0]["content"][0]["text"].as_str().expect("text").contains("JSON object"));
    assert!(instructed.get("text").is_none());
    assert_eq!(asked(r#"{"forward_model":true}"#, &json_wanted)["model"], "demo");
    let thought =
        json!({"model": "demo", "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]});
    assert_eq!(asked(r#"{"reasoning_input":"drop"}"#, &thought)["input"], json!([]));
    let refused =
        json!({"model": "demo", "input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]});
    assert_eq!(asked(r#"{"refusal_input":"text"}"#, &refused)["input"][0]["content"][0]["type"], "text");
}

#[test]
fn the_answer_is_delivered_as_it_was_asked_for() {
    let asked = |body: &str| {
        let asked = route("{}").ask("POST", "/responses", body);
        let call = asked.run_call();
        (
            call.delivery,
            call.policy.detached,
            call.policy.first_response == FirstResponse::Immediate,
            call.policy.stored,
            call.thread.clone(),
            call.id,
        )
    };
    let fresh = Some(run_id(0x100));
    assert_eq!(asked(r#"{"model":"demo"}"#), (Delivery::Collect, false, false, true, Thread::New, fresh));
    assert_eq!(
        asked(r#"{"model":"demo","stream":true,"store":false}"#),
        (Delivery::Stream, false, false, false, Thread::New, fresh)
    );
    assert_eq!(
        asked(r#"{"model":"demo","background":true}"#),
        (Delivery::Background, true, true, true, Thread::New, fresh)
    );
    assert_eq!(
        asked(r#"{"model":"demo","background":true,"stream":true}"#),
        (Delivery::Stream, true, true, true, Thread::New, fresh)
    );
    let detached = route(r#"{"disconnect":"detach"}"#).ask("POST", "/responses", r#"{"model":"demo"}"#);
    assert!(detached.run_call().policy.detached);
}

#[test]
fn a_chain_goes_on_after_its_response() {
    let mut told = Tale::begin();
    told.call(MessageType::FunctionCall, "call_1", "f", &["{}"]);
    let record = told.finish(End::Completed);
    let body = |call: &str| {
        json!({"model": "demo", "previous_response_id": response_id(1),
            "input": [{"type": "function_call_output", "call_id": call, "output": "x"}]})
        .to_string()
    };
    let ask = |call: &str, stored: bool| {
        let asked = route("{}").ask("POST", "/responses", &body(call));
        assert!(matches!(&asked.outcome, Ok(Call::Fetch(Target::Run(run))) if *run == run_id(1)));
        let mut about = about(&record, Json::null());
        about.stored = stored;
        let pending = pending(&record);
        let view = interlingua_core::call::RunView { record: &record, about: &about, pending: &pending };
        asked.answered(Reply::Run(view)).expect_err("something else is asked")
    };
    let next = ask("call_1", true);
    let call = next.run_call();
    assert_eq!(call.thread, Thread::After(run_id(1)));
    assert_eq!(call.request.input[0].kind, MessageType::FunctionCallOutput);

    // An unknown call is looked for in the whole session before it is refused.
    let next = ask("call_9", true);
    assert!(matches!(&next.outcome, Ok(Call::Session(SessionCall::Look { session })) if session == "session-1"));
    let refused = next.answered(Reply::Session(&[session("session-1", Vec::new(), false)])).expect_err("refused");
    assert_eq!(
        refused.refusal().line(),
        r#"400 {"error":{"message":"No tool call found for function call output with call_id call_9.","type":"invalid_request_error","param":"input","code":null}}"#
    );

    // What was not stored is not there.
    let refusal = ask("call_1", false).refusal();
    assert_eq!((refusal.status, &refusal.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
}

fn session(id: &str, items: Vec<SessionItem>, ours: bool) -> SessionView {
    let mut labels = Extra::new();
    if ours {
        labels.set("responses", Json::parse(r#"{"metadata":{"topic":"x"}}"#).expect("JSON"));
    }
    SessionView {
        user: None,
        id: id.to_owned(),
        agent: "demo".to_owned(),
        created_at: support::NOW,
        updated_at: support::NOW,
        items,
        pending: Vec::new(),
        latest: None,
        state: None,
        labels,
    }
}

#[test]
fn references_are_resolved_from_stored_runs() {
    let mut told = Tale::begin();
    told.says(&["Hello"]);
    told.call(MessageType::PluginCall, "call_1", "t", &["{}"]);
    told.output(MessageType::PluginCallOutput, "call_1", "18 C");
    let record = told.finish(End::Completed);
    let run = run_id(1).to_prefixed("");
    let body = json!({"model": "demo", "input": [
        {"type": "item_reference", "id": format!("msg_{run}_in0_0")},
        {"id": format!("msg_{run}_0")},
        {"type": "item_reference", "id": format!("mcp_{run}_1")},
        {"role": "user", "content": "and now?"},
    ]});
    let about = about(&record, Json::null());
    let view = || interlingua_core::call::RunView { record: &record, about: &about, pending: &[] };
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let next = asked.answered(Reply::Run(view())).expect_err("the agent is asked");
    let said: Vec<String> =
        next.run_call().request.input.iter().map(|message| format!("{} {}", message.kind, message.text())).collect();
    assert_eq!(said, ["message hi", "message Hello", "plugin_call ", "plugin_call_output ", "message and now?"]);

    let twice = json!({"model": "demo", "input": [{"id": format!("msg_{run}_0")}, {"id": format!("msg_{run}_0")}]});
    let refusal = route("{}").ask("POST", "/responses", &twice.to_string()).refusal();
    assert_eq!(refusal.json()["error"]["param"], "input[1].id");
    let beyond = json!({"model": "demo", "input": [{"id": format!("msg_{run}_77")}]});
    let asked = route("{}").ask("POST", "/responses", &beyond.to_string());
    assert_eq!(asked.answered(Reply::Run(view())).expect_err("refused").refusal().status, 404);
}

#[test]
fn an_approval_is_answered_without_a_chain() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "send it"},
        {"type": "message", "role": "assistant", "content": "May I?"},
        {"type": "mcp_approval_request", "id": "appr_1", "name": "send", "arguments": "{}", "server_label": "m"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": true},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let call = asked.run_call();
    assert_eq!(call.thread, Thread::New, "the engine finds the session by the answer");
    let kinds: Vec<&str> = call.request.input.iter().map(|message| message.kind.as_str()).collect();
    assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response"], "the session knows the rest");

    // By reference, as the AI SDK has it.
    let body = json!({"model": "demo", "input": [
        {"type": "item_reference", "id": "appr_1"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": false, "reason": "no"},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let answer = asked.run_call().request.input[0].content[0].as_data().expect("data").text().to_owned();
    assert_eq!(answer, r#"{"approval_request_id":"appr_1","id":"appr_1","approve":false,"reason":"no"}"#);

    // Long decided, and only history by now.
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "send it"},
        {"type": "mcp_approval_request", "id": "appr_1", "name": "send", "arguments": "{}", "server_label": "m"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": true},
        {"type": "message", "role": "assistant", "content": "Sent."},
        {"role": "user", "content": "thanks"},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let said: Vec<String> = asked.run_call().request.input.iter().map(Message::text).collect();
    assert_eq!(said, ["send it", "Sent.", "thanks"]);
}

#[test]
fn a_question_is_answered_by_an_output_or_by_plain_text() {
    let mut told = Tale::begin();
    let message = told.message(MessageType::McpApprovalRequest);
    told.data(message, r#"{"id":"ask_1","name":"date","interrupt":{"kind":"input","message":"When?"}}"#);
    told.end(message);
    let record = told.finish(End::Completed);
    let pending = pending(&record);
    let about = about(&record, Json::null());
    let view = || interlingua_core::call::RunView { record: &record, about: &about, pending: &pending };
    for input in [json!([{"type": "function_call_output", "call_id": "ask_1", "output": "monday"}]), json!("monday")] {
        let body = json!({"model": "demo", "previous_response_id": response_id(1), "input": input});
        let asked = route("{}").ask("POST", "/responses", &body.to_string());
        let next = asked.answered(Reply::Run(view())).expect_err("the agent is asked");
        let call = next.run_call();
        assert!(call.request.input.is_empty(), "{:?}", call.request.input);
        assert_eq!(format!("{:?}", call.answers), r#"[Answer { id: "ask_1", given: Text("monday"), said: None }]"#);
    }
    // Without a chain, the question is in the input.
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "book it"},
        {"type": "function_call", "call_id": "ask_1", "name": "request_input", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ask_1", "output": "monday"},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let call = asked.run_call();
    assert_eq!((call.answers.len(), call.request.input.len(), &call.thread), (1, 0, &Thread::New));
}

#[test]
fn a_question_answered_long_ago_is_history() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "book it"},
        {"type": "function_call", "call_id": "ask_1", "name": "request_input", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ask_1", "output": "monday"},
        {"type": "message", "role": "assistant", "content": "Booked."},
        {"role": "user", "content": "thanks"},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    let call = asked.run_call();
    assert_eq!((call.answers.len(), call.request.input.len()), (0, 5));
    assert!(matches!(call.thread, Thread::Session(_)));
}

#[test]
fn a_history_with_tools_is_a_session_of_its_own() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "y"},
    ]});
    let asked = route("{}").ask("POST", "/responses", &body.to_string());
    assert!(matches!(asked.run_call().thread, Thread::Session(_)));
}

#[test]
fn something_open_is_a_complaint_about_the_input() {
    let mut told = Tale::begin();
    let message = told.message(MessageType::McpApprovalRequest);
    told.data(message, r#"{"id":"appr_1","name":"send","arguments":"{}"}"#);
    told.end(message);
    let record = told.finish(End::Completed);
    let (pending, about) = (pending(&record), about(&record, Json::null()));
    let view = interlingua_core::call::RunView { record: &record, about: &about, pending: &pending };
    let asked = route("{}").ask("POST", "/responses", support::HELLO);
    let refusal = asked.answered(Reply::Waiting(view)).expect_err("refused").refusal();
    assert_eq!((refusal.status, &refusal.json()["error"]["param"]), (400, &json!("input")));
    assert!(refusal.body.contains("'appr_1'"));
}

#[test]
fn a_call_left_open_is_refused_where_the_operator_wants_it_so() {
    let mut told = Tale::begin();
    told.call(MessageType::FunctionCall, "call_1", "f", &["{}"]);
    let record = told.finish(End::Completed);
    let (pending, about) = (pending(&record), about(&record, Json::null()));
    let view = interlingua_core::call::RunView { record: &record, about: &about, pending: &pending };
    let body = json!({"model": "demo", "previous_response_id": response_id(1), "input": "never mind"}).to_string();
    let asked = route(r#"{"open_calls":"refuse"}"#).ask("POST", "/responses", &body);
    let refusal = asked.answered(Reply::Run(view)).expect_err("refused").refusal();
    assert!(refusal.body.contains("No tool output found for function call call_1."), "{}", refusal.body);
    let asked = route("{}").ask("POST", "/responses", &body);
    assert!(asked.answered(Reply::Run(view)).expect_err("asked").outcome.is_ok());
}

#[test]
fn a_conversation_moves_to_the_agent_that_is_asked_first() {
    let id = format!("conv_{}", run_id(5).to_prefixed(""));
    let body = json!({"model": "other", "conversation": {"id": id}, "input": "x"}).to_string();
    let route = support::mounted(&["demo", "other"], "{}");
    let said = SessionItem { id: "msg_a".into(), run: None, message: Message::user("before") };
    let view = session(&id, vec![said], true);
    let asked =
        route.ask("POST", "/responses", &body).answered(Reply::Session(std::slice::from_ref(&view))).expect_err("more");
    assert!(matches!(&asked.outcome, Ok(Call::Session(SessionCall::Delete { .. }))), "{:?}", asked.outcome);
    let asked = asked.answered(Reply::Done).expect_err("more");
    let Ok(Call::Session(SessionCall::Create { agent, items, .. })) = &asked.outcome else {
        panic!("{:?}", asked.outcome)
    };
    assert_eq!((agent.as_str(), items.len()), ("other", 1));
    let asked = asked.answered(Reply::Session(std::slice::from_ref(&view))).expect_err("the agent is asked");
    assert_eq!(asked.run_call().thread, Thread::Session(id.clone()));

    let mut used = session(&id, Vec::new(), true);
    used.latest = Some(run_id(1));
    let asked = route.ask("POST", "/responses", &body).answered(Reply::Session(&[used])).expect_err("refused");
    assert_eq!(asked.refusal().json()["error"]["param"], "conversation");
    let foreign = session(&id, Vec::new(), false);
    let asked = route.ask("POST", "/responses", &body).answered(Reply::Session(&[foreign])).expect_err("refused");
    assert_eq!(asked.refusal().status, 404);
}

#[test]
fn a_frame_of_a_websocket_is_a_request() {
    let frame = r#"{"type":"response.create","stream_id":"s1","model":"demo","input":"hi"}"#;
    let asked = route("{}").ask("WEBSOCKET", "/responses", frame);
    assert_eq!(asked.run_call().delivery, Delivery::Stream);
    let mut told = Tale::begin();
    told.says(&["one\ntwo"]);
    let answer = asked.streamed(&told.finish(End::Completed));
    let lines: Vec<Value> = answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|event| event["stream_id"] == "s1"));
    assert_eq!(lines.first().expect("events")["type"], "response.created");
    assert_eq!(lines.last().expect("events")["type"], "response.completed");
    for (number, event) in lines.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    for (frame, code) in [
        ("nonsense", Value::Null),
        (r#"{"model":"demo"}"#, json!("missing_required_parameter")),
        (r#"{"type":"response.steer"}"#, json!("unsupported_parameter")),
    ] {
        let refusal = route("{}").ask("WEBSOCKET", "/responses", frame).refusal();
        let event = refusal.json();
        assert!(refusal.body.ends_with('\n') && event["type"] == "error" && event["status"] == 400, "{event}");
        assert_eq!((&event["code"], &event["error"]["code"]), (&code, &code));
    }
}

#[test]
fn a_warm_up_is_taken_down_without_asking() {
    let frame = r#"{"type":"response.create","model":"demo","store":false,"generate":false,"input":"hi"}"#;
    let asked = route("{}").ask("WEBSOCKET", "/responses", frame);
    assert!(asked.run_call().policy.record_only && !asked.run_call().policy.stored);
    assert!(!route("{}").ask("WEBSOCKET", "/responses", &frame.replace("false", "true")).run_call().policy.record_only);
    // Over HTTP nothing is warmed up; the field says nothing there.
    assert!(!route("{}").ask("POST", "/responses", frame).run_call().policy.record_only);
}

#[test]
fn an_unstored_response_is_followed_over_a_socket_alone() {
    let body =
        json!({"type": "response.create", "model": "demo", "previous_response_id": response_id(1), "input": "x"})
            .to_string();
    let mut told = Tale::begin();
    told.says(&["x"]);
    let record = told.finish(End::Completed);
    let labels = Json::parse(r#"{"model":"demo","store":false}"#).expect("JSON");
    let mut about = about(&record, labels);
    about.stored = false;
    let view = interlingua_core::call::RunView { record: &record, about: &about, pending: &[] };
    for (method, known) in [("WEBSOCKET", true), ("POST", false)] {
        let next = route("{}").ask(method, "/responses", &body).answered(Reply::Run(view)).expect_err("more");
        assert_eq!(next.outcome.is_ok(), known, "{method}");
        assert_eq!(next.exchange.builds_on(), Some(run_id(1)), "{method}");
    }
}

#[test]
fn a_field_of_chat_completions_is_answered_by_its_name_here() {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    for (theirs, value, ours) in [
        ("messages", messages, "input"),
        ("max_tokens", json!(5), "max_output_tokens"),
        ("max_completion_tokens", json!(5), "max_output_tokens"),
        ("response_format", json!({ "type": "json_object" }), "text.format"),
        ("reasoning_effort", json!("low"), "reasoning.effort"),
        ("functions", json!([]), "tools"),
        ("prompt", json!("hi"), "input"),
    ] {
        let refusal =
            route("{}").ask("POST", "/responses", &json!({ "model": "demo", theirs: value }).to_string()).refusal();
        let error = refusal.json()["error"].clone();
        assert_eq!(
            (refusal.status, &error["code"], &error["param"]),
            (400, &json!("unsupported_parameter"), &json!(theirs))
        );
        assert!(error["message"].as_str().expect("a sentence").contains(&format!("'{ours}'")), "{error}");
    }
    let empty = json!({ "model": "demo", "input": "hi", "messages": null }).to_string();
    assert_eq!(route("{}").ask("POST", "/responses", &empty).run_call().request.input.len(), 1, "null says nothing");
}
