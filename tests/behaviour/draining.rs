//! A draining agent: the requests it refuses, in every protocol, and those that continue. Not here: a gateway that
//! stops (`stopping.rs`).

use serde_json::{Value, json};

use crate::support::agent::{approval_request, text_reply, text_reply_until};
use crate::support::gateway::{DEMO, JSON, agent, user_turn, user_turn_in};
use crate::support::http::Response;
use crate::support::pairs::{ALL_PROTOCOLS, MOUNTS, Protocol};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::transcript::Transcript;
use crate::support::upstream::Upstream;

const KEY: &str = "an-admin-key-of-at-least-32-characters";

/// A gateway with all routes, the demo agent, and `friday`. Ada may act in the console, Vera may look.
struct Stand {
    process: Process,
    folder: tempfile::TempDir,
}

fn config(friday: &str) -> String {
    let head = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
        [auth]\nkeys = \"keys.toml\"\n[callers.vera]\nconsole = \"view\"\n[observe]\naudit = \"audit.jsonl\"\n\
        [admin]\nlisten = \"127.0.0.1:0\"\nkey = { env = \"ADMIN_KEY\" }\n";
    let routes: String = MOUNTS
        .iter()
        .map(|(name, path)| format!("[[routes]]\nprotocol = \"{name}\"\npath = \"{path}\"\nauth = \"none\"\n"))
        .collect();
    format!("{head}{DEMO}{friday}{routes}")
}

