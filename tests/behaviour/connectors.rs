//! The gateway's promises to every connector: the input of a turn, when it contains the history, and the requests that
//! contain the outputs of calls.
//!
//! Not here: the connectors of real protocols (their own tests).

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, user_turn, user_turn_in};
use crate::support::upstream::{Reply, Upstream};

/// An agent of the tests' own protocol. `own` and `options` are lines of its table and of its options.
fn agent(upstream: &Upstream, own: &str, options: &str) -> String {
    let url = upstream.url("/p");
    format!(
        "[agents.doll]\n{own}\n[agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{url}\"\nretries = 0\n\
         options = {{ {options} }}\n"
    )
}

/// A complete answer of the agent.
pub(crate) fn says(text: &str) -> Reply {
    Reply::frames([json!({ "text": text }).to_string(), json!({ "end": "completed" }).to_string()])
}

/// It calls tools of the client.
fn calls(ids: &[&str]) -> Reply {
    let calls = ids.iter().map(|id| json!({ "call": [id, "look"] }).to_string());
    Reply::frames(calls.chain([json!({ "end": "completed" }).to_string()]))
}

/// The output of such a call.
fn output(call: &str, text: &str) -> Value {
    let data = json!({ "call_id": call, "output": text });
    json!({ "type": "function_call_output", "role": "tool", "content": [{ "type": "data", "data": data }] })
}

/// The last turn as the connector got it.
fn last(upstream: &Upstream) -> Value {
    upstream.requests().pop().expect("a request").json()
}

pub(crate) fn texts(turn: &Value) -> Vec<String> {
    let messages = turn["messages"].as_array().expect("messages");
    messages.iter().filter_map(|message| Some(message["text"].as_str()?.to_owned())).collect()
}

fn ids(turn: &Value) -> Vec<String> {
    turn["ids"].as_array().expect("ids").iter().map(|id| id.as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_connector_gets_the_history_with_stable_ids() {
    let upstream = Upstream::in_order([says("one"), says("two"), says("three")]);
    let gateway = Gateway::start(&agent(&upstream, "history = \"gateway\"", "message_ids = true")).await;
    gateway.run_turn("doll", &user_turn_in("s", "first")).await.expect_completed();
    let first = last(&upstream);
    assert_eq!((&first["history"], &first["new"], &first["turn"]), (&json!([0, 0]), &json!([0]), &json!(0)));
    assert_eq!((&first["agent"], &first["protocol_events"]), (&json!("doll"), &json!(false)));
    assert_eq!(ids(&first).len(), 1);

    gateway.run_turn("doll", &user_turn_in("s", "second")).await.expect_completed();
    let second = last(&upstream);
    assert_eq!(texts(&second), ["first", "one", "second"]);
    assert_eq!((&second["history"], &second["new"]), (&json!([0, 2]), &json!([2])));
    assert_eq!(ids(&second)[0], ids(&first)[0]);

    let mut body = user_turn_in("s", "third");
    let system = json!({ "role": "system", "content": [{ "type": "text", "text": "be brief" }] });
    body["input"].as_array_mut().expect("a list").insert(0, system);
    gateway.run_turn("doll", &body).await.expect_completed();
    let third = last(&upstream);
    assert_eq!(texts(&third), ["be brief", "first", "one", "second", "two", "third"]);
    assert_eq!((&third["history"], &third["new"]), (&json!([1, 5]), &json!([0, 5])));
    assert_eq!(ids(&third)[1..4], ids(&second)[..]);
    let mut all = ids(&third);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "no id twice: {third}");
}

#[tokio::test]
async fn an_agent_with_memory_gets_only_new_messages() {
    let upstream = Upstream::in_order([says("one"), says("two")]);
    let gateway = Gateway::start(&agent(&upstream, "", "")).await;
    for text in ["first", "second"] {
        gateway.run_turn("doll", &user_turn_in("s", text)).await.expect_completed();
    }
    let second = last(&upstream);
    assert_eq!(texts(&second), ["second"]);
    assert_eq!(
        (&second["history"], &second["ids"], &second["state"]),
        (&json!([0, 0]), &json!([]), &json!({ "known": true }))
    );
}

#[tokio::test]
async fn clients_that_read_the_agents_own_events_are_known_to_its_connector() {
    let event = json!({ "event": { "step": 1 } }).to_string();
    let end = json!({ "end": "completed" }).to_string();
    let eventful = || Reply::frames([event.clone(), end.clone()]);
    let upstream = Upstream::in_order([eventful(), says("well"), eventful(), eventful(), eventful()]);
    let routes = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{agent}\"\noptions = { protocol_events = true }\n\
                  [[routes]]\nprotocol = \"agent-api\"\npath = \"/plain/{agent}\"\n\
                  [[routes]]\nprotocol = \"puppet\"\npath = \"/puppets/{agent}\"\n";
    let agents = agent(&upstream, "history = \"gateway\"", "");
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agents}{routes}")).await;

    let shown = gateway.run_turn("doll", &user_turn_in("s", "hi")).await.expect_completed();
    assert_eq!(last(&upstream)["protocol_events"], true);
    let event = &shown.messages[0];
    assert_eq!(event["type"], "protocol_event");
    assert_eq!(event["content"][0]["data"], json!({ "protocol": "puppet", "event": { "step": 1 } }));

    gateway.run_turn("doll", &user_turn_in("s", "and?")).await.expect_completed();
    assert_eq!(texts(&last(&upstream)), ["hi", "and?"], "they are no part of what was said");

    // Clients of other protocols get them only if they ask.
    for (query, is_shown) in [("", false), ("?protocol_events=true", true), ("?protocol_events=false", false)] {
        let answer = gateway.post(&format!("/plain/doll/process{query}"), &user_turn("hi")).await;
        assert_eq!(answer.text().contains("protocol_event"), is_shown, "{query}: {}", answer.text());
        let last = answer.text().lines().rfind(|line| line.starts_with("data: ")).expect("a frame").to_owned();
        let last: Value = serde_json::from_str(&last["data: ".len()..]).expect("JSON");
        let run = format!("/plain/doll/runs/{}", last["id"].as_str().expect("an id"));
        assert_eq!(gateway.get(&format!("{run}{query}")).await.json(), last, "{query}");
        let events = gateway.get(&format!("{run}/events{query}")).await;
        assert_eq!(events.text().contains("protocol_event"), is_shown, "{query}");
    }
    let wrong = gateway.post("/plain/doll/process?protocol_events=maybe", &user_turn("hi")).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text());
}

