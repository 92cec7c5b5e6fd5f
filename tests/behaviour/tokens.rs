//! Tokens of issuers, and names in certificates: admission over every protocol, and a missing issuer. The table of bad
//! tokens is in `crates/callers/src/jwt/tests.rs`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::callers::comparable;
use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn};
use crate::support::http::Response;
use crate::support::issuer::{Answers, Issuer};
use crate::support::pairs::{ROUTES, posts};
use crate::support::poll_until;

/// A route of every protocol for the demo agent, with an extended card.
fn routes() -> String {
    let card = "options = { extended_card = { description = \"for those who are known\" } }";
    ROUTES.replace("protocol = \"a2a\"\n", &format!("protocol = \"a2a\"\n{card}\n"))
}

/// An operation of every protocol that answers 200 to allowed callers.
const READS: [&str; 3] = ["/agents/demo/runs", "/v1/models", "/a2a/demo/tasks"];

async fn gateway(issuer: &Issuer, more: &str) -> Gateway {
    let auth = format!("[auth]\njwt = [{}]\n", issuer.settings(""));
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{auth}{more}{DEMO}{}", routes())).await
}

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Response {
    gateway.open("GET", path, headers, b"").await.response().await
}

async fn with_token(gateway: &Gateway, path: &str, token: &str) -> Response {
    let bearer = format!("Bearer {token}");
    get(gateway, path, &[("authorization", &bearer), ("a2a-version", "1.0")]).await
}

async fn post(gateway: &Gateway, path: &str, token: &str, body: &Value) -> Response {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json"), ("a2a-version", "1.0")];
    gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.response().await
}

#[tokio::test]
async fn a_token_lets_its_caller_in_over_every_protocol() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    let token = issuer.token("ann");
    for path in READS {
        let response = with_token(&gateway, path, &token).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
    }
    for path in posts() {
        let response = post(&gateway, path, &token, &json!({})).await;
        assert!(![401, 403, 404].contains(&response.status), "{path}: {} {}", response.status, response.text());
    }
    assert_eq!(issuer.asked(), 1, "the keys were read once");
}

#[tokio::test]
async fn every_invalid_token_gets_the_same_answer() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    let good = issuer.token("ann");
    let other = Issuer::start().await;
    let (head, rest) = good.split_once('.').expect("a token");
    let wrong = [
        other.token("ann"),
        other.token_with("ann", &json!({ "iss": issuer.url })),
        issuer.token_with("ann", &json!({ "aud": "others" })),
        issuer.token_with("ann", &json!({ "exp": 1000 })),
        issuer.token_with("ann", &json!({ "exp": null })),
        issuer.token_with("", &json!({})),
        format!("{}.{rest}", head.replace('e', "f")),
        format!("{good}x"),
        "il_abcdefghijkl_".to_owned() + &"0".repeat(64),
        "none".to_owned(),
    ];
    for path in posts() {
        let reference = gateway.post(path, &json!({})).await;
        assert_eq!(reference.status, 401, "{path}: {}", reference.text());
        let scheme = reference.header("www-authenticate").expect("a scheme");
        assert!(scheme.starts_with("Bearer"), "{scheme}");
        // Failures are limited by address: not every pair fits.
        let count = if path == posts()[0] { wrong.len() } else { 3 };
        for token in &wrong[..count] {
            let mut refused = post(&gateway, path, token, &json!({})).await;
            // A challenge may say that there was a token (RFC 6750), and nothing about it.
            for (_, value) in refused.headers.iter_mut().filter(|(name, _)| name == "www-authenticate") {
                *value = value.replace(", error=\"invalid_token\"", "");
            }
            assert_eq!(comparable(&refused), comparable(&reference), "{path} {token}");
        }
    }

    for headers in [
        vec![("x-api-key", good.as_str())],
        vec![("authorization", good.as_str())],
        vec![("authorization", "Basic YW5uOmFubg==")],
    ] {
        assert_eq!(get(&gateway, READS[0], &headers).await.status, 401, "{headers:?}");
    }
    let bearer = format!("Bearer {good}");
    let twice = [("authorization", bearer.as_str()), ("authorization", bearer.as_str())];
    assert_eq!(get(&gateway, READS[0], &twice).await.status, 401, "two are refused, even if both are right");
    let both = [("authorization", bearer.as_str()), ("x-api-key", good.as_str())];
    assert_eq!(get(&gateway, READS[0], &both).await.status, 401);
    let query = format!("{}?access_token={good}&token={good}", READS[0]);
    assert_eq!(gateway.get(&query).await.status, 401, "queries are never read");
}

