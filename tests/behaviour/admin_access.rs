//! The sockets of the admin listener: TLS, client certificates instead of the key, and clients that are slow or many.
//!
//! Not here: its answers, and pages of other origins (`admin.rs`).

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::gateway::{DEMO, ROUTE};
use crate::support::http::{Exchange, request, with_timeout};
use crate::support::poll_until;
use crate::support::process::{Process, binary};
use crate::support::tls::{Authority, VERSIONS, client, connect, exchange};

const KEY: &str = "an-admin-key-of-at-least-32-characters";

fn process(folder: &Path, admin: &str) -> Process {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{DEMO}{ROUTE}"
    );
    std::fs::write(folder.join("gateway.toml"), config).expect("a file");
    let mut command = binary(folder);
    command.args(["--log", "warn"]).env("ADMIN_KEY", KEY).stderr(std::process::Stdio::null());
    Process::spawn(command)
}

#[tokio::test]
async fn a_certificate_is_accepted_instead_of_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let (servers, operators) = (Authority::new(), Authority::new());
    servers.server().write(folder.path());
    std::fs::write(folder.path().join("operators.pem"), operators.pem()).expect("a file");
    let tls = "tls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"operators.pem\" }";
    let identity = operators.client("spiffe://example.com/operator", "operator.example.com");
    let operator = client(&servers, Some(&identity), &VERSIONS);
    let anyone = client(&servers, None, &VERSIONS);
    let stranger = Authority::new().client("spiffe://example.com/operator", "operator.example.com");
    let stranger = client(&servers, Some(&stranger), &VERSIONS);
    let bearer = format!("Bearer {KEY}");

    for (more, key_counts) in [("\nkey = { env = \"ADMIN_KEY\" }", true), ("", false)] {
        let process = process(folder.path(), &format!("{tls}{more}"));
        let ask = async |client, path: &str, headers: &[(&str, &str)]| {
            let headers = [headers, &[("connection", "close")]].concat();
            let answer = exchange(process.admin(), client, &request("GET", path, &headers, b"")).await?;
            let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
            Ok::<String, std::io::Error>(status)
        };
        let key = [("authorization", bearer.as_str())];
        assert_eq!(ask(&operator, "/metrics", &[]).await.expect("an answer"), "200");
        assert_eq!(ask(&anyone, "/metrics", &[]).await.expect("an answer"), "401");
        let by_key = ask(&anyone, "/metrics", &key).await.expect("an answer");
        assert_eq!(by_key, if key_counts { "200" } else { "401" });
        assert_eq!(ask(&anyone, "/readyz", &[]).await.expect("an answer"), "200", "probes show nothing");
        assert!(ask(&stranger, "/metrics", &key).await.is_err(), "a wrong certificate is refused in the handshake");
        // A page in the browser of an operator shows the operator's certificate, too.
        let foreign = [("origin", "https://evil.example")];
        assert_eq!(ask(&operator, "/metrics", &foreign).await.expect("an answer"), "403");

        // Without the authority, a connection that is open gets nothing more, and neither does a new one.
        std::fs::write(folder.path().join("operators.pem"), Authority::new().pem()).expect("a file");
        poll_until("the operator to be refused", async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ask(&operator, "/metrics", &[]).await.is_err().then_some(())
        })
        .await;
        std::fs::write(folder.path().join("operators.pem"), operators.pem()).expect("a file");
    }
}

#[tokio::test]
async fn a_refused_client_is_not_asked_for_its_body() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = process(folder.path(), "key = { env = \"ADMIN_KEY\" }");
    let ask = async |headers: &str| {
        let head = format!(
            "PUT /api/log HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\
             expect: 100-continue\r\n{headers}\r\n"
        );
        Exchange::send(process.admin(), head.as_bytes()).await
    };
    assert_eq!(ask("").await.status().await, 401);
    assert_eq!(ask("origin: https://evil.example\r\n").await.status().await, 403);
    let mut asked = ask(&format!("authorization: Bearer {KEY}\r\n")).await;
    assert_eq!(asked.status().await, 100);
    asked.send_next(b"{\"filter\":\"info\"}").await;
    assert_eq!(asked.response().await.status, 200);
}

