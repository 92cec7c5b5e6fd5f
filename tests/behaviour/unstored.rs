//! Responses with `store: false`: nothing of them is stored, unless a later request can answer an item of them.

use std::time::Duration;

use serde_json::json;

use crate::support::agent::{approval_request, text_reply};
use crate::support::gateway::{Gateway, agent};
use crate::support::upstream::Upstream;

const ROUTE: &str = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\nagents = [\"a\"]\n";

/// The numbers of stored runs, sessions and entries.
fn counts(gateway: &Gateway) -> [i64; 3] {
    let file = rusqlite::Connection::open(gateway.folder().join("store.db")).expect("a database");
    let count = |sql: &str| file.query_row(sql, [], |row| row.get(0)).expect("a count");
    [
        count("SELECT count(*) FROM runs"),
        count("SELECT count(*) FROM documents WHERE collection = 'sessions'"),
        count("SELECT count(*) FROM documents WHERE collection = 'entries'"),
    ]
}

/// Waits until no run is stored: a run is deleted shortly after its answer.
async fn until_no_run_is_stored(gateway: &Gateway) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while counts(gateway)[0] > 0 {
        assert!(tokio::time::Instant::now() < limit, "a run is stored after 20 seconds");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn start(upstream: &Upstream) -> Gateway {
    let store = "[store]\nkind = \"sqlite\"\npath = \"store.db\"\n";
    Gateway::with_config(&format!("{store}{}{ROUTE}", agent("a", &upstream.url("/process"), "", ""))).await
}

#[tokio::test]
async fn an_unstored_response_leaves_no_session() {
    let upstream = Upstream::with_handler(|_| text_reply(&["Hello"]));
    let gateway = start(&upstream).await;
    for _ in 0..3 {
        let answer = gateway.post("/v1/responses", &json!({ "model": "a", "input": "hi", "store": false })).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(counts(&gateway)[1..], [0, 0]);
    until_no_run_is_stored(&gateway).await;

    let answer = gateway.post("/v1/responses", &json!({ "model": "a", "input": "hi" })).await;
    assert_eq!(answer.status, 200);
    let [runs, sessions, _] = counts(&gateway);
    assert_eq!([runs, sessions], [1, 1]);
}

#[tokio::test]
async fn an_unstored_response_that_asks_can_be_answered() {
    let mut times = 0;
    let upstream = Upstream::with_handler(move |_| {
        times += 1;
        if times == 1 { approval_request("ask_1") } else { text_reply(&["done"]) }
    });
    let gateway = start(&upstream).await;
    let asked = gateway.post("/v1/responses", &json!({ "model": "a", "input": "hi", "store": false })).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    assert_eq!(counts(&gateway)[1], 1);

    let answer = json!({ "type": "mcp_approval_response", "approval_request_id": "ask_1", "approve": true });
    let body = json!({ "model": "a", "input": [answer], "store": false });
    let answered = gateway.post("/v1/responses", &body).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    assert!(answered.text().contains("done"), "{}", answered.text());
}
