//! Nothing is lost silently: what a run loses is in the log once, in the access log, and in the metrics.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, user_turn};
use crate::support::http::Response;
use crate::support::poll_until;
use crate::support::upstream::{Reply, Upstream};

/// An agent whose connector loses something twice.
fn forgetful() -> Upstream {
    let lose = json!({ "lose": "a parameter" }).to_string();
    let end = json!({ "text": "hi", "end": "completed" }).to_string();
    Upstream::always(Reply::frames([lose.clone(), lose, end]))
}

/// A gateway with a protocol that loses something and with one that does not, and an access log.
async fn gateway(upstream: &Upstream) -> Gateway {
    let url = upstream.url("/p");
    Gateway::with_config(&format!(
        "[store]\nkind = \"memory\"\n\
         [observe]\naccess_log = {{ path = \"access.log\", format = \"json\" }}\n\
         [agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{url}\"\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n\
         [[routes]]\nprotocol = \"puppet\"\npath = \"/puppets/{{agent}}\"\n"
    ))
    .await
}

/// The line of a request in the access log, once it is written.
async fn line(folder: &Path, response: &Response) -> Value {
    let id = response.header("x-request-id").expect("an id").to_owned();
    poll_until("the line of the request", async || {
        let log = std::fs::read_to_string(folder.join("access.log")).unwrap_or_default();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["request"] == id.as_str())
    })
    .await
}

fn by_agent() -> Value {
    json!({ "side": "agent", "kind": "sampling", "change": "lost", "how": "puppets have no strings for it", "count": 2 })
}

fn by_client() -> Value {
    json!({ "side": "client", "kind": "reasoning", "change": "lost", "how": "puppets have no thoughts", "count": 1 })
}

#[tokio::test]
async fn what_a_run_loses_stands_in_the_access_log() {
    let upstream = forgetful();
    let gateway = gateway(&upstream).await;
    let answered = gateway.post("/agents/doll/process", &user_turn("hi")).await;
    assert_eq!(line(&gateway.folder(), &answered).await["lost"], json!([by_agent()]));
    let answered = gateway.post("/puppets/doll/process", &user_turn("hi")).await;
    assert_eq!(line(&gateway.folder(), &answered).await["lost"], json!([by_client(), by_agent()]));
}

#[tokio::test]
async fn a_run_that_is_shown_again_loses_nothing_more() {
    let upstream = forgetful();
    let gateway = gateway(&upstream).await;
    let answered = gateway.post("/puppets/doll/process", &user_turn("hi")).await;
    let run = line(&gateway.folder(), &answered).await["run"].as_str().expect("a run").to_owned();
    for path in [format!("/puppets/doll/runs/{run}"), format!("/puppets/doll/runs/{run}/events")] {
        let shown = gateway.get(&path).await;
        assert_eq!(shown.status, 200, "{}", shown.text());
        let line = line(&gateway.folder(), &shown).await;
        assert_eq!((&line["lost"], &line["run"]), (&Value::Null, &Value::Null), "{line}");
    }
}

/// The user of a session whose client named none is an id that the gateway made, which no one misses.
#[tokio::test]
async fn only_a_user_that_a_client_named_can_be_lost() {
    let delta = json!({ "index": 0, "delta": { "content": "hi" }, "finish_reason": "stop" });
    let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [delta] }).to_string();
    let upstream = Upstream::always(Reply::frames([chunk, "[DONE]".to_owned()]));
    let url = upstream.url("/v1");
    let gateway = Gateway::with_config(&format!(
        "[store]\nkind = \"memory\"\n\
         [observe]\naccess_log = {{ path = \"access.log\", format = \"json\" }}\n\
         [agents.chat.upstream]\nprotocol = \"chat-completions\"\nurl = \"{url}\"\noptions = {{ model = \"m\" }}\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n"
    ))
    .await;

    let answered = gateway.post("/agents/chat/process", &user_turn("hi")).await;
    assert_eq!(line(&gateway.folder(), &answered).await["lost"], Value::Null);

    let mut named = user_turn("hi");
    named["user_id"] = "ada".into();
    let answered = gateway.post("/agents/chat/process", &named).await;
    assert_eq!(line(&gateway.folder(), &answered).await["lost"][0]["kind"], "user");
}
