//! What a web page that somebody opens can do with a gateway on their machine: nothing, unless a route lists its origin.
//!
//! The requests are those a page can have its browser send without asking first (Fetch standard, «CORS-safelisted»):
//! fetches with simple types, forms, links, pictures, frames, WebSockets, and all of them under a name that was made to
//! point here. Not here: hosts and heads that no browser writes (`heads.rs`).

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, ROUTE, says};
use crate::support::http::{Answer, Exchange, request};

/// What every question needs, whatever its protocol.
const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("a2a-version", "1.0")];
const EVIL: (&str, &str) = ("origin", "https://evil.example");
const FOREIGN: (&str, &str) = ("sec-fetch-site", "cross-site");

/// Every protocol, as the shipped file mounts them; further lines of each route.
fn routes(own: &str) -> String {
    let route =
        |protocol: &str, path: &str| format!("[[routes]]\nprotocol = \"{protocol}\"\npath = \"{path}\"\n{own}\n");
    ["agent-api /agents/{agent}", "responses /v1", "a2a /a2a/{agent}", "ag-kit /ag-kit/{agent}", "hitl /hitl/{agent}"]
        .iter()
        .filter_map(|line| line.split_once(' '))
        .map(|(protocol, path)| route(protocol, path))
        .collect()
}

/// A gateway with every protocol and the hosts of a fresh file.
async fn gateway(own: &str) -> Gateway {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n# allowed_hosts: none are listed\n";
    Gateway::with(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{}", routes(own))).await
}

/// What can be asked by `POST`, with a body that is right.
fn questions() -> Vec<(&'static str, String)> {
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } } });
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } });
    vec![
        ("/agents/demo/process", says("hi").to_string()),
        ("/v1/responses", json!({ "model": "demo", "input": "hi" }).to_string()),
        ("/v1/conversations", json!({}).to_string()),
        ("/a2a/demo", rpc.to_string()),
        ("/a2a/demo/message:send", message.to_string()),
        (
            "/ag-kit/demo/send-message",
            json!({ "conversationId": "c", "messages": [{ "role": "user", "content": "hi" }] }).to_string(),
        ),
        ("/hitl/demo/agent/invoke", json!({ "user_id": "ada", "query": "hi" }).to_string()),
    ]
}

/// What can be read.
const READS: &[&str] = &[
    "/agents/demo/runs",
    "/v1/models",
    "/a2a/demo/tasks",
    "/a2a/demo/.well-known/agent-card.json",
    "/.well-known/agent-card.json",
    "/hitl/demo/agent/status/ada",
    "/ag-kit/demo/healthz",
    "/healthz",
    "/readyz",
    "/nowhere",
    "/agents/demo/nothing",
];

fn handshake(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    request("GET", path, &[&upgrade[..], headers].concat(), b"")
}

fn is_refused(answer: &Answer) -> bool {
    // JSON-RPC tells of a wrong type with 200, as its page has it.
    answer.status >= 400 || answer.text().contains("-32005")
}

fn refused(what: &str, answer: &Answer) {
    assert!(is_refused(answer), "{what}: {} {}", answer.status, answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), None, "{what}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{what}");
}