#[tokio::test]
async fn callers_of_other_issuers_and_names_are_others() {
    let (one, two) = (Issuer::start().await, Issuer::start().await);
    let auth = format!("[auth]\njwt = [{}, {}]\n", one.settings(""), two.settings(""));
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{auth}{DEMO}{}", routes())).await;
    let made = post(&gateway, "/v1/responses", &one.token("ann"), &json!({ "model": "demo", "input": "hello" })).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let path = format!("/v1/responses/{}", made.json()["id"].as_str().expect("an id"));

    assert_eq!(with_token(&gateway, &path, &one.token("ann")).await.status, 200);
    for token in [one.token("bob"), two.token("ann"), one.token("ann/"), one.token("ann\u{1d}")] {
        let response = with_token(&gateway, &path, &token).await;
        assert_eq!(response.status, 404, "{}", response.text());
    }
}

#[tokio::test]
async fn scopes_select_the_rights_of_a_caller() {
    let issuer = Issuer::start().await;
    let callers = "[callers.default]\nagents = []\n[callers.runners]\nscopes = [\"run\", \"read\"]\nagents = [\"demo\"]\n\
                   [callers.ann]\nagents = [\"demo\"]\nprotocols = [\"responses\"]\n";
    let gateway = gateway(&issuer, callers).await;
    let bob = |scopes: Value| issuer.token_with("bob", &json!({ "scope": scopes }));
    for (token, path, status) in [
        (issuer.token("ann"), "/v1/models", 200),
        (issuer.token("ann"), "/agents/demo/runs", 403),
        (issuer.token("bob"), "/agents/demo/runs", 403),
        (bob(json!("read run more")), "/agents/demo/runs", 200),
        (bob(json!(["run", "read"])), "/agents/demo/runs", 200),
        (bob(json!("run")), "/agents/demo/runs", 403),
        (bob(json!("runread")), "/agents/demo/runs", 403),
        // These tables are for everyone else.
        (issuer.token("default"), "/agents/demo/runs", 403),
        (issuer.token("runners"), "/agents/demo/runs", 403),
    ] {
        let response = with_token(&gateway, path, &token).await;
        assert_eq!(response.status, status, "{path}: {}", response.text());
    }
}

#[tokio::test]
async fn an_unreachable_issuer_authenticates_no_caller() {
    for answers in [Answers::Failing, Answers::Elsewhere, Answers::TooMuch, Answers::Html, Answers::Never] {
        let issuer = Issuer::start().await;
        issuer.answer(answers);
        let gateway = gateway(&issuer, "").await;
        let began = Instant::now();
        let response = with_token(&gateway, READS[0], &issuer.token("ann")).await;
        assert_eq!(response.status, 503, "{answers:?}: {}", response.text());
        assert!(response.header("retry-after").is_some(), "{answers:?}");
        assert!(began.elapsed() < Duration::from_secs(7), "{answers:?}: {:?}", began.elapsed());

        // No one waits again before the next attempt.
        let began = Instant::now();
        assert_eq!(with_token(&gateway, READS[0], &issuer.token("ann")).await.status, 503, "{answers:?}");
        assert!(began.elapsed() < Duration::from_secs(1), "{answers:?}: {:?}", began.elapsed());
        assert_eq!(gateway.get(READS[0]).await.status, 401, "without a token the issuer does not matter");
    }
}

#[tokio::test]
async fn keys_survive_an_outage_and_unknown_ones_cause_one_request() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    assert_eq!(with_token(&gateway, READS[0], &issuer.token("ann")).await.status, 200);

    issuer.answer(Answers::Failing);
    assert_eq!(with_token(&gateway, READS[0], &issuer.token("bob")).await.status, 200, "the keys are known");

    issuer.answer(Answers::Well);
    issuer.rotate(true);
    for _ in 0..20 {
        let response = with_token(&gateway, READS[0], &issuer.token("ann")).await;
        assert_eq!(response.status, 401, "{}", response.text());
    }
    assert_eq!(issuer.asked(), 1, "the keys were read less than 30 seconds ago");
}

#[tokio::test]
async fn a_token_ends_when_its_time_is_over() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    let token = issuer.token_for("ann", 3);
    assert_eq!(with_token(&gateway, READS[0], &token).await.status, 200);
    let refused = poll_until("the token to expire", async || {
        let response = with_token(&gateway, READS[0], &token).await;
        (response.status != 200).then_some(response.status)
    });
    assert_eq!(refused.await, 401);
}

#[tokio::test]
async fn streams_end_with_the_token_if_the_gateway_is_configured_so() {
    for (revoke, completed) in [(true, false), (false, true)] {
        let issuer = Issuer::start().await;
        let auth = format!("[auth]\nrevoke_streams = {revoke}\njwt = [{}]\n", issuer.settings(""));
        let demo = "[agents.demo]\nupstream = { protocol = \"demo\", options = { pace_ms = 50 } }\n";
        let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{auth}{demo}{ROUTE}")).await;
        let bearer = format!("Bearer {}", issuer.token_for("ann", 3));
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = user_turn("long 100 50").to_string();
        let mut stream = gateway.open("POST", "/agents/demo/process", &headers, body.as_bytes()).await;
        assert_eq!(stream.status().await, 200);
        let frames = stream.frames().await;
        let last = frames.last().expect("a frame");
        assert_eq!(last["status"] == "completed", completed, "{last}");
        if revoke {
            assert!(last.to_string().contains("AUTH_FAILED"), "the stream ends in its protocol: {last}");
        }
    }
}

