//! The order in which a request is judged: one that is wrong in two ways is refused for the first of them, on every
//! protocol, before its body is read, and without `100 Continue`.
//!
//! Not here: what each check accepts (`heads.rs`, `browsers.rs`, `bodies.rs`).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, user_turn};
use crate::support::http::{Exchange, Response};
use crate::support::pairs::{MOUNTS, ROUTES, posts};

/// The possible errors of a request, in the order of their checks.
const ORDER: [Wrong; 7] =
    [Wrong::Head, Wrong::Host, Wrong::Path, Wrong::Method, Wrong::Origin, Wrong::Type, Wrong::Length];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Head,
    Host,
    Path,
    Method,
    Origin,
    Type,
    Length,
}

/// The endpoints that take a body: the mount point, and the path below it.
fn endpoints() -> Vec<(String, &'static str)> {
    let paths = posts().into_iter().chain(["/a2a/demo/message:send"]);
    let mount_of = |path: &'static str| {
        let mounts = MOUNTS.iter().map(|(_, mount)| mount.replace("{agent}", "demo"));
        mounts.into_iter().find_map(|mount| Some((path.strip_prefix(&mount)?, mount)))
    };
    let mounted = paths.map(|path| mount_of(path).unwrap_or_else(|| panic!("{path} is below no mount")));
    mounted.map(|(below, mount)| (mount, below)).collect()
}

async fn gateway(limits: &str) -> Gateway {
    let server =
        format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{limits}\n# allowed_hosts: the defaults\n");
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{ROUTES}")).await
}

/// The head of a request that is wrong in these ways. Its body never follows.
fn head((mount, below): &(String, &str), wrong: &[Wrong], expects: bool) -> String {
    let is = |what| wrong.contains(&what);
    let method = if is(Wrong::Method) { "PATCH" } else { "POST" };
    let path = if is(Wrong::Path) { "/no/such/path/at/all" } else { below };
    let host = if is(Wrong::Host) { "rebound.example" } else { "localhost" };
    let length = if is(Wrong::Length) { 1 << 30 } else { 10 };

    let mut head =
        format!("{method} {mount}{path} HTTP/1.1\r\nhost: {host}\r\na2a-version: 1.0\r\ncontent-length: {length}\r\n");
    if is(Wrong::Head) {
        head.push_str(&format!("x-filler: {}\r\n", "x".repeat(5000)));
    }
    if is(Wrong::Origin) {
        head.push_str("origin: https://evil.example\r\n");
    }
    if !is(Wrong::Type) {
        head.push_str("content-type: application/json\r\n");
    }
    if expects {
        head.push_str("expect: 100-continue\r\n");
    }
    head + "\r\n"
}

fn is_refused_for(wrong: Wrong, response: &Response) -> bool {
    match wrong {
        Wrong::Head => response.status == 431,
        Wrong::Host => response.status == 421,
        Wrong::Path => response.status == 404,
        Wrong::Method => response.status == 405,
        Wrong::Origin => response.status == 403,
        // JSON-RPC reports a wrong content type with status 200.
        Wrong::Type => response.status == 415 || (response.status == 200 && response.text().contains("-32005")),
        Wrong::Length => response.status == 413,
    }
}

#[tokio::test]
async fn of_two_mistakes_the_first_is_reported_and_the_body_is_never_asked_for() {
    let gateway = gateway("limits.head = \"4KiB\"").await;
    let (mut pairs, endpoints) = (0, endpoints());
    for (index, first) in ORDER.into_iter().enumerate() {
        for second in ORDER[index..].iter().copied() {
            // An unknown path has no methods that could be wrong.
            if first == Wrong::Path && second == Wrong::Method {
                continue;
            }
            for endpoint in &endpoints {
                for expects in [false, true] {
                    let sent = Instant::now();
                    let head = head(endpoint, &[first, second], expects);
                    let response = Exchange::send(gateway.address, head.as_bytes()).await.response().await;
                    let what = format!("{endpoint:?} {first:?} {second:?} expects {expects}");
                    assert!(is_refused_for(first, &response), "{what}: {} {}", response.status, response.text());
                    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{what}");
                    assert!(sent.elapsed() < Duration::from_secs(2), "{what}: it waited for the body");
                }
            }
            pairs += 1;
        }
    }
    assert!(pairs > 20, "{pairs}");

    // Nothing of it reached an agent.
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 0);
}

#[tokio::test]
async fn a_valid_request_gets_one_continue() {
    let gateway = gateway("").await;
    let body = user_turn("echo hi").to_string();
    let head = format!(
        "POST /agents/demo/process HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut exchange = Exchange::send(gateway.address, head.as_bytes()).await;
    assert_eq!(exchange.status().await, 100);
    exchange.send_next(body.as_bytes()).await;
    let response = exchange.response().await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(gateway.get("/agents/demo/runs").await.json()["total"], 1);
}

#[tokio::test]
async fn paths_of_the_gateway_are_judged_alike_when_the_client_waits() {
    let gateway = gateway("").await;
    for (line, headers, status) in [
        ("POST /healthz", "", 405),
        ("POST /nowhere", "", 404),
        ("POST /healthz", "host: evil.example\r\n", 421),
        ("PUT /agents/demo/process", "", 405),
        ("POST /agents/unknown/process", "", 404),
    ] {
        let host = if headers.starts_with("host") { "" } else { "host: localhost\r\n" };
        let head = format!(
            "{line} HTTP/1.1\r\n{host}{headers}content-length: 2\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\r\n"
        );
        let response = Exchange::send(gateway.address, head.as_bytes()).await.response().await;
        assert_eq!(response.status, status, "{line} {headers:?}: {}", response.text());
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_in_the_format_of_its_protocol() {
    let gateway = gateway("limits.head = \"4KiB\"").await;
    let filler = ("x-filler", "x".repeat(4000));
    for (path, size, status) in [("/v1/models", 3000, 200), ("/v1/models", 4000, 431), ("/agents/demo/runs", 4000, 431)]
    {
        let response = gateway
            .open("GET", path, &[(filler.0, &filler.1[..size]), ("x-more", &"y".repeat(200))], b"")
            .await
            .response()
            .await;
        assert_eq!(response.status, status, "{path} {size}: {}", response.text());
    }

    let headers = [("x-filler", filler.1.as_str()), ("x-more", &"y".repeat(200))];
    let responses = gateway.open("GET", "/v1/models", &headers, b"").await.response().await.json();
    assert_eq!(responses["error"]["type"], json!("invalid_request_error"), "{responses}");
    let native = gateway.open("GET", "/agents/demo/runs", &headers, b"").await.response().await.json();
    assert_eq!(native["code"], json!("HEAD_TOO_LARGE"), "{native}");

    // The target counts too.
    let long = format!("/agents/demo/runs?x={}", "x".repeat(5000));
    assert_eq!(gateway.get(&long).await.status, 431);
}
