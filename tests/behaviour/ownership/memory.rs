//! An agent that remembers: what one caller said, or one user of a caller, it never repeats to another.

use serde_json::{Value, json};

use super::auth;
use crate::support::agent::remembering;
use crate::support::callers::write_keys;
use crate::support::gateway::{Gateway, JSON, agent, user_turn_in};
use crate::support::issuer::Issuer;
use crate::support::upstream::Upstream;

/// A gateway in front of an agent that remembers, with two issuers.
struct Setup {
    gateway: Gateway,
    upstream: Upstream,
    issuers: [Issuer; 2],
    _folder: tempfile::TempDir,
}

impl Setup {
    async fn start() -> Self {
        let (upstream, folder) = (remembering(), tempfile::tempdir().expect("a folder"));
        write_keys(folder.path(), &["ann", "bob"]);
        let issuers = [Issuer::start().await, Issuer::start().await];
        let auth = auth(&issuers.each_ref());
        let friday = agent("friday", &upstream.url("/process"), "", "");
        let route = |protocol: &str, path: &str, own: &str| {
            format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}/{{agent}}\"\n{own}\n")
        };
        let routes = [
            route("agent-api", "/agents", ""),
            route("agent-api", "/open", "auth = \"none\""),
            route("agent-api", "/apart", "shared_sessions = false"),
            route("hitl", "/hitl", ""),
            route("ag-kit", "/kit", "options = { user_header = \"x-user\" }"),
            route("a2a", "/a2a", ""),
        ];
        let config = format!("{auth}[store]\nkind = \"memory\"\n{friday}{}", routes.concat());
        let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
        Self { gateway, upstream, issuers, _folder: folder }
    }
}

/// Asserts that the agent remembers just this.
async fn assert_remembers(caller: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value, remembered: &str) {
    let headers = [JSON, &[("a2a-version", "1.0")], headers].concat();
    let answer = caller.open("POST", path, &headers, body.to_string().as_bytes()).await.response().await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let expected = format!("before: [{remembered}]");
    assert!(answer.text().contains(&expected), "{path} {headers:?} {body}: not {expected:?}: {}", answer.text());
}

fn turn(session: &str, user: &str, text: &str) -> Value {
    let mut body = user_turn_in(session, text);
    (body["user_id"], body["stream"]) = (user.into(), false.into());
    body
}

#[tokio::test]
async fn callers_are_apart() {
    let Setup { gateway, upstream, issuers, _folder } = Setup::start().await;
    let by_token = |issuer: &Issuer| gateway.with_key(Some(issuer.token("ann")));
    // The same name by a key and by tokens of two issuers: four callers, and no one.
    let callers = [
        ("ann", gateway.as_caller("ann"), "/agents"),
        ("bob", gateway.as_caller("bob"), "/agents"),
        ("ann by a token", by_token(&issuers[0]), "/agents"),
        ("ann of another issuer", by_token(&issuers[1]), "/agents"),
        ("no one", gateway.with_key(None), "/open"),
        ("ann on a route of its own", gateway.as_caller("ann"), "/apart"),
    ];
    for (who, caller, path) in &callers {
        let path = format!("{path}/friday/process");
        assert_remembers(caller, &path, &[], &turn("s1", "ada", &format!("secret of {who}")), "").await;
    }
    for (who, caller, path) in &callers {
        let path = format!("{path}/friday/process");
        assert_remembers(caller, &path, &[], &turn("s1", "ada", "again"), &format!("secret of {who}")).await;
    }

    // The names that the agent was given for the first open nothing for the others.
    let made = upstream.requests()[0].json();
    let name = |field: &str| made[field].as_str().expect("a name").to_owned();
    for (_, caller, path) in &callers[1..] {
        let body = turn(&name("session_id"), &name("user_id"), "let me in");
        assert_remembers(caller, &format!("{path}/friday/process"), &[], &body, "").await;
    }
}

#[tokio::test]
async fn users_and_tenants_of_one_caller_are_apart() {
    let setup = Setup::start().await;
    let ann = setup.gateway.as_caller("ann");
    let users = ["ada", "eve"];
    for (remembered, text) in [(false, "secret of"), (true, "again,")] {
        for user in users {
            let remembered = if remembered { format!("secret of {user}") } else { String::new() };
            let text = format!("{text} {user}");
            let process = turn("a1", user, &text);
            assert_remembers(&ann, "/agents/friday/process", &[], &process, &remembered).await;
            let invoke = json!({ "user_id": user, "query": text });
            assert_remembers(&ann, "/hitl/friday/agent/invoke", &[], &invoke, &remembered).await;
            let send = json!({ "conversationId": "k1", "messages": [{ "role": "user", "content": text }] });
            let path = "/kit/friday/send-message";
            assert_remembers(&ann, path, &[("x-user", user)], &send, &remembered).await;
        }
    }

    // A context of one tenant is not one of another.
    let send = async |path: &str, context: Option<&str>, text: &str| {
        let mut message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": text }] });
        if let Some(context) = context {
            message["contextId"] = context.into();
        }
        let body = json!({ "message": message }).to_string();
        let headers = [JSON, &[("a2a-version", "1.0")]].concat();
        ann.open("POST", path, &headers, body.as_bytes()).await.response().await
    };
    let first = send("/a2a/friday/acme/message:send", None, "secret of acme").await;
    let context = first.json()["task"]["contextId"].as_str().unwrap_or_else(|| panic!("{}", first.text())).to_owned();
    for path in ["/a2a/friday/message:send", "/a2a/friday/other/message:send"] {
        let answer = send(path, Some(&context), "what did I say?").await;
        assert!(!answer.text().contains("secret of acme"), "{path}: {}", answer.text());
    }
    let again = send("/a2a/friday/acme/message:send", Some(&context), "again").await;
    assert!(again.text().contains("before: [secret of acme]"), "{}", again.text());
}
