//! The human-in-the-loop service through the running gateway: the whole life of a session, and questions that are asked
//! over one protocol and answered over another.

use serde_json::{Value, json};

use crate::support::agent::{approval, saying, saying_until};
use crate::support::gateway::{DEMO, Gateway, agent, says_in};
use crate::support::http::Answer;
use crate::support::until;
use crate::support::upstream::{Upstream, nobody};

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

async fn invoke(gateway: &Gateway, user: &str, query: &str) -> Answer {
    gateway.post("/hitl/demo/agent/invoke", &json!({ "user_id": user, "query": query })).await
}

async fn resume(gateway: &Gateway, user: &str, session: &Value, word: &str, args: Value) -> Answer {
    let body = json!({ "user_id": user, "session_id": session, "response_type": word, "args": args });
    gateway.post("/hitl/demo/agent/resume", &body).await
}

async fn status(gateway: &Gateway, user: &str) -> Value {
    let answer = gateway.get(&format!("/hitl/demo/agent/status/{user}")).await;
    assert_eq!(answer.status, 200);
    answer.json()
}

/// What the last message says.
fn last(response: &Value) -> &str {
    let messages = response["result"]["messages"].as_array().expect("messages");
    messages.last().expect("a message")["content"].as_str().expect("a text")
}

#[tokio::test]
async fn a_session_lives_from_its_first_query_to_its_end() {
    let gateway = demo().await;
    assert_eq!(status(&gateway, "ada").await["status"], "not_found");
    let first = invoke(&gateway, "ada", "echo hello").await.json();
    assert_eq!((&first["status"], last(&first)), (&json!("completed"), "hello"));
    let asked = invoke(&gateway, "ada", "approval").await.json();
    assert_eq!((&asked["status"], &asked["session_id"]), (&json!("interrupted"), &first["session_id"]));
    assert_eq!(asked["interrupt_data"]["action_request"]["action"], "send_mail");
    assert_eq!(status(&gateway, "ada").await["last_response"], asked);
    // The query meanwhile reaches nobody.
    assert_eq!(invoke(&gateway, "ada", "echo lost").await.json(), asked);

    let session = &asked["session_id"];
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
    assert_eq!(resume(&gateway, "ada", session, "accept", json!(null)).await.status, 400, "nothing is decided twice");
    assert_eq!(status(&gateway, "ada").await["last_response"], edited);

    let failed = invoke(&gateway, "ada", "error").await;
    assert_eq!((failed.status, &failed.json()["status"]), (200, &json!("error")));
    assert_eq!(status(&gateway, "ada").await["status"], "error");
    assert_eq!(
        gateway.get("/hitl/demo/system/info").await.json(),
        json!({ "sessions_count": 1, "active_users": ["ada"] })
    );
    let delete = gateway.open("DELETE", "/hitl/demo/agent/session/ada", &[], b"").await.answer().await;
    assert_eq!(delete.json()["status"], "success");
    assert_eq!(status(&gateway, "ada").await["status"], "not_found");
    let anew = invoke(&gateway, "ada", "echo hello").await.json();
    assert_ne!(anew["session_id"], first["session_id"]);
}