#[tokio::test]
async fn an_agent_that_has_forgotten_a_session_is_sent_its_history_once() {
    let refuses = || Reply::complete(404, &[], "I do not know you");
    let upstream = Upstream::in_order([says("one"), refuses(), says("two"), says("three")]);
    let gateway = Gateway::start(&agent(&upstream, "", "message_ids = true")).await;
    gateway.run_turn("doll", &user_turn_in("s", "first")).await.expect_completed();
    assert_eq!(gateway.run_turn("doll", &user_turn_in("s", "second")).await.expect_completed().text(), "two");

    let sent: Vec<Value> = upstream.requests().iter().map(|request| request.json()).collect();
    assert_eq!(sent.len(), 3);
    assert_eq!((texts(&sent[1]), &sent[1]["history"]), (vec!["second".to_owned()], &json!([0, 0])));
    assert_eq!(texts(&sent[2]), ["first", "one", "second"]);
    assert_eq!((&sent[2]["history"], &sent[2]["state"]), (&json!([0, 2]), &Value::Null));
    assert_eq!((&sent[2]["run"], &ids(&sent[2])[2]), (&sent[1]["run"], &ids(&sent[1])[0]));
    assert_ne!(sent[2]["session"], sent[1]["session"], "it is a session that the agent has not seen");

    // It remembers this one.
    gateway.run_turn("doll", &user_turn_in("s", "third")).await.expect_completed();
    let third = last(&upstream);
    assert_eq!((texts(&third), &third["session"]), (vec!["third".to_owned()], &sent[2]["session"]));
}

