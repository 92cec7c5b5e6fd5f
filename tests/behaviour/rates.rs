//! Rates, and what else is refused before anything begins: in the words of each protocol, the stricter of two limits
//! first, and counted on over a reload that does not change them.
//!
//! Not here: runs, queued turns, receivers and what is stored (`quotas.rs`).

use std::path::Path;

use serde_json::json;

use crate::support::agent::{text_reply, text_reply_until};
use crate::support::callers::{AUTH, key_of, write_keys};
use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, agent, user_turn};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::socket::Socket;
use crate::support::upstream::Upstream;

/// A gateway for Ann and Bob in this folder. `limits` are those of Ann.
async fn gateway(folder: &Path, limits: &str, rest: &str) -> Gateway {
    write_keys(folder, &["ann", "bob"]);
    let config = format!("{AUTH}[callers.ann]\nlimits = {{ {limits} }}\n[store]\nkind = \"memory\"\n{rest}");
    Gateway::in_folder(&config, folder.to_owned()).await
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn the_rate_of_a_caller_is_shared_by_all_protocols() {
    let folder = folder();
    let gateway = gateway(folder.path(), "rate = \"2/m\", burst = 1", &format!("{DEMO}{ROUTES}")).await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let first = ann.get("/v1/models").await;
    assert_eq!((first.status, first.header("ratelimit-policy")), (200, Some("\"requests\";q=1;w=30")));
    for protocol in ALL_PROTOCOLS {
        let (path, words) = (protocol.post(), protocol.facts().errors.rate);
        let refused = ann.open("POST", path, &[JSON[0], ("a2a-version", "1.0")], b"{}").await.response().await;
        assert_eq!(refused.status, 429, "{path}: {}", refused.text());
        let pause: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((1..=30).contains(&pause), "{path}: {pause}");
        assert!(refused.header("ratelimit").is_some_and(|limit| limit.starts_with("\"requests\";r=0;t=")), "{path}");
        let known = path.starts_with("/v1");
        assert_eq!(refused.header("x-ratelimit-remaining-requests"), known.then_some("0"), "{path}");
        assert!(refused.text().contains(words), "{path}: {}", refused.text());

        // Bob's requests are his own.
        let his = bob.open("POST", path, &[JSON[0], ("a2a-version", "1.0")], b"{}").await.response().await;
        assert_ne!(his.status, 429, "{path}: {}", his.text());
    }
}

#[tokio::test]
async fn the_stricter_of_the_caller_the_route_and_the_agent_counts() {
    // Requests before the one that is refused, by the bursts of caller, route and agent.
    for (caller, route, agent_burst, expected) in [(1, 5, 5, 1), (5, 1, 5, 1), (5, 5, 1, 1), (3, 2, 9, 2)] {
        let (folder, upstream) = (folder(), Upstream::always(text_reply(&["hi"])));
        let limits = |burst: u32| format!("rate = \"1/h\", burst = {burst}");
        let own = format!("limits = {{ {} }}", limits(agent_burst));
        let friday = agent("friday", &upstream.url("/process"), &own, "");
        let rest = format!("{friday}{ROUTE}limits = {{ {} }}\n", limits(route));
        let gateway = gateway(folder.path(), &limits(caller), &rest).await;
        let ann = gateway.as_caller("ann");
        let mut accepted = 0;
        let refused = loop {
            let answer = ann.post("/agents/friday/process", &user_turn("hi")).await;
            if answer.status != 200 {
                break answer;
            }
            accepted += 1;
            assert!(accepted < 10, "nothing is refused");
        };
        assert_eq!((refused.status, accepted), (429, expected), "{caller} {route} {agent_burst}: {}", refused.text());
        assert_eq!(upstream.requests().len(), expected, "the agent has not seen it");
        let pause: u64 = refused.header("retry-after").expect("a time").parse().expect("seconds");
        assert!((60..=3600).contains(&pause), "{pause}");
    }
}

#[tokio::test]
async fn answers_and_sockets_at_once_are_bounded_for_each_caller() {
    let (folder, upstream) = (folder(), Upstream::always(text_reply_until(&["hi"], "end")));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let responses = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";
    let gateway = gateway(folder.path(), "streams = 1, sockets = 1", &format!("{friday}{ROUTE}{responses}")).await;
    let (ann, bob) = (gateway.as_caller("ann"), gateway.as_caller("bob"));
    let mut stream = ann.start_turn("friday", &user_turn("hi")).await;
    stream.read_until("hi").await;
    let refused = ann.get("/v1/models").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("ratelimit-policy").is_some_and(|policy| policy.starts_with("\"streams\";q=1")));
    assert_eq!(bob.get("/v1/models").await.status, 200);
    upstream.open("end");
    assert_eq!(stream.response().await.status, 200);
    poll_until("the answer to be over", async || (ann.get("/v1/models").await.status == 200).then_some(())).await;

    let open = async |caller: &Gateway| Socket::try_open(caller.address, "/v1/responses", &caller.credentials()).await;
    let (status, socket) = open(&ann).await;
    assert_eq!((status, open(&ann).await.0, open(&bob).await.0), (101, 429, 101));
    drop(socket);
    poll_until("room for a socket", async || (open(&ann).await.0 == 101).then_some(())).await;
}

