//! Who is who for an agent: owners who choose the same names never meet, not even in what the agent remembers.

use std::collections::HashMap;

use interlingua::store::{Expect, Sqlite, SqliteOptions, Store};
use serde_json::{Value, json};

use crate::support::agent::{approval, saying};
use crate::support::gateway::{Gateway, agent, last_said, says_in};
use crate::support::upstream::Upstream;

/// An agent that answers with all that was said to it before by this user in this session.
fn remembering() -> Upstream {
    let mut said: HashMap<(String, String), Vec<String>> = HashMap::new();
    Upstream::deciding(move |asked| {
        let body = asked.json();
        let name = |field: &str| body[field].as_str().expect("a name").to_owned();
        let before = said.entry((name("user_id"), name("session_id"))).or_default();
        let told = format!("before: [{}]", before.join(", "));
        before.push(last_said(&body));
        saying(&[&told])
    })
}

/// Routes of one agent: those that share their sessions, and those that do not.
fn routes(shared: &[&str], apart: &[&str]) -> String {
    let route = |path: &&str, shared: bool| {
        format!(
            "[[routes]]\nprotocol = \"agent-api\"\npath = \"{path}\"\nagents = [\"friday\"]\nshared_sessions = {shared}\n"
        )
    };
    let shared = shared.iter().map(|path| route(path, true));
    shared.chain(apart.iter().map(|path| route(path, false))).collect()
}

fn ada_says(session: &str, text: &str) -> Value {
    let mut body = says_in(session, text);
    body["user_id"] = json!("ada");
    body["stream"] = json!(false);
    body
}

/// What the agent answered.
async fn told(gateway: &Gateway, path: &str, body: &Value) -> String {
    let answer = gateway.post(&format!("{path}/process"), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["output"][0]["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn routes_that_share_no_sessions_do_not_meet_in_the_agents_memory() {
    let upstream = remembering();
    let agent = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"memory\"\n{agent}{}", routes(&["/shared", "/too"], &["/one", "/two"]));
    let gateway = Gateway::with(&config).await;

    assert_eq!(told(&gateway, "/one", &ada_says("s1", "my secret")).await, "before: []");
    assert_eq!(told(&gateway, "/two", &ada_says("s1", "what did I say?")).await, "before: []");
    assert_eq!(told(&gateway, "/shared", &ada_says("s1", "and here?")).await, "before: []");
    assert_eq!(told(&gateway, "/one", &ada_says("s1", "again")).await, "before: [my secret]", "its own it remembers");
    assert_eq!(told(&gateway, "/too", &ada_says("s1", "hi")).await, "before: [and here?]", "what is shared is shared");

    // Nor can the names that were made for one route be said on another.
    let made = upstream.asked()[0].json();
    assert_eq!((&made["session_id"] != "s1", &made["user_id"] != "ada"), (true, true), "{made}");
    let mut same = ada_says(made["session_id"].as_str().expect("a name"), "let me in");
    same["user_id"] = made["user_id"].clone();
    for route in ["/shared", "/two"] {
        assert_eq!(told(&gateway, route, &same).await, "before: []", "{route}");
    }
}

#[tokio::test]
async fn names_with_control_characters_are_names_of_their_own() {
    let upstream = remembering();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    for session in ["a\u{1f}b", "a\nb", "a\u{fffd}b"] {
        assert_eq!(told(&gateway, "/agents/friday", &ada_says(session, session)).await, "before: []");
    }
}

#[tokio::test]
async fn what_an_agent_asked_by_plain_names_can_still_be_answered_by_them() {
    let mut times = 0;
    let upstream = Upstream::deciding(move |_| {
        times += 1;
        if times == 1 { approval("appr-1") } else { saying(&["done"]) }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let agent = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{agent}{}", routes(&[], &["/one"]));
    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let asked = gateway.post("/one/process", &ada_says("s1", "remove it")).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    gateway.stop().await;

    // As it was stored before owners had names of their own upstream.
    let store = Sqlite::open(&folder.path().join("runs.db"), &SqliteOptions::default()).expect("the store opens");
    let key = "friday\u{1f}anonymous/route:/one\u{1f}s1";
    let found = store.get("sessions", key).await.expect("the store reads").expect("the session's document");
    let mut doc: Value = serde_json::from_slice(&found.value).expect("JSON");
    doc["upstream_id"] = Value::Null;
    let written = serde_json::to_vec(&doc).expect("JSON").into();
    let put = store.put("sessions", key, written, Expect::Version(found.version), 4_102_444_800_000).await;
    put.expect("the store writes").expect("nobody else does");
    store.close().await.expect("the store closes");

    let gateway = Gateway::within(&config, folder.path().to_owned()).await;
    let data = json!({ "approval_request_id": "appr-1", "id": "appr-1", "approve": true });
    let answer = json!({
        "session_id": "s1", "user_id": "ada", "stream": false,
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    });
    assert_eq!(told(&gateway, "/one", &answer).await, "done");
    let answered = upstream.asked()[1].json();
    assert_eq!((&answered["session_id"], &answered["user_id"]), (&json!("s1"), &json!("ada")));
    // What is new has names of its own.
    told(&gateway, "/one", &ada_says("s2", "hi")).await;
    assert_ne!(upstream.asked()[2].json()["user_id"], "ada");
    gateway.stop().await;
}
