//! Parsing of requests, and errors of invalid ones.

use interlingua_ag_ui::{AgUi, Options};
use interlingua_core::answer::AnswerBody;
use interlingua_core::{Call, FaultKind, Out, ProtocolAdapter, Reply};
use interlingua_core_testkit::{self as testkit, ClientRequest, HttpResponse};
use serde_json::{Value, json};

use super::support::{JSON, decode, decode_with, failure, hello, mounted, open, started};

fn with(name: &str, value: Value) -> Value {
    let mut input = hello(Some("1.0"));
    match value {
        Value::Null => drop(input.as_object_mut().expect("an object").remove(name)),
        value => input[name] = value,
    }
    input
}

fn message(message: Value) -> Value {
    with("messages", json!([message]))
}

#[test]
fn errors_name_the_field() {
    let text = |value| message(json!({ "id": "m", "role": "user", "content": value }));
    let part = |value: Value| text(json!([value]));
    let cases = [
        (with("threadId", Value::Null), "threadId"),
        (with("threadId", json!("")), "threadId"),
        (with("runId", json!(7)), "runId"),
        (with("messages", Value::Null), "messages"),
        (with("messages", json!({})), "messages"),
        (message(json!("hi")), "messages[0]"),
        (message(json!({ "content": "hi" })), "messages[0].role"),
        (message(json!({ "role": "critic", "content": "hi" })), "messages[0].role"),
        (text(json!(7)), "messages[0].content"),
        (text(Value::Null), "messages[0].content"),
        (part(json!({ "text": "hi" })), "messages[0].content[0].type"),
        (part(json!({ "type": "smell" })), "messages[0].content[0].type"),
        (part(json!({ "type": "image" })), "messages[0].content[0].source"),
        (part(json!({ "type": "image", "source": { "type": "url" } })), "messages[0].content[0].source.value"),
        (
            part(json!({ "type": "image", "source": { "type": "cloud", "value": "x" } })),
            "messages[0].content[0].source.type",
        ),
        (part(json!({ "type": "binary", "mimeType": "image/png" })), "messages[0].content[0]"),
        (message(json!({ "role": "assistant", "toolCalls": [{}] })), "messages[0].toolCalls[0].function"),
        (message(json!({ "role": "tool", "content": "x" })), "messages[0].toolCallId"),
        (message(json!({ "role": "system", "content": [] })), "messages[0].content"),
        (with("tools", json!([{ "description": "d" }])), "tools[0].name"),
        (with("tools", json!([{ "name": "" }])), "tools[0].name"),
        (with("tools", json!([{ "name": "f", "parameters": [] }])), "tools[0].parameters"),
        (with("context", json!([{ "value": "v" }])), "context[0].description"),
        (with("protocolVersion", json!(1.0)), "protocolVersion"),
        (with("resume", json!({})), "resume"),
        (with("resume", json!([{ "status": "resolved" }])), "resume[0].interruptId"),
        (with("resume", json!([{ "interruptId": "i", "status": "maybe" }])), "resume[0].status"),
        (with("resume", json!([{ "interruptId": "i" }])), "resume[0].status"),
    ];
    for (input, path) in cases {
        let mut exchange = open("{}", "POST");
        let fault = decode(exchange.as_mut(), &input).expect_err(path);
        assert_eq!(fault.field.as_deref(), Some(path), "{input}");
        let response = failure(exchange.as_mut(), &fault);
        assert_eq!((response.status, &response.json()["error"]["path"]), (400, &json!(path)), "{input}");
    }
    for body in ["", "hi", "[]", "{\"threadId\":", "\"\\ud800\""] {
        let mut exchange = open("{}", "POST");
        let fault = ClientRequest::post("", body.as_bytes()).decode(exchange.as_mut()).expect_err(body);
        assert_eq!((fault.kind, failure(exchange.as_mut(), &fault).status), (FaultKind::Malformed, 400), "{body}");
    }
}

