//! Identities that an agent sees: different owners with the same ids stay separate, also in the memory of the agent.

use interlingua::store::{DocumentStore, Expect, Sqlite, SqliteOptions, Store};
use serde_json::{Value, json};

use crate::support::agent::{approval_request, remembering, text_reply};
use crate::support::gateway::{Gateway, agent, user_turn_in};
use crate::support::upstream::Upstream;

/// Routes of one agent: `shared` with shared sessions, `apart` without.
fn routes(shared: &[&str], apart: &[&str]) -> String {
    let route = |path: &&str, shared: bool| {
        format!(
            "[[routes]]\nprotocol = \"agent-api\"\npath = \"{path}\"\nagents = [\"friday\"]\nshared_sessions = {shared}\n"
        )
    };
    let shared = shared.iter().map(|path| route(path, true));
    shared.chain(apart.iter().map(|path| route(path, false))).collect()
}

fn ada_turn(session: &str, text: &str) -> Value {
    let mut body = user_turn_in(session, text);
    body["user_id"] = json!("ada");
    body["stream"] = json!(false);
    body
}

/// Sends a turn and returns the text of the reply.
async fn reply_text(gateway: &Gateway, path: &str, body: &Value) -> String {
    let response = gateway.post(&format!("{path}/process"), body).await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["output"][0]["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn routes_without_shared_sessions_are_separate_for_the_agent_too() {
    let upstream = remembering();
    let agent = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"memory\"\n{agent}{}", routes(&["/shared", "/too"], &["/one", "/two"]));
    let gateway = Gateway::with_config(&config).await;

    assert_eq!(reply_text(&gateway, "/one", &ada_turn("s1", "my secret")).await, "before: []");
    assert_eq!(reply_text(&gateway, "/two", &ada_turn("s1", "what did I say?")).await, "before: []");
    assert_eq!(reply_text(&gateway, "/shared", &ada_turn("s1", "and here?")).await, "before: []");
    assert_eq!(
        reply_text(&gateway, "/one", &ada_turn("s1", "again")).await,
        "before: [my secret]",
        "it remembers its own session"
    );
    assert_eq!(
        reply_text(&gateway, "/too", &ada_turn("s1", "hi")).await,
        "before: [and here?]",
        "shared routes share sessions"
    );

    // The derived ids of one route have no effect on another.
    let made = upstream.requests()[0].json();
    assert_eq!((&made["session_id"] != "s1", &made["user_id"] != "ada"), (true, true), "{made}");
    let mut same = ada_turn(made["session_id"].as_str().expect("a name"), "let me in");
    same["user_id"] = made["user_id"].clone();
    for route in ["/shared", "/two"] {
        assert_eq!(reply_text(&gateway, route, &same).await, "before: []", "{route}");
    }
}

#[tokio::test]
async fn session_ids_with_control_characters_are_distinct() {
    let upstream = remembering();
    let gateway = Gateway::start(&agent("friday", &upstream.url("/process"), "", "")).await;
    for session in ["a\u{1f}b", "a\nb", "a\u{fffd}b"] {
        assert_eq!(reply_text(&gateway, "/agents/friday", &ada_turn(session, session)).await, "before: []");
    }
}

#[tokio::test]
async fn an_interrupt_stored_under_plain_ids_can_still_be_answered() {
    let mut times = 0;
    let upstream = Upstream::with_handler(move |_| {
        times += 1;
        if times == 1 { approval_request("appr-1") } else { text_reply(&["done"]) }
    });
    let folder = tempfile::tempdir().expect("a folder");
    let agent = agent("friday", &upstream.url("/process"), "", "");
    let config = format!("[store]\nkind = \"sqlite\"\npath = \"runs.db\"\n{agent}{}", routes(&[], &["/one"]));
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;

    let response = gateway.post("/one/process", &ada_turn("s1", "remove it")).await;
    assert_eq!(response.status, 200, "{}", response.text());
    gateway.stop().await;

    // The format from before upstream ids were derived per owner.
    let store = Sqlite::open(&folder.path().join("runs.db"), &SqliteOptions::default()).expect("the store opens");
    let key = "friday\u{1f}anonymous/route:/one\u{1f}s1";
    let found = store.get("sessions", key).await.expect("the store reads").expect("the session's document");
    let mut doc: Value = serde_json::from_slice(&found.value).expect("JSON");
    doc["upstream_id"] = Value::Null;
    let written = serde_json::to_vec(&doc).expect("JSON").into();
    let put = store.put("sessions", key, written, Expect::Version(found.version), 4_102_444_800_000).await;
    put.expect("the store writes").expect("no conflict");
    store.close().await.expect("the store closes");

    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let data = json!({ "approval_request_id": "appr-1", "id": "appr-1", "approve": true });
    let answer = json!({
        "session_id": "s1", "user_id": "ada", "stream": false,
        "input": [{ "type": "mcp_approval_response", "role": "user", "content": [{ "type": "data", "data": data }] }],
    });
    assert_eq!(reply_text(&gateway, "/one", &answer).await, "done");
    let answered = upstream.requests()[1].json();
    assert_eq!((&answered["session_id"], &answered["user_id"]), (&json!("s1"), &json!("ada")));

    // A new session has derived ids.
    reply_text(&gateway, "/one", &ada_turn("s2", "hi")).await;
    assert_ne!(upstream.requests()[2].json()["user_id"], "ada");
    gateway.stop().await;
}
