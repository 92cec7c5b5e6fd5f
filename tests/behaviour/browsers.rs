//! Attacks of a web page on a gateway on the machine of its visitor: all fail, unless a route lists the page's origin.
//!
//! The requests are those that a page can send without a preflight (Fetch standard, «CORS-safelisted»): fetches with
//! simple content types, forms, links, images, frames, WebSockets, and all of them under a rebound DNS name. Not here:
//! hosts and heads that no browser sends (`heads.rs`).

use serde_json::json;

use crate::support::endpoints::endpoints;
use crate::support::gateway::{DEMO, Gateway, ROUTE, user_turn};
use crate::support::http::{Exchange, Response, request};
use crate::support::pairs::{ALL_PROTOCOLS, routes_with};

/// Headers that a request needs in every protocol.
const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("a2a-version", "1.0")];
const EVIL: (&str, &str) = ("origin", "https://evil.example");
const FOREIGN: (&str, &str) = ("sec-fetch-site", "cross-site");

/// A gateway with every protocol and the default allowed hosts. `own` is added to each route.
async fn gateway(own: &str) -> Gateway {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n# allowed_hosts: none are listed\n";
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{}", routes_with(own))).await
}

/// Paths that accept `POST`, each with a valid body.
fn posts() -> Vec<(&'static str, String)> {
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] } } });
    let turns = ALL_PROTOCOLS.map(|protocol| protocol.turn("s", "hi", false)).into_iter();
    let others = [("/v1/conversations", json!({}).to_string()), ("/a2a/demo", rpc.to_string())];
    turns.map(|turn| (turn.path, turn.body.to_string())).chain(others).collect()
}

/// Paths that accept `GET`.
const READS: &[&str] = &[
    "/agents/demo/runs",
    "/v1/models",
    "/anthropic/v1/models",
    "/ag-ui/demo",
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

/// Paths are judged before origins: a path that no route has is unknown to every page.
fn exists(path: &str) -> bool {
    !matches!(path, "/nowhere" | "/agents/demo/nothing")
}

fn handshake(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let upgrade = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    request("GET", path, &[&upgrade[..], headers].concat(), b"")
}

fn is_refused(answer: &Response) -> bool {
    // JSON-RPC reports a wrong content type with status 200.
    answer.status >= 400 || answer.text().contains("-32005")
}

fn assert_refused(what: &str, answer: &Response) {
    assert!(is_refused(answer), "{what}: {} {}", answer.status, answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), None, "{what}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{what}");
}

