//! The caller's identity for agents, and the separation of both sides: headers of callers, headers of agents, paths
//! beside an agent's own.
//!
//! Not here: headers that are forwarded by name ([`super::forwarding`]), and the claims of a token for each kind of
//! caller (`crates/base/src/identity.rs`).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::support::agent::{text_reply, text_reply_then_hang};
use crate::support::callers::{AUTH, write_keys};
use crate::support::gateway::{Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES};
use crate::support::poll_until;
use crate::support::process::run;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream};

const CALLER: &str = "x-interlingua-caller";
const TOKEN: &str = "x-interlingua-identity";
/// A client that says itself who it is.
const FORGED: [(&str, &str); 3] =
    [("content-type", "application/json"), (CALLER, "forged-caller"), (TOKEN, "forged.token.here")];

fn header<'r>(request: &'r ReceivedRequest, name: &str) -> Option<&'r str> {
    request.headers.get(name).map(String::as_str)
}

fn folder_of(callers: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write_keys(folder.path(), callers);
    folder
}

/// With keys for these agents, and a second route without any, at `/open`.
fn config(agents: &str) -> String {
    let open = "[[routes]]\nprotocol = \"agent-api\"\npath = \"/open/{agent}\"\nauth = \"none\"\n";
    format!("[store]\nkind = \"memory\"\n{AUTH}{agents}{ROUTE}{open}")
}

async fn run_of(gateway: &Gateway, path: &str) -> u16 {
    let body = user_turn("hi").to_string();
    gateway.open("POST", path, &FORGED, body.as_bytes()).await.response().await.status
}

#[tokio::test]
async fn an_agent_gets_an_id_of_the_caller_that_no_other_agent_gets() {
    let agents = [(); 2].map(|()| Upstream::always(text_reply(&["hi"])));
    let folder = folder_of(&["ada", "bob"]);
    let derived = "identity = \"derived\"";
    let source = config(
        &(agent("one", &agents[0].url("/process"), "", derived)
            + &agent("two", &agents[1].url("/process"), "", derived)
            + &agent("silent", &agents[1].url("/silent"), "", "")),
    );
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    for caller in ["ada", "ada", "bob"] {
        let known = gateway.as_caller(caller);
        for name in ["one", "two", "silent"] {
            assert_eq!(run_of(&known, &format!("/agents/{name}/process")).await, 200);
        }
    }
    assert_eq!(run_of(&gateway, "/open/one/process").await, 200);

    let of = |upstream: &Upstream, path: &str| -> Vec<Option<String>> {
        let requests = upstream.requests();
        let mine = requests.iter().filter(|request| request.path == path);
        mine.map(|request| header(request, CALLER).map(str::to_owned)).collect()
    };
    let (one, two) = (of(&agents[0], "/process"), of(&agents[1], "/process"));
    assert_eq!(of(&agents[1], "/silent"), [None, None, None], "by default agents learn nothing");
    assert_eq!((one.len(), one[0] == one[1], one[0] == one[2]), (4, true, false), "{one:?}");
    assert_eq!(one[3], None, "no one in particular");
    assert!(one.iter().zip(&two).all(|(one, two)| one != two), "{one:?} {two:?}");
    let ids = one.iter().take(3).chain(&two).flatten();
    assert!(ids.clone().all(|id| uuid::Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 8)));
    assert_eq!(ids.count(), 6);
    for request in agents.iter().flat_map(Upstream::requests) {
        assert_eq!(header(&request, TOKEN), None);
        assert!(!format!("{request:?}").contains("forged"), "{request:?}");
    }
}

/// The parts of a token whose signature fits one of the keys.
fn verified(token: &str, keys: &Value) -> (Value, Value) {
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).expect("Base64");
    let (signed, signature) = token.rsplit_once('.').expect("three parts");
    let (head, body) = signed.split_once('.').expect("three parts");
    let parse = |text: &str| -> Value { serde_json::from_slice(&decode(text)).expect("JSON") };
    let (head, body) = (parse(head), parse(body));

    let keys = keys["keys"].as_array().expect("a set of keys");
    let key = keys.iter().find(|key| key["kid"] == head["kid"]).expect("the key is in the set");
    assert_eq!(key["alg"], head["alg"]);
    let number = |name: &str| decode(key[name].as_str().expect(name));
    let signature = decode(signature);
    let fits = match key["alg"].as_str() {
        Some("ES256") => {
            let point = [vec![4], number("x"), number("y")].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed.as_bytes(), &signature)
        }
        _ => UnparsedPublicKey::new(&ED25519, number("x")).verify(signed.as_bytes(), &signature),
    };
    fits.expect("the signature fits");
    (head, body)
}

