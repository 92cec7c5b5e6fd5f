//! Accepted and rejected requests: the tables of docs/protocols/a2a.md.

mod support;

use std::fmt::Write as _;

use interlingua_core::call::{Call, Delivery, Reply, RunState, Target, Thread};
use interlingua_core::policy::FirstResponse;
use interlingua_core::{End, Fault, FaultKind};
use serde_json::{Value, json};
use support::{Answer, ClientRequest, NEW_ID, host, user, user_v03, with};

fn summary(answer: &Answer) -> String {
    format!("{} {} {}", answer.status, answer.head.get("content-type").unwrap_or(""), answer.body.trim_end())
}

#[test]
fn every_broken_envelope_gets_its_code() {
    let mut table = String::new();
    for body in [
        "{",
        "",
        "\u{0}",
        "7",
        "[]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#,
        r#"{"id":1,"method":"GetTask"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","method":"nonsense"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"GetTask","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":"1","method":"GetTask","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":"x"}"#,
        r#"{"jsonrpc":"2.0","id":-7,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"01930000-0000-7000-8000-000000000001","historyLength":-1}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":0}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":101}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"status":"TASK_STATE_DONE"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageToken":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"statusTimestampAfter":"yesterday"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"","parts":[]},"metadata":7}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m"}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}"#,
    ] {
        let answer = host().send(&ClientRequest::new("POST", "").header("a2a-version", "1.0").text(body)).rejected();
        let _ = writeln!(table, "{body}\n  {}", summary(&answer));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn the_request_id_is_echoed_with_its_type() {
    for id in ["1", "\"1\"", "-1", "\"\"", "12345678901234567890", "null"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"x"}}}}"#);
        let answer = host().send(&ClientRequest::new("POST", "").header("a2a-version", "1.0").text(&body)).rejected();
        assert!(answer.body.contains(&format!(r#""id":{id},"#)), "{}", answer.body);
    }
}

#[test]
fn request_media_types_are_checked() {
    let host = host();
    let send = user("hi");
    for (path, media, read) in [
        ("", "application/json", true),
        ("", "application/a2a+json; charset=utf-8", true),
        ("", "application/vnd.x+json", true),
        ("", "", true),
        ("", "text/plain", false),
        ("/message:send", "application/a2a+json", true),
        ("/message:send", "application/json", true),
        ("/message:send", "", true),
        ("/message:send", "text/plain", false),
        ("/message:send", "application/vnd.x+json", false),
        ("/v1/message:send", "application/json", true),
        ("/v1/message:send", "application/a2a+json", false),
    ] {
        let body = if path.is_empty() {
            json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send })
        } else {
            send.clone()
        };

        let body = body.to_string();
        let mut request = ClientRequest::new("POST", path).text(&body).header("content-type", media);
        if !path.starts_with("/v1") {
            request = request.header("a2a-version", "1.0");
        }
        let decoded = host.send(&request);
        assert_eq!(decoded.call.is_ok(), read, "{path} {media}");
        if !read {
            // An unsupported body type is 415 as in HTTP; that of a part is 400 in 1.0.1
            // (docs/protocols/a2a.md#errors).
            let status = if path.is_empty() { 200 } else { 415 };
            let answer = decoded.rejected();
            assert_eq!(answer.status, status, "{path} {media}");
            assert!(
                answer.body.contains("CONTENT_TYPE_NOT_SUPPORTED") || answer.body.contains("-32005"),
                "{}",
                answer.body
            );
        }
    }
}