#[tokio::test]
async fn each_decision_has_its_effect() {
    for (word, args, said) in [
        ("accept", json!(null), "was sent to ada@example.com"),
        ("reject", json!(null), "I did not send it"),
        ("response", json!({ "args": "call her" }), "call her"),
    ] {
        let gateway = demo().await;
        let asked = invoke(&gateway, "ada", "approval").await.json();
        let done = resume(&gateway, "ada", &asked["session_id"], word, args).await.json();
        assert!(last(&done).contains(said), "{word}: {done}");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer_later() {
    let upstream = Upstream::always(saying_until(&["done"], "go"));
    let gateway = before(&upstream).await;
    let body = json!({ "user_id": "ada", "query": "think long" });
    let left = gateway.posting("/hitl/demo/agent/invoke", &body).await;
    upstream.wait_asked(1).await;
    assert_eq!(status(&gateway, "ada").await["status"], "running");
    let second = invoke(&gateway, "ada", "and?").await;
    assert_eq!(second.status, 409, "{}", second.text());
    drop(left);
    upstream.open("go");
    let found = until("the answer", async || {
        let status = status(&gateway, "ada").await;
        (status["status"] == "completed").then_some(status)
    })
    .await;
    assert_eq!(last(&found["last_response"]), "done");
    assert_eq!((upstream.asked().len(), &found["last_query"]), (1, &json!("think long")));
}

#[tokio::test]
async fn an_agent_that_is_away_is_an_error_and_the_question_stays_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::answering([approval("appr-1"), saying(&["done"])]);
    let config = |url: &str| {
        let agent = agent("demo", url, "", "retries = 0");
        format!("[store]\nkind = \"sqlite\"\npath = \"store.db\"\n{agent}{ROUTES}")
    };
    let gateway = Gateway::within(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    let asked = invoke(&gateway, "ada", "remove it").await.json();
    gateway.stop().await;
    let away = format!("http://{}/process", nobody());
    let gateway = Gateway::within(&config(&away), folder.path().to_owned()).await;
    assert_eq!(status(&gateway, "ada").await["last_response"], asked, "the restart changed nothing");
    let lost = resume(&gateway, "ada", &asked["session_id"], "accept", json!(null)).await;
    assert_eq!((lost.status, &lost.json()["status"]), (200, &json!("error")));
    gateway.stop().await;
    let gateway = Gateway::within(&config(&upstream.url("/process")), folder.path().to_owned()).await;
    assert_eq!(invoke(&gateway, "ada", "well?").await.json()["status"], "interrupted");
    let done = resume(&gateway, "ada", &asked["session_id"], "accept", json!(null)).await.json();
    assert_eq!((&done["status"], last(&done)), (&json!("completed"), "done"));
}

#[tokio::test]
async fn a_question_asked_over_one_protocol_is_answered_over_another_and_once() {
    let upstream = Upstream::answering([approval("appr-1"), saying(&["done"])]);
    let gateway = before(&upstream).await;
    let said = json!({ "conversationId": "c", "messages": [{ "role": "user", "content": "remove it" }] });
    let asked = gateway.post("/kit/demo/send-message", &said).await;
    assert!(asked.text().contains(r#""type":"interrupt","id":"appr-1""#), "{}", asked.text());

    // Shown over the service, answered over Responses, refused over all others.
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
    let mut body = says_in("c", "");
    body["input"] =
        json!([{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": native }] }]);
    assert_eq!(gateway.post("/agents/demo/process", &body).await.status, 409);
    assert_eq!(upstream.asked().len(), 2, "the agent heard one answer");
    let told = upstream.asked().pop().expect("the answer").json();
    assert_eq!(
        (&told["session_id"], &told["user_id"]),
        (&upstream.asked()[0].json()["session_id"], &upstream.asked()[0].json()["user_id"])
    );
}

#[tokio::test]
async fn an_agent_that_waits_is_answered_in_the_name_of_whoever_asked() {
    for session in [None, Some("c")] {
        let upstream = Upstream::answering([approval("appr-1"), saying(&["done"])]);
        let gateway = before(&upstream).await;
        let asked = match session {
            Some(session) => {
                let said =
                    json!({ "conversationId": session, "messages": [{ "role": "user", "content": "remove it" }] });
                gateway.post("/kit/demo/send-message", &said).await;
                let body = json!({ "user_id": "ada", "session_id": session, "query": "what is it?" });
                gateway.post("/hitl/demo/agent/invoke", &body).await.json()
            }
            None => invoke(&gateway, "ada", "remove it").await.json(),
        };
        let done = resume(&gateway, "ada", &asked["session_id"], "accept", json!(null)).await.json();
        assert_eq!(last(&done), "done");
        let names = |place: usize| {
            let asked = upstream.asked()[place].json();
            (asked["user_id"].clone(), asked["session_id"].clone())
        };
        assert_eq!(names(0), names(1), "the upstream knows a session by both");
        assert_eq!(names(0).0 == json!("ada"), session.is_none());
    }
}

#[tokio::test]
async fn a_session_begun_elsewhere_is_resumed_looked_at_and_deleted_without_a_query_first() {
    let gateway = demo().await;
    let ask = json!({ "conversationId": "c", "messages": [{ "role": "user", "content": "question" }] });
    assert_eq!(gateway.post("/kit/demo/send-message", &ask).await.status, 200);
    let found = gateway.get("/hitl/demo/agent/status/ada/c").await.json();
    assert_eq!((&found["status"], &found["session_id"]), (&json!("interrupted"), &json!("c")), "{found}");
    let unfit = resume(&gateway, "ada", &json!("c"), "response", json!({ "args": "purple" })).await;
    assert_eq!(unfit.status, 400);
    assert!(unfit.text().contains("'colour' (required, one of"), "what would fit is told: {}", unfit.text());
    let answered = resume(&gateway, "ada", &json!("c"), "response", json!({ "args": "blue" })).await.json();
    assert_eq!(last(&answered), "Thank you. You answered: {\"colour\":\"blue\"}");
    let delete = async |path: &str| gateway.open("DELETE", path, &[], b"").await.answer().await.status;
    assert_eq!(delete("/hitl/demo/agent/session/ada/c").await, 200);
    assert_eq!(delete("/hitl/demo/agent/session/ada/c").await, 404);
    assert_eq!(resume(&gateway, "ada", &json!("c"), "accept", json!(null)).await.status, 404);
    // What belongs to another user of this service stays theirs.
    let body = json!({ "user_id": "bob", "session_id": "trip", "query": "approval" });
    assert_eq!(gateway.post("/hitl/demo/agent/invoke", &body).await.json()["status"], "interrupted");
    assert_eq!(resume(&gateway, "ada", &json!("trip"), "accept", json!(null)).await.status, 404);
    assert_eq!(gateway.get("/hitl/demo/agent/status/ada/trip").await.json()["status"], "not_found");
    assert_eq!(delete("/hitl/demo/agent/session/ada/trip").await, 404);
}