#[tokio::test]
async fn a_page_of_another_origin_can_neither_write_nor_read_nor_open_a_socket() {
    let gateway = gateway("").await;

    // Fetches and forms: with the browser's origin, with `null`, and with no origin.
    for (path, body) in posts() {
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
                let answer = gateway.open("POST", path, &headers, body.as_bytes()).await.response().await;
                assert_refused(&format!("POST {path} {headers:?}"), &answer);
            }
        }

        // JSON needs a preflight: both are refused.
        for page in
            [EVIL, ("origin", "null"), ("origin", "http://localhost:3000"), ("origin", "http://localhost.evil.example")]
        {
            let answer = gateway.open("POST", path, &[JSON[0], JSON[1], page], body.as_bytes()).await.response().await;
            assert_eq!(answer.status, 403, "POST {path} {page:?}: {}", answer.text());
            let preflight_headers =
                [page, ("access-control-request-method", "POST"), ("access-control-request-headers", "content-type")];
            let preflight = gateway.open("OPTIONS", path, &preflight_headers, b"").await.response().await;
            assert_refused(&format!("OPTIONS {path} {page:?}"), &preflight);
        }
    }

    // Fetches, images, scripts and frames.
    for path in READS {
        for page in [EVIL, ("origin", "null"), ("origin", "chrome-extension://abc")] {
            let answer = gateway.open("GET", path, &[page], b"").await.response().await;
            assert_eq!(answer.status, if exists(path) { 403 } else { 404 }, "GET {path} {page:?}: {}", answer.text());
            assert_refused(path, &answer);
        }
        if path.ends_with("healthz") || path.ends_with("readyz") {
            continue;
        }
        let picture = gateway.open("GET", path, &[FOREIGN, ("sec-fetch-dest", "image")], b"").await.response().await;
        assert_eq!(picture.status, if exists(path) { 403 } else { 404 }, "GET {path}: {}", picture.text());
    }

    for method in ["DELETE", "PUT", "PATCH"] {
        let answer = gateway.open(method, "/agents/demo/runs/x", &[EVIL], b"").await.response().await;
        assert_refused(method, &answer);
    }

    // Sockets.
    for page in [EVIL, ("origin", "null"), ("origin", "http://localhost:3000")] {
        let bytes = handshake("/v1/responses", &[page]);
        let answer = Exchange::send(gateway.address, &bytes).await.response().await;
        assert_eq!(answer.status, 403, "{page:?}: {}", answer.text());
    }

    // None of these requests started a run.
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn no_endpoint_serves_a_foreign_page_or_a_rebound_name() {
    let gateway = gateway("").await;
    let all = endpoints();
    assert!(all.len() > 50, "{}", all.len());
    for endpoint in all {
        let (method, path) = (endpoint.method, endpoint.filled());
        for page in [EVIL, ("origin", "null"), ("origin", "http://localhost:3000"), FOREIGN] {
            let answer = gateway.open(method, &path, &[JSON[0], JSON[1], page], b"{}").await.response().await;
            assert_eq!(answer.status, 403, "{method} {path} {page:?}: {}", answer.text());
            assert_refused(&path, &answer);
        }
        let rebound =
            format!("{method} {path} HTTP/1.1\r\nhost: rebound.evil.example\r\nsec-fetch-site: same-origin\r\n\r\n");
        let answer = Exchange::send(gateway.address, rebound.as_bytes()).await.response().await;
        assert_eq!(answer.status, 421, "{method} {path}: {}", answer.text());
        if endpoint.websocket {
            let answer = Exchange::send(gateway.address, &handshake(&path, &[EVIL])).await.response().await;
            assert_eq!(answer.status, 403, "{path}: {}", answer.text());
        }
    }
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn dns_rebinding_reaches_nothing() {
    let gateway = gateway("").await;
    let under = async |head: &str, rest: &str| {
        let bytes = format!("{head} HTTP/1.1\r\n{rest}\r\n");
        Exchange::send(gateway.address, bytes.as_bytes()).await.response().await
    };

    // A page under a rebound name is same-origin: only the host name gives it away.
    for host in [
        "rebound.evil.example",
        "rebound.evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.5",
    ] {
        for path in READS {
            let response =
                under(&format!("GET {path}"), &format!("host: {host}\r\nsec-fetch-site: same-origin\r\n")).await;
            if host == "10.0.0.5" && (path.starts_with("/healthz") || path.starts_with("/readyz")) {
                assert_eq!(response.status, 200, "a probe asks for the address of its container");
                continue;
            }
            assert_eq!(response.status, 421, "{host} {path}: {}", response.text());
        }
        for (path, body) in posts() {
            let rest = format!(
                "host: {host}\r\norigin: http://{host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            );
            let response = under(&format!("POST {path}"), &rest).await;
            assert_eq!(response.status, 421, "{host} {path}: {}", response.text());
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
async fn refusals_use_the_protocol_of_their_route() {
    let gateway = gateway("").await;
    for (path, body) in posts() {
        let response =
            gateway.open("POST", path, &[JSON[0], JSON[1], EVIL], body.as_bytes()).await.response().await.json();
        let shown = match path.split('/').nth(1) {
            Some("agents") => (response["code"].clone(), json!("PERMISSION_DENIED")),
            Some("v1" | "anthropic") => (response["error"]["type"].clone(), json!("permission_error")),
            Some("a2a") if path.ends_with("send") => (response["error"]["code"].clone(), json!(403)),
            Some("a2a") => (response["error"]["code"].clone(), json!(-32011)),
            Some("ag-kit") => (response["error"]["code"].clone(), json!("permission_denied")),
            Some("ag-ui") => (response["error"]["code"].clone(), json!("PERMISSION_DENIED")),
            Some("mcp") => (response["error"]["data"]["code"].clone(), json!("PERMISSION_DENIED")),
            _ => (
                response["detail"].clone(),
                json!("web pages of the origin 'https://evil.example' may not send this request"),
            ),
        };
        assert_eq!(shown.0, shown.1, "{path}: {response}");
    }
}

#[tokio::test]
async fn same_origin_pages_and_clients_that_are_not_browsers_are_served() {
    let gateway = gateway("").await;
    let port = gateway.address.port();
    let own = format!("http://localhost:{port}");
    for (path, body) in posts() {
        let answer = gateway.open("POST", path, JSON, body.as_bytes()).await.response().await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());

        let bytes = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost:{port}\r\norigin: {own}\r\nsec-fetch-site: same-origin\r\n\
             content-type: application/json; charset=utf-8\r\na2a-version: 1.0\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = Exchange::send(gateway.address, bytes.as_bytes()).await.response().await;
        assert_ne!(answer.status, 403, "{path}: {}", answer.text());
    }

    // A link to a card may be followed; an address typed into the browser belongs to no page.
    let link = [FOREIGN, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let card = gateway.open("GET", "/a2a/demo/.well-known/agent-card.json", &link, b"").await.response().await;
    assert_eq!(card.status, 200);

    let runs = gateway.open("GET", "/agents/demo/runs", &link, b"").await.response().await;
    assert_eq!(runs.status, 403, "a link must not reach other paths");
    let typed = gateway.open("GET", "/agents/demo/runs", &[("sec-fetch-site", "none")], b"").await.response().await;
    assert_eq!(typed.status, 200);
    let socket = Exchange::send(gateway.address, &handshake("/v1/responses", &[])).await.status().await;
    assert_eq!(socket, 101);
}

#[tokio::test]
async fn only_a_listed_origin_may_use_the_protocols() {
    let gateway = gateway("cors = [\"https://app.example.com\", \"http://localhost:3000\"]").await;
    for origin in ["https://app.example.com", "http://localhost:3000"] {
        let page = ("origin", origin);
        for (path, body) in posts() {
            let preflight_headers = [
                page,
                ("access-control-request-method", "POST"),
                ("access-control-request-headers", "content-type,a2a-version"),
            ];
            let preflight = gateway.open("OPTIONS", path, &preflight_headers, b"").await.response().await;
            assert_eq!(preflight.status, 204, "{path}: {}", preflight.text());
            assert_eq!(preflight.header("access-control-allow-origin"), Some(origin), "{path}");
            assert!(preflight.header("access-control-allow-methods").is_some_and(|methods| methods.contains("POST")));
            let allowed = preflight.header("access-control-allow-headers").unwrap_or("");
            assert!(allowed.contains('*') || allowed.contains("content-type"), "{path}: {allowed}");
            let response =
                gateway.open("POST", path, &[JSON[0], JSON[1], page, FOREIGN], body.as_bytes()).await.response().await;
            assert!(
                response.status == 200 || response.status == 409,
                "{path}: {} {}",
                response.status,
                response.text()
            );
            assert_eq!(response.header("access-control-allow-origin"), Some(origin), "{path}");
            assert!(vary(&response), "{path}: {:?}", response.headers);
            // The page may read errors too, but a body still needs its content type.
            let typeless = gateway.open("POST", path, &[page], body.as_bytes()).await.response().await;
            assert!(is_refused(&typeless), "{path}");
            assert_eq!(typeless.header("access-control-allow-origin"), Some(origin), "{path}");
        }
        let mut socket = Exchange::send(gateway.address, &handshake("/v1/responses", &[page])).await;
        assert_eq!(socket.status().await, 101);
    }

    let plain = gateway.get("/v1/models").await;
    assert!(plain.header("access-control-allow-origin").is_none() && vary(&plain), "caches must separate origins");
    for page in [EVIL, ("origin", "null"), ("origin", "https://app.example.com.evil.example")] {
        let response = gateway.open("GET", "/v1/models", &[page], b"").await.response().await;
        assert_eq!((response.status, response.header("access-control-allow-origin")), (403, None), "{page:?}");
    }

    let elsewhere =
        gateway.open("GET", "/healthz", &[("origin", "https://app.example.com")], b"").await.response().await;
    assert_eq!(elsewhere.status, 403, "the paths of the gateway itself belong to no route");
}

fn vary(answer: &Response) -> bool {
    let mut varies = answer.headers.iter().filter(|(name, _)| name == "vary");
    varies.any(|(_, value)| value.split(',').any(|name| name.trim().eq_ignore_ascii_case("origin")))
}

#[tokio::test]
async fn a_wildcard_origin_admits_every_page_also_as_a_protocol_option() {
    let option = format!("[store]\nkind = \"memory\"\n{DEMO}{ROUTE}options = {{ cors = true }}\n");
    for gateway in [gateway("cors = [\"*\"]").await, Gateway::with_config(&option).await] {
        for page in [EVIL, ("origin", "null")] {
            let path = "/agents/demo/process";
            let preflight_headers = [page, ("access-control-request-method", "POST")];
            let preflight = gateway.open("OPTIONS", path, &preflight_headers, b"").await.response().await;
            assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
            let response = gateway
                .open("POST", path, &[JSON[0], JSON[1], page], user_turn("hi").to_string().as_bytes())
                .await
                .response()
                .await;
            assert_eq!((response.status, response.header("access-control-allow-origin")), (200, Some("*")));
        }
    }
}
