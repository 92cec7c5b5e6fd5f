//! Ids of calls that an agent uses again, and outputs whose id no call has.

use interlingua_core::Json;
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::loss::{Change, ContentKind};
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::Record;
use interlingua_core::tree::Node;
use interlingua_core_testkit::{self as testkit, Answer};
use interlingua_native::{NativeUpstream, UpstreamOptions};
use serde_json::{Value, json};

fn message(id: &str, kind: &str, data: &Value) -> Value {
    json!({ "object": "message", "status": "completed", "id": id, "type": kind, "role": "assistant",
        "content": [{ "type": "data", "index": 0, "data": data }] })
}

fn call(id: &str, kind: &str) -> Value {
    message(&format!("call of {id}"), kind, &json!({ "call_id": id, "name": "look", "arguments": "{}" }))
}

fn output(id: &str, name: &str) -> Value {
    message("out", "plugin_call_output", &json!({ "call_id": id, "name": name, "output": "found" }))
}

struct Turn {
    record: Record,
    sent: Value,
    losses: Vec<(ContentKind, Change)>,
}

/// One turn of a session. `state`: what the connector stored, which is replaced.
fn turn(state: &mut Json, input: &Value, answered: &[Pending], messages: &[Value]) -> Turn {
    let body = json!({ "input": input, "session_id": "s" }).to_string();
    let request = AgentRequest::parse(&Node::parse_object(body.as_bytes()).expect("JSON")).expect("a request");
    let connector = NativeUpstream::connect("http://agent/process", UpstreamOptions::default()).expect("a URL");
    let stored = state.clone();
    let mut turn = connector.turn(&TurnRequest::new(&request, &stored, answered)).expect("a turn");
    let end = json!({ "object": "response", "status": "completed", "output": messages });
    let frames: String = messages.iter().chain([&end]).map(|frame| format!("data: {frame}\n\n")).collect();
    let driven = testkit::drive(&mut *turn, [Answer::stream(&frames)]);
    testkit::grammar(&driven.record).expect("the grammar");
    if let Some(new) = turn.session_state() {
        *state = new;
    }
    let losses = turn.losses().iter().map(|loss| (loss.kind, loss.change)).collect();
    Turn { sent: serde_json::from_slice(&driven.requests[0].body).expect("JSON"), record: driven.record, losses }
}

/// The ids of calls, and of the calls of outputs.
fn ids(turn: &Turn) -> Vec<String> {
    let messages = turn.record.run().messages.iter().map(|message| message.to_model());
    let calls = messages.flat_map(|message| {
        let calls: Vec<String> = message.calls().map(|call| call.call_id).collect();
        let outputs: Vec<String> = message.outputs().map(|output| format!("output of {}", output.call_id)).collect();
        calls.into_iter().chain(outputs)
    });
    calls.collect()
}

fn words() -> Value {
    json!([{ "role": "user", "content": "hi" }])
}

#[test]
fn an_id_that_is_used_again_is_another_call() {
    let mut state = Json::null();
    let answer = [call("call_0", "plugin_call"), output("call_0", "look")];
    assert_eq!(ids(&turn(&mut state, &words(), &[], &answer)), ["call_0", "output of call_0"]);
    assert_eq!(ids(&turn(&mut state, &words(), &[], &answer)), ["call_0_1", "output of call_0_1"]);
    let client = [call("call_0", "function_call")];
    let asked = turn(&mut state, &words(), &[], &client);
    assert_eq!(ids(&asked), ["call_0_2"]);

    // The output of the client goes back under the agent's id.
    let items = asked.record.run().pending();
    assert_eq!((items[0].id.as_str(), items[0].kind), ("call_0_2", PendingKind::Tool));
    let result = json!([{ "type": "function_call_output", "role": "tool",
        "content": [{ "type": "data", "data": { "call_id": "call_0_2", "output": "Paris" } }] }]);
    let next = turn(&mut state, &result, &items, &client);
    assert_eq!(next.sent["input"][0]["content"][0]["data"]["call_id"], "call_0");
    assert_eq!(ids(&next), ["call_0_3"], "the same call again is another one");
}

#[test]
fn a_call_that_waited_for_a_person_may_be_announced_again() {
    let mut state = Json::null();
    let request = message("ask", "mcp_approval_request", &json!({ "id": "appr", "name": "look", "arguments": "{}" }));
    let asked = turn(&mut state, &words(), &[], &[call("call_0", "plugin_call"), request]);
    let items = asked.record.run().pending();
    let yes = json!([{ "type": "mcp_approval_response", "role": "user",
        "content": [{ "type": "data", "data": { "approval_request_id": "appr", "approve": true } }] }]);
    let answer = [call("call_0", "plugin_call"), output("call_0", "look")];
    assert_eq!(ids(&turn(&mut state, &yes, &items, &answer)), ["call_0", "output of call_0"]);
    assert_eq!(ids(&turn(&mut state, &words(), &[], &answer)), ["call_0_1", "output of call_0_1"]);
}

#[test]
fn an_output_whose_id_no_call_has_is_that_of_the_only_open_call() {
    let changed = [(ContentKind::AgentOutput, Change::Changed)];
    let lost = [(ContentKind::AgentOutput, Change::Lost)];
    let read = |messages: &[Value]| turn(&mut Json::null(), &words(), &[], messages);

    for name in ["look", ""] {
        let one = read(&[call("a", "plugin_call"), output("other", name)]);
        assert_eq!((ids(&one), one.losses.as_slice()), (vec!["a".to_owned(), "output of a".to_owned()], &changed[..]));
    }
    let none = read(&[output("other", "")]);
    assert_eq!((ids(&none), none.losses.as_slice()), (Vec::new(), &lost[..]));
    let two = read(&[call("a", "plugin_call"), call("b", "plugin_call"), output("other", "")]);
    assert_eq!((ids(&two).len(), two.losses.as_slice()), (2, &lost[..]));
    // With a name, it is the output of a call that the gateway could not see.
    let named = read(&[output("other", "find")]);
    assert_eq!((ids(&named), named.losses.len()), (vec!["output of other".to_owned()], 0));
}