#[tokio::test]
async fn a_page_of_another_origin_can_neither_ask_nor_read_nor_open_a_socket() {
    let gateway = gateway("").await;

    // Fetches and forms: with the origin that browsers add, without one, and with none.
    for (path, body) in questions() {
        for media in [
            "text/plain",
            "text/plain;charset=UTF-8",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ] {
            let simple: Vec<(&str, &str)> = if media.is_empty() { Vec::new() } else { vec![("content-type", media)] };
            for page in [&[EVIL][..], &[("origin", "null")], &[FOREIGN], &[("sec-fetch-site", "same-site")], &[]] {
                let headers = [&simple[..], page].concat();
                let answer = gateway.open("POST", path, &headers, body.as_bytes()).await.answer().await;
                refused(&format!("POST {path} {headers:?}"), &answer);
            }
        }
        // Even as JSON, which takes a preflight: it is refused as well.
        for page in
            [EVIL, ("origin", "null"), ("origin", "http://localhost:3000"), ("origin", "http://localhost.evil.example")]
        {
            let answer = gateway.open("POST", path, &[JSON[0], JSON[1], page], body.as_bytes()).await.answer().await;
            assert_eq!(answer.status, 403, "POST {path} {page:?}: {}", answer.text());
            let asks =
                [page, ("access-control-request-method", "POST"), ("access-control-request-headers", "content-type")];
            let preflight = gateway.open("OPTIONS", path, &asks, b"").await.answer().await;
            refused(&format!("OPTIONS {path} {page:?}"), &preflight);
        }
    }

    // Fetches, pictures, scripts and frames.
    for path in READS {
        for page in [EVIL, ("origin", "null"), ("origin", "chrome-extension://abc")] {
            let answer = gateway.open("GET", path, &[page], b"").await.answer().await;
            assert_eq!(answer.status, 403, "GET {path} {page:?}: {}", answer.text());
            refused(path, &answer);
        }
        if path.ends_with("healthz") || path.ends_with("readyz") {
            continue;
        }
        let picture = gateway.open("GET", path, &[FOREIGN, ("sec-fetch-dest", "image")], b"").await.answer().await;
        assert_eq!(picture.status, 403, "GET {path}: {}", picture.text());
    }
    for method in ["DELETE", "PUT", "PATCH"] {
        let answer = gateway.open(method, "/agents/demo/runs/x", &[EVIL], b"").await.answer().await;
        refused(method, &answer);
    }

    // Sockets.
    for page in [EVIL, ("origin", "null"), ("origin", "http://localhost:3000")] {
        let bytes = handshake("/v1/responses", &[page]);
        let answer = Exchange::send(gateway.address, &bytes).await.answer().await;
        assert_eq!(answer.status, 403, "{page:?}: {}", answer.text());
    }

    // Nothing of all that began anything.
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn a_name_that_was_made_to_point_here_reaches_nothing() {
    let gateway = gateway("").await;
    let under = async |head: &str, rest: &str| {
        let bytes = format!("{head} HTTP/1.1\r\n{rest}\r\n");
        Exchange::send(gateway.address, bytes.as_bytes()).await.answer().await
    };
    // A page of such a name is of the same origin: its browser says nothing that would give it away but the name.
    for host in [
        "rebound.evil.example",
        "rebound.evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.5",
    ] {
        for path in READS {
            let answer =
                under(&format!("GET {path}"), &format!("host: {host}\r\nsec-fetch-site: same-origin\r\n")).await;
            if host == "10.0.0.5" && (path.starts_with("/healthz") || path.starts_with("/readyz")) {
                assert_eq!(answer.status, 200, "a probe asks for the address of its container");
                continue;
            }
            assert_eq!(answer.status, 421, "{host} {path}: {}", answer.text());
        }
        for (path, body) in questions() {
            let rest = format!(
                "host: {host}\r\norigin: http://{host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            );
            let answer = under(&format!("POST {path}"), &rest).await;
            assert_eq!(answer.status, 421, "{host} {path}: {}", answer.text());
        }
        let socket = format!(
            "host: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        assert_eq!(under("GET /v1/responses", &socket).await.status, 421, "{host}");
    }
    for host in ["localhost", "LOCALHOST:1", "app.localhost", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(under("GET /v1/models", &format!("host: {host}\r\n")).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn refusals_speak_the_protocol_of_their_route() {
    let gateway = gateway("").await;
    for (path, body) in questions() {
        let answer = gateway.open("POST", path, &[JSON[0], JSON[1], EVIL], body.as_bytes()).await.answer().await.json();
        let said = match path.split('/').nth(1) {
            Some("agents") => (answer["code"].clone(), json!("PERMISSION_DENIED")),
            Some("v1") => (answer["error"]["type"].clone(), json!("permission_error")),
            Some("a2a") if path.ends_with("send") => (answer["error"]["code"].clone(), json!(403)),
            Some("a2a") => (answer["error"]["code"].clone(), json!(-32011)),
            Some("ag-kit") => (answer["error"]["code"].clone(), json!("permission_denied")),
            _ => (answer["detail"].clone(), json!("web pages of the origin 'https://evil.example' may not use this")),
        };
        assert_eq!(said.0, said.1, "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_page_of_the_gateway_itself_and_a_client_that_is_no_browser_are_served() {
    let gateway = gateway("").await;
    let port = gateway.address.port();
    let own = format!("http://localhost:{port}");
    for (path, body) in questions() {
        let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.answer().await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let bytes = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost:{port}\r\norigin: {own}\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json; charset=utf-8\r\na2a-version: 1.0\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = Exchange::send(gateway.address, bytes.as_bytes()).await.answer().await;
        assert_ne!(answer.status, 403, "{path}: {}", answer.text());
    }
    // A link to a card is followed; typing an address into the browser is no page at all.
    let link = [FOREIGN, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let card = gateway.open("GET", "/a2a/demo/.well-known/agent-card.json", &link, b"").await.answer().await;
    assert_eq!(card.status, 200);
    let runs = gateway.open("GET", "/agents/demo/runs", &link, b"").await.answer().await;
    assert_eq!(runs.status, 403, "a link must not begin what costs something");
    let typed = gateway.open("GET", "/agents/demo/runs", &[("sec-fetch-site", "none")], b"").await.answer().await;
    assert_eq!(typed.status, 200);
    let socket = Exchange::send(gateway.address, &handshake("/v1/responses", &[])).await.status().await;
    assert_eq!(socket, 101);
}

#[tokio::test]
async fn a_listed_origin_may_use_every_protocol_and_no_other_may() {
    let gateway = gateway("cors = [\"https://app.example.com\", \"http://localhost:3000\"]").await;
    for origin in ["https://app.example.com", "http://localhost:3000"] {
        let page = ("origin", origin);
        for (path, body) in questions() {
            let asks = [
                page,
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "content-type,a2a-version"),
            ];
            let preflight = gateway.open("OPTIONS", path, &asks, b"").await.answer().await;
            assert_eq!(preflight.status, 204, "{path}: {}", preflight.text());
            assert_eq!(preflight.header("access-control-allow-origin"), Some(origin), "{path}");
            assert!(preflight.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
            let allowed = preflight.header("access-control-allow-headers").unwrap_or("");
            assert!(allowed.contains('*') || allowed.contains("content-type"), "{path}: {allowed}");
            let answer =
                gateway.open("POST", path, &[JSON[0], JSON[1], page, FOREIGN], body.as_bytes()).await.answer().await;
            assert!(answer.status == 200 || answer.status == 409, "{path}: {} {}", answer.status, answer.text());
            assert_eq!(answer.header("access-control-allow-origin"), Some(origin), "{path}");
            assert!(vary(&answer), "{path}: {:?}", answer.headers);
            // Complaints may be read too, but a body still needs its type.
            let typeless = gateway.open("POST", path, &[page], body.as_bytes()).await.answer().await;
            assert!(is_refused(&typeless), "{path}");
            assert_eq!(typeless.header("access-control-allow-origin"), Some(origin), "{path}");
        }
        let mut socket = Exchange::send(gateway.address, &handshake("/v1/responses", &[page])).await;
        assert_eq!(socket.status().await, 101);
    }
    let plain = gateway.get("/v1/models").await;
    assert!(plain.header("access-control-allow-origin").is_none() && vary(&plain), "caches must tell them apart");
    for page in [EVIL, ("origin", "null"), ("origin", "https://app.example.com.evil.example")] {
        let answer = gateway.open("GET", "/v1/models", &[page], b"").await.answer().await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None), "{page:?}");
    }
    let elsewhere = gateway.open("GET", "/healthz", &[("origin", "https://app.example.com")], b"").await.answer().await;
    assert_eq!(elsewhere.status, 403, "the gateway's own paths belong to no route");
}

fn vary(answer: &Answer) -> bool {
    let mut varies = answer.headers.iter().filter(|(name, _)| name == "vary");
    varies.any(|(_, value)| value.split(',').any(|name| name.trim().eq_ignore_ascii_case("origin")))
}

#[tokio::test]
async fn a_star_lets_every_page_in_also_as_the_option_of_a_protocol() {
    let option = format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTE}options = {{ cors = true }}\n");
    for gateway in [gateway("cors = [\"*\"]").await, Gateway::with(&option).await] {
        for page in [EVIL, ("origin", "null")] {
            let path = "/agents/demo/process";
            let asks = [page, ("access-control-request-method", "POST")];
            let preflight = gateway.open("OPTIONS", path, &asks, b"").await.answer().await;
            assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
            let answer = gateway
                .open("POST", path, &[JSON[0], JSON[1], page], says("hi").to_string().as_bytes())
                .await
                .answer()
                .await;
            assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("*")));
        }
    }
}
