//! Questions of agents over MCP: by a result, on the stream of a call, by the tool `answer`, and answers that come over
//! another protocol.

use serde_json::{Value, json};

use crate::mcp_support::{Client, MCP, deltas, run_of, session_of, texts};
use crate::support::gateway::{DEMO, Gateway, approval_in};
use crate::support::http::Exchange;

async fn demo() -> Gateway {
    Gateway::start(&format!("{DEMO}{MCP}")).await
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn call(message: &str) -> Value {
    json!({ "name": "demo", "arguments": { "message": message } })
}

/// The parameters of the same call again, with this answer to its only question.
fn again(message: &str, asked: &Value, action: &Value) -> Value {
    let requests = asked["inputRequests"].as_object().expect("questions");
    let responses: Value =
        requests.keys().map(|key| (key.clone(), action.clone())).collect::<serde_json::Map<_, _>>().into();
    let mut params = call(message);
    params["inputResponses"] = responses;
    params["requestState"] = asked["requestState"].clone();
    params
}

fn decide(decision: &str) -> Value {
    json!({ "action": "accept", "content": { "decision": decision } })
}

#[tokio::test]
async fn a_question_is_a_result_and_its_answer_the_same_call_again() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, forms());
    for (action, expected) in [
        (decide("accept"), "was sent to ada@example.com"),
        (decide("reject"), "did not send it"),
        (json!({ "action": "decline" }), "did not send it"),
        (
            json!({ "action": "accept", "content": { "decision": "edit", "arguments": "{\"to\":\"grace@example.com\"}" } }),
            "grace@example.com",
        ),
        (json!({ "action": "accept", "content": { "decision": "respond", "text": "call her" } }), "call her"),
    ] {
        let asked = client.result("tools/call", call("approval")).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let request = asked["inputRequests"].as_object().expect("questions").values().next().expect("a question");
        assert_eq!((&request["method"], &request["params"]["mode"]), (&json!("elicitation/create"), &json!("form")));
        assert!(request["params"]["message"].as_str().expect("a message").contains("send_mail"), "{request}");

        let params = again("approval", &asked, &action);
        let result = client.result("tools/call", params.clone()).await;
        assert!(texts(&result).concat().contains(expected), "{action} {result}");
        // A response that was lost is fetched by the same request.
        let repeated = client.result("tools/call", params).await;
        assert_eq!(result["content"], repeated["content"]);
    }
}

#[tokio::test]
async fn an_answer_that_decides_nothing_is_asked_again_and_then_ends_the_call() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, forms());
    let mut asked = client.result("tools/call", call("approval")).await;
    for action in [json!({ "action": "accept", "content": {} }), decide("perhaps")] {
        asked = client.result("tools/call", again("approval", &asked, &action)).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
    }
    let ended = client.result("tools/call", again("approval", &asked, &json!({ "action": "accept" }))).await;
    assert_eq!(ended["_meta"]["interlingua/status"], "input_required", "{ended}");
    assert!(texts(&ended).concat().contains("answer"), "{ended}");

    let asked = client.result("tools/call", call("approval")).await;
    let dismissed = client.result("tools/call", again("approval", &asked, &json!({ "action": "cancel" }))).await;
    assert_eq!(
        (&dismissed["isError"], &dismissed["_meta"]["interlingua/status"]),
        (&json!(false), &json!("input_required"))
    );
    // It is still open.
    let late = client.result("tools/call", again("approval", &asked, &decide("accept"))).await;
    assert!(texts(&late).concat().contains("was sent"), "{late}");
}

#[tokio::test]
async fn a_state_belongs_to_its_call() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, forms());
    let asked = client.result("tools/call", call("approval")).await;
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    let other_arguments = again("other", &asked, &decide("accept"));
    let mut forged = again("approval", &asked, &decide("accept"));
    forged["requestState"] = format!("{state}A").into();
    let mut wrong = again("approval", &asked, &decide("accept"));
    wrong["inputResponses"] = json!({ "x": 1 });
    for (params, code) in [(other_arguments, "STATE_INVALID"), (forged, "STATE_INVALID"), (wrong, "")] {
        let (messages, status) = client.exchange("tools/call", params).await;
        let error = &messages[0]["error"];
        assert_eq!((status, error["code"].as_i64()), (200, Some(-32602)), "{error}");
        assert_eq!(error["data"]["code"].as_str().unwrap_or_default(), code);
    }
    let unknown = json!({ "name": "demo", "arguments": { "message": "approval" }, "requestState": state,
        "inputResponses": { "other": { "action": "accept" } } });
    let asked_again = client.result("tools/call", unknown).await;
    assert_eq!(asked_again["resultType"], "input_required", "a missing answer is asked for again: {asked_again}");
}