#[test]
fn responses_use_the_media_type_the_client_accepts() {
    let host = host();
    let record = support::record_of(host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run(), "greeting");
    let answered = |request: &ClientRequest<'_>| {
        let shown = interlingua_core_testkit::TestRun::with_info(&record, support::about(&record));
        let answer = host.send(request).final_answer(Reply::Run(shown.view()));
        answer.head.get("content-type").expect("one").to_owned()
    };
    const A2A: &str = "application/a2a+json";
    const JSON: &str = "application/json";
    let get = || ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
    let post = || {
        ClientRequest::rest("POST", "/message:send")
            .text(r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#)
    };
    for (request, media) in [
        (get(), A2A),
        (get().header("accept", "*/*"), A2A),
        (get().header("accept", JSON), JSON),
        (post().header("content-type", JSON), JSON),
        (post().header("content-type", A2A), A2A),
        (post().header("content-type", A2A).header("accept", JSON), JSON),
        (post().header("content-type", JSON).header("accept", "application/a2a+json, application/json"), A2A),
        (ClientRequest::rpc("SendMessage", &user("hi")).header("accept", A2A), JSON),
        (ClientRequest::new("POST", "/v1/message:send").body(&user("hi")), JSON),
    ] {
        assert_eq!(answered(&request), media, "{} {:?}", request.path, request.headers);
    }
}

#[test]
fn static_paths_win_over_tenants() {
    let host = host();
    let task = "01930000-0000-7000-8000-000000000001";
    let request = |method: &'static str, path: &str| -> String {
        let path = path.replace("ID", task);
        let decoded = host.send(&ClientRequest { path: &path, ..ClientRequest::rest(method, "") });
        let tenant = decoded.exchange.partition().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
        match decoded.call {
            Ok(Call::Fetch(Target::Run(id))) => format!("the task {}{tenant}", id == NEW_ID),
            Ok(Call::List(_)) => format!("the tasks{tenant}"),
            Ok(Call::Nothing) => "the card".into(),
            Ok(other) => format!("{other:?}"),
            Err(fault) => format!("{:?}", fault.kind),
        }
    };
    for (method, path, expected) in [
        ("GET", "/tasks", "the tasks"),
        ("GET", "/tasks/ID", "the task true"),
        ("GET", "/tasks/tasks", "NotFound"),
        ("GET", "/x/tasks", "the tasks of x"),
        ("GET", "/x/tasks/ID", "the task true of x"),
        ("POST", "/x/tasks/ID:cancel", "the task true of x"),
        ("GET", "/tasks/ID:subscribe", "the task true"),
        ("POST", "/tasks/ID:subscribe", "the task true"),
        ("GET", "/v1/tasks", "Unsupported"),
        ("GET", "/v1/extendedAgentCard", "NoSuchPath"),
        ("GET", "/tasks/ID/pushNotificationConfigs", "the task true"),
        ("DELETE", "/x/tasks/ID/pushNotificationConfigs/c", "the task true of x"),
        ("GET", "/.well-known/agent-card.json", "the card"),
        ("GET", "/nonsense", "NoSuchPath"),
    ] {
        assert_eq!(request(method, path), expected, "{method} {path}");
    }
    let both = ClientRequest::rest("POST", "/x/message:send")
        .body(&json!({ "tenant": "y", "message": user("hi")["message"] }));
    assert_eq!(host.send(&both).call.expect_err("they differ").field.as_deref(), Some("tenant"));
}

#[test]
fn blocking_defaults_depend_on_the_dialect() {
    let host = host();
    let delivery = |request: ClientRequest<'_>| host.send(&request).run().delivery;
    let with =
        |message: Value, configuration: Value| json!({ "message": message["message"], "configuration": configuration });
    let new = |configuration| ClientRequest::rpc("SendMessage", &with(user("x"), configuration));
    let old = |configuration| ClientRequest::rpc_v03("message/send", &with(user_v03("x"), configuration));
    let rest = |configuration| ClientRequest::new("POST", "/v1/message:send").body(&with(user("x"), configuration));
    for (request, expected) in [
        (new(json!({})), Delivery::Collect),
        (new(json!({ "returnImmediately": true })), Delivery::Background),
        (new(json!({ "return_immediately": true })), Delivery::Background),
        (new(json!({ "blocking": false })), Delivery::Background),
        (old(json!({})), Delivery::Collect),
        (old(json!({ "blocking": true })), Delivery::Collect),
        (old(json!({ "blocking": false })), Delivery::Background),
        (rest(json!({ "blocking": true })), Delivery::Collect),
        (rest(json!({})), Delivery::Background),
        (ClientRequest::new("POST", "/v1/message:send").body(&user("x")), Delivery::Collect),
        (ClientRequest::rpc_v03("message/send", &user_v03("x")), Delivery::Collect),
        (
            ClientRequest::rpc("SendStreamingMessage", &with(user("x"), json!({ "returnImmediately": true }))),
            Delivery::Stream,
        ),
    ] {
        let body = request.body.clone();
        assert_eq!(delivery(request), expected, "{body}");
    }
}

