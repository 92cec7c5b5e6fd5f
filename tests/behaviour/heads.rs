//! Request heads that no browser sends, and headers that every response carries.

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, user_turn};
use crate::support::http::{Exchange, Response};

const A2A: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";

async fn gateway(server: &str) -> Gateway {
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n# allowed_hosts\n");
    Gateway::with_config(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{ROUTE}{A2A}")).await
}

async fn raw(gateway: &Gateway, bytes: &str) -> Response {
    Exchange::send(gateway.address, bytes.as_bytes()).await.response().await
}

#[tokio::test]
async fn an_invalid_or_repeated_host_header_is_a_bad_request() {
    let gateway = gateway("").await;
    for path in ["/healthz", "/agents/demo/runs", "/agents/demo/nothing", "/a2a/demo/tasks", "/nowhere"] {
        for hosts in [
            "",
            "host: a b@c/\r\n",
            "host: \r\n",
            "host: localhost:x\r\n",
            "host: user@localhost\r\n",
            "host: localhost\r\nhost: localhost\r\n",
            "host: localhost, localhost\r\n",
        ] {
            let response = raw(&gateway, &format!("GET {path} HTTP/1.1\r\n{hosts}\r\n")).await;
            assert_eq!(response.status, 400, "{path} {hosts:?}: {}", response.text());
        }
    }

    // Health probes of load balancers use HTTP/1.0 without a host.
    let probe = Exchange::send(gateway.address, b"GET /healthz HTTP/1.0\r\n\r\n").await.bytes().await;
    assert!(
        probe.starts_with(b"HTTP/1.0 200") || probe.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&probe)
    );
}

