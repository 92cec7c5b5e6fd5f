//! The calls that requests are decoded to, for each endpoint, and the answers other than streams.

mod support;

use std::time::Duration;

use interlingua_core::call::{Call, Cursor, Delivery, Page, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::Pending;
use interlingua_core::{Fault, FaultKind, Json, Out, Record, Reply, RunId, RunPolicy};
use interlingua_core_testkit::{self as testkit, NOW, RUN};
use serde_json::{Value, json};
use support::{HELLO, Native, OpenExchange, run_info, state};

fn run_call(body: &str) -> RunCall {
    match Native::new("{}").open("POST", "/process", body.as_bytes(), "").1.expect("a request") {
        Call::Run(call) => *call,
        call => panic!("{call:?}"),
    }
}

/// The status and the body of the refusal of a request body.
fn refused(body: &[u8], media: Option<&str>) -> (u16, Value) {
    let headers: Vec<(&str, &str)> = media.map(|media| ("content-type", media)).into_iter().collect();
    let (exchange, call) = Native::new("{}").open_with("POST", "/process", body, "", &headers, "");
    failed(exchange, &call.expect_err("it is refused"))
}

fn failed(mut exchange: OpenExchange, fault: &Fault) -> (u16, Value) {
    let mut out = Out::new();
    exchange.fail(fault, &mut out);
    (out.head.status, serde_json::from_slice(&out.body).expect("JSON"))
}

fn replied(mut exchange: OpenExchange, reply: Reply<'_>) -> (u16, Value) {
    let mut out = Out::new();
    assert!(matches!(exchange.reply(reply, &mut out), Ok(Next::Done)));
    (out.head.status, serde_json::from_slice(&out.body).expect("JSON"))
}

fn with_run(exchange: OpenExchange, record: &Record, state: RunState) -> Value {
    let info = run_info(state);
    let (status, body) = replied(exchange, Reply::Run(RunView { record, info: &info, pending: &[] }));
    assert_eq!(status, 0, "the default status, 200");
    body
}

fn finished() -> Record {
    testkit::record([include_bytes!("../../../tests/transcripts/agentscope/agentscope-text.sse").as_slice()])
}

#[test]
fn a_request_without_a_session_starts_a_new_one_and_is_streamed() {
    let call = run_call(r#"{"input":[{"role":"user","content":"hi"}]}"#);
    assert_eq!((call.agent.as_str(), call.delivery, &call.thread), ("demo", Delivery::Stream, &Thread::New));
    assert!(call.policy == RunPolicy::attached() && call.id.is_none());
    assert_eq!(call.request.input[0].text(), "hi");
}

#[test]
fn sessions_users_and_unknown_fields_are_passed_on() {
    let call = run_call(
        r#"{"input":[],"stream":false,"session_id":"s-1","user_id":"u-1","response_id":"r","biz_params":{"a":1.50}}"#,
    );
    assert_eq!((call.delivery, call.thread), (Delivery::Collect, Thread::Session("s-1".into())));
    assert_eq!(call.request.user_id.as_deref(), Some("u-1"));
    assert_eq!(call.request.id.as_deref(), Some("r"));
    assert_eq!(call.request.extra.get("biz_params").map(Json::text), Some(r#"{"a":1.50}"#));
    assert_eq!(run_call(r#"{"input":[],"session_id":""}"#).thread, Thread::New);
}

#[test]
fn some_requests_that_the_runtime_refuses_are_accepted() {
    let call = run_call(
        r#"{"input":[{"role":"developer","content":"a"},{"type":"assistant","content":[{"text":"b"}]},{"content":["c"]}]}"#,
    );
    let [system, assistant, plain] = call.request.input.as_slice() else { panic!("three messages") };
    assert_eq!(system.role, Some(Role::System));
    assert_eq!(assistant.kind, MessageType::Message);
    assert_eq!((assistant.text().as_str(), plain.text().as_str()), ("b", "c"));
}

#[test]
fn every_refusal_names_its_field() {
    let mut lines = String::new();
    for body in [
        r#""#,
        r#"not json"#,
        r#"[]"#,
        r#"{"input":[]"#,
        r#"{}"#,
        r#"{"input":null}"#,
        r#"{"input":"hello"}"#,
        r#"{"input":{"role":"user"}}"#,
        r#"{"input":["hello"]}"#,
        r#"{"input":[{"role":"robot","content":[]}]}"#,
        r#"{"input":[{"role":7,"content":[]}]}"#,
        r#"{"input":[{"role":"user"}]}"#,
        r#"{"input":[{"role":"user","content":null}]}"#,
        r#"{"input":[{"role":"user","content":[{}]}]}"#,
        r#"{"input":[{"role":"user","content":[{"type":"smell"}]}]}"#,
        r#"{"input":[{"role":"user","content":[{"type":"text","text":7}]}]}"#,
        r#"{"input":[{"role":"user","content":"x","metadata":[]}]}"#,
        r#"{"input":[],"n":9}"#,
        r#"{"input":[],"n":"two"}"#,
        r#"{"input":[],"stream":"yes"}"#,
        r#"{"input":[],"session_id":{"a":1}}"#,
        r#"{"input":[],"temperature":"hot"}"#,
        r#"{"input":[],"stop":7}"#,
        r#"{"input":[],"tools":[7]}"#,
        r#"{"input":[],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","name":"f"}]}"#,
    ] {
        let (status, answer) = refused(body.as_bytes(), Some("application/json"));
        assert_eq!(status, 422, "{body}");
        lines += &format!("{body}\n  {answer}\n");
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn hostile_bodies_are_refused_with_422() {
    let deep = "[".repeat(100_000);
    let closed = format!("{}{}", deep, "]".repeat(100_000));
    let content = format!(r#"{{"input":[{{"role":"user","content":{closed}}}]}}"#);
    for body in [deep.as_bytes(), closed.as_bytes(), content.as_bytes(), b"{\"input\":\"\xff\xfe\"}"] {
        assert_eq!(refused(body, Some("application/json")).0, 422);
    }

    // Deep nesting in fields that the gateway does not parse is passed on.
    run_call(&format!(r#"{{"input":[],"deep":{closed}}}"#));
}

#[test]
fn a_body_needs_a_json_content_type() {
    for media in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("json")] {
        let (status, answer) = refused(HELLO, media);
        assert_eq!((status, answer["code"].as_str()), (415, Some("UNSUPPORTED_MEDIA_TYPE")));
    }
    for media in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.agent+json"] {
        let opened = Native::new("{}").open_with("POST", "/process", HELLO, "", &[("content-type", media)], "");
        assert!(opened.1.is_ok(), "{media}");
    }
}

#[test]
fn a_task_is_submitted_and_polled() {
    let native = Native::new("{}");
    let body = br#"{"input":[],"timeout":1.5,"session_id":"s"}"#;
    let (exchange, call) = native.open("POST", "/process/task", body, "");
    let Call::Run(call) = call.expect("a request") else { panic!("a run") };
    assert_eq!((call.delivery, call.thread), (Delivery::Background, Thread::Session("s".into())));
    assert!(call.request.extra.is_empty(), "the timeout is not sent to the agent");

    let submitted = with_run(exchange, &testkit::started(), RunState::Queued);
    assert_eq!(
        submitted,
        json!({
            "task_id": RUN.to_string(),
            "status": "submitted",
            "queue": "stream_query",
            "message": "Stream query task submitted successfully"
        })
    );

    let poll = |record: &Record, state| {
        let (exchange, call) = native.open("GET", "/process/task/{id}", b"", "");
        assert!(matches!(call, Ok(Call::Fetch(Target::Run(RUN)))));
        with_run(exchange, record, state)
    };
    assert_eq!(poll(&testkit::started(), RunState::Queued), json!({ "status": "pending" }));

    let running = json!({ "status": "running", "started_at": NOW / 1000 });
    assert_eq!(poll(&testkit::started(), RunState::Running), running);
    let record = finished();
    let done = poll(&record, state(&record));
    assert_eq!((&done["status"], &done["result"]), (&json!("finished"), &support::collected(&record)));
}

#[test]
fn an_unknown_task_is_answered_as_by_the_runtime() {
    let (exchange, call) = Native::new("{}").open_with("GET", "/process/task/{id}", b"", "", &[], "task-7");
    let (status, body) = failed(exchange, &call.expect_err("no such id"));
    assert_eq!((status, body), (200, json!({ "error": "Task task-7 not found" })));

    let (exchange, _) = Native::new("{}").open("GET", "/process/task/{id}", b"", "");
    assert_eq!(failed(exchange, &Fault::new(FaultKind::Unauthenticated, "no")).0, 401);
}

#[test]
fn stopping_an_idle_session_succeeds() {
    let native = Native::new("{}");
    let stop = || native.open("POST", "/stop", br#"{"user_id":"u","session_id":"s","input":[]}"#, "");
    let (exchange, call) = stop();
    let Ok(Call::List(filter)) = call else { panic!("{call:?}") };
    assert_eq!(filter.session.as_deref(), Some("s"));

    let (mut exchange, mut out) = (exchange, Out::new());
    let page = Page { runs: Vec::new(), total: 0, next: None };
    // An ended run can still have pending items.
    let next = exchange.reply(Reply::Runs(page), &mut out);
    assert!(matches!(&next, Ok(Next::Call(Call::Cancel(Target::Latest(session)))) if session == "s"), "{next:?}");

    let (status, body) = failed(exchange, &Fault::not_found("a run in session 's'"));
    assert_eq!((status, &body["status"]), (200, &json!("success")));
    let (status, body) = failed(stop().0, &Fault::not_found("run '7'"));
    assert_eq!((status, &body["status"]), (200, &json!("success")));

    let (exchange, call) = native.open("POST", "/stop", br#"{"user_id":"u"}"#, "");
    let (status, body) = failed(exchange, &call.expect_err("no session"));
    assert_eq!((status, &body["detail"][0]["loc"]), (422, &json!(["body", "session_id"])));
}

#[test]
fn runs_are_found_by_every_form_of_their_id() {
    let native = Native::new("{}");
    for id in [RUN.to_string(), RUN.to_prefixed("resp_"), format!("response_{RUN}")] {
        let call = |method, path| native.open_with(method, path, b"", "", &[], &id).1.expect("a run's id");
        assert!(matches!(call("GET", "/runs/{id}"), Call::Fetch(Target::Run(RUN))));
        assert!(matches!(call("POST", "/runs/{id}/cancel"), Call::Cancel(Target::Run(RUN))));
        assert!(matches!(call("DELETE", "/runs/{id}"), Call::Delete(Target::Run(RUN))));
        assert!(matches!(call("GET", "/runs/{id}/events"), Call::Follow(Target::Run(RUN))));
    }

    let deleted = replied(native.open("DELETE", "/runs/{id}", b"", "").0, Reply::Done).1;
    assert_eq!(deleted, json!({ "id": format!("response_{RUN}"), "object": "response", "deleted": true }));

    let (exchange, call) = native.open_with("GET", "/runs/{id}", b"", "", &[], "nonsense");
    let (status, body) = failed(exchange, &call.expect_err("no such id"));
    assert_eq!((status, &body["detail"]), (404, &json!("run 'nonsense' not found")));
}

#[test]
fn an_active_run_is_returned_in_its_current_state() {
    let mut record = testkit::started();
    let message =
        record.start_message(interlingua_core::run::MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, interlingua_core::model::ContentType::Text, None);
    record.push(message, content, "Hel");

    let fetch = || Native::new("{}").open("GET", "/runs/{id}", b"", "").0;
    let response = with_run(fetch(), &record, RunState::Running);
    assert_eq!((&response["status"], &response["sequence_number"]), (&json!("in_progress"), &json!(3)));
    let message = &response["output"][0];
    assert_eq!((&message["status"], &message["content"][0]["text"]), (&json!("in_progress"), &json!("Hel")));
    assert_eq!(message["content"][0]["status"], "in_progress");
    assert_eq!(with_run(fetch(), &testkit::started(), RunState::Queued)["status"], "queued");
}

#[test]
fn a_stream_resumes_by_header_or_query() {
    let follow = |query: &str, header: &str| {
        let headers = [("last-event-id", header)];
        Native::new("{}").open_with("GET", "/runs/{id}/events", b"", query, &headers, &RUN.to_string())
    };
    for (query, header) in [("", ""), ("after=3", ""), ("after=", "4"), ("after=3", "4")] {
        assert!(follow(query, header).1.is_ok(), "{query} {header}");
    }

    for (query, header) in [("after=x", ""), ("", "-1"), ("after=99999999999999999999", "")] {
        let (exchange, call) = follow(query, header);
        let (status, body) = failed(exchange, &call.expect_err("not a number"));
        assert_eq!((status, &body["detail"][0]["loc"]), (422, &json!(["query", "after"])));
    }
}

#[test]
fn runs_are_listed_page_by_page() {
    let native = Native::new("{}");
    let record = finished();
    let cursor = Cursor { at: NOW, id: RunId(uuid::Uuid::from_u128(9)) };
    let (exchange, call) = native.open("GET", "/runs", b"", "session_id=s&limit=2");
    let Ok(Call::List(filter)) = call else { panic!("{call:?}") };
    assert_eq!((filter.session.as_deref(), filter.limit, filter.cursor), (Some("s"), 2, None));

    let info = run_info(state(&record));
    let runs = vec![RunView { record: &record, info: &info, pending: &[] }];
    let (_, page) = replied(exchange, Reply::Runs(Page { runs, total: 3, next: Some(cursor) }));
    assert_eq!((&page["total"], &page["data"][0]["status"]), (&json!(3), &json!("completed")));
    assert!(page["data"][0]["output"].is_null());

    let next = format!("cursor={}", page["next"].as_str().expect("a next page"));
    let Ok(Call::List(filter)) = native.open("GET", "/runs", b"", &next).1 else { panic!("a list") };
    assert_eq!(filter.cursor, Some(cursor));

    for query in ["limit=0", "limit=x", "limit=1000", "cursor=x", "cursor=1.2"] {
        assert_eq!(native.open("GET", "/runs", b"", query).1.expect_err("refused").kind, FaultKind::Invalid, "{query}");
    }
}

#[test]
fn a_waiting_session_names_its_pending_items() {
    let item = Pending::parse(&Json::parse(r#"{"id":"appr_1","name":"delete_file"}"#).expect("JSON")).expect("an id");
    let record = finished();
    let info = run_info(state(&record));
    let (exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let view = RunView { record: &record, info: &info, pending: &[item] };
    let (status, body) = replied(exchange, Reply::Waiting(view, None));
    assert_eq!(status, 409);
    assert_eq!(body["detail"], "the session waits for answers to appr_1 first");
    assert_eq!(body["pending"], json!([{ "id": "appr_1", "kind": "approval", "name": "delete_file" }]));
}

#[test]
fn the_health_endpoint_answers() {
    let (exchange, call) = Native::new("{}").open("GET", "/health", b"", "");
    assert!(matches!(call, Ok(Call::Nothing)));
    assert_eq!(replied(exchange, Reply::Done).1["status"], "healthy");
}

#[test]
fn other_endpoints_of_the_runtime_are_unknown_paths() {
    let native = Native::new("{}");
    let paths: Vec<&str> = native.0.endpoints.iter().map(|endpoint| endpoint.path).collect();
    assert!(paths.iter().all(|path| !path.contains("shutdown") && !path.contains("admin")), "{paths:?}");

    let fallback = || (native.0.fallback)();
    assert_eq!(failed(fallback(), &Fault::new(FaultKind::NoSuchPath, "nothing answers on this path")).0, 404);
    assert_eq!(failed(fallback(), &Fault::new(FaultKind::MethodNotAllowed, "no")).0, 405);
}

#[test]
fn a_busy_agent_is_reported_with_the_time_to_wait() {
    let (mut exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let mut fault = Fault::new(FaultKind::UpstreamRateLimited, "the agent is rate limited");
    fault.retry_after = Some(Duration::from_secs(7));

    let mut out = Out::new();
    exchange.fail(&fault, &mut out);
    assert_eq!((out.head.status, out.head.get("retry-after")), (429, Some("7")));
}

#[test]
fn idle_streams_get_comments_unless_turned_off() {
    for (options, comment) in [("{}", ": keep-alive\n\n"), (r#"{"heartbeat":false}"#, "")] {
        let (mut exchange, _) = Native::new(options).open("POST", "/process", HELLO, "");
        let mut out = Out::new();
        exchange.heartbeat(&mut out);
        assert_eq!(support::text(out), comment);
    }
}

#[test]
fn a_route_serves_one_agent() {
    use interlingua_core::{Mount, ProtocolAdapter};
    let agents = ["a", "b"]
        .map(|name| std::sync::Arc::new(interlingua_core::call::AgentCard { name: name.into(), ..Default::default() }));
    let mount = Mount { path: String::new(), agents: agents.to_vec(), public_url: None, schemes: Vec::new() };
    let refused = interlingua_native::Native::mount(&mount, interlingua_native::Options::default());
    assert!(refused.err().expect("two agents").contains("{agent}"));
    assert!(serde_json::from_str::<interlingua_native::Options>(r#"{"terminall":"failed"}"#).is_err());
}