#[tokio::test]
async fn retries_with_the_history_are_limited() {
    let upstream = Upstream::in_order([says("one"), Reply::complete(404, &[], "no")]);
    let gateway = Gateway::start(&agent(&upstream, "", "")).await;
    gateway.run_turn("doll", &user_turn_in("s", "first")).await.expect_completed();
    let refused = gateway.post("/agents/doll/process", &user_turn_in("s", "second")).await;
    assert_eq!((refused.status, upstream.requests().len()), (502, 3), "{}", refused.text());

    // One whose protocol has no place for a history is refused at once.
    let upstream = Upstream::in_order([says("one"), Reply::complete(404, &[], "no")]);
    let gateway = Gateway::start(&agent(&upstream, "", "history = \"only\"")).await;
    gateway.run_turn("doll", &user_turn_in("s", "first")).await.expect_completed();
    let refused = gateway.post("/agents/doll/process", &user_turn_in("s", "second")).await;
    assert_eq!((refused.status, upstream.requests().len()), (502, 2), "{}", refused.text());
}

#[tokio::test]
async fn a_connector_that_needs_the_history_gets_it_before_anything_is_sent() {
    let upstream = Upstream::in_order([says("one"), says("two")]);
    let gateway = Gateway::start(&agent(&upstream, "", "asks_history = true")).await;
    for text in ["first", "second"] {
        gateway.run_turn("doll", &user_turn_in("s", text)).await.expect_completed();
    }
    assert_eq!(upstream.requests().len(), 2);
    assert_eq!(texts(&last(&upstream)), ["first", "one", "second"]);
}

#[tokio::test]
async fn outputs_are_collected_for_an_agent_that_takes_them_together() {
    let upstream = Upstream::in_order([calls(&["c1", "c2"]), says("done")]);
    let gateway = Gateway::start(&agent(&upstream, "", "together = true")).await;
    gateway.run_turn("doll", &user_turn_in("s", "look twice")).await.expect_completed();

    let answer = |outputs: Vec<Value>| json!({ "session_id": "s", "input": outputs });
    let waits = gateway.post("/agents/doll/process", &answer(vec![output("c2", "blue")])).await;
    assert_eq!(upstream.requests().len(), 1, "the agent is not asked before the other output is there");
    let pending = waits.json()["pending"].clone();
    assert_eq!((waits.status, pending), (409, json!([{ "id": "c1", "kind": "tool", "name": "look" }])));

    assert_eq!(gateway.run_turn("doll", &answer(vec![output("c1", "red")])).await.expect_completed().text(), "done");
    let turn = last(&upstream);
    assert_eq!(upstream.requests().len(), 2);
    assert_eq!(turn["answered"], json!(["c1", "c2"]));
    let outputs: Vec<&Value> = turn["messages"].as_array().expect("a list").iter().map(|one| &one["output"]).collect();
    assert_eq!(outputs, [&json!(["c2", "blue"]), &json!(["c1", "red"])]);
}

#[tokio::test]
async fn words_release_the_outputs_that_are_there() {
    let upstream = Upstream::in_order([calls(&["c1", "c2"]), says("as you like")]);
    let gateway = Gateway::start(&agent(&upstream, "", "together = true")).await;
    gateway.run_turn("doll", &user_turn_in("s", "look twice")).await.expect_completed();
    let mut body = user_turn_in("s", "never mind the other");
    body["input"].as_array_mut().expect("a list").insert(0, output("c1", "red"));
    gateway.run_turn("doll", &body).await.expect_completed();
    assert_eq!(last(&upstream)["answered"], json!(["c1"]));
}

#[tokio::test]
async fn an_agent_that_takes_each_output_gets_it_at_once() {
    let upstream = Upstream::in_order([calls(&["c1", "c2"]), says("one"), says("two")]);
    let gateway = Gateway::start(&agent(&upstream, "", "")).await;
    gateway.run_turn("doll", &user_turn_in("s", "look twice")).await.expect_completed();
    for call in ["c2", "c1"] {
        let body = json!({ "session_id": "s", "input": [output(call, "x")] });
        gateway.run_turn("doll", &body).await.expect_completed();
        assert_eq!(last(&upstream)["answered"], json!([call]));
    }
}

#[tokio::test]
async fn a_first_turn_needs_no_history() {
    let upstream = Upstream::always(Reply::complete(404, &[], "no"));
    let gateway = Gateway::start(&agent(&upstream, "", "")).await;
    let refused = gateway.post("/agents/doll/process", &user_turn("hi")).await;
    assert_eq!(refused.status, 502, "{}", refused.text());
    // It was begun again with a history that is empty.
    assert!(upstream.requests().len() <= 2);
}
