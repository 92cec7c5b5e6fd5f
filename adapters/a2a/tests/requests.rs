//! What is read and what is refused: the tables of sections 2, 3, 4, 6 and 7.

mod support;

use std::fmt::Write as _;

use interlingua_core::call::{Call, Delivery, Reply, RunState, Target, Thread};
use interlingua_core::{End, Fault, FaultKind};
use serde_json::{Value, json};
use support::{Answer, Ask, FRESH, host, old_user, user, with};

fn refusal(answer: &Answer) -> String {
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
        let answer = host().ask(&Ask::new("POST", "").header("a2a-version", "1.0").text(body)).refused();
        let _ = writeln!(table, "{body}\n  {}", refusal(&answer));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_id_comes_back_with_its_type() {
    for id in ["1", "\"1\"", "-1", "\"\"", "12345678901234567890", "null"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"x"}}}}"#);
        let answer = host().ask(&Ask::new("POST", "").header("a2a-version", "1.0").text(&body)).refused();
        assert!(answer.body.contains(&format!(r#""id":{id},"#)), "{}", answer.body);
    }
}

#[test]
fn media_types_are_those_of_the_table() {
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
        let mut ask = Ask::new("POST", path).text(&body).header("content-type", media);
        if !path.starts_with("/v1") {
            ask = ask.header("a2a-version", "1.0");
        }
        let asked = host.ask(&ask);
        assert_eq!(asked.call.is_ok(), read, "{path} {media}");
        if !read {
            // The type of a body is a matter of HTTP; that of a part is 400 in 1.0.1 (section 10).
            let status = if path.is_empty() { 200 } else { 415 };
            let answer = asked.refused();
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
fn answers_come_in_the_media_type_the_client_takes() {
    let host = host();
    let record = support::told(host.ask(&Ask::rpc("SendMessage", &user("hi"))).run(), "greeting");
    let answered = |ask: &Ask<'_>| {
        let shown = interlingua_core::testkit::Shown::known(&record, support::about(&record));
        let answer = host.ask(ask).answered(Reply::Run(shown.view()));
        answer.head.get("content-type").expect("one").to_owned()
    };
    const A2A: &str = "application/a2a+json";
    const JSON: &str = "application/json";
    let get = || Ask::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
    let post = || {
        Ask::rest("POST", "/message:send")
            .text(r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#)
    };
    for (ask, media) in [
        (get(), A2A),
        (get().header("accept", "*/*"), A2A),
        (get().header("accept", JSON), JSON),
        (post().header("content-type", JSON), JSON),
        (post().header("content-type", A2A), A2A),
        (post().header("content-type", A2A).header("accept", JSON), JSON),
        (post().header("content-type", JSON).header("accept", "application/a2a+json, application/json"), A2A),
        (Ask::rpc("SendMessage", &user("hi")).header("accept", A2A), JSON),
        (Ask::new("POST", "/v1/message:send").body(&user("hi")), JSON),
    ] {
        assert_eq!(answered(&ask), media, "{} {:?}", ask.path, ask.headers);
    }
}

#[test]
fn static_paths_win_over_tenants() {
    let host = host();
    let task = "01930000-0000-7000-8000-000000000001";
    let ask = |method: &'static str, path: &str| -> String {
        let path = path.replace("ID", task);
        let asked = host.ask(&Ask { path: &path, ..Ask::rest(method, "") });
        let tenant = asked.exchange.partition().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
        match asked.call {
            Ok(Call::Fetch(Target::Run(id))) => format!("the task {}{tenant}", id == FRESH),
            Ok(Call::List(_)) => format!("the tasks{tenant}"),
            Ok(Call::Nothing) => "the card".into(),
            Ok(other) => format!("{other:?}"),
            Err(fault) => format!("{:?}", fault.kind),
        }
    };
    for (method, path, wanted) in [
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
        assert_eq!(ask(method, path), wanted, "{method} {path}");
    }
    let both = Ask::rest("POST", "/x/message:send").body(&json!({ "tenant": "y", "message": user("hi")["message"] }));
    assert_eq!(host.ask(&both).call.expect_err("they differ").field.as_deref(), Some("tenant"));
}

#[test]
fn whether_to_wait_depends_on_the_dialect() {
    let host = host();
    let delivery = |ask: Ask<'_>| host.ask(&ask).run().delivery;
    let with =
        |message: Value, configuration: Value| json!({ "message": message["message"], "configuration": configuration });
    let new = |configuration| Ask::rpc("SendMessage", &with(user("x"), configuration));
    let old = |configuration| Ask::old_rpc("message/send", &with(old_user("x"), configuration));
    let rest = |configuration| Ask::new("POST", "/v1/message:send").body(&with(user("x"), configuration));
    for (ask, wanted) in [
        (new(json!({})), Delivery::Collect),
        (new(json!({ "returnImmediately": true })), Delivery::Background),
        (new(json!({ "return_immediately": true })), Delivery::Background),
        (new(json!({ "blocking": false })), Delivery::Background),
        (old(json!({})), Delivery::Collect),
        (old(json!({ "blocking": true })), Delivery::Collect),
        (old(json!({ "blocking": false })), Delivery::Background),
        (rest(json!({ "blocking": true })), Delivery::Collect),
        (rest(json!({})), Delivery::Background),
        (Ask::new("POST", "/v1/message:send").body(&user("x")), Delivery::Collect),
        (Ask::old_rpc("message/send", &old_user("x")), Delivery::Collect),
        (Ask::rpc("SendStreamingMessage", &with(user("x"), json!({ "returnImmediately": true }))), Delivery::Stream),
    ] {
        let body = ask.body.clone();
        assert_eq!(delivery(ask), wanted, "{body}");
    }
}

#[test]
fn a_message_reaches_the_agent_with_all_it_brought() {
    let question = json!({
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
    let asked = host().ask(&Ask::rpc("SendMessage", &question));
    let call = asked.run();
    assert_eq!((call.id, &call.thread), (Some(FRESH), &Thread::Session("c-1".into())));
    assert!(call.policy.detached && call.policy.turns.are_many() && call.policy.stored);
    assert!(
        matches!(call.policy.first_response, FirstResponse::AwaitAgent { timeout: Some(_) })
            && call.policy.discard_if_unreached,
        "one that cannot be reached makes no task"
    );
    assert_eq!(asked.exchange.partition(), Some("acme"));
    insta::assert_snapshot!(serde_json::to_string_pretty(&call.request).expect("JSON"));
}

#[test]
fn contexts_are_kept_or_refused_and_never_replaced() {
    for (context, good) in
        [("c".repeat(256), true), ("c".repeat(257), false), ("a\nb".to_owned(), false), ("ünïcode 🦀".to_owned(), true)]
    {
        let mut question = user("x");
        question["message"]["contextId"] = json!(context);
        let asked = host().ask(&Ask::rpc("SendMessage", &question));
        match asked.call {
            Ok(Call::Run(call)) => assert!(good && call.thread == Thread::Session(context)),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => assert!(!good && fault.field.as_deref() == Some("message.contextId"), "{fault:?}"),
        }
    }
}

#[test]
fn input_modes_are_enforced_where_that_is_wanted() {
    let options = json!({ "enforce_input_modes": true, "card": { "input_modes": ["text/plain", "image/*"] } });
    let ask = |part: Value| {
        let question = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [part] } });
        with(options.clone()).ask(&Ask::rest("POST", "/message:send").body(&question))
    };
    assert!(ask(json!({ "text": "x" })).call.is_ok());
    assert!(ask(json!({ "raw": "AQ==", "mediaType": "image/png" })).call.is_ok());
    for part in [json!({ "raw": "AQ==" }), json!({ "data": { "interrupt_id": "i" } }), json!({ "url": "https://x/y" })]
    {
        assert!(ask(part).call.is_ok(), "what names no type has none that could be wrong");
    }
    let refused = ask(json!({ "raw": "AQ==", "mediaType": "audio/wav" })).refused();
    assert_eq!(
        (refused.status, refused.json()["error"]["details"][0]["reason"].clone()),
        (400, json!("CONTENT_TYPE_NOT_SUPPORTED"))
    );
}

#[test]
fn extensions_are_activated_as_far_as_they_are_declared() {
    let declared = json!([{ "uri": "https://e/1" }, { "uri": "https://e/2", "required": true }]);
    let host = with(json!({ "extensions": declared }));
    let refused = host.ask(&Ask::rpc("SendMessage", &user("x")).header("a2a-extensions", "https://e/1")).refused();
    assert_eq!(refused.json()["error"]["code"], -32008);
    let refused = host.ask(&Ask::old_rpc("message/send", &old_user("x"))).refused();
    assert_eq!(refused.json()["error"]["code"], -32004);
    let listed = "https://e/9, https://e/2 ,https://e/1";
    let asked = host.ask(&Ask::rpc("SendStreamingMessage", &user("x")).header("a2a-extensions", listed));
    let record = support::told(asked.run(), "greeting");
    let answer = asked.streamed(&record, support::about(&record));
    assert_eq!(answer.head.get("a2a-extensions"), Some("https://e/1, https://e/2"));
}

#[test]
fn tenants_may_stand_for_agents() {
    let mount = interlingua_core::Mount {
        path: "/x".into(),
        agents: vec![support::card("one"), support::card("two")],
        public_url: None,
        authenticates: false,
    };
    let mounted = |options: Value| {
        use interlingua_core::ProtocolAdapter;
        interlingua_a2a::A2a::mount(&mount, serde_json::from_value(options).expect("options")).map(support::Host)
    };
    assert!(mounted(json!({})).is_err() && mounted(json!({ "tenants": { "a": "three" } })).is_err());
    let host = mounted(json!({ "tenants": { "a": "one", "b": "two" } })).expect("it mounts");
    let mut question = user("x");
    question["tenant"] = json!("b");
    assert_eq!(host.ask(&Ask::rpc("SendMessage", &question)).run().agent, "two");
    question["tenant"] = json!("c");
    assert_eq!(host.ask(&Ask::rpc("SendMessage", &question)).refused().json()["error"]["code"], -32602);
}

#[test]
fn cards_are_cached_by_the_rules_of_http() {
    let host = host();
    let ask = |ask: Ask<'_>| host.ask(&ask).answered(Reply::Done);
    let card = |version: &'static str| Ask::new("GET", "/.well-known/agent-card.json").header("a2a-version", version);
    let hybrid = ask(Ask::new("GET", "/.well-known/agent.json"));
    let pure = ask(card("1.0"));
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
        let answer = ask(card("1.0").header(name, value));
        assert_eq!((answer.status, answer.body.is_empty()), (status, status == 304), "{name}: {value}");
    }
    assert_eq!(host.ask(&card("2.0")).refused().status, 400);
    let public = with(json!({ "public_url": "https://public.example/{agent}/" }));
    let answer = public.ask(&card("1.0")).answered(Reply::Done);
    assert_eq!(answer.json()["supportedInterfaces"][0]["url"], "https://public.example/demo");
}

