//! Requests that arrive at several gateways at the same moment, and change the same document of an adapter or start the
//! same task.
//!
//! Not here: turns of one session (`crate`), and documents of the engine (`tests/store`).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::json;

use crate::cluster;
use crate::support::agent::{text_reply, text_reply_until};
use crate::support::poll_until;
use crate::support::upstream::Upstream;

/// Number of requests to each gateway.
const REQUESTS: usize = 12;

#[tokio::test]
async fn sessions_of_a_user_that_are_named_at_the_same_moment_are_all_kept() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let stand = cluster(&upstream, "", "[[routes]]\nprotocol = \"hitl\"\npath = \"/hitl/{agent}\"\n");
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let names: Vec<String> = (0..2 * REQUESTS).map(|number| format!("session-{number}")).collect();
    let requests = names.iter().enumerate().map(|(number, name)| {
        let gateway = if number % 2 == 0 { &here } else { &there };
        let body = json!({ "user_id": "ada", "query": "hi", "session_id": name });
        async move { gateway.post("/hitl/friday/agent/invoke", &body).await }
    });
    for answer in join_all(requests).await {
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("completed")), "{}", answer.text());
    }

    let expected: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    for gateway in [&here, &there] {
        let answer = gateway.get("/hitl/friday/agent/sessionids/ada").await.json();
        let known = answer["session_ids"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        assert_eq!(known.collect::<BTreeSet<_>>(), expected, "{answer}");
    }
}

#[tokio::test]
async fn of_messages_repeated_at_the_same_moment_one_starts_a_task() {
    let upstream = Upstream::always(text_reply_until(&["one"], "go"));
    let options = "options = { deduplicate = \"context\" }";
    let route = format!("[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{{agent}}\"\n{options}\n");
    let stand = cluster(&upstream, "", &route);
    let (here, there) = (stand.gateway().await, stand.gateway().await);
    let parts = json!([{ "text": "hi" }]);
    let message = json!({ "messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": parts });
    let body = json!({ "message": message }).to_string();
    let headers = [("a2a-version", "1.0"), ("content-type", "application/json")];

    let sent = join_all((0..20).map(|number| {
        let gateway = if number % 2 == 0 { &here } else { &there };
        let (body, headers) = (&body, &headers);
        async move {
            let mut stream = gateway.open("POST", "/a2a/friday/message:stream", headers, body.as_bytes()).await;
            let first = stream.frame().await.expect("a task");
            (first["task"]["id"].clone(), stream)
        }
    }))
    .await;
    upstream.open("go");
    let id = sent[0].0.clone();
    assert!(id.is_string());
    for (own, mut stream) in sent {
        assert_eq!(own, id);
        let last = stream.frames().await.pop().expect("an end");
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}");
    }
    assert_eq!(upstream.requests().len(), 1, "the agent is called once");
    let claims = "SELECT count(*) FROM interlingua.documents WHERE collection = 'claims'";
    poll_until("the claim is deleted", async || stand.database().sql(claims).unwrap().trim().eq("0").then_some(()))
        .await;
}