#[tokio::test]
async fn a_question_with_a_schema_gets_a_checked_answer() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, forms());
    let asked = client.result("tools/call", call("question")).await;
    let request = asked["inputRequests"].as_object().expect("questions").values().next().expect("a question").clone();
    let properties = request["params"]["requestedSchema"]["properties"].as_object().expect("fields").clone();
    let content: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(name, schema)| {
            let value = schema["enum"][0].clone();
            let value = match schema["type"].as_str() {
                _ if !value.is_null() => value,
                Some("string") => json!("blue"),
                Some("boolean") => json!(true),
                _ => json!(3),
            };
            (name.clone(), value)
        })
        .collect();
    let action = json!({ "action": "accept", "content": content });
    let result = client.result("tools/call", again("question", &asked, &action)).await;
    assert_eq!(result["_meta"]["interlingua/status"], "completed", "{result}");
}

/// Calls a tool and reads up to the question.
async fn asked_on_stream(client: &Client<'_>, message: &str) -> (Exchange, Value, Vec<Value>) {
    let params = json!({ "name": "demo", "arguments": { "message": message }, "_meta": { "progressToken": 5 } });
    let mut exchange = client.send(client.id(), "tools/call", params).await;
    let mut messages = exchange.read_until("elicitation/create").await;
    let question = messages.pop().expect("a question");
    (exchange, question, messages)
}

#[tokio::test]
async fn a_question_on_the_stream_is_answered_in_the_session() {
    let gateway = demo().await;
    for revision in ["2025-06-18", "2025-11-25"] {
        let client = Client::legacy(&gateway, revision, json!({ "elicitation": {} })).await;
        let other = Client::legacy(&gateway, revision, json!({ "elicitation": {} })).await;
        let (mut exchange, question, _) = asked_on_stream(&client, "approval").await;
        assert_eq!(question["params"].get("mode").is_some(), revision == "2025-11-25");

        assert_eq!(other.respond(&question, decide("accept")).await.status, 400, "of another session");
        let mut forged = question.clone();
        forged["id"] = format!("{}A", question["id"].as_str().expect("an id")).into();
        assert_eq!(client.respond(&forged, decide("accept")).await.status, 400);

        let undecided = client.respond(&question, json!({ "action": "accept" })).await;
        assert_eq!((undecided.status, undecided.body.len()), (202, 0));
        let repeated = exchange.read_until("elicitation/create").await.pop().expect("a question");
        assert_ne!(repeated["id"], question["id"]);
        assert_eq!(client.respond(&repeated, decide("accept")).await.status, 202);
        let result = exchange.frames().await.pop().expect("a result");
        assert!(texts(&result["result"]).concat().contains("was sent"), "{result}");
        assert_eq!(client.respond(&repeated, decide("accept")).await.status, 400, "answered once");
    }
}

#[tokio::test]
async fn several_questions_on_the_stream_are_asked_one_after_the_other() {
    let gateway = demo().await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({ "elicitation": {} })).await;
    let (mut exchange, first, _) = asked_on_stream(&client, "approvals").await;
    assert_eq!(client.respond(&first, decide("accept")).await.status, 202);
    let second = exchange.read_until("elicitation/create").await.pop().expect("a question");
    assert_ne!(first["params"]["message"], Value::Null);
    assert_eq!(client.respond(&second, decide("reject")).await.status, 202);
    let result = exchange.frames().await.pop().expect("a result");
    assert_eq!(result["result"]["_meta"]["interlingua/status"], "completed", "{result}");
}

#[tokio::test]
async fn a_dismissed_question_on_the_stream_ends_the_call_and_stays_open() {
    let gateway = demo().await;
    let client = Client::legacy(&gateway, "2025-11-25", json!({ "elicitation": {} })).await;
    let (mut exchange, question, _) = asked_on_stream(&client, "approval").await;
    assert_eq!(client.respond(&question, json!({ "action": "cancel" })).await.status, 202);
    let ended = exchange.frames().await.pop().expect("a result");
    let result = &ended["result"];
    assert_eq!(result["_meta"]["interlingua/status"], "input_required", "{result}");
    let rejected = client.call("answer", json!({ "run": run_of(result), "decision": "reject" })).await;
    assert!(texts(&rejected).concat().contains("did not send it"), "{rejected}");
}

