//! Requests as agents receive them (docs/protocols/responses.md#what-the-agent-receives), and what they refer to
//! (docs/protocols/responses.md#state).

mod support;

use interlingua_core::answer::{Answer, AnswerBody};
use interlingua_core::call::{Reply, SessionCall, SessionItem, SessionView, Target};
use interlingua_core::json::{Extra, Json};
use interlingua_core::model::{Message, MessageType};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{Call, Delivery, End, Thread};
use interlingua_core_testkit::RunBuilder;
use serde_json::{Value, json};
use support::{about, pending, response_id, route, run_id};

/// The request to the agent, as JSON.
fn agent_request(options: &str, body: &Value) -> Value {
    let sent = route(options).send("POST", "/responses", &body.to_string());
    let call = sent.run_call();
    let mut value = serde_json::to_value(&call.request).expect("JSON");
    if !call.preamble.is_empty() {
        value["preamble"] = serde_json::to_value(&call.preamble).expect("JSON");
    }
    value
}

#[test]
fn every_setting_reaches_the_agent() {
    insta::assert_json_snapshot!(agent_request(
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
    insta::assert_json_snapshot!(agent_request(
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
fn tools_are_not_sent_if_none_may_be_called() {
    let body = json!({"model": "demo", "tools": [{"type": "function", "name": "f"}], "tool_choice": "none"});
    // An empty list takes back the tools that the session keeps.
    let none = agent_request("{}", &body);
    assert_eq!((&none["tools"], none.get("tool_choice")), (&json!([]), None));
    assert!(agent_request(r#"{"client_tools":"ignore"}"#, &body).get("tools").is_none());
    let ignored = agent_request(
        r#"{"client_tools":"ignore"}"#,
        &json!({"model": "demo", "tools": [{"type": "function", "name": "f"}]}),
    );
    assert!(ignored.get("tools").is_none());
}

#[test]
fn options_change_the_request_to_the_agent() {
    let json_wanted = json!({"model": "demo", "input": "x", "text": {"format": {"type": "json_object"}}});
    let instructed = agent_request(r#"{"structured_output":"instruct"}"#, &json_wanted);
    assert!(instructed["preamble"][0]["content"][0]["text"].as_str().expect("text").contains("JSON object"));
    assert!(instructed.get("text").is_none());
    assert_eq!(agent_request(r#"{"forward_model":true}"#, &json_wanted)["model"], "demo");
    let thought =
        json!({"model": "demo", "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]});
    assert_eq!(agent_request(r#"{"reasoning_input":"drop"}"#, &thought)["input"], json!([]));
    let refused =
        json!({"model": "demo", "input": [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]});
    assert_eq!(agent_request(r#"{"refusal_input":"text"}"#, &refused)["input"][0]["content"][0]["type"], "text");
}

#[test]
fn the_delivery_follows_the_request() {
    let call_for = |body: &str| {
        let sent = route("{}").send("POST", "/responses", body);
        let call = sent.run_call();
        (
            call.delivery,
            call.policy.detached,
            call.policy.first_response == FirstResponse::Immediate,
            call.policy.stored,
            call.thread.clone(),
            call.id,
        )
    };
    let new_id = Some(run_id(0x100));
    assert_eq!(call_for(r#"{"model":"demo"}"#), (Delivery::Collect, false, false, true, Thread::New, new_id));
    assert_eq!(
        call_for(r#"{"model":"demo","stream":true,"store":false}"#),
        (Delivery::Stream, false, false, false, Thread::New, new_id)
    );
    assert_eq!(
        call_for(r#"{"model":"demo","background":true}"#),
        (Delivery::Background, true, true, true, Thread::New, new_id)
    );
    assert_eq!(
        call_for(r#"{"model":"demo","background":true,"stream":true}"#),
        (Delivery::Stream, true, true, true, Thread::New, new_id)
    );
    let detached = route(r#"{"disconnect":"detach"}"#).send("POST", "/responses", r#"{"model":"demo"}"#);
    assert!(detached.run_call().policy.detached);
}

#[test]
fn a_chain_continues_after_its_response() {
    let mut run = RunBuilder::begin_later();
    run.call(MessageType::FunctionCall, "call_1", "f", &["{}"]);
    let record = run.finish(End::Completed);
    let body = |call: &str| {
        json!({"model": "demo", "previous_response_id": response_id(1),
            "input": [{"type": "function_call_output", "call_id": call, "output": "x"}]})
        .to_string()
    };
    let send = |call: &str, stored: bool| {
        let sent = route("{}").send("POST", "/responses", &body(call));
        assert!(matches!(&sent.outcome, Ok(Call::Fetch(Target::Run(run))) if *run == run_id(1)));
        let mut about = about(&record, Json::null());
        about.stored = stored;
        let pending = pending(&record);
        let view = interlingua_core::call::RunView { record: &record, info: &about, pending: &pending };
        sent.reply_with(Reply::Run(view)).expect_err("another call")
    };

    let next = send("call_1", true);
    let call = next.run_call();
    assert_eq!(call.thread, Thread::After(run_id(1)));
    assert_eq!(call.request.input[0].kind, MessageType::FunctionCallOutput);

    // An unknown call is searched in the complete session before it is refused.
    let next = send("call_9", true);
    assert!(matches!(&next.outcome, Ok(Call::Session(SessionCall::Get { session })) if session == "session-1"));
    let refused = next.reply_with(Reply::Session(&[session("session-1", Vec::new(), false)])).expect_err("refused");
    assert_eq!(
        refused.error_reply().line(),
        r#"400 {"error":{"message":"No tool call found for function call output with call_id call_9.","type":"invalid_request_error","param":"input","code":null}}"#
    );

    // An unstored response does not exist.
    let reply = send("call_1", false).error_reply();
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("previous_response_not_found")));
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
    let mut run = RunBuilder::begin_later();
    run.say(MessageType::Message, &["Hello"]);
    run.call(MessageType::PluginCall, "call_1", "t", &["{}"]);
    run.output(MessageType::PluginCallOutput, "call_1", "18 C");
    let record = run.finish(End::Completed);
    let run = run_id(1).to_prefixed("");
    let body = json!({"model": "demo", "input": [
        {"type": "item_reference", "id": format!("msg_{run}_in0_0")},
        {"id": format!("msg_{run}_0")},
        {"type": "item_reference", "id": format!("mcp_{run}_1")},
        {"role": "user", "content": "and now?"},
    ]});
    let about = about(&record, Json::null());
    let view = || interlingua_core::call::RunView { record: &record, info: &about, pending: &[] };
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let next = sent.reply_with(Reply::Run(view())).expect_err("a run call");
    let texts: Vec<String> =
        next.run_call().request.input.iter().map(|message| format!("{} {}", message.kind, message.text())).collect();
    assert_eq!(texts, ["message hi", "message Hello", "plugin_call ", "plugin_call_output ", "message and now?"]);

    let twice = json!({"model": "demo", "input": [{"id": format!("msg_{run}_0")}, {"id": format!("msg_{run}_0")}]});
    let reply = route("{}").send("POST", "/responses", &twice.to_string()).error_reply();
    assert_eq!(reply.json()["error"]["param"], "input[1].id");
    let beyond = json!({"model": "demo", "input": [{"id": format!("msg_{run}_77")}]});
    let sent = route("{}").send("POST", "/responses", &beyond.to_string());
    assert_eq!(sent.reply_with(Reply::Run(view())).expect_err("refused").error_reply().status, 404);
}

#[test]
fn an_approval_can_be_answered_without_a_chain() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "send it"},
        {"type": "message", "role": "assistant", "content": "May I?"},
        {"type": "mcp_approval_request", "id": "appr_1", "name": "send", "arguments": "{}", "server_label": "m"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": true},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let call = sent.run_call();
    assert_eq!(call.thread, Thread::New, "the engine finds the session by the answer");
    let kinds: Vec<&str> = call.request.input.iter().map(|message| message.kind.as_str()).collect();
    assert_eq!(kinds, ["mcp_approval_request", "mcp_approval_response"], "the session knows the rest");

    // By reference, as the AI SDK does it.
    let body = json!({"model": "demo", "input": [
        {"type": "item_reference", "id": "appr_1"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": false, "reason": "no"},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let answer = sent.run_call().request.input[0].content[0].as_data().expect("data").text().to_owned();
    assert_eq!(answer, r#"{"approval_request_id":"appr_1","id":"appr_1","approve":false,"reason":"no"}"#);

    // Decided earlier: the approval is only history.
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "send it"},
        {"type": "mcp_approval_request", "id": "appr_1", "name": "send", "arguments": "{}", "server_label": "m"},
        {"type": "mcp_approval_response", "approval_request_id": "appr_1", "approve": true},
        {"type": "message", "role": "assistant", "content": "Sent."},
        {"role": "user", "content": "thanks"},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let texts: Vec<String> = sent.run_call().request.input.iter().map(Message::text).collect();
    assert_eq!(texts, ["send it", "Sent.", "thanks"]);
}

#[test]
fn a_question_can_be_answered_by_an_output_or_by_plain_text() {
    let mut run = RunBuilder::begin_later();
    let message = run.message(MessageType::McpApprovalRequest);
    run.json(message, r#"{"id":"ask_1","name":"date","interrupt":{"kind":"input","message":"When?"}}"#);
    run.end(message);
    let record = run.finish(End::Completed);
    let pending = pending(&record);
    let about = about(&record, Json::null());
    let view = || interlingua_core::call::RunView { record: &record, info: &about, pending: &pending };
    for input in [json!([{"type": "function_call_output", "call_id": "ask_1", "output": "monday"}]), json!("monday")] {
        let body = json!({"model": "demo", "previous_response_id": response_id(1), "input": input});
        let sent = route("{}").send("POST", "/responses", &body.to_string());
        let next = sent.reply_with(Reply::Run(view())).expect_err("a run call");
        let call = next.run_call();
        assert!(call.request.input.is_empty(), "{:?}", call.request.input);
        assert_eq!(call.answers, [Answer::new("ask_1".to_owned(), AnswerBody::Text("monday".to_owned()))]);
    }
    // Without a chain, the question is in the input.
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "book it"},
        {"type": "function_call", "call_id": "ask_1", "name": "request_input", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ask_1", "output": "monday"},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let call = sent.run_call();
    assert_eq!((call.answers.len(), call.request.input.len(), &call.thread), (1, 0, &Thread::New));
}

#[test]
fn a_question_answered_earlier_is_history() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "book it"},
        {"type": "function_call", "call_id": "ask_1", "name": "request_input", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ask_1", "output": "monday"},
        {"type": "message", "role": "assistant", "content": "Booked."},
        {"role": "user", "content": "thanks"},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    let call = sent.run_call();
    assert_eq!((call.answers.len(), call.request.input.len()), (0, 5));
    assert!(matches!(call.thread, Thread::Session(_)));
}

#[test]
fn a_history_with_tools_starts_a_new_session() {
    let body = json!({"model": "demo", "input": [
        {"role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "y"},
    ]});
    let sent = route("{}").send("POST", "/responses", &body.to_string());
    assert!(matches!(sent.run_call().thread, Thread::Session(_)));
}

#[test]
fn a_pending_item_is_an_error_about_the_input() {
    let mut run = RunBuilder::begin_later();
    let message = run.message(MessageType::McpApprovalRequest);
    run.json(message, r#"{"id":"appr_1","name":"send","arguments":"{}"}"#);
    run.end(message);
    let record = run.finish(End::Completed);
    let (pending, about) = (pending(&record), about(&record, Json::null()));
    let view = interlingua_core::call::RunView { record: &record, info: &about, pending: &pending };
    let sent = route("{}").send("POST", "/responses", support::HELLO);
    let reply = sent.reply_with(Reply::Waiting(view, None)).expect_err("refused").error_reply();
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!("input")));
    assert!(reply.body.contains("'appr_1'"));
}

#[test]
fn an_unanswered_call_is_refused_if_the_options_say_so() {
    let mut run = RunBuilder::begin_later();
    run.call(MessageType::FunctionCall, "call_1", "f", &["{}"]);
    let record = run.finish(End::Completed);
    let (pending, about) = (pending(&record), about(&record, Json::null()));
    let view = interlingua_core::call::RunView { record: &record, info: &about, pending: &pending };
    let body = json!({"model": "demo", "previous_response_id": response_id(1), "input": "never mind"}).to_string();
    let sent = route(r#"{"open_calls":"refuse"}"#).send("POST", "/responses", &body);
    let reply = sent.reply_with(Reply::Run(view)).expect_err("refused").error_reply();
    assert!(reply.body.contains("No tool output found for function call call_1."), "{}", reply.body);
    let sent = route("{}").send("POST", "/responses", &body);
    assert!(sent.reply_with(Reply::Run(view)).expect_err("asked").outcome.is_ok());
}

#[test]
fn a_conversation_moves_to_the_agent_of_its_first_request() {
    let id = format!("conv_{}", run_id(5).to_prefixed(""));
    let body = json!({"model": "other", "conversation": {"id": id}, "input": "x"}).to_string();
    let route = support::mounted(&["demo", "other"], "{}");
    let item = SessionItem { id: "msg_a".into(), run: None, message: Message::user("before") };
    let view = session(&id, vec![item], true);
    let sent = route
        .send("POST", "/responses", &body)
        .reply_with(Reply::Session(std::slice::from_ref(&view)))
        .expect_err("more");
    assert!(matches!(&sent.outcome, Ok(Call::Session(SessionCall::Delete { .. }))), "{:?}", sent.outcome);
    let sent = sent.reply_with(Reply::Done).expect_err("more");
    let Ok(Call::Session(SessionCall::Create { agent, items, .. })) = &sent.outcome else {
        panic!("{:?}", sent.outcome)
    };
    assert_eq!((agent.as_str(), items.len()), ("other", 1));
    let sent = sent.reply_with(Reply::Session(std::slice::from_ref(&view))).expect_err("a run call");
    assert_eq!(sent.run_call().thread, Thread::Session(id.clone()));

    let mut used = session(&id, Vec::new(), true);
    used.latest = Some(run_id(1));
    let sent = route.send("POST", "/responses", &body).reply_with(Reply::Session(&[used])).expect_err("refused");
    assert_eq!(sent.error_reply().json()["error"]["param"], "conversation");
    let foreign = session(&id, Vec::new(), false);
    let sent = route.send("POST", "/responses", &body).reply_with(Reply::Session(&[foreign])).expect_err("refused");
    assert_eq!(sent.error_reply().status, 404);
}

#[test]
fn a_websocket_frame_is_a_request() {
    let frame = r#"{"type":"response.create","stream_id":"s1","model":"demo","input":"hi"}"#;
    let sent = route("{}").send("WEBSOCKET", "/responses", frame);
    assert_eq!(sent.run_call().delivery, Delivery::Stream);
    let mut run = RunBuilder::begin_later();
    run.say(MessageType::Message, &["one\ntwo"]);
    let answer = sent.streamed(&run.finish(End::Completed));
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
        let reply = route("{}").send("WEBSOCKET", "/responses", frame).error_reply();

        let event = reply.json();
        assert!(reply.body.ends_with('\n') && event["type"] == "error" && event["status"] == 400, "{event}");
        assert_eq!((&event["code"], &event["error"]["code"]), (&code, &code));
    }
}

#[test]
fn a_warm_up_is_recorded_without_calling_the_agent() {
    let frame = r#"{"type":"response.create","model":"demo","store":false,"generate":false,"input":"hi"}"#;
    let sent = route("{}").send("WEBSOCKET", "/responses", frame);
    assert!(sent.run_call().policy.record_only && !sent.run_call().policy.stored);
    assert!(
        !route("{}").send("WEBSOCKET", "/responses", &frame.replace("false", "true")).run_call().policy.record_only
    );
    // Over HTTP the field has no effect.
    assert!(!route("{}").send("POST", "/responses", frame).run_call().policy.record_only);
}

#[test]
fn an_unstored_response_can_only_be_continued_over_a_websocket() {
    let body =
        json!({"type": "response.create", "model": "demo", "previous_response_id": response_id(1), "input": "x"})
            .to_string();
    let mut run = RunBuilder::begin_later();
    run.say(MessageType::Message, &["x"]);
    let record = run.finish(End::Completed);
    let labels = Json::parse(r#"{"model":"demo","store":false}"#).expect("JSON");
    let mut about = about(&record, labels);
    about.stored = false;
    let view = interlingua_core::call::RunView { record: &record, info: &about, pending: &[] };
    for (method, known) in [("WEBSOCKET", true), ("POST", false)] {
        let next = route("{}").send(method, "/responses", &body).reply_with(Reply::Run(view)).expect_err("more");
        assert_eq!(next.outcome.is_ok(), known, "{method}");
        assert_eq!(next.exchange.builds_on(), Some(run_id(1)), "{method}");
    }
}

#[test]
fn a_field_of_chat_completions_is_refused_with_its_name_in_this_api() {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    for (field, value, equivalent) in [
        ("messages", messages, "input"),
        ("max_tokens", json!(5), "max_output_tokens"),
        ("max_completion_tokens", json!(5), "max_output_tokens"),
        ("response_format", json!({ "type": "json_object" }), "text.format"),
        ("reasoning_effort", json!("low"), "reasoning.effort"),
        ("functions", json!([]), "tools"),
        ("prompt", json!("hi"), "input"),
    ] {
        let reply =
            route("{}").send("POST", "/responses", &json!({ "model": "demo", field: value }).to_string()).error_reply();
        let error = reply.json()["error"].clone();
        assert_eq!(
            (reply.status, &error["code"], &error["param"]),
            (400, &json!("unsupported_parameter"), &json!(field))
        );
        assert!(error["message"].as_str().expect("a sentence").contains(&format!("'{equivalent}'")), "{error}");
    }
    let empty = json!({ "model": "demo", "input": "hi", "messages": null }).to_string();
    assert_eq!(route("{}").send("POST", "/responses", &empty).run_call().request.input.len(), 1, "null means absent");
}
