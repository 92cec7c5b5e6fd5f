//! Tokens and ids that MCP clients send back, changed: ids of sessions, ids of questions, `requestState` and ids of
//! events. A token opens as it was sealed, for its own use, and not otherwise; an id of an event is read as it is
//! written.
#![no_main]

use std::sync::LazyLock;

use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_core::model::MessageType;
use interlingua_core::{Next, Out, Record, Reply};
use interlingua_core_testkit::{RunBuilder, TestRoute, TestRun};
use interlingua_fuzz::edited;
use interlingua_fuzz::mcp::{refusal, route, send, send_in, session};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static ROUTE: LazyLock<TestRoute> = LazyLock::new(|| route("{}"));

/// A run that waits for an approval.
static WAITING: LazyLock<Record> = LazyLock::new(|| {
    let mut run = RunBuilder::begin();
    run.data(MessageType::McpApprovalRequest, r#"{"id":"appr_1","name":"send_mail","arguments":"{}"}"#);
    run.record.finish_turn(End::Completed, None);
    run.record
});

/// The tokens of one caller: of a session, a question in it, and a call.
struct Tokens {
    session: String,
    question: String,
    state: String,
}

static TOKENS: LazyLock<Tokens> = LazyLock::new(|| {
    let session = session(&ROUTE, "2025-11-25");
    let body = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call() });
    let mut legacy = send_in(&ROUTE, &session, &body);
    // The session has not been ended.
    let next = legacy.exchange.reply(Reply::Documents(&[]), &mut Out::new()).expect("the session is known");
    let Next::Call(outcome) = next else { panic!("a call") };
    legacy.outcome = Ok(outcome);
    let question =
        asked(&mut legacy, |message| message["id"].as_str().filter(|_| message["method"] == "elicitation/create"));
    let mut modern = send(&ROUTE, "tools/call", "demo", call());
    let state = asked(&mut modern, |message| message["result"]["requestState"].as_str());
    Tokens { session, question, state }
});

fn call() -> Value {
    json!({ "name": "demo", "arguments": { "message": "hi" } })
}

/// A text in the messages of a call whose run waits.
fn asked(sent: &mut interlingua_core_testkit::SentRequest, find: impl Fn(&Value) -> Option<&str>) -> String {
    let info = sent.info(&WAITING);
    let run = TestRun::with_info(&WAITING, info).state(RunState::Waiting);
    let mut out = Out::new();
    sent.exchange.head(&mut out.head);
    sent.exchange.begin(run.view(), &mut out);
    for step in WAITING.steps(0) {
        sent.exchange.encode(step, &mut out);
    }
    sent.exchange.pause(run.view(), &mut out);
    let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
    let messages = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let messages: Vec<Value> = messages.filter_map(|line| serde_json::from_str(line).ok()).collect();
    messages.iter().find_map(|message| find(message).map(str::to_owned)).unwrap_or_else(|| panic!("no token: {text}"))
}

/// True if a session is known.
fn opens_session(token: &str) -> bool {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let refused = refusal(&mut send_in(&ROUTE, token, &body));
    assert!(refused.as_ref().is_none_or(|(status, _)| *status == 404), "{refused:?}");
    refused.is_none()
}

/// True if a question is known in the session.
fn opens_question(token: &str) -> bool {
    let body = json!({ "jsonrpc": "2.0", "id": token, "result": { "action": "decline" } });
    let mut sent = send_in(&ROUTE, &TOKENS.session, &body);
    if refusal(&mut sent).is_some() {
        return false;
    }
    // The question may be read before or after the session.
    sent.exchange.reply(Reply::Documents(&[]), &mut Out::new()).is_ok_and(|next| matches!(next, Next::Call(_)))
}

/// True if a state is that of the call.
fn opens_state(token: &str) -> bool {
    let mut params = call();
    params["requestState"] = token.into();
    let refused = refusal(&mut send(&ROUTE, "tools/call", "demo", params));
    let codes = ["STATE_INVALID", "STATE_EXPIRED"];
    let is_of_state = |error: &Value| codes.iter().any(|code| error["data"]["code"] == *code);
    assert!(refused.as_ref().is_none_or(|(status, error)| *status == 200 && is_of_state(error)), "{refused:?}");
    refused.is_none()
}

/// Takes up a stream at an event.
fn resume(id: &str) {
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", &*TOKENS.session), ("last-event-id", id)];
    let mut sent = ROUTE.send("GET", "", "", &headers);
    let parts: Vec<&str> = id.trim().split('.').collect();
    if let Some((status, _)) = refusal(&mut sent) {
        assert_eq!(status, 400, "{id}");
        return;
    }
    assert!(parts.len() == 3 && parts[1].parse::<u64>().is_ok(), "{id}");
    let mut out = Out::new();
    sent.exchange.reply(Reply::Documents(&[]), &mut out).expect("the session is known");
    let run = TestRun::new(&WAITING).protocol("mcp").state(RunState::Waiting);
    sent.exchange.reply(Reply::Run(run.view()), &mut out).expect("it is a run of MCP");
    sent.exchange.begin(run.view(), &mut out);
    for step in WAITING.steps(0) {
        sent.exchange.encode(step, &mut out);
    }
    sent.exchange.pause(run.view(), &mut out);
    assert!(std::str::from_utf8(&out.body).is_ok());
}

fuzz_target!(|input: &[u8]| {
    let [kind, input @ ..] = input else { return };
    let Tokens { session, question, state } = &*TOKENS;
    let event = "01930000-0000-7000-8000-000000000001.3.Nw";
    let seeds = [session.as_bytes(), question.as_bytes(), state.as_bytes(), event.as_bytes()];
    let Some(bytes) = edited(&seeds, input) else { return };
    // Other values are no values of headers.
    let Ok(text) = std::str::from_utf8(&bytes) else { return };
    match kind % 4 {
        0 => assert_eq!(opens_session(text), text.trim() == session, "{text:?}"),
        1 => assert_eq!(opens_question(text), text == question, "{text:?}"),
        2 => assert_eq!(opens_state(text), text == state, "{text:?}"),
        _ => resume(text),
    }
});
