//! Heads of requests that no browser writes, and what every answer has in its own.

use serde_json::json;

use crate::support::gateway::{DEMO, Gateway, JSON, ROUTE, says};
use crate::support::http::{Answer, Exchange};

const A2A: &str = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";

async fn gateway(server: &str) -> Gateway {
    let server = format!("[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n{server}\n# allowed_hosts\n");
    Gateway::with(&format!("{server}[store]\nkind = \"memory\"\n{DEMO}{ROUTE}{A2A}")).await
}

async fn raw(gateway: &Gateway, bytes: &str) -> Answer {
    Exchange::send(gateway.address, bytes.as_bytes()).await.answer().await
}

#[tokio::test]
async fn a_host_that_is_none_and_several_hosts_are_bad_requests() {
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
            let answer = raw(&gateway, &format!("GET {path} HTTP/1.1\r\n{hosts}\r\n")).await;
            assert_eq!(answer.status, 400, "{path} {hosts:?}: {}", answer.text());
        }
    }
    // Probes of load balancers speak HTTP/1.0 and name nothing.
    let probe = Exchange::send(gateway.address, b"GET /healthz HTTP/1.0\r\n\r\n").await.bytes().await;
    assert!(
        probe.starts_with(b"HTTP/1.0 200") || probe.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&probe)
    );
}

#[tokio::test]
async fn the_host_of_a_target_that_is_a_whole_url_counts_more() {
    let gateway = gateway("").await;
    for (target, host, status) in [
        ("http://localhost/agents/demo/runs", "evil.example", 200),
        ("http://evil.example/agents/demo/runs", "localhost", 421),
        ("http://evil.example/healthz", "localhost", 421),
        ("http://u@localhost/agents/demo/runs", "localhost", 400),
    ] {
        let answer = raw(&gateway, &format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
        assert_eq!(answer.status, status, "{target} {host}: {}", answer.text());
    }
    let card = raw(&gateway, "GET http://127.0.0.1:9/a2a/demo/.well-known/agent-card.json HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\n\r\n").await;
    assert_eq!(card.json()["supportedInterfaces"][0]["url"], "http://127.0.0.1:9/a2a/demo");
}

#[tokio::test]
async fn nothing_is_traced_and_no_tunnel_is_made() {
    let gateway = gateway("").await;
    for path in ["/healthz", "/readyz", "/agents/demo/process", "/agents/demo/nothing", "/a2a/demo", "/nowhere"] {
        let answer =
            raw(&gateway, &format!("TRACE {path} HTTP/1.1\r\nhost: localhost\r\nx-secret: hush\r\n\r\n")).await;
        assert_eq!(answer.status, 405, "{path}: {}", answer.text());
        assert!(!answer.text().contains("hush"), "{path}");
    }
    let answer = raw(&gateway, "CONNECT localhost:443 HTTP/1.1\r\nhost: localhost:443\r\n\r\n").await;
    assert!(answer.status >= 400, "{}", answer.status);
    let posted = gateway.open("POST", "/healthz", JSON, b"{}").await.answer().await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));
}

#[tokio::test]
async fn packed_bodies_and_other_letters_are_refused_on_every_protocol() {
    let gateway = gateway("").await;
    for (name, value) in [("content-encoding", "gzip"), ("content-encoding", "br")] {
        for path in ["/agents/demo/process", "/a2a/demo/message:send"] {
            let body = says("hi").to_string();
            let answer = gateway.open("POST", path, &[JSON[0], (name, value)], body.as_bytes()).await.answer().await;
            assert_eq!(answer.status, 415, "{path} {value}: {}", answer.text());
        }
    }
    let latin = [("content-type", "application/json; charset=iso-8859-1")];
    let answer = gateway.open("POST", "/agents/demo/process", &latin, b"{}").await.answer().await;
    assert_eq!((answer.status, answer.json()["code"].clone()), (415, json!("UNSUPPORTED_MEDIA_TYPE")));
    // Over JSON-RPC such a refusal is an error of the protocol, over REST it is HTTP's, with the same body as before.
    let plain = [("content-type", "text/plain"), ("a2a-version", "1.0")];
    let rest = gateway.open("POST", "/a2a/demo/message:send", &plain, b"{}").await.answer().await;
    assert_eq!(
        (rest.status, &rest.json()["error"]["details"][0]["reason"]),
        (415, &json!("CONTENT_TYPE_NOT_SUPPORTED"))
    );
    let rpc = gateway.open("POST", "/a2a/demo", &plain, b"{}").await.answer().await;
    assert_eq!((rpc.status, &rpc.json()["error"]["code"]), (200, &json!(-32005)));
}

