//! Documents that connectors look up: kept by the rules of HTTP, and asked for with the agent's credentials only where
//! the operator said so.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, ROUTE, user_turn};
use crate::support::upstream::{Reply, Upstream};

/// An agent that first reads a document, and says which one. The document's server answers with `replies`.
struct Fixture {
    agent: Upstream,
    server: Upstream,
    gateway: Gateway,
}

impl Fixture {
    async fn new(replies: Vec<Reply>, options: &str) -> Self {
        let agent = Upstream::always(Reply::frames([json!({ "text": "ok", "end": "completed" }).to_string()]));
        let server = Upstream::in_order(replies);
        let (url, document) = (agent.url("/p"), server.url("/card.json"));
        let gateway = Gateway::with_config(&format!(
            "[store]\nkind = \"memory\"\n[agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{url}\"\nretries = 0\n\
             headers = {{ x-agent = \"its-own\" }}\nforward = [\"x-tenant\"]\nidentity = \"derived\"\n\
             options = {{ document = \"{document}\", {options} }}\n{ROUTE}"
        ))
        .await;
        Self { agent, server, gateway }
    }

    /// The document that the agent was sent with a turn. The error is the status of a refusal.
    async fn turn(&self) -> Result<Value, u16> {
        let headers = [("content-type", "application/json"), ("x-tenant", "acme")];
        let body = user_turn("hi").to_string();
        let answered = self.gateway.open("POST", "/agents/doll/process", &headers, body.as_bytes()).await;
        match answered.response().await.status {
            200 => Ok(self.agent.requests().pop().expect("a request").json()["document"].clone()),
            status => Err(status),
        }
    }

    fn lookups(&self) -> usize {
        self.server.requests().len()
    }
}

fn document(text: &str, headers: &[(&str, &str)]) -> Reply {
    Reply::complete(200, headers, text)
}

#[tokio::test]
async fn a_document_is_fetched_once_for_all_turns() {
    let fixture = Fixture::new(vec![document("one", &[]), document("two", &[])], "trusted = true").await;
    for _ in 0..3 {
        assert_eq!(fixture.turn().await, Ok("one".into()));
    }
    assert_eq!((fixture.lookups(), fixture.agent.requests().len()), (1, 3));
}

#[tokio::test]
async fn an_absence_is_cached_and_a_failure_is_not() {
    let refusal = |status| Reply::complete(status, &[], "");
    let fixture = Fixture::new(vec![refusal(404), document("late", &[])], "").await;
    for _ in 0..2 {
        assert_eq!(fixture.turn().await, Ok("none".into()));
    }
    assert_eq!(fixture.lookups(), 1);

    let fixture = Fixture::new(vec![refusal(500), document("at last", &[])], "").await;
    assert_eq!(fixture.turn().await, Err(502));
    assert_eq!(fixture.turn().await, Ok("at last".into()));
}

#[tokio::test]
async fn only_an_allowed_host_gets_the_agents_credentials_and_none_learns_of_the_caller() {
    for (options, credentials) in [("", None), ("trusted = true", Some("its-own"))] {
        let fixture = Fixture::new(vec![document("one", &[])], options).await;
        assert_eq!(fixture.turn().await, Ok("one".into()));
        let asked = fixture.server.requests().pop().expect("a request");
        let header = |name: &str| asked.headers.get(name).map(String::as_str);
        assert_eq!(header("x-agent"), credentials, "{options}");
        // Documents that all callers share are requested without a caller.
        assert_eq!((header("x-tenant"), header("traceparent")), (None, None));
        let agent = fixture.agent.requests().pop().expect("a request");
        assert_eq!(agent.headers.get("x-tenant").map(String::as_str), Some("acme"));
    }
}