#[tokio::test]
async fn an_answer_over_another_protocol_continues_every_call() {
    let gateway = demo().await;
    let client = Client::modern(&gateway, forms());
    let asked = client.result("tools/call", call("approval")).await;
    let id = asked["inputRequests"].as_object().expect("questions").keys().next().expect("a key").clone();
    // The client knows the session by its next result only: the run's own route has it.
    let runs = gateway.get("/agents/demo/runs").await.json();
    let session = runs.to_string();
    let session = session.split("\"session_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a session");
    gateway.run_turn("demo", &approval_in(session, &id)).await;
    let result = client.result("tools/call", again("approval", &asked, &decide("reject"))).await;
    assert!(texts(&result).concat().contains("was sent"), "the decision stands: {result}");

    let legacy = Client::legacy(&gateway, "2025-11-25", json!({ "elicitation": {} })).await;
    let (mut exchange, question, before) = asked_on_stream(&legacy, "approval").await;
    let meta = &before[0]["params"]["_meta"];
    let session = meta["interlingua/session"].as_str().expect("a session").to_owned();
    let pending = gateway.run("demo", meta["interlingua/run"].as_str().expect("a run")).await;
    let id = pending.to_string();
    let id = id.split("\"approval_request_id\":\"").nth(1).or_else(|| id.split("\"id\":\"appr").nth(1));
    let id = id.and_then(|rest| rest.split('"').next()).expect("an item").to_owned();
    let id = if id.starts_with("appr") || id.contains('-') { id } else { format!("appr{id}") };
    gateway.run_turn("demo", &approval_in(&session, &id)).await;
    let rest = exchange.frames().await;
    let withdrawn = rest.iter().find(|message| message["method"] == "notifications/cancelled").expect("a withdrawal");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let result = rest.last().expect("a result");
    assert!(texts(&result["result"]).concat().contains("was sent"), "{result}");
    let all: Vec<Value> = before.into_iter().chain(rest.clone()).collect();
    assert!(deltas(&all).contains("was sent"), "{all:?}");
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_a_text_and_a_model_may_not_approve() {
    let gateway = demo().await;
    let plain = Client::modern(&gateway, json!({}));
    let oldest = Client::legacy(&gateway, "2025-03-26", json!({ "elicitation": {} })).await;
    for client in [&plain, &oldest] {
        let waiting = client.call("demo", json!({ "message": "approval" })).await;
        assert_eq!(waiting["_meta"]["interlingua/status"], "input_required", "{waiting}");
        let run = run_of(&waiting);
        assert!(texts(&waiting).concat().contains(&run), "{waiting}");

        let blocked = client.call("demo", json!({ "message": "and now?", "session": session_of(&waiting) })).await;
        assert_eq!(run_of(&blocked), run, "nothing reaches the agent");
        let refused = client.call("answer", json!({ "run": run, "decision": "accept" })).await;
        assert!(texts(&refused)[0].starts_with("PERMISSION_DENIED: "), "{refused}");
        let rejected = client.call("answer", json!({ "run": run, "decision": "reject" })).await;
        assert!(texts(&rejected).concat().contains("did not send it"), "{rejected}");
        let late = client.call("answer", json!({ "run": run, "decision": "reject" })).await;
        assert!(texts(&late)[0].starts_with("NOT_WAITING: "), "{late}");
    }
}

#[tokio::test]
async fn a_model_approves_where_the_route_allows_it() {
    let route = "[[routes]]\nprotocol = \"mcp\"\npath = \"/mcp\"\n[routes.options]\nanswer_tool_approves = true\n";
    let gateway = Gateway::start(&format!("{DEMO}{route}")).await;
    let client = Client::modern(&gateway, json!({}));
    let waiting = client.call("demo", json!({ "message": "approval" })).await;
    let approved = client.call("answer", json!({ "run": run_of(&waiting), "decision": "accept" })).await;
    assert!(texts(&approved).concat().contains("was sent"), "{approved}");
}
