//! Requests that arrive at several gateways at the same moment and change the same document of an adapter.
//!
//! Not here: turns of one session (`crate`), and documents of the engine (`tests/store`).

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::json;

use crate::Stand;
use crate::support::agent::text_reply;
use crate::support::upstream::Upstream;

/// How many requests each gateway gets.
const REQUESTS: usize = 12;

#[tokio::test]
async fn sessions_of_a_user_that_are_named_at_the_same_moment_are_all_kept() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let mut stand = Stand::new(&upstream, "");
    stand.agents.push_str("\n[[routes]]\nprotocol = \"hitl\"\npath = \"/hitl/{agent}\"\n");
    let ((here, _one), (there, _two)) = (stand.gateway().await, stand.gateway().await);
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