#[tokio::test]
async fn the_host_of_an_absolute_request_target_takes_precedence() {
    let gateway = gateway("").await;
    for (target, host, status) in [
        ("http://localhost/agents/demo/runs", "evil.example", 200),
        ("http://evil.example/agents/demo/runs", "localhost", 421),
        ("http://evil.example/healthz", "localhost", 421),
        ("http://u@localhost/agents/demo/runs", "localhost", 400),
    ] {
        let response = raw(&gateway, &format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        assert_eq!(response.status, status, "{target} {host}: {}", response.text());
    }
    let card = raw(&gateway, "GET http://127.0.0.1:9/a2a/demo/.well-known/agent-card.json HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n").await;
    assert_eq!(card.json()["supportedInterfaces"][0]["url"], "http://127.0.0.1:9/a2a/demo");
}

#[tokio::test]
async fn trace_and_connect_are_refused() {
    let gateway = gateway("").await;
    for path in ["/healthz", "/readyz", "/agents/demo/process", "/agents/demo/nothing", "/a2a/demo", "/nowhere"] {
        let response =
            raw(&gateway, &format!("TRACE {path} HTTP/1.1\r\nhost: localhost\r\nx-secret: hush\r\n\r\n")).await;
        assert_eq!(response.status, 405, "{path}: {}", response.text());
        assert!(!response.text().contains("hush"), "{path}");
    }

    let response = raw(&gateway, "CONNECT localhost:443 HTTP/1.1\r\nhost: localhost:443\r\n\r\n").await;
    assert!(response.status >= 400, "{}", response.status);
    let posted = gateway.open("POST", "/healthz", JSON, b"{}").await.response().await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn compressed_bodies_and_other_charsets_are_refused_on_every_protocol() {
    let gateway = gateway("").await;
    for (name, value) in [("content-encoding", "gzip"), ("content-encoding", "br")] {
        for path in ["/agents/demo/process", "/a2a/demo/message:send"] {
            let body = user_turn("hi").to_string();
            let response =
                gateway.open("POST", path, &[JSON[0], (name, value)], body.as_bytes()).await.response().await;
            assert_eq!(response.status, 415, "{path} {value}: {}", response.text());
        }
    }

    let latin = [("content-type", "application/json; charset=iso-8859-1")];
    let response = gateway.open("POST", "/agents/demo/process", &latin, b"{}").await.response().await;
    assert_eq!((response.status, response.json()["code"].clone()), (415, json!("UNSUPPORTED_MEDIA_TYPE")));

    // JSON-RPC reports this refusal as a protocol error, REST as an HTTP status.
    let plain = [("content-type", "text/plain"), ("a2a-version", "1.0")];
    let rest = gateway.open("POST", "/a2a/demo/message:send", &plain, b"{}").await.response().await;
    assert_eq!(
        (rest.status, &rest.json()["error"]["details"][0]["reason"]),
        (415, &json!("CONTENT_TYPE_NOT_SUPPORTED"))
    );
    let rpc = gateway.open("POST", "/a2a/demo", &plain, b"{}").await.response().await;
    assert_eq!((rpc.status, &rpc.json()["error"]["code"]), (200, &json!(-32005)));
}

#[tokio::test]
async fn a_request_without_a_body_needs_no_content_type() {
    let gateway = gateway("").await;
    let run = gateway.post("/agents/demo/process/task", &user_turn("hi")).await.json();
    let id = run["task_id"].as_str().or(run["id"].as_str()).unwrap_or("x").to_owned();
    for head in [
        format!("POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"),
        format!(
            "POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
    ] {
        let response = raw(&gateway, &head).await;
        assert_ne!(response.status, 415, "{}", response.text());
    }
    let typeless = "POST /agents/demo/process HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    assert_eq!(raw(&gateway, typeless).await.status, 415);
}

#[tokio::test]
async fn responses_about_runs_are_neither_cached_nor_sniffed() {
    let gateway = gateway("").await;
    let body = user_turn("hi").to_string();
    for (method, path, body) in [
        ("GET", "/agents/demo/runs", ""),
        ("POST", "/agents/demo/process/task", body.as_str()),
        ("GET", "/agents/demo/runs/none", ""),
        ("GET", "/a2a/demo/tasks", ""),
        ("GET", "/nowhere", ""),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("PUT", "/agents/demo/process", ""),
    ] {
        let response = gateway.open(method, path, JSON, body.as_bytes()).await.response().await;
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
        let cache_control = response.header("cache-control").unwrap_or("");
        assert!(cache_control.contains("no-store"), "{method} {path}: {cache_control}");
    }
    let mut stream = gateway.start_turn("demo", &user_turn("hi")).await;
    assert_eq!(stream.header("x-content-type-options").await.as_deref(), Some("nosniff"));
}

#[tokio::test]
async fn a_card_built_from_a_request_is_cacheable_for_its_client_and_host_alone() {
    let card = "/a2a/demo/.well-known/agent-card.json";
    let vary = "A2A-Version, Accept-Encoding";
    let public = gateway("public_url = \"https://agents.example.com\"").await.get(card).await;
    assert_eq!((public.header("cache-control"), public.header("vary")), (Some("public, max-age=300"), Some(vary)));
    let dynamic = gateway("").await.get(card).await;
    let vary = format!("{vary}, Host");
    assert_eq!((dynamic.header("cache-control"), dynamic.header("vary")), (Some("private, max-age=300"), Some(&*vary)));
    assert!(dynamic.header("etag").is_some());
}

#[tokio::test]
async fn the_host_reported_by_a_trusted_proxy_is_checked_too() {
    for family in ["x-forwarded", "forwarded"] {
        let server = format!(
            "trusted_proxies = [\"127.0.0.1\"]\nforwarded = \"{family}\"\nallowed_hosts = [\"agents.example\"]"
        );
        let gateway = gateway(&server).await;
        let card = async |headers: &[(&str, &str)]| {
            let headers = [&[("a2a-version", "1.0")], headers].concat();
            gateway.open("GET", "/a2a/demo/.well-known/agent-card.json", &headers, b"").await.response().await
        };
        let x = |hosts: &'static str| [("x-forwarded-host", hosts), ("x-forwarded-proto", "https")];
        let rfc = |elements: &'static str| [("forwarded", elements)];
        let (good, evil, ignored) = if family == "forwarded" {
            (
                card(&rfc("for=6.6.6.6;host=evil.example, for=1.2.3.4;host=agents.example;proto=https")).await,
                card(&rfc("for=1.2.3.4;host=evil.example")).await,
                card(&x("evil.example")).await,
            )
        } else {
            (
                card(&x("evil.example, agents.example")).await,
                card(&x("agents.example, evil.example")).await,
                card(&rfc("for=1.2.3.4;host=evil.example")).await,
            )
        };
        assert_eq!(good.json()["supportedInterfaces"][0]["url"], "https://agents.example/a2a/demo", "{family}");
        assert_eq!(evil.status, 421, "{family}");
        assert_eq!(ignored.json()["supportedInterfaces"][0]["url"], "http://localhost/a2a/demo", "{family}");
    }
}

#[tokio::test]
async fn a_refusal_truncates_a_long_name() {
    let gateway = gateway("").await;
    let long = "x".repeat(20_000);
    for path in [
        format!("/agents/demo/runs/{long}"),
        format!("/nowhere/{long}"),
        format!("/agents/demo/{long}"),
        format!("/a2a/demo/tasks/{long}"),
    ] {
        let response = gateway.get(&path).await;
        assert!(response.status >= 400 && response.body.len() < 1500, "{}: {}", response.status, response.body.len());
    }
}
