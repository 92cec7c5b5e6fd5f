//! The human-in-the-loop service through the running gateway: the life cycle of a session, and interrupts that are
//! raised over one protocol and answered over another.

use serde_json::{Value, json};

use crate::support::agent::{approval_request, text_reply, text_reply_until};
use crate::support::gateway::{DEMO, Gateway, agent, user_turn_in};
use crate::support::http::Response;
use crate::support::poll_until;
use crate::support::upstream::{Upstream, unused_address};

const ROUTES: &str = "[[routes]]\nprotocol = \"hitl\"\npath = \"/hitl/{agent}\"\n\
                      [[routes]]\nprotocol = \"ag-kit\"\npath = \"/kit/{agent}\"\n\
                      [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";

async fn demo() -> Gateway {
    Gateway::start(&format!("{DEMO}{ROUTES}")).await
}

async fn before(upstream: &Upstream) -> Gateway {
    let agent = agent("demo", &upstream.url("/process"), "", "retries = 0");
    Gateway::start(&format!("{agent}{ROUTES}")).await
}

async fn invoke(gateway: &Gateway, user: &str, query: &str) -> Response {
    gateway.post("/hitl/demo/agent/invoke", &json!({ "user_id": user, "query": query })).await
}

async fn resume(gateway: &Gateway, user: &str, session: &Value, word: &str, args: Value) -> Response {
    let body = json!({ "user_id": user, "session_id": session, "response_type": word, "args": args });
    gateway.post("/hitl/demo/agent/resume", &body).await
}

async fn status(gateway: &Gateway, user: &str) -> Value {
    let response = gateway.get(&format!("/hitl/demo/agent/status/{user}")).await;
    assert_eq!(response.status, 200);
    response.json()
}

/// The text of the last message.
fn last(response: &Value) -> &str {
    let messages = response["result"]["messages"].as_array().expect("messages");
    messages.last().expect("a message")["content"].as_str().expect("a text")
}

#[tokio::test]
async fn a_session_that_a_client_named_is_closed_to_other_users() {
    let gateway = demo().await;
    let named = async |user: &str, session: &str, query: &str| {
        let body = json!({ "user_id": user, "query": query, "session_id": session });
        gateway.post("/hitl/demo/agent/invoke", &body).await
    };
    assert_eq!(last(&named("ada", "trip", "echo hello").await.json()), "hello");
    let own = invoke(&gateway, "ada", "echo mine").await.json();
    assert_eq!(own["session_id"], "trip", "the last one used");
    let made = invoke(&gateway, "bob", "echo his").await.json();

    for (user, session) in [("bob", json!("trip")), ("ada", made["session_id"].clone())] {
        let refused = named(user, session.as_str().expect("a name"), "echo theirs").await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(&format!("is not a session of user '{user}'")), "{}", refused.text());
    }
    assert_eq!(status(&gateway, "bob").await["session_id"], made["session_id"], "nothing was changed");
    assert_eq!(last(&named("ada", "trip", "echo again").await.json()), "again");

    // A session of another protocol that names no user is open to each of them.
    let shared = gateway.post("/agents/demo/process", &user_turn_in("shared", "echo first")).await;
    assert_eq!(shared.status, 200);
    for user in ["ada", "bob"] {
        assert_eq!(last(&named(user, "shared", "echo joined").await.json()), "joined");
    }
}