#[tokio::test]
async fn an_agent_gets_a_fresh_token_with_each_request() {
    let mut taken = 0;
    let upstream = Upstream::with_handler(move |_| {
        taken += 1;
        // The first request is sent again.
        if taken == 1 { Reply::complete(503, &[], "starting") } else { text_reply(&["hi"]) }
    });
    let folder = folder_of(&["ada"]);
    let own = |key: &str| format!("identity = \"jwt\"\nidentity_key = {{ file = \"{key}.pem\" }}");
    for (name, algorithm) in [("es", &PKCS_ECDSA_P256_SHA256), ("ed", &PKCS_ED25519)] {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        std::fs::write(folder.path().join(format!("{name}.pem")), key.serialize_pem()).expect("a file");
    }
    let url = upstream.url("/process");
    let source = config(&(agent("es", &url, "", &own("es")) + &agent("ed", &url, "", &own("ed"))));
    let source = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\npublic_url = \"http://gateway.example\"\ndrain = \"1ms\"\n{source}"
    );
    std::fs::write(folder.path().join("gateway.toml"), &source).expect("a file");
    let gateway = Gateway::in_folder(&source, folder.path().to_owned()).await;
    for name in ["es", "ed"] {
        assert_eq!(run_of(&gateway.as_caller("ada"), &format!("/agents/{name}/process")).await, 200);
    }
    assert_eq!(run_of(&gateway, "/open/es/process").await, 200);

    let printed = |arguments: &[&str]| -> Value {
        let output = run(folder.path(), arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let keys = printed(&["key", "public"]);
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(2));
    assert_eq!(printed(&["key", "public", "es"])["keys"], json!([keys["keys"][0]]));
    assert!(!keys.to_string().contains("\"d\""), "the private half stays: {keys}");
    assert_eq!(run(folder.path(), &["key", "public", "other"]).status.code(), Some(1));

    let requests = upstream.requests();
    assert_eq!(requests.len(), 4);
    let tokens = requests[..3].iter().map(|one| verified(header(one, TOKEN).expect("a token"), &keys));
    let tokens: Vec<(Value, Value)> = tokens.collect();
    assert_eq!((&tokens[0].0["alg"], &tokens[2].0["alg"]), (&json!("ES256"), &json!("EdDSA")));
    for (at, (_, body)) in tokens.iter().enumerate() {
        let agent = if at < 2 { "es" } else { "ed" };
        let expected = ("http://gateway.example", agent, "ada", "key");
        let text = |name: &str| body[name].as_str().unwrap_or_default();
        assert_eq!((text("iss"), text("aud"), text("name"), text("caller_kind")), expected, "{body}");
        let time = |name: &str| body[name].as_u64().expect(name);
        assert_eq!(time("exp"), time("iat") + 60);
        let now = jiff::Timestamp::now().as_second();
        assert!(now.abs_diff(i64::try_from(time("iat")).expect("a time")) < 60, "{body}");
    }
    let claim = |at: usize, name: &str| tokens[at].1[name].clone();
    assert!(claim(0, "jti") != claim(1, "jti") && claim(1, "jti") != claim(2, "jti"), "a retry gets one of its own");
    assert_eq!(claim(0, "sub"), claim(1, "sub"));
    assert_ne!(claim(0, "sub"), claim(2, "sub"), "each agent gets another id");
    assert_eq!(header(&requests[3], TOKEN), None, "no one in particular");
}

#[tokio::test]
async fn every_connector_says_who_calls_and_only_to_the_agents_own_origin() {
    let upstream = Upstream::with_handler(|request| match request.path.as_str() {
        "/native" => text_reply_then_hang(&["so far"]),
        _ => Reply::complete(404, &[("content-type", "application/json")], "{}"),
    });
    let elsewhere = Upstream::always(Reply::complete(200, &[("content-type", "application/json")], "{}"));
    let folder = folder_of(&["ada"]);
    let foreign = format!("identity = \"derived\"\noptions = {{ stop_url = \"{}\" }}", elsewhere.url("/stop"));
    let own = "identity = \"derived\"\noptions = { stop_url = \"/stop\" }";
    let other = |name: &str, protocol: &str| {
        let url = upstream.url(&format!("/{name}"));
        format!("[agents.{name}.upstream]\nprotocol = \"{protocol}\"\nurl = \"{url}\"\nidentity = \"derived\"\n")
    };
    let agents = agent("native", &upstream.url("/native"), "", own)
        + &agent("foreign", &upstream.url("/native"), "", &foreign)
        + &other("chat", "chat-completions")
        + &other("partner", "a2a");
    let everyone = Gateway::in_folder(&config(&agents), folder.path().to_owned()).await;
    let gateway = everyone.as_caller("ada");
    for name in ["native", "foreign"] {
        let mut stream = gateway.start_turn(name, &user_turn("hi")).await;
        stream.read_until("so far").await;
    }
    for name in ["chat", "partner"] {
        gateway.post(&format!("/agents/{name}/process"), &user_turn("hi")).await;
    }
    let is_stopped = |agent: &Upstream| agent.requests().iter().any(|request| request.path == "/stop");
    poll_until("both are stopped", async || (is_stopped(&upstream) && is_stopped(&elsewhere)).then_some(())).await;
    for request in elsewhere.requests() {
        assert_eq!(header(&request, CALLER), None, "another origin learns nothing");
    }
    let requests = upstream.requests();
    for path in ["/native", "/stop", "/chat", "/partner"] {
        assert!(requests.iter().any(|request| request.path.starts_with(path)), "{path}: {requests:#?}");
    }
    for request in requests.iter().filter(|request| !request.path.contains(".well-known")) {
        assert!(header(request, CALLER).is_some(), "{request:?}");
    }
}