#[test]
fn the_extended_card_is_for_those_who_signed_in() {
    let host = support::authenticating(json!({ "extended_card": { "description": "and more" } }));
    let ask = Ask::rest("GET", "/extendedAgentCard");
    assert_eq!(host.ask(&ask).refused().status, 401);
    let answer = host.ask(&Ask { authenticated: true, ..ask }).answered(Reply::Done);
    assert_eq!(
        (answer.json()["description"].clone(), answer.head.get("cache-control")),
        (json!("and more"), Some("private"))
    );
    let old = host.ask(&Ask { authenticated: true, ..Ask::new("GET", "/v1/card") }).answered(Reply::Done);
    assert_eq!(old.json()["protocolVersion"], "0.3.0");
}

#[test]
fn errors_of_old_streams_are_streams() {
    let nobody = json!({ "id": "x" });
    let as_stream =
        host().ask(&Ask::old_rpc("tasks/resubscribe", &nobody).header("accept", "text/event-stream")).refused();
    assert_eq!((as_stream.status, as_stream.head.get("content-type")), (200, Some("text/event-stream")));
    assert_eq!(as_stream.frames()[0]["error"]["code"], -32001);
    // The Python client sends two such headers.
    let both = Ask::old_rpc("message/stream", &json!({})).header("accept", "*/*").header("accept", "text/event-stream");
    assert_eq!(host().ask(&both).refused().frames()[0]["error"]["code"], -32602);
    let whole = host().ask(&Ask::old_rpc("tasks/resubscribe", &nobody)).refused();
    assert_eq!(
        (whole.head.get("content-type"), whole.json()["error"]["code"].clone()),
        (Some("application/json"), json!(-32001))
    );
    let new = host().ask(&Ask::rpc("SubscribeToTask", &nobody).header("accept", "text/event-stream")).refused();
    assert_eq!(new.head.get("content-type"), Some("application/json"));
}

