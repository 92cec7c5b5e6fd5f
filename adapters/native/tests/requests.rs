//! What requests become, endpoint by endpoint, and the answers that are no streams.

mod support;

use std::time::Duration;

use interlingua_core::call::{Call, Cursor, Delivery, Page, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::Pending;
use interlingua_core::testkit::{self, NOW, RUN};
use interlingua_core::{Fault, FaultKind, Json, Out, Record, Reply, RunId};
use serde_json::{Value, json};
use support::{HELLO, Native, Opened, about, state};

fn run_call(body: &str) -> RunCall {
    match Native::new("{}").open("POST", "/process", body.as_bytes(), "").1.expect("a request") {
        Call::Run(call) => *call,
        call => panic!("{call:?}"),
    }
}

/// The status and body of a refusal of a body.
fn refused(body: &[u8], media: Option<&str>) -> (u16, Value) {
    let headers: Vec<(&str, &str)> = media.map(|media| ("content-type", media)).into_iter().collect();
    let (exchange, call) = Native::new("{}").asked("POST", "/process", body, "", &headers, "");
    failed(exchange, &call.expect_err("it is refused"))
}

fn failed(mut exchange: Opened, fault: &Fault) -> (u16, Value) {
    let mut out = Out::new();
    exchange.fail(fault, &mut out);
    (out.head.status, serde_json::from_slice(&out.body).expect("JSON"))
}

fn replied(mut exchange: Opened, reply: Reply<'_>) -> (u16, Value) {
    let mut out = Out::new();
    assert!(matches!(exchange.reply(reply, &mut out), Ok(Next::Done)));
    (out.head.status, serde_json::from_slice(&out.body).expect("JSON"))
}

fn with_run(exchange: Opened, record: &Record, state: RunState) -> Value {
    let about = about(state);
    let (status, body) = replied(exchange, Reply::Run(RunView { record, info: &about, pending: &[] }));
    assert_eq!(status, 0, "no status of its own: 200");
    body
}

fn finished() -> Record {
    testkit::record([include_bytes!("../../../tests/transcripts/agentscope/agentscope-text.sse").as_slice()])
}

#[test]
fn a_request_is_streamed_in_a_conversation_of_its_own() {
    let call = run_call(r#"{"input":[{"role":"user","content":"hi"}]}"#);
    assert_eq!((call.agent.as_str(), call.delivery, &call.thread), ("demo", Delivery::Stream, &Thread::New));
    assert!(!call.detached && !call.respond_immediately && call.stored && call.id.is_none());
    assert_eq!(call.request.input[0].text(), "hi");
}

#[test]
fn sessions_users_and_unknown_fields_are_carried() {
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
fn more_is_understood_than_the_runtime_does() {
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
        r#"{"input":[{"role":"user","content":[{"type":"text","text":"\ud800"}]}]}"#,
        r#"{"input":[{"role":"user","content":"x","metadata":[]}]}"#,
        r#"{"input":[],"n":9}"#,
        r#"{"input":[],"n":"two"}"#,
        r#"{"input":[],"stream":"yes"}"#,
        r#"{"input":[],"session_id":{"a":1}}"#,
        r#"{"input":[],"temperature":"hot"}"#,
        r#"{"input":[],"stop":7}"#,
        r#"{"input":[],"tools":[7]}"#,
    ] {
        let (status, answer) = refused(body.as_bytes(), Some("application/json"));
        assert_eq!(status, 422, "{body}");
        lines += &format!("{body}\n  {answer}\n");
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn hostile_bodies_are_refused_like_others() {
    let deep = "[".repeat(100_000);
    let closed = format!("{}{}", deep, "]".repeat(100_000));
    let content = format!(r#"{{"input":[{{"role":"user","content":{closed}}}]}}"#);
    for body in [deep.as_bytes(), closed.as_bytes(), content.as_bytes(), b"{\"input\":\"\xff\xfe\"}"] {
        assert_eq!(refused(body, Some("application/json")).0, 422);
    }
    // Depth that nobody has to look into is passed on.
    run_call(&format!(r#"{{"input":[],"deep":{closed}}}"#));
}

#[test]
fn a_body_has_to_say_that_it_is_json() {
    for media in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("json")] {
        let (status, answer) = refused(HELLO, media);
        assert_eq!((status, answer["code"].as_str()), (415, Some("UNSUPPORTED_MEDIA_TYPE")));
    }
    for media in ["application/json; charset=utf-8", "Application/JSON", "application/vnd.agent+json"] {
        let asked = Native::new("{}").asked("POST", "/process", HELLO, "", &[("content-type", media)], "");
        assert!(asked.1.is_ok(), "{media}");
    }
}

#[test]
fn a_task_is_submitted_and_polled() {
    let native = Native::new("{}");
    let body = br#"{"input":[],"timeout":1.5,"session_id":"s"}"#;
    let (exchange, call) = native.open("POST", "/process/task", body, "");
    let Call::Run(call) = call.expect("a request") else { panic!("a run") };
    assert_eq!((call.delivery, call.thread), (Delivery::Background, Thread::Session("s".into())));
    assert!(call.request.extra.is_empty(), "the agent does not see the timeout");
    let submitted = with_run(exchange, &testkit::begun(), RunState::Queued);
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
    assert_eq!(poll(&testkit::begun(), RunState::Queued), json!({ "status": "pending" }));
    let running = json!({ "status": "running", "started_at": NOW / 1000 });
    assert_eq!(poll(&testkit::begun(), RunState::Running), running);
    let record = finished();
    let done = poll(&record, state(&record));
    assert_eq!((&done["status"], &done["result"]), (&json!("finished"), &support::whole(&record)));
}

#[test]
fn an_unknown_task_is_told_as_the_runtime_tells_it() {
    let (exchange, call) = Native::new("{}").asked("GET", "/process/task/{id}", b"", "", &[], "task-7");
    let (status, body) = failed(exchange, &call.expect_err("no such id"));
    assert_eq!((status, body), (200, json!({ "error": "Task task-7 not found" })));
    let (exchange, _) = Native::new("{}").open("GET", "/process/task/{id}", b"", "");
    assert_eq!(failed(exchange, &Fault::new(FaultKind::Unauthenticated, "no")).0, 401);
}

#[test]
fn stopping_what_does_not_run_is_a_success() {
    let native = Native::new("{}");
    let stop = || native.open("POST", "/stop", br#"{"user_id":"u","session_id":"s","input":[]}"#, "");
    let (exchange, call) = stop();
    let Ok(Call::List(filter)) = call else { panic!("{call:?}") };
    assert_eq!(filter.session.as_deref(), Some("s"));
    let (mut exchange, mut out) = (exchange, Out::new());
    let page = Page { runs: Vec::new(), total: 0, next: None };
    // What has ended may still ask something.
    let next = exchange.reply(Reply::Runs(page), &mut out);
    assert!(matches!(&next, Ok(Next::Call(Call::Cancel(Target::Latest(session)))) if session == "s"), "{next:?}");
    let (status, body) = failed(exchange, &Fault::not_found("a run in session 's'"));
    assert_eq!((status, &body["status"]), (200, &json!("success")));
    let (status, body) = failed(stop().0, &Fault::not_found("run '7'"));
    assert_eq!((status, &body["status"]), (200, &json!("success")));

    let (exchange, call) = native.open("POST", "/stop", br#"{"user_id":"u"}"#, "");
    let (status, body) = failed(exchange, &call.expect_err("which one?"));
    assert_eq!((status, &body["detail"][0]["loc"]), (422, &json!(["body", "session_id"])));
}

#[test]
fn a_run_is_read_stopped_and_forgotten_by_any_spelling_of_its_id() {
    let native = Native::new("{}");
    for id in [RUN.to_string(), RUN.to_prefixed("resp_"), format!("response_{RUN}")] {
        let call = |method, path| native.asked(method, path, b"", "", &[], &id).1.expect("a run's id");
        assert!(matches!(call("GET", "/runs/{id}"), Call::Fetch(Target::Run(RUN))));
        assert!(matches!(call("POST", "/runs/{id}/cancel"), Call::Cancel(Target::Run(RUN))));
        assert!(matches!(call("DELETE", "/runs/{id}"), Call::Delete(Target::Run(RUN))));
        assert!(matches!(call("GET", "/runs/{id}/events"), Call::Follow(Target::Run(RUN))));
    }
    let deleted = replied(native.open("DELETE", "/runs/{id}", b"", "").0, Reply::Done).1;
    assert_eq!(deleted, json!({ "id": format!("response_{RUN}"), "object": "response", "deleted": true }));
    let (exchange, call) = native.asked("GET", "/runs/{id}", b"", "", &[], "nonsense");
    let (status, body) = failed(exchange, &call.expect_err("no such id"));
    assert_eq!((status, &body["detail"]), (404, &json!("run 'nonsense' not found")));
}

#[test]
fn a_run_under_way_is_shown_as_far_as_it_is() {
    let mut record = testkit::begun();
    let message =
        record.start_message(interlingua_core::run::MessageStart::new("m", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, interlingua_core::model::ContentType::Text, None);
    record.push(message, content, "Hel");
    let fetch = || Native::new("{}").open("GET", "/runs/{id}", b"", "").0;
    let shown = with_run(fetch(), &record, RunState::Running);
    assert_eq!((&shown["status"], &shown["sequence_number"]), (&json!("in_progress"), &json!(3)));
    let message = &shown["output"][0];
    assert_eq!((&message["status"], &message["content"][0]["text"]), (&json!("in_progress"), &json!("Hel")));
    assert_eq!(message["content"][0]["status"], "in_progress");
    assert_eq!(with_run(fetch(), &testkit::begun(), RunState::Queued)["status"], "queued");
}

#[test]
fn the_place_to_go_on_from_is_a_header_or_a_query() {
    let follow = |query: &str, header: &str| {
        let headers = [("last-event-id", header)];
        Native::new("{}").asked("GET", "/runs/{id}/events", b"", query, &headers, &RUN.to_string())
    };
    for (query, header) in [("", ""), ("after=3", ""), ("after=", "4"), ("after=3", "4")] {
        assert!(follow(query, header).1.is_ok(), "{query} {header}");
    }
    for (query, header) in [("after=x", ""), ("", "-1"), ("after=99999999999999999999", "")] {
        let (exchange, call) = follow(query, header);
        let (status, body) = failed(exchange, &call.expect_err("no number"));
        assert_eq!((status, &body["detail"][0]["loc"]), (422, &json!(["query", "after"])));
    }
}

#[test]
fn runs_are_listed_page_by_page() {
    let native = Native::new("{}");
    let record = finished();
    let cursor = Cursor { changed_at: NOW, id: RunId(uuid::Uuid::from_u128(9)) };
    let (exchange, call) = native.open("GET", "/runs", b"", "session_id=s&limit=2");
    let Ok(Call::List(filter)) = call else { panic!("{call:?}") };
    assert_eq!((filter.session.as_deref(), filter.limit, filter.cursor), (Some("s"), 2, None));
    let about = about(state(&record));
    let runs = vec![RunView { record: &record, info: &about, pending: &[] }];
    let (_, page) = replied(exchange, Reply::Runs(Page { runs, total: 3, next: Some(cursor) }));
    assert_eq!((&page["total"], &page["data"][0]["status"]), (&json!(3), &json!("completed")));
    assert!(page["data"][0]["output"].is_null());

    let next = format!("cursor={}", page["next"].as_str().expect("there is more"));
    let Ok(Call::List(filter)) = native.open("GET", "/runs", b"", &next).1 else { panic!("a list") };
    assert_eq!(filter.cursor, Some(cursor));
    for query in ["limit=0", "limit=x", "limit=1000", "cursor=x", "cursor=1.2"] {
        assert_eq!(native.open("GET", "/runs", b"", query).1.expect_err("refused").kind, FaultKind::Invalid, "{query}");
    }
}

#[test]
fn a_session_that_waits_says_for_what() {
    let item = Pending::parse(&Json::parse(r#"{"id":"appr_1","name":"delete_file"}"#).expect("JSON")).expect("an id");
    let record = finished();
    let about = about(state(&record));
    let (exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let view = RunView { record: &record, info: &about, pending: &[item] };
    let (status, body) = replied(exchange, Reply::Waiting(view));
    assert_eq!(status, 409);
    assert_eq!(body["detail"], "the session waits for answers to appr_1 first");
    assert_eq!(body["pending"], json!([{ "id": "appr_1", "kind": "approval", "name": "delete_file" }]));
}

#[test]
fn the_gateway_is_healthy() {
    let (exchange, call) = Native::new("{}").open("GET", "/health", b"", "");
    assert!(matches!(call, Ok(Call::Nothing)));
    assert_eq!(replied(exchange, Reply::Done).1["status"], "healthy");
}

#[test]
fn what_the_runtime_has_besides_is_a_stray_path() {
    let native = Native::new("{}");
    let paths: Vec<&str> = native.0.endpoints.iter().map(|endpoint| endpoint.path).collect();
    assert!(paths.iter().all(|path| !path.contains("shutdown") && !path.contains("admin")), "{paths:?}");
    let stray = || (native.0.fallback)();
    assert_eq!(failed(stray(), &Fault::new(FaultKind::NoSuchPath, "nothing answers on this path")).0, 404);
    assert_eq!(failed(stray(), &Fault::new(FaultKind::MethodNotAllowed, "no")).0, 405);
}

#[test]
fn a_busy_agent_is_told_with_the_time_to_wait() {
    let (mut exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let mut fault = Fault::new(FaultKind::UpstreamRateLimited, "the agent is rate limited");
    fault.retry_after = Some(Duration::from_secs(7));
    let mut out = Out::new();
    exchange.fail(&fault, &mut out);
    assert_eq!((out.head.status, out.head.get("retry-after")), (429, Some("7")));
}

#[test]
fn quiet_streams_get_comments_unless_the_operator_says_no() {
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
    let mount = Mount { path: String::new(), agents: agents.to_vec(), public_url: None, authenticates: false };
    let refused = interlingua_native::Native::mount(&mount, interlingua_native::Options::default());
    assert!(refused.err().expect("two agents").contains("{agent}"));
    assert!(serde_json::from_str::<interlingua_native::Options>(r#"{"terminall":"failed"}"#).is_err());
}