#[test]
fn a_message_reaches_the_agent_with_all_its_fields() {
    let params = json!({
        "message": {
            "messageId": "m-1", "role": "ROLE_USER", "contextId": "c-1",
            "parts": [
                { "text": "look" }, { "raw": "AQID", "mediaType": "image/png", "filename": "a.png" },
                { "data": { "b": 2.50 }, "metadata": { "k": 1 } },
            ],
            "metadata": { "z": 1 }, "extensions": ["https://e/1"], "referenceTaskIds": ["t-0"],
        },
        "metadata": { "trace": "x" },
        "configuration": { "acceptedOutputModes": ["text/plain"], "historyLength": 3 },
        "tenant": "acme",
    });
    let decoded = host().send(&ClientRequest::rpc("SendMessage", &params));
    let call = decoded.run();
    assert_eq!((call.id, &call.thread), (Some(NEW_ID), &Thread::Session("c-1".into())));
    assert!(call.policy.detached && call.policy.turns.are_many() && call.policy.stored);
    assert!(
        matches!(call.policy.first_response, FirstResponse::AwaitAgent { timeout: Some(_) })
            && call.policy.discard_if_unreached,
        "an unreachable agent creates no task"
    );
    assert_eq!(decoded.exchange.partition(), Some("acme"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&call.request).expect("JSON"));
}

#[test]
fn contexts_are_kept_or_rejected_but_never_replaced() {
    for (context, good) in
        [("c".repeat(256), true), ("c".repeat(257), false), ("a\nb".to_owned(), false), ("ünïcode 🦀".to_owned(), true)]
    {
        let mut params = user("x");
        params["message"]["contextId"] = json!(context);
        let decoded = host().send(&ClientRequest::rpc("SendMessage", &params));
        match decoded.call {
            Ok(Call::Run(call)) => assert!(good && call.thread == Thread::Session(context)),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => assert!(!good && fault.field.as_deref() == Some("message.contextId"), "{fault:?}"),
        }
    }
}

#[test]
fn input_modes_are_enforced_if_enabled() {
    let options = json!({ "enforce_input_modes": true, "card": { "input_modes": ["text/plain", "image/*"] } });
    let request = |part: Value| {
        let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [part] } });
        with(options.clone()).send(&ClientRequest::rest("POST", "/message:send").body(&params))
    };
    assert!(request(json!({ "text": "x" })).call.is_ok());
    assert!(request(json!({ "raw": "AQ==", "mediaType": "image/png" })).call.is_ok());
    for part in [json!({ "raw": "AQ==" }), json!({ "data": { "interrupt_id": "i" } }), json!({ "url": "https://x/y" })]
    {
        assert!(request(part).call.is_ok(), "a part without a media type is accepted");
    }
    let rejected = request(json!({ "raw": "AQ==", "mediaType": "audio/wav" })).rejected();
    assert_eq!(
        (rejected.status, rejected.json()["error"]["details"][0]["reason"].clone()),
        (400, json!("CONTENT_TYPE_NOT_SUPPORTED"))
    );
}

#[test]
fn only_declared_extensions_are_activated() {
    let declared = json!([{ "uri": "https://e/1" }, { "uri": "https://e/2", "required": true }]);
    let host = with(json!({ "extensions": declared }));
    let rejected =
        host.send(&ClientRequest::rpc("SendMessage", &user("x")).header("a2a-extensions", "https://e/1")).rejected();
    assert_eq!(rejected.json()["error"]["code"], -32008);

    let rejected = host.send(&ClientRequest::rpc_v03("message/send", &user_v03("x"))).rejected();
    assert_eq!(rejected.json()["error"]["code"], -32004);

    let listed = "https://e/9, https://e/2 ,https://e/1";
    let decoded = host.send(&ClientRequest::rpc("SendStreamingMessage", &user("x")).header("a2a-extensions", listed));
    let record = support::record_of(decoded.run(), "greeting");
    let answer = decoded.streamed(&record, support::about(&record));
    assert_eq!(answer.head.get("a2a-extensions"), Some("https://e/1, https://e/2"));
}