#[tokio::test]
async fn cards_say_how_to_get_in_and_the_extended_one_needs_it() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    let card = get(&gateway, "/a2a/demo/.well-known/agent-card.json", &[("a2a-version", "1.0")]).await;
    assert_eq!(card.status, 200, "the card itself is public");
    let schemes = &card.json()["securitySchemes"];
    assert_eq!(schemes["bearer"]["httpAuthSecurityScheme"], json!({ "scheme": "bearer", "bearerFormat": "JWT" }));
    let discovery = format!("{}/.well-known/openid-configuration", issuer.url);
    assert_eq!(schemes["oidc"]["openIdConnectSecurityScheme"]["openIdConnectUrl"], discovery);
    assert!(schemes["apiKey"].is_null(), "{schemes}");

    let extended = "/a2a/demo/extendedAgentCard";
    assert_eq!(get(&gateway, extended, &[("a2a-version", "1.0")]).await.status, 401);
    let card = with_token(&gateway, extended, &issuer.token("ann")).await;
    assert_eq!((card.status, &card.json()["description"]), (200, &json!("for those who are known")));
}

/// Behind a proxy that has verified the certificate.
#[tokio::test]
async fn a_trusted_proxy_passes_on_the_name_in_a_certificate() {
    let config = |proxies: &str| {
        format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\ntrusted_proxies = [\"{proxies}\"]\n\
             [store]\nkind = \"memory\"\n\
             [auth]\ncertificates = {{ caller = \"san_uri\", header = \"x-client-san\" }}\n\
             [callers.\"spiffe://example/guest\"]\nagents = []\n{DEMO}{}",
            routes()
        )
    };
    let gateway = Gateway::with_config(&config("127.0.0.1")).await;
    let name = "spiffe://example/ann";
    assert_eq!(get(&gateway, READS[0], &[("x-client-san", name)]).await.status, 200);
    assert_eq!(get(&gateway, READS[0], &[("x-client-san", "spiffe://example/guest")]).await.status, 403);
    let long = "s".repeat(513);
    for headers in [
        vec![],
        vec![("x-client-san", "")],
        vec![("x-client-san", name), ("x-client-san", name)],
        vec![("x-client-san", "spiffe://example/ann, spiffe://example/bob")],
        vec![("x-client-san", long.as_str())],
        vec![("x-client-san", name), ("x-api-key", "none")],
    ] {
        assert_eq!(get(&gateway, READS[0], &headers).await.status, 401, "{headers:?}");
    }

    let far = Gateway::with_config(&config("10.0.0.1")).await;
    assert_eq!(
        get(&far, READS[0], &[("x-client-san", name)]).await.status,
        401,
        "anyone else may write what they want"
    );
}

#[tokio::test]
async fn valid_tokens_pass_among_wrong_credentials_of_the_same_address() {
    let issuer = Issuer::start().await;
    let gateway = gateway(&issuer, "").await;
    let key = format!("il_abcdefghijkl_{}", "0".repeat(64));
    let mut limited = 0;
    for number in 0..80 {
        let refused = get(&gateway, READS[0], &[("x-api-key", &key)]).await;
        limited += u32::from(refused.status == 429);
        let (one, other) = (issuer.token("ann"), issuer.token(&format!("eve{number}")));
        let (one, other) = (one.rsplit_once('.').expect("a token"), other.rsplit_once('.').expect("a token"));
        let forged = with_token(&gateway, READS[0], &format!("{}.{}", other.0, one.1)).await;
        limited += u32::from(forged.status == 429);
        assert!([401, 429].contains(&forged.status), "{}", forged.status);
    }
    assert!(limited > 0, "wrong credentials are slowed down");

    for number in 0..40 {
        let response = with_token(&gateway, READS[0], &issuer.token(&format!("caller{number}"))).await;
        assert_eq!(response.status, 200, "{number}: {}", response.text());
    }
}

#[tokio::test]
async fn a_table_for_keys_gives_no_rights_to_a_token_of_the_same_name() {
    let issuer = Issuer::start().await;
    let tables = "[callers.ann]\nkind = \"keys\"\n[callers.bob]\nkind = \"jwt\"\n[callers.default]\nagents = []\n";
    let gateway = gateway(&issuer, tables).await;
    let status = async |name: &str| {
        let body = user_turn("hello");
        post(&gateway, "/agents/demo/process", &issuer.token(name), &body).await.status
    };
    assert_eq!((status("ann").await, status("bob").await, status("eve").await), (403, 200, 403));
}
