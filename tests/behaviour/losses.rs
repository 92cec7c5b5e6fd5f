//! Nothing is lost silently: what a run loses is in the log once, in the access log, and in the metrics.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent::frames;
use crate::support::gateway::{Gateway, JSON, agent, user_turn};
use crate::support::http::Response;
use crate::support::poll_until;
use crate::support::process::Process;
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
async fn losses_are_in_the_access_log() {
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

/// Without a user from the client, the session's user is a generated id, whose loss does not matter.
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

/// An answer with an event that no client reads, and with one that is too large to be kept.
fn eventful() -> Upstream {
    let event = |id: &str, bytes: usize| {
        let data = json!({ "protocol": "p", "event": "x".repeat(bytes) });
        let content = json!([{ "type": "data", "data": data }]);
        json!({ "object": "message", "status": "completed", "id": id, "type": "protocol_event", "content": content })
    };
    let events = [event("small", 10), event("large", 300 << 10)].map(|event| event.to_string());
    Upstream::with_handler(move |_| {
        let answer = frames(&["hi"]);
        let (opening, rest) = answer.split_at(2);
        Reply::frames(opening.iter().chain(&events).chain(rest).cloned())
    })
}

/// The lines about lost content in the log of a process.
fn lost_lines(folder: &Path) -> Vec<Value> {
    let log = std::fs::read_to_string(folder.join("log")).expect("a log");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == "content lost or changed").collect()
}

#[tokio::test]
async fn losses_are_one_log_line_and_counted() {
    let upstream = eventful();
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[store]\nkind = \"memory\"\n{}\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());

    let body = json!({ "model": "friday", "input": "hi" }).to_string();
    let mut answers = Vec::new();
    for number in 1..=2 {
        let answer = process.open("POST", "/v1/responses", JSON, body.as_bytes()).await.response().await;
        assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("completed")), "{}", answer.text());
        // Showing the run again loses nothing more.
        let path = format!("/v1/responses/{}", answer.json()["id"].as_str().expect("an id"));
        assert_eq!(process.open("GET", &path, &[], b"").await.response().await.status, 200);
        answers.push(answer);
        poll_until("the line of the run", async || (lost_lines(folder.path()).len() >= number).then_some(())).await;
    }

    let lines = lost_lines(folder.path());
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for (line, answer) in lines.iter().zip(&answers) {
        let fields = ["level", "agent", "route", "protocol", "agent_protocol", "lost"].map(|name| line[name].as_str());
        let lost = "protocol_event (events of another protocol); protocol_event (it is too large to be kept)";
        assert_eq!(fields, ["INFO", "friday", "/v1", "responses", "agent-api", lost].map(Some), "{line}");
        assert_eq!(
            (line["request"].as_str(), &line["changed"]),
            (answer.header("x-request-id"), &Value::Null),
            "{line}"
        );
        let id = answer.json()["id"].as_str().expect("an id").trim_start_matches("resp_").to_owned();
        assert_eq!(line["run"].as_str().map(|run| run.replace('-', "")), Some(id), "{line}");
    }

    let metrics = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
    let counted: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("interlingua_content_lost_total")).collect();
    assert_eq!(counted.len(), 2, "{counted:#?}");
    for side in ["client", "agent"] {
        let labels =
            format!("agent=\"friday\",protocol=\"responses\",side=\"{side}\",kind=\"protocol_event\",change=\"lost\"");
        let sample = format!("interlingua_content_lost_total{{{labels}}} 2");
        assert!(counted.contains(&sample.as_str()), "{sample} in {counted:#?}");
    }
}

#[tokio::test]
async fn an_agent_without_history_uses_its_own_memory() {
    let upstream = Upstream::always(Reply::frames([json!({ "text": "well", "end": "completed" }).to_string()]));
    let gateway = Gateway::with_config(&format!(
        "[store]\nkind = \"memory\"\n\
         [observe]\naccess_log = {{ path = \"access.log\", format = \"json\" }}\n\
         [agents.doll.upstream]\nprotocol = \"puppet\"\nurl = \"{}\"\noptions = {{ history = \"only\" }}\n\
         [[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n",
        upstream.url("/p")
    ))
    .await;
    let loses = json!([{
        "side": "agent", "kind": "history", "change": "lost",
        "how": "the agent continues from its own memory", "count": 1,
    }]);
    let ask = async |mut body: Value| {
        body["model"] = json!("doll");
        let answered = gateway.post("/v1/responses", &body).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
        let sent = upstream.requests().pop().expect("a request").json();
        let texts: Vec<&str> =
            sent["messages"].as_array().expect("messages").iter().filter_map(|one| one["text"].as_str()).collect();
        assert_eq!(texts, [body["input"].as_str().expect("a text")], "only what is new is sent: {sent}");
        assert_eq!(sent["history"], json!([0, 0]), "{sent}");
        (answered.json()["id"].clone(), line(&gateway.folder(), &answered).await["lost"].clone())
    };

    // A conversation that goes straight on loses nothing; one that branches off what the agent knows does.
    let (first, lost) = ask(json!({ "input": "first" })).await;
    assert_eq!(lost, Value::Null);
    let (_, lost) = ask(json!({ "input": "second", "previous_response_id": first })).await;
    assert_eq!(lost, Value::Null);
    let (_, lost) = ask(json!({ "input": "another second", "previous_response_id": first })).await;
    assert_eq!(lost, loses);

    // The agent remembers what is not part of the conversation any more.
    let made = gateway.post("/v1/conversations", &json!({})).await.json();
    let conversation = made["id"].as_str().expect("an id");
    let (_, lost) = ask(json!({ "input": "one", "conversation": conversation })).await;
    assert_eq!(lost, Value::Null);
    let items = gateway.get(&format!("/v1/conversations/{conversation}/items")).await.json();
    let item = items["data"][0]["id"].as_str().expect("an item");
    let path = format!("/v1/conversations/{conversation}/items/{item}");
    assert_eq!(gateway.open("DELETE", &path, &[], b"").await.response().await.status, 200);
    let (_, lost) = ask(json!({ "input": "two", "conversation": conversation })).await;
    assert_eq!(lost, loses);
}
