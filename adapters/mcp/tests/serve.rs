//! Calls of a tool against the scripts of the testkit: every stream ends with one response, and a replay equals the
//! live stream.

use interlingua_core::exchange::Flow;
use interlingua_core::loss::Loss;
use interlingua_core::run::Record;
use interlingua_core::{Call, Next, Out, Reply};
use interlingua_core_testkit::{self as testkit, SentRequest, TestRoute, TestRun, laws};
use interlingua_mcp::Mcp;
use serde_json::{Value, json};

const BOTH: &str = "application/json, text/event-stream";
/// Clients refuse larger events.
const MAX_EVENT: usize = 1_000_000;

/// A call in the style of the newest revision, or of a client without a session.
fn send(is_modern: bool, token: Option<&str>, accept: &str, options: &str) -> SentRequest {
    let mut meta = json!({});
    if is_modern {
        meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    if let Some(token) = token {
        meta["progressToken"] = token.into();
    }
    let params = json!({ "name": "demo", "arguments": { "message": "hi" }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string();
    let mut headers = vec![("accept", accept)];
    if is_modern {
        headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "demo")]);
    }
    TestRoute::new::<Mcp>("/mcp", "", options).send("POST", "", &body, &headers)
}

/// The answer for a run that has ended, as the server drives the exchange.
fn answer(sent: &mut SentRequest, record: &Record) -> String {
    let info = sent.info(record);
    let run = TestRun::with_info(record, info);
    let (exchange, mut out) = (&mut sent.exchange, Out::new());
    exchange.head(&mut out.head);
    exchange.begin(run.view(), &mut out);
    let flow = record.steps(0).map(|step| exchange.encode(step, &mut out)).find(|flow| *flow != Flow::More);
    assert_eq!(flow, Some(Flow::Next), "the end of the run");
    assert!(matches!(exchange.next_call(), Some(Call::Fetch(_))));
    match exchange.reply(Reply::Run(run.view()), &mut out) {
        Ok(Next::Done) => {}
        other => panic!("{other:?}"),
    }
    String::from_utf8(out.body.to_vec()).expect("UTF-8")
}

fn messages(stream: &str) -> Vec<Value> {
    let frames = laws::frames(stream);
    frames.iter().map(|frame| serde_json::from_str(&frame.data).expect("JSON")).collect()
}

#[test]
fn every_stream_ends_with_one_response_and_has_only_progress_before() {
    for script in testkit::scripts() {
        let record = script.record();
        for is_modern in [true, false] {
            let stream = answer(&mut send(is_modern, Some("p"), BOTH, "{}"), &record);
            assert!(stream.split("\n\n").all(|event| event.len() < MAX_EVENT), "{}", script.name);
            let messages = messages(&stream);
            let (last, before) = messages.split_last().expect("messages");
            assert_eq!(last["id"], 7, "{}", script.name);
            assert!(last.get("result").is_some() != last.get("error").is_some(), "{}: {last}", script.name);
            let values: Vec<f64> = before
                .iter()
                .map(|message| {
                    assert_eq!(message["method"], "notifications/progress", "{}", script.name);
                    message["params"]["progress"].as_f64().expect("a number")
                })
                .collect();
            assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{}: {values:?}", script.name);
            if let Some(result) = last.get("result") {
                assert!(result["content"].is_array() && result["isError"].is_boolean(), "{}", script.name);
                assert_eq!(result.get("resultType").is_some(), is_modern, "{}", script.name);
            }
        }
    }
}

#[test]
fn a_client_that_accepts_no_events_gets_one_object_with_the_same_response() {
    for script in testkit::scripts() {
        let record = script.record();
        let stream = answer(&mut send(true, None, BOTH, "{}"), &record);
        let object = answer(&mut send(true, Some("p"), "application/json", "{}"), &record);
        let object: Value = serde_json::from_str(&object).expect("one object");
        assert_eq!(messages(&stream), [object], "{}", script.name);
    }
}

#[test]
fn a_replay_equals_the_live_stream() {
    for is_modern in [true, false] {
        laws::replays_equal_live(|| send(is_modern, Some("p"), BOTH, "{}"));
    }
}

#[test]
fn reasoning_is_shown_as_progress_unless_that_is_off() {
    let script = testkit::script("reasoning_before");
    let (shown, hidden) = (
        answer(&mut send(true, Some("p"), BOTH, "{}"), &script.record()),
        answer(&mut send(true, Some("p"), BOTH, r#"{"reasoning":"drop"}"#), &script.record()),
    );
    assert!(shown.contains("interlingua/reasoning") && !hidden.contains("interlingua/reasoning"));
    let results = [messages(&shown), messages(&hidden)].map(|all| all.last().map(|last| last["result"].clone()));
    assert_eq!(results[0], results[1], "the result never has it");
}

#[test]
fn what_a_result_does_not_show_is_a_loss() {
    for script in testkit::scripts() {
        let mut sent = send(true, Some("p"), BOTH, "{}");
        answer(&mut sent, &script.record());
        let losses: Vec<&Loss> = sent.exchange.losses().iter().collect();
        let has_tools = script.name == "mcp_tools";
        assert!(!has_tools || !losses.is_empty(), "{}: {losses:?}", script.name);
    }
}