#[test]
fn tenants_select_agents() {
    let mount = interlingua_core::Mount {
        path: "/x".into(),
        agents: vec![support::card("one"), support::card("two")],
        public_url: None,
        schemes: Vec::new(),
    };
    let mounted = |options: Value| {
        use interlingua_core::ProtocolAdapter;
        interlingua_a2a::A2a::mount(&mount, serde_json::from_value(options).expect("options")).map(support::Host)
    };
    assert!(mounted(json!({})).is_err() && mounted(json!({ "tenants": { "a": "three" } })).is_err());

    let host = mounted(json!({ "tenants": { "a": "one", "b": "two" } })).expect("mounts");
    let mut params = user("x");
    params["tenant"] = json!("b");
    assert_eq!(host.send(&ClientRequest::rpc("SendMessage", &params)).run().agent, "two");
    params["tenant"] = json!("c");
    assert_eq!(host.send(&ClientRequest::rpc("SendMessage", &params)).rejected().json()["error"]["code"], -32602);
}

#[test]
fn cards_support_http_caching() {
    let host = host();
    let request = |request: ClientRequest<'_>| host.send(&request).final_answer(Reply::Done);
    let card = |version: &'static str| {
        ClientRequest::new("GET", "/.well-known/agent-card.json").header("a2a-version", version)
    };
    let hybrid = request(ClientRequest::new("GET", "/.well-known/agent.json"));
    let pure = request(card("1.0"));
    assert!(hybrid.json().get("url").is_some() && pure.json().get("url").is_none());
    assert_eq!(pure.json()["supportedInterfaces"][0]["url"], "https://gw.example/weather");
    assert_eq!(pure.head.get("vary"), Some("A2A-Version, Accept-Encoding"));
    assert_eq!(pure.head.get("last-modified"), Some("Fri, 20 Nov 2026 10:00:00 GMT"));

    let tag = pure.head.get("etag").expect("a tag").to_owned();
    assert_ne!(Some(tag.as_str()), hybrid.head.get("etag"));
    for (name, value, status) in [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", "Fri, 20 Nov 2026 10:00:00 GMT", 304),
        ("if-modified-since", "Fri, 20 Nov 2026 09:59:59 GMT", 200),
        ("if-modified-since", "nonsense", 200),
    ] {
        let answer = request(card("1.0").header(name, value));
        assert_eq!((answer.status, answer.body.is_empty()), (status, status == 304), "{name}: {value}");
    }
    assert_eq!(host.send(&card("2.0")).rejected().status, 400);

    let public = with(json!({ "public_url": "https://public.example/{agent}/" }));
    let answer = public.send(&card("1.0")).final_answer(Reply::Done);
    assert_eq!(answer.json()["supportedInterfaces"][0]["url"], "https://public.example/demo");
}

#[test]
fn the_extended_card_requires_authentication() {
    let host = support::authenticating(json!({ "extended_card": { "description": "and more" } }));
    let request = ClientRequest::rest("GET", "/extendedAgentCard");
    assert_eq!(host.send(&request).rejected().status, 401);
    let answer = host.send(&ClientRequest { authenticated: true, ..request }).final_answer(Reply::Done);
    assert_eq!(
        (answer.json()["description"].clone(), answer.head.get("cache-control")),
        (json!("and more"), Some("private"))
    );
    let old = host
        .send(&ClientRequest { authenticated: true, ..ClientRequest::new("GET", "/v1/card") })
        .final_answer(Reply::Done);
    assert_eq!(old.json()["protocolVersion"], "0.3.0");
}