#[test]
fn a_stream_that_breaks_says_so_in_its_own_form() {
    let fault = Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down");
    let interrupted = |ask: &Ask<'_>| {
        let mut asked = host().ask(ask);
        let mut out = interlingua_core::Out::new();
        asked.exchange.interrupt(&fault, &mut out);
        Answer::of(out).body
    };
    let rpc = interrupted(&Ask::rpc("SendStreamingMessage", &user("x")));
    assert!(rpc.starts_with(r#"data: {"jsonrpc":"2.0","id":7,"error":{"code":-32603"#), "{rpc}");
    let rest = interrupted(&Ask::rest("POST", "/message:stream").body(&user("x")));
    assert!(rest.starts_with("event: error\ndata: {\"error\":{\"code\":503"), "{rest}");
}

#[test]
fn a_run_of_another_protocol_is_a_task_and_one_of_another_agent_is_none() {
    let host = host();
    let record = support::told(host.ask(&Ask::rpc("SendMessage", &user("hi"))).run(), "greeting");
    let get = Ask::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
    for protocol in ["a2a", "responses"] {
        let about = interlingua_core::call::RunInfo { protocol: protocol.into(), ..support::about(&record) };
        let shown = interlingua_core::testkit::Shown::known(&record, about);
        assert_eq!(host.ask(&get).answered(Reply::Run(shown.view())).status, 200, "{protocol}");
    }
    let mut run = interlingua_core::Run::new(record.run().id, "somebody else", "s", 0);
    run.agent.push('!');
    let stranger = interlingua_core::Record::new(run);
    let shown = interlingua_core::testkit::Shown::new(&stranger);
    assert_eq!(host.ask(&get).answered(Reply::Run(shown.view())).status, 404);
}

#[test]
fn states_are_those_of_the_run() {
    let host = host();
    let call = host.ask(&Ask::rpc("SendMessage", &user("hi"))).run().clone();
    let record = support::told(&call, "greeting");
    let get = Ask::rest("GET", "/tasks/01930000-0000-7000-8000-000000000001");
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
        let shown = interlingua_core::testkit::Shown::known(&record, support::about(&record)).state(state);
        let answer = host.ask(&get).answered(Reply::Run(shown.view()));
        assert_eq!(answer.json()["status"]["state"], word);
    }
}