/// A configuration with an admin listener. `rate` and `route`: the rates of Ann, with a burst, and of her route.
fn write_config(folder: &Path, upstream: &Upstream, rate: (&str, u32), route: &str, description: &str) {
    let (rate, burst) = rate;
    let friday = agent("friday", &upstream.url("/process"), &format!("description = \"{description}\""), "");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n[admin]\n\
         listen = \"127.0.0.1:0\"\nconsole = false\n{AUTH}[callers.ann]\n\
         limits = {{ rate = \"{rate}\", burst = {burst}, tokens_per_day = 6 }}\n\
         {friday}{ROUTE}limits = {{ rate = \"{route}\", burst = 3 }}\n"
    );
    std::fs::write(folder.join("gateway.toml"), config).expect("a file");
}

#[tokio::test]
async fn a_reload_keeps_unchanged_counters() {
    // Three tokens a run.
    let (folder, upstream) = (folder(), Upstream::always(text_reply(&["hi"])));
    write_keys(folder.path(), &["ann", "bob"]);
    write_config(folder.path(), &upstream, ("100/h", 50), "10/h", "before");
    let process = Process::start(folder.path());
    let key = key_of("ann");
    let bobs = key_of("bob");
    let turn = async |key: &str| {
        let headers = [JSON[0], ("x-api-key", key)];
        let body = user_turn("hi").to_string();
        process.open("POST", "/agents/friday/process", &headers, body.as_bytes()).await.response().await
    };
    let reload = async || {
        let answer = process.operate("POST", "/api/reload", &[], b"").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };

    // Two of the three that the route lets through at once, and all tokens of Ann's day.
    assert_eq!([turn(&key).await.status, turn(&key).await.status], [200, 200]);
    write_config(folder.path(), &upstream, ("100/h", 50), "10/h", "after");
    reload().await;
    let refused = turn(&key).await;
    assert_eq!(refused.status, 429, "the third of the route: {}", refused.text());
    assert!(refused.text().contains("tokens"), "her tokens are spent: {}", refused.text());
    let refused = turn(&bobs).await;
    assert_eq!(refused.status, 429, "the route is exhausted: {}", refused.text());
    assert!(refused.text().contains("10/h"), "{}", refused.text());

    // A rate that is changed starts afresh.
    write_config(folder.path(), &upstream, ("100/h", 50), "11/h", "after");
    reload().await;
    assert_eq!(turn(&bobs).await.status, 200);

    // The rate of a caller, likewise.
    write_config(folder.path(), &upstream, ("1/h", 1), "12/h", "after");
    reload().await;
    let spent = async || turn(&key).await.text().to_owned();
    assert!(spent().await.contains("tokens"));
    assert!(spent().await.contains("1/h"));
    write_config(folder.path(), &upstream, ("1/h", 1), "12/h", "and again");
    reload().await;
    let still = spent().await;
    assert!(still.contains("1/h"), "{still}");
}

#[tokio::test]
async fn tokens_of_a_day_are_reported_in_the_headers_of_the_openai_api() {
    let (folder, upstream) = (folder(), Upstream::always(text_reply(&["hi"])));
    let friday = agent("friday", &upstream.url("/process"), "", "");
    let responses = "[[routes]]\nprotocol = \"responses\"\npath = \"/v1\"\n";
    let gateway = gateway(folder.path(), "tokens_per_day = 3", &format!("{friday}{responses}")).await;
    let ann = gateway.as_caller("ann");
    let ask = async || ann.post("/v1/responses", &json!({ "model": "friday", "input": "hi" })).await;
    assert_eq!(ask().await.status, 200);
    let refused = ask().await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("insufficient_quota")));
    assert_eq!(refused.header("x-ratelimit-limit-tokens"), Some("3"), "{:?}", refused.headers);
    assert_eq!(refused.header("x-ratelimit-remaining-tokens"), Some("0"));
    assert!(refused.header("x-ratelimit-reset-tokens").is_some_and(|reset| reset.ends_with('s')));
}