impl Stand {
    fn new(friday: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("gateway.toml"), config(friday)).expect("a file");
        let mut command = binary(folder.path());
        command.args(["--log", "error"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
        Self { process: Process::spawn(command), folder }
    }

    async fn operate(&self, method: &str, path: &str) -> Response {
        let key = format!("Bearer {KEY}");
        let headers = [("authorization", &*key), JSON[0]];
        self.process.operate(method, path, &headers, if method == "POST" { b"{}" } else { b"" }).await
    }

    async fn change(&self, agent: &str, what: &str) {
        let answer = self.operate("POST", &format!("/api/agents/{agent}/{what}")).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert_eq!((answer.json()["agent"].as_str(), answer.json()["scope"].as_str()), (Some(agent), Some("gateway")));
    }

    async fn state(&self, agent: &str) -> String {
        let agents = self.operate("GET", "/api/agents").await.json();
        let found = agents["data"].as_array().expect("agents").iter().find(|one| one["name"] == agent);
        found.expect("the agent")["state"].as_str().expect("a state").to_owned()
    }

    async fn turn(&self, client: Protocol, session: &str) -> Response {
        let turn = client.turn(session, "hello", false);
        let body = turn.body.to_string();
        self.process.open("POST", turn.path, &turn.headers(), body.as_bytes()).await.response().await
    }

    async fn post(&self, agent: &str, body: &Value) -> Response {
        let path = format!("/agents/{agent}/process");
        self.process.open("POST", &path, JSON, body.to_string().as_bytes()).await.response().await
    }
}

#[tokio::test]
async fn every_protocol_says_503_in_its_own_words_while_an_agent_drains() {
    let stand = Stand::new("");
    stand.change("demo", "drain").await;
    assert_eq!(stand.state("demo").await, "draining");
    for client in ALL_PROTOCOLS {
        let refused = stand.turn(client, "s").await;
        let errors = client.facts().errors;
        assert_eq!(refused.status, errors.draining, "{client:?}: {}", refused.text());
        assert_eq!(refused.header("retry-after"), Some("5"), "{client:?}");
        let body = refused.json();
        // A2A says first what kind of error it is.
        let said = body
            .pointer(errors.message)
            .and_then(serde_json::Value::as_str)
            .map(|said| said.trim_start_matches("Service unavailable: "));
        let expected = "the agent 'demo' takes no new runs at the moment: try again later";
        assert_eq!(said, Some(expected), "{client:?}: {body}");
    }
    assert_eq!(stand.operate("GET", "/api/runs").await.json()["total"], 0);

    stand.change("demo", "resume").await;
    assert_eq!(stand.state("demo").await, "ready");
    for client in ALL_PROTOCOLS {
        let taken = stand.turn(client, &format!("{client:?}")).await;
        assert!((200..300).contains(&taken.status), "{client:?}: {}", taken.text());
    }
}

#[tokio::test]
async fn active_and_waiting_runs_continue_during_a_drain() {
    let upstream =
        Upstream::in_order([approval_request("ask-1"), text_reply_until(&["slow"], "end"), text_reply(&["done"])]);
    let stand = Stand::new(&agent("friday", &upstream.url("/process"), "", ""));
    let asked = stand.post("friday", &user_turn_in("asks", "remove it")).await;
    assert!(asked.text().contains("ask-1"), "{}", asked.text());
    let body = user_turn_in("slow", "hi").to_string();
    let mut open = stand.process.open("POST", "/agents/friday/process", JSON, body.as_bytes()).await;
    let mut seen = open.read_until("slow").await;

    stand.change("friday", "drain").await;
    for body in [user_turn("new"), user_turn_in("slow", "behind the one under way")] {
        let refused = stand.post("friday", &body).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("GATEWAY_OVERLOADED")));
    }
    assert_eq!(stand.post("demo", &user_turn("another agent")).await.status, 200);

    let data = json!({ "approval_request_id": "ask-1", "id": "ask-1", "approve": true });
    let content = json!([{ "type": "data", "data": data }]);
    let input = json!([{ "type": "mcp_approval_response", "role": "user", "content": content }]);
    let answered = stand.post("friday", &json!({ "session_id": "asks", "input": input })).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    assert!(answered.text().contains("done"), "{}", answered.text());
    let next = stand.post("friday", &user_turn_in("asks", "and now?")).await;
    assert_eq!(next.status, 503, "the session waits for nothing any more: {}", next.text());

    upstream.open("end");
    seen.extend(open.frames().await);
    Transcript::parse(&seen).expect_completed();
    poll_until("its end", async || {
        let agents = stand.operate("GET", "/api/agents").await.json();
        let friday = agents["data"].as_array()?.iter().find(|one| one["name"] == "friday")?.clone();
        (friday["live"] == 0 && friday["state"] == "draining").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_reload_keeps_draining_agents_and_drops_removed_ones() {
    let friday = |upstream: &Upstream, path: &str| agent("friday", &upstream.url(path), "", "");
    let upstream = Upstream::always(text_reply(&["hi"]));
    let stand = Stand::new(&friday(&upstream, "/process"));
    let reload = async |friday: &str| {
        std::fs::write(stand.folder.path().join("gateway.toml"), config(friday)).expect("a file");
        let reloaded = stand.operate("POST", "/api/reload").await;
        assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    };
    stand.change("friday", "drain").await;
    stand.change("demo", "drain").await;
    reload(&friday(&upstream, "/other")).await;
    assert_eq!(
        (stand.state("friday").await, stand.state("demo").await),
        ("draining".to_owned(), "draining".to_owned())
    );
    assert_eq!(stand.post("friday", &user_turn("hi")).await.status, 503);
    assert_eq!(upstream.requests().len(), 0);

    reload("").await;
    reload(&friday(&upstream, "/process")).await;
    assert_eq!((stand.state("friday").await, stand.state("demo").await), ("ready".to_owned(), "draining".to_owned()));
    assert_eq!(stand.post("friday", &user_turn("hi")).await.status, 200);
}

#[tokio::test]
async fn only_those_who_may_act_drain_and_it_is_in_the_audit_log() {
    let stand = Stand::new("");
    let made = binary(stand.folder.path()).args(["key", "new", "vera"]).output().expect("it starts");
    let key = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    let body = json!({ "key": key }).to_string();
    let session = poll_until("the key is known", async || {
        let answer = stand.process.operate("POST", "/api/session", JSON, body.as_bytes()).await;
        (answer.status == 200).then(|| answer.json())
    })
    .await;
    let view = format!("Bearer {}", session["bearer"].as_str().expect("a bearer"));
    let as_viewer = [("authorization", &*view), JSON[0]];
    for what in ["drain", "resume"] {
        let path = format!("/api/agents/demo/{what}");
        assert_eq!(stand.process.operate("POST", &path, &as_viewer, b"{}").await.status, 403, "{what}");
        assert_eq!(stand.process.operate("POST", &path, JSON, b"{}").await.status, 401, "{what}");
        assert_eq!(stand.operate("GET", &path).await.status, 405, "{what}");
        let unknown = stand.operate("POST", &format!("/api/agents/unknown/{what}")).await;
        assert_eq!((unknown.status, unknown.json()["code"].as_str()), (404, Some("AGENT_NOT_FOUND")), "{what}");
    }
    assert_eq!(stand.state("demo").await, "ready");
    assert_eq!(stand.operate("POST", "/api/agents/demo/stop").await.status, 404);

    stand.change("demo", "drain").await;
    let entry = poll_until("the entry", async || {
        let text = std::fs::read_to_string(stand.folder.path().join("audit.jsonl")).ok()?;
        let mut entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        entries.find(|entry| entry["what"] == "drain")
    })
    .await;
    assert_eq!((entry["target"].as_str(), entry["detail"].as_str()), (Some("demo"), Some("drain")), "{entry}");
}