#[tokio::test]
async fn a_request_without_a_body_needs_no_type() {
    let gateway = gateway("").await;
    let run = gateway.post("/agents/demo/process/task", &says("hi")).await.json();
    let id = run["task_id"].as_str().or(run["id"].as_str()).unwrap_or("x").to_owned();
    for head in [
        format!("POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"),
        format!(
            "POST /agents/demo/runs/{id}/cancel HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
    ] {
        let answer = raw(&gateway, &head).await;
        assert_ne!(answer.status, 415, "{}", answer.text());
    }
    let typeless = "POST /agents/demo/process HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    assert_eq!(raw(&gateway, typeless).await.status, 415);
}

#[tokio::test]
async fn no_answer_about_a_run_is_kept_by_caches_and_none_is_guessed_at() {
    let gateway = gateway("").await;
    let body = says("hi").to_string();
    for (method, path, body) in [
        ("GET", "/agents/demo/runs", ""),
        ("POST", "/agents/demo/process/task", body.as_str()),
        ("GET", "/agents/demo/runs/none", ""),
        ("GET", "/a2a/demo/tasks", ""),
        ("GET", "/a2a/demo/.well-known/agent-card.json", ""),
        ("GET", "/nowhere", ""),
        ("GET", "/healthz", ""),
        ("GET", "/readyz", ""),
        ("PUT", "/agents/demo/process", ""),
    ] {
        let answer = gateway.open(method, path, JSON, body.as_bytes()).await.answer().await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
        let kept = answer.header("cache-control").unwrap_or("");
        assert!(kept.contains("no-store"), "{method} {path}: {kept}");
    }
    let mut stream = gateway.ask("demo", &says("hi")).await;
    assert_eq!(stream.header("x-content-type-options").await.as_deref(), Some("nosniff"));
}

#[tokio::test]
async fn a_card_of_a_public_url_may_be_kept_and_one_made_from_a_request_may_not() {
    let card = "/a2a/demo/.well-known/agent-card.json";
    let public = gateway("public_url = \"https://agents.example.com\"").await;
    assert_eq!(public.get(card).await.header("cache-control"), Some("public, max-age=300"));
    let asked = gateway("").await;
    assert_eq!(asked.get(card).await.header("cache-control"), Some("private, no-store"));
}

#[tokio::test]
async fn the_host_that_a_trusted_proxy_tells_is_judged_too() {
    for family in ["x-forwarded", "forwarded"] {
        let server = format!(
            "trusted_proxies = [\"127.0.0.1\"]\nforwarded = \"{family}\"\nallowed_hosts = [\"agents.example\"]"
        );
        let gateway = gateway(&server).await;
        let card = async |headers: &[(&str, &str)]| {
            let headers = [&[("a2a-version", "1.0")], headers].concat();
            gateway.open("GET", "/a2a/demo/.well-known/agent-card.json", &headers, b"").await.answer().await
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
async fn a_refusal_repeats_little_of_a_long_name() {
    let gateway = gateway("").await;
    let long = "x".repeat(20_000);
    for path in [
        format!("/agents/demo/runs/{long}"),
        format!("/nowhere/{long}"),
        format!("/agents/demo/{long}"),
        format!("/a2a/demo/tasks/{long}"),
    ] {
        let answer = gateway.get(&path).await;
        assert!(answer.status >= 400 && answer.body.len() < 1500, "{}: {}", answer.status, answer.body.len());
    }
}