#[tokio::test]
async fn no_header_of_an_agent_reaches_a_client() {
    let reply = || {
        let headers = [
            ("content-type", "text/event-stream"),
            ("set-cookie", "session=of-the-agent"),
            ("server", "agent-server/1.0"),
            ("x-admin", "agent-admin"),
            ("via", "agent-via"),
            ("www-authenticate", "Bearer realm=\"agent-realm\""),
            ("access-control-allow-origin", "https://agent-origin.example"),
            ("keep-alive", "timeout=4711"),
            ("connection", "x-admin, keep-alive"),
            ("trailer", "x-agent-trailer"),
        ];
        let frames = crate::support::agent::frames(&["hi"]);
        frames.iter().fold(Reply::head(200, &headers), |reply, frame| reply.frame(frame)).done()
    };
    let refusal = Reply::complete(401, &[("www-authenticate", "Bearer realm=\"agent-realm\"")], "no");
    for (upstream, is_refused) in [(Upstream::always(reply()), false), (Upstream::always(refusal), true)] {
        let agents = agent("demo", &upstream.url("/process"), "", "");
        let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agents}{ROUTES}")).await;
        for client in ALL_PROTOCOLS {
            let answer = client.say(&gateway, &format!("of-{}", client.name()), "hi", None).await;
            let head = format!("{:?}", answer.headers);
            for text in ["of-the-agent", "agent-", "timeout=4711", "x-admin"] {
                assert!(!head.contains(text), "{client:?} passes {text} on: {head}");
            }
            for name in ["trailer", "via"] {
                assert!(answer.header(name).is_none(), "{client:?} passes {name} on: {head}");
            }
            assert_ne!(answer.status, 401, "{client:?}: the caller's credentials are not wrong");
            assert!(is_refused || answer.text().contains("hi"), "{client:?}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn no_name_of_a_client_becomes_a_path_of_the_agent() {
    let upstream = Upstream::with_handler(|request| match request.path.as_str() {
        "/base/process" | "/base/stop" => text_reply(&["hi"]),
        _ => Reply::complete(200, &[("content-type", "application/json")], "{\"admin\":true}"),
    });
    let agents = agent("demo", &upstream.url("/base/process"), "", "options = { stop_url = \"/base/stop\" }");
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{agents}{ROUTES}")).await;
    let hostile = ["../admin", "..%2fadmin", "/admin", "//evil.example/admin", "%2e%2e/shutdown", "a\r\nGET /admin"];
    for name in hostile {
        for client in ALL_PROTOCOLS {
            client.say(&gateway, name, "hi", None).await;
        }
        let mut body = user_turn_in(name, "hi");
        body["user_id"] = name.into();
        body["id"] = name.into();
        gateway.post("/agents/demo/process", &body).await;
    }
    for path in
        ["admin", "shutdown", "../admin", "%2e%2e/admin", "..;/admin", "process/../admin", "process%2f..%2fadmin"]
    {
        for method in ["GET", "POST", "DELETE"] {
            gateway.open(method, &format!("/agents/demo/{path}"), &FORGED, b"{}").await.response().await;
            gateway.open(method, &format!("/a2a/demo/tasks/{path}"), &FORGED, b"{}").await.response().await;
            gateway.open(method, &format!("/v1/responses/{path}"), &FORGED, b"{}").await.response().await;
        }
    }
    let mut paths: Vec<String> = upstream.requests().into_iter().map(|request| request.path).collect();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths, ["/base/process"]);
}