#[test]
fn less_than_the_specification_demands_is_accepted() {
    let snake = json!({
        "thread_id": "t", "run_id": "r", "messages": [
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "c", "function": { "name": "f", "arguments": { "a": 1 } } },
            ] },
            { "role": "tool", "tool_call_id": "c", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            { "role": "tool", "tool_call_id": "d", "content": "half", "error": "broken" },
        ],
        "state": null, "tools": null, "context": null, "forwarded_props": null, "resume": null, "parent_run_id": null,
        "invented": { "later": true },
    });
    let (_, run) = started("{}", &snake);
    let outputs: Vec<String> =
        run.request.input.iter().flat_map(|message| message.outputs()).map(|one| one.output).collect();
    assert_eq!(outputs, ["a\nb", r#"{"content":"half","error":"broken"}"#]);
    assert!(run.request.tools.is_none() && run.request.extra.is_empty());

    let (_, run) = started("{}", &json!({ "threadId": "t", "runId": "r", "messages": [] }));
    assert!(run.request.input.is_empty(), "a run that works with its state alone");
}

#[test]
fn the_agent_is_sent_all_that_has_a_place() {
    let input = json!({
        "threadId": "t", "runId": "r", "parentRunId": "r0", "protocolVersion": "1.0",
        "state": { "count": 1.50 }, "context": [{ "description": "page", "value": "cart" }],
        "forwardedProps": { "theme": "dark", "user_id": "ada" },
        "tools": [{ "name": "locate", "description": "d", "parameters": {} }],
        "messages": [
            { "id": "s", "role": "developer", "content": "be brief" },
            { "id": "u", "role": "user", "content": [
                { "type": "text", "text": "see" },
                { "type": "image", "source": { "type": "data", "value": "AAAA", "mimeType": "image/png" } },
                { "type": "audio", "source": { "type": "data", "value": "BBBB", "mimeType": "audio/wav" } },
                { "type": "video", "source": { "type": "url", "value": "https://a/b.mp4" } },
                { "type": "document", "source": { "type": "file", "value": "file-1" }, "metadata": { "filename": "a.pdf" } },
                { "type": "binary", "mimeType": "image/png", "url": "https://a/b.png" },
            ] },
            { "id": "x", "role": "activity", "activityType": "PLAN", "content": {} },
            { "id": "r", "role": "reasoning", "content": "hm", "encryptedValue": "sealed" },
            { "id": "a", "role": "assistant", "content": "ok", "toolCalls": [
                { "id": "c", "type": "function", "function": { "name": "locate", "arguments": "{}" }, "encryptedValue": "v" },
            ] },
            { "id": "o", "role": "tool", "toolCallId": "c", "content": "Paris" },
        ],
    });
    let (_, run) = started(r#"{"reasoning_input":"send","user_from_props":true}"#, &input);
    insta::assert_json_snapshot!(json!({
        "thread": format!("{:?}", run.thread).contains("be brief"),
        "request": serde_json::to_value(&run.request).expect("JSON"),
    }));
}

#[test]
fn answers_to_interrupts_are_parsed_unchanged() {
    let mut input = hello(Some("1.0"));
    input["resume"] = json!([
        { "interruptId": "a", "status": "resolved", "payload": { "approved": true }, "metadata": { "by": "ada" } },
        { "interruptId": "b", "status": "cancelled" },
        { "interruptId": "c", "status": "resolved", "payload": "blue" },
        { "interruptId": "d", "status": "resolved" },
    ]);
    let (_, run) = started("{}", &input);
    let [a, b, c, d] = run.answers.as_slice() else { panic!("{:?}", run.answers) };
    assert!(matches!(&a.given, AnswerBody::Payload(payload) if payload.text() == r#"{"approved":true}"#));
    assert!(a.said.as_ref().is_some_and(|said| said.metadata.is_some()));
    assert!(matches!(&b.given, AnswerBody::Decided { decision, .. } if decision.as_str() == "cancel"));
    assert!(matches!(&c.given, AnswerBody::Text(text) if text == "blue"));
    assert!(matches!(&d.given, AnswerBody::Payload(payload) if payload.is_null()));
}

#[test]
fn a_client_that_excludes_event_streams_is_refused() {
    let refused = decode_with(open("{}", "POST").as_mut(), &hello(None), &[JSON, ("accept", "text/html")]);
    assert_eq!(refused.expect_err("no such format").kind, FaultKind::NotAcceptable);
}

#[test]
fn what_an_agent_can_do_is_at_the_path_of_the_option() {
    let mounted = mounted(r#"{"capabilities_path":"capabilities","protobuf":false,"reasoning":"drop"}"#);
    let get = |name: &str| {
        let path = format!("/{name}");
        let (endpoint, params) = testkit::endpoint(&mounted, "GET", &path).expect("an endpoint");
        let mut exchange = (endpoint.open)();
        let call = ClientRequest { params: &params, ..ClientRequest::new("GET", &path) }.decode(exchange.as_mut())?;
        assert!(matches!(call, Call::Nothing));
        let mut out = Out::new();
        exchange.reply(Reply::Done, &mut out).map(|_| HttpResponse::from_out(out).json())
    };
    insta::assert_json_snapshot!(get("capabilities").expect("an object"));
    assert_eq!(get("other").expect_err("nothing there").kind, FaultKind::NoSuchPath);
    let plain = super::support::mounted("{}");
    assert!(testkit::endpoint(&plain, "GET", "/capabilities").is_none(), "only by option");
}

#[test]
fn routes_that_cannot_work_are_refused() {
    let refused = |options: &str, agents: &[&str]| {
        let options: Options = serde_json::from_str(options).expect("options");
        AgUi::mount(&testkit::mount("/ag-ui", agents), options).err().unwrap_or_default()
    };
    assert!(refused("{}", &["a", "b"]).contains("{agent}"));
    assert!(refused(r#"{"agent":"c"}"#, &["a", "b"]).contains("no agent \"c\""));
    assert!(refused(r#"{"capabilities_path":"a/b"}"#, &["a"]).contains("capabilities_path"));
    assert_eq!(refused(r#"{"agent":"b"}"#, &["a", "b"]), "");
}