#[test]
fn errors_of_v03_streams_are_streams() {
    let unknown_task = json!({ "id": "x" });
    let as_stream = host()
        .send(&ClientRequest::rpc_v03("tasks/resubscribe", &unknown_task).header("accept", "text/event-stream"))
        .rejected();
    assert_eq!((as_stream.status, as_stream.head.get("content-type")), (200, Some("text/event-stream")));
    assert_eq!(as_stream.frames()[0]["error"]["code"], -32001);
    // The Python client sends two Accept headers.
    let both = ClientRequest::rpc_v03("message/stream", &json!({}))
        .header("accept", "*/*")
        .header("accept", "text/event-stream");
    assert_eq!(host().send(&both).rejected().frames()[0]["error"]["code"], -32602);
    let plain = host().send(&ClientRequest::rpc_v03("tasks/resubscribe", &unknown_task)).rejected();
    assert_eq!(
        (plain.head.get("content-type"), plain.json()["error"]["code"].clone()),
        (Some("application/json"), json!(-32001))
    );
    let new = host()
        .send(&ClientRequest::rpc("SubscribeToTask", &unknown_task).header("accept", "text/event-stream"))
        .rejected();
    assert_eq!(new.head.get("content-type"), Some("application/json"));
}

#[test]
fn an_interrupted_stream_ends_with_an_error_event() {
    let fault = Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down");
    let interrupted = |request: &ClientRequest<'_>| {
        let mut decoded = host().send(request);
        let mut out = interlingua_core::Out::new();
        decoded.exchange.interrupt(&fault, &mut out);
        Answer::from_out(out).body
    };
    let rpc = interrupted(&ClientRequest::rpc("SendStreamingMessage", &user("x")));
    assert!(rpc.starts_with(r#"data: {"jsonrpc":"2.0","id":7,"error":{"code":-32603"#), "{rpc}");
    let rest = interrupted(&ClientRequest::rest("POST", "/message:stream").body(&user("x")));
    assert!(rest.starts_with("event: error\ndata: {\"error\":{\"code\":503"), "{rest}");
}

#[test]
fn runs_of_other_protocols_are_tasks_but_not_of_other_agents() {
    let host = host();
    let record = support::record_of(host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run(), "greeting");
    let get = ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
    for protocol in ["a2a", "responses"] {
        let about = interlingua_core::call::RunInfo { protocol: protocol.into(), ..support::about(&record) };
        let shown = interlingua_core_testkit::TestRun::with_info(&record, about);
        assert_eq!(host.send(&get).final_answer(Reply::Run(shown.view())).status, 200, "{protocol}");
    }

    let mut run = interlingua_core::Run::new(record.run().id, "another agent", "s", 0);
    run.agent.push('!');
    let stranger = interlingua_core::Record::new(run);
    let shown = interlingua_core_testkit::TestRun::new(&stranger);
    assert_eq!(host.send(&get).final_answer(Reply::Run(shown.view())).status, 404);
}

#[test]
fn task_states_follow_run_states() {
    let host = host();
    let call = host.send(&ClientRequest::rpc("SendMessage", &user("hi"))).run().clone();
    let record = support::record_of(&call, "greeting");
    let get = ClientRequest::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
    for (state, word) in [
        (RunState::Queued, "TASK_STATE_SUBMITTED"),
        (RunState::Running, "TASK_STATE_WORKING"),
        (RunState::Waiting, "TASK_STATE_INPUT_REQUIRED"),
        (RunState::WaitingForAuth, "TASK_STATE_AUTH_REQUIRED"),
        (RunState::Ended(End::Completed), "TASK_STATE_COMPLETED"),
        (RunState::Ended(End::Incomplete), "TASK_STATE_COMPLETED"),
        (RunState::Ended(End::Failed), "TASK_STATE_FAILED"),
        (RunState::Ended(End::Rejected), "TASK_STATE_REJECTED"),
        (RunState::Ended(End::Canceled), "TASK_STATE_CANCELED"),
    ] {
        let shown = interlingua_core_testkit::TestRun::with_info(&record, support::about(&record)).state(state);
        let answer = host.send(&get).final_answer(Reply::Run(shown.view()));
        assert_eq!(answer.json()["status"]["state"], word);
    }
}