#[tokio::test]
async fn a_session_goes_through_its_whole_life_cycle() {
    let gateway = demo().await;
    assert_eq!(status(&gateway, "ada").await["status"], "not_found");
    let first = invoke(&gateway, "ada", "echo hello").await.json();
    assert_eq!((&first["status"], last(&first)), (&json!("completed"), "hello"));
    let interrupted = invoke(&gateway, "ada", "approval").await.json();
    assert_eq!((&interrupted["status"], &interrupted["session_id"]), (&json!("interrupted"), &first["session_id"]));
    assert_eq!(interrupted["interrupt_data"]["action_request"]["action"], "send_mail");
    assert_eq!(status(&gateway, "ada").await["last_response"], interrupted);

    // A query meanwhile does not reach the agent.
    assert_eq!(invoke(&gateway, "ada", "echo lost").await.json(), interrupted);

    let session = &interrupted["session_id"];
    for (word, args) in
        [("perhaps", json!(null)), ("edit", json!(null)), ("edit", json!({})), ("response", json!(null))]
    {
        assert_eq!(resume(&gateway, "ada", session, word, args).await.status, 400, "{word}");
    }

    assert_eq!(resume(&gateway, "bob", session, "accept", json!(null)).await.status, 404);
    assert_eq!(resume(&gateway, "ada", &json!("another"), "accept", json!(null)).await.status, 400);
    let edited =
        resume(&gateway, "ada", session, "edit", json!({ "args": { "to": "grace@example.com" } })).await.json();
    assert!(last(&edited).contains("grace@example.com"), "{edited}");

    let kinds: Vec<&str> = edited["result"]["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter_map(|message| message["type"].as_str())
        .collect();
    assert_eq!(kinds, ["human", "ai", "human", "ai", "ai", "tool", "ai"], "the whole conversation: {edited}");
    assert_eq!(
        resume(&gateway, "ada", session, "accept", json!(null)).await.status,
        400,
        "an interrupt is answered once"
    );
    assert_eq!(status(&gateway, "ada").await["last_response"], edited);

    let failed = invoke(&gateway, "ada", "error").await;
    assert_eq!((failed.status, &failed.json()["status"]), (200, &json!("error")));
    assert_eq!(status(&gateway, "ada").await["status"], "error");
    assert_eq!(
        gateway.get("/hitl/demo/system/info").await.json(),
        json!({ "sessions_count": 1, "active_users": ["ada"] })
    );

    let delete = gateway.open("DELETE", "/hitl/demo/agent/session/ada", &[], b"").await.response().await;
    assert_eq!(delete.json()["status"], "success");
    assert_eq!(status(&gateway, "ada").await["status"], "not_found");
    let again = invoke(&gateway, "ada", "echo hello").await.json();
    assert_ne!(again["session_id"], first["session_id"]);
}

#[tokio::test]
async fn each_decision_has_its_effect() {
    for (word, args, body) in [
        ("accept", json!(null), "was sent to ada@example.com"),
        ("reject", json!(null), "I did not send it"),
        ("response", json!({ "args": "call her" }), "call her"),
    ] {
        let gateway = demo().await;
        let interrupted = invoke(&gateway, "ada", "approval").await.json();
        let done = resume(&gateway, "ada", &interrupted["session_id"], word, args).await.json();
        assert!(last(&done).contains(body), "{word}: {done}");
    }
}

#[tokio::test]
async fn a_client_that_disconnects_finds_its_result_later() {
    let upstream = Upstream::always(text_reply_until(&["done"], "go"));
    let gateway = before(&upstream).await;
    let body = json!({ "user_id": "ada", "query": "think long" });
    let left = gateway.start_post("/hitl/demo/agent/invoke", &body).await;
    upstream.wait_for_requests(1).await;
    assert_eq!(status(&gateway, "ada").await["status"], "running");

    let second = invoke(&gateway, "ada", "and?").await;
    assert_eq!(second.status, 409, "{}", second.text());
    drop(left);
    upstream.open("go");
    let found = poll_until("the answer", async || {
        let status = status(&gateway, "ada").await;
        (status["status"] == "completed").then_some(status)
    })
    .await;
    assert_eq!(last(&found["last_response"]), "done");
    assert_eq!((upstream.requests().len(), &found["last_query"]), (1, &json!("think long")));
}

#[tokio::test]
async fn an_unreachable_agent_is_an_error_and_the_interrupt_stays_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::in_order([approval_request("appr-1"), text_reply(&["done"])]);
    let config = |url: &str| {
        let agent = agent("demo", url, "", "retries = 0");
        format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{agent}{ROUTES}")
    };
    let gateway = Gateway::in_folder(&config(&upstream.url("/process")), folder.path().to_owned()).await;

    let interrupted = invoke(&gateway, "ada", "remove it").await.json();
    gateway.stop().await;
    let away = format!("http://{}/process", unused_address());
    let gateway = Gateway::in_folder(&config(&away), folder.path().to_owned()).await;

    assert_eq!(status(&gateway, "ada").await["last_response"], interrupted, "the restart changed nothing");
    let lost = resume(&gateway, "ada", &interrupted["session_id"], "accept", json!(null)).await;
    assert_eq!((lost.status, &lost.json()["status"]), (200, &json!("error")));
    gateway.stop().await;
    let gateway = Gateway::in_folder(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    assert_eq!(invoke(&gateway, "ada", "well?").await.json()["status"], "interrupted");
    let done = resume(&gateway, "ada", &interrupted["session_id"], "accept", json!(null)).await.json();
    assert_eq!((&done["status"], last(&done)), (&json!("completed"), "done"));
}

#[tokio::test]
async fn an_interrupt_from_one_protocol_is_answered_once_over_another() {
    let upstream = Upstream::in_order([approval_request("appr-1"), text_reply(&["done"])]);
    let gateway = before(&upstream).await;
    let input = json!({ "conversationId": "c", "messages": [{ "role": "user", "content": "remove it" }] });
    let interrupted = gateway.post("/kit/demo/send-message", &input).await;
    assert!(interrupted.text().contains(r#""type":"interrupt","id":"appr-1""#), "{}", interrupted.text());

    // Shown by this service, answered over Responses, then refused everywhere.
    let body = json!({ "user_id": "ada", "session_id": "c", "query": "what is it?" });
    let shown = gateway.post("/hitl/demo/agent/invoke", &body).await.json();
    assert_eq!(shown["interrupt_data"]["action_request"]["action"], "rm");

    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": "appr-1", "approve": true });
    let done = gateway.post("/v1/responses", &json!({ "model": "demo", "input": [answer] })).await;
    assert_eq!((done.status, &done.json()["status"]), (200, &json!("completed")), "{}", done.text());

    let again = json!({ "conversationId": "c", "resume": { "interruptId": "appr-1", "payload": true } });
    assert_eq!(gateway.post("/kit/demo/send-message", &again).await.status, 409);
    assert_eq!(resume(&gateway, "ada", &json!("c"), "accept", json!(null)).await.status, 400);
    let native = json!({ "approval_request_id": "appr-1", "id": "appr-1", "approve": true });
    let mut body = user_turn_in("c", "");
    body["input"] =
        json!([{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": native }] }]);
    assert_eq!(gateway.post("/agents/demo/process", &body).await.status, 409);
    assert_eq!(upstream.requests().len(), 2, "the agent received one answer");

    let received = upstream.requests().pop().expect("the answer").json();
    assert_eq!(
        (&received["session_id"], &received["user_id"]),
        (&upstream.requests()[0].json()["session_id"], &upstream.requests()[0].json()["user_id"])
    );
}

#[tokio::test]
async fn an_answer_uses_the_user_and_session_of_the_original_request() {
    for session in [None, Some("c")] {
        let upstream = Upstream::in_order([approval_request("appr-1"), text_reply(&["done"])]);
        let gateway = before(&upstream).await;
        let interrupted = match session {
            Some(session) => {
                let input =
                    json!({ "conversationId": session, "messages": [{ "role": "user", "content": "remove it" }] });
                gateway.post("/kit/demo/send-message", &input).await;
                let body = json!({ "user_id": "ada", "session_id": session, "query": "what is it?" });
                gateway.post("/hitl/demo/agent/invoke", &body).await.json()
            }
            None => invoke(&gateway, "ada", "remove it").await.json(),
        };
        let done = resume(&gateway, "ada", &interrupted["session_id"], "accept", json!(null)).await.json();
        assert_eq!(last(&done), "done");

        let names = |index: usize| {
            let interrupted = upstream.requests()[index].json();
            (interrupted["user_id"].clone(), interrupted["session_id"].clone())
        };
        assert_eq!(names(0), names(1), "the upstream identifies a session by both");
        assert_eq!(names(0).0 == json!("ada"), session.is_none());
    }
}

#[tokio::test]
async fn a_session_started_over_another_protocol_can_be_read_resumed_and_deleted() {
    let gateway = demo().await;
    let ask = json!({ "conversationId": "c", "messages": [{ "role": "user", "content": "question" }] });
    assert_eq!(gateway.post("/kit/demo/send-message", &ask).await.status, 200);
    let found = gateway.get("/hitl/demo/agent/status/ada/c").await.json();
    assert_eq!((&found["status"], &found["session_id"]), (&json!("interrupted"), &json!("c")), "{found}");
    let unfit = resume(&gateway, "ada", &json!("c"), "response", json!({ "args": "purple" })).await;
    assert_eq!(unfit.status, 400);
    assert!(
        unfit.text().contains("'colour' (required, one of"),
        "the error describes the expected value: {}",
        unfit.text()
    );

    let answered = resume(&gateway, "ada", &json!("c"), "response", json!({ "args": "blue" })).await.json();
    assert_eq!(last(&answered), "Thank you. You answered: {\"colour\":\"blue\"}");
    let delete = async |path: &str| gateway.open("DELETE", path, &[], b"").await.response().await.status;
    assert_eq!(delete("/hitl/demo/agent/session/ada/c").await, 200);
    assert_eq!(delete("/hitl/demo/agent/session/ada/c").await, 404);
    assert_eq!(resume(&gateway, "ada", &json!("c"), "accept", json!(null)).await.status, 404);

    // Sessions of another user of this service stay private.
    let body = json!({ "user_id": "bob", "session_id": "trip", "query": "approval" });
    assert_eq!(gateway.post("/hitl/demo/agent/invoke", &body).await.json()["status"], "interrupted");
    assert_eq!(resume(&gateway, "ada", &json!("trip"), "accept", json!(null)).await.status, 404);
    assert_eq!(gateway.get("/hitl/demo/agent/status/ada/trip").await.json()["status"], "not_found");
    assert_eq!(delete("/hitl/demo/agent/session/ada/trip").await, 404);
}