#[tokio::test]
async fn slow_and_silent_operators_are_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = process(folder.path(), "console = false\nmetrics = \"open\"");
    let admin = process.admin();
    let key = process.admin_key().expect("the key of the start");
    let ends = async |sent: Vec<u8>| {
        let began = Instant::now();
        let answer = Exchange::send(admin, &sent).await.bytes().await;
        (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
    };

    let reading = async {
        // A client that takes nothing: far more answers are asked for than the system's buffers hold.
        let many = request("GET", "/metrics", &[], b"").repeat(2000);
        let stalled = Exchange::send_with_small_buffer(admin, &many);
        let stalled = tokio::time::timeout(Duration::from_secs(20), stalled);
        let stalled = stalled.await.expect("the requests are taken or the connection is closed");
        tokio::time::sleep(Duration::from_secs(12)).await;
        let answers = String::from_utf8_lossy(&stalled.bytes().await).matches("HTTP/1.1 200 OK").count();
        assert!((1..2000).contains(&answers), "{answers} answers: it was not closed");
    };
    let half_head = ends(b"GET /metrics HTTP/1.1\r\nhost: ".to_vec());
    let silent = ends(Vec::new());
    let idle = ends(request("GET", "/healthz", &[], b""));
    let no_body = ends(
        format!(
            "PUT /api/log HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
        )
        .into_bytes(),
    );
    let ((), half_head, silent, idle, no_body) = tokio::join!(reading, half_head, silent, idle, no_body);
    assert!(half_head.0.starts_with("HTTP/1.1 408 "), "{half_head:?}");
    assert!(silent.0.is_empty(), "{silent:?}");
    assert!(idle.0.starts_with("HTTP/1.1 200 "), "{idle:?}");
    assert!(no_body.0.starts_with("HTTP/1.1 400 "), "{no_body:?}");
    for (text, took) in [half_head, silent, idle, no_body] {
        assert!(took >= Duration::from_secs(4), "{took:?}: {text}");
    }
    let state: Value = process.operate("GET", "/api/gateway", &[], b"").await.json();
    assert_eq!(state["accepting"], true);
}

#[tokio::test]
async fn a_bounded_number_of_operators_is_connected_and_the_one_that_waits_longest_makes_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let process = process(folder.path(), "");
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut exchange = Exchange::send(process.admin(), &request("GET", "/healthz", &[], b"")).await;
        assert_eq!(exchange.read_response().await.status, 200);
        open.push(exchange);
    }
    // The oldest ones are closed, and the latest 128 are not.
    let mut works = Vec::new();
    for exchange in &mut open {
        let sent = exchange.send_more(&request("GET", "/healthz", &[], b"")).await.is_ok();
        works.push(sent && exchange.read_some(1).await);
    }
    let open_ones = works.iter().filter(|works| **works).count();
    assert!((1..=128).contains(&open_ones) && works[199] && !works[0], "{works:?}");
    // Clients have their own.
    assert_eq!(process.open("GET", "/healthz", &[], b"").await.response().await.status, 200);
}

#[tokio::test]
async fn a_sign_in_by_certificate_needs_the_certificate_and_ends_with_its_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let (servers, operators) = (Authority::new(), Authority::new());
    servers.server().write(folder.path());
    std::fs::write(folder.path().join("operators.pem"), operators.pem()).expect("a file");
    let process = process(
        folder.path(),
        "tls = { cert = \"cert.pem\", key = \"key.pem\", client_ca = \"operators.pem\" }\nkey = { env = \"ADMIN_KEY\" }",
    );
    let of = |name: &str| client(&servers, Some(&operators.client(name, "operator.example.com")), &VERSIONS);
    let (operator, colleague) = (of("spiffe://example.com/operator"), of("spiffe://example.com/colleague"));
    let anyone = client(&servers, None, &VERSIONS);
    let ask = async |client, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let headers = [headers, &[("connection", "close"), ("content-type", "application/json")]].concat();
        exchange(process.admin(), client, &request(method, path, &headers, body.as_bytes())).await
    };
    let signed_in = ask(&operator, "POST", "/api/session", &[], "{\"key\":\"\"}").await.expect("an answer");
    let bearer = signed_in.split("\"bearer\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a bearer");
    let bearer = format!("Bearer {bearer}");
    let headers = [("authorization", bearer.as_str())];
    let status = async |client| {
        let answer = ask(client, "GET", "/api/runs", &headers, "").await.expect("an answer");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status(&operator).await, "200");
    assert_eq!(status(&anyone).await, "401", "without the certificate");
    assert_eq!(status(&colleague).await, "401", "with the certificate of someone else");
    // A certificate does not make up for a wrong key.
    let wrong = ask(&operator, "GET", "/api/runs", &[("authorization", "Bearer wrong")], "").await.expect("an answer");
    assert!(wrong.starts_with("HTTP/1.1 401 "), "{wrong}");

    // A stream that is open ends with the authority.
    let mut stream = connect(process.admin(), &operator).await.expect("a connection");
    stream
        .write_all(&request("GET", "/api/feed?runs=1", &[headers[0], ("connection", "close")], b""))
        .await
        .expect("sent");
    let mut begin = [0; 64];
    assert!(stream.read(&mut begin).await.expect("an answer") > 0);
    std::fs::write(folder.path().join("operators.pem"), Authority::new().pem()).expect("a file");
    let mut rest = Vec::new();
    with_timeout("the end of the stream", stream.read_to_end(&mut rest)).await.expect("it is closed");
    let key = format!("Bearer {KEY}");
    let by_key = ask(&anyone, "GET", "/api/runs", &[("authorization", &key)], "").await.expect("an answer");
    assert!(by_key.starts_with("HTTP/1.1 200 "), "the key still counts: {by_key}");
    assert_eq!(status(&anyone).await, "401");
}
