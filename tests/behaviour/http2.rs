//! HTTP/2: the same requests as over HTTP/1.1, on a connection that they share; clients that leave, read slowly or
//! send more than they should.

#[path = "http2/ends.rs"]
mod ends;
#[path = "http2/floods.rs"]
mod floods;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustls::ClientConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gateway::{DEMO, Gateway, JSON, user_turn};
use crate::support::http::{Response, request};
use crate::support::http2::{END_HEADERS, Frame, Http2, Raw, fields, frame, get, kind, request_fields};
use crate::support::pairs::{ALL_PROTOCOLS, ROUTES};
use crate::support::tls::{Authority, VERSIONS, client, exchange};

const PROCESS: &str = "/agents/demo/process";

/// A gateway with TLS, and a client that trusts it.
struct Setup {
    gateway: Gateway,
    client: Arc<ClientConfig>,
    _folder: TempDir,
}

/// Further keys of the server, and the agents.
async fn set_up(server: &str, agents: &str) -> Setup {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let config = config(folder.path(), &authority, server, agents);
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    Setup { gateway, client: client(&authority, None, &VERSIONS), _folder: folder }
}

fn config(folder: &Path, authority: &Authority, server: &str, agents: &str) -> String {
    authority.server().write(folder);
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\ntls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n\
         {server}\n[store]\nkind = \"memory\"\n{agents}{ROUTES}"
    )
}

impl Setup {
    async fn connect(&self) -> Http2 {
        Http2::connect(self.gateway.address, &self.client).await
    }

    async fn raw(&self, settings: &[(u16, u32)]) -> Raw {
        Raw::connect(self.gateway.address, &self.client, settings).await
    }

    /// The number of runs.
    async fn runs(&self) -> Value {
        self.connect().await.send("GET", "/agents/demo/runs", &[], b"").await.json()["total"].clone()
    }
}

/// A POST without its body.
fn post(stream: u32) -> Vec<u8> {
    let head = [&request_fields("POST", PROCESS)[..], &[("content-type", "application/json")]].concat();
    frame(kind::HEADERS, END_HEADERS, stream, &fields(&head))
}

#[tokio::test]
async fn every_protocol_answers_over_one_connection_as_over_http1() {
    let setup = set_up("", DEMO).await;
    let connection = setup.connect().await;
    for protocol in ALL_PROTOCOLS {
        let (first, second) = (protocol.turn("first", "echo hi", true), protocol.turn("second", "echo hi", true));
        let (path, headers, end) = (first.path, first.headers(), protocol.facts().end);
        let (body, second) = (first.body.to_string(), second.body.to_string());
        let own = connection.send("POST", path, &headers, body.as_bytes()).await;
        assert_eq!(own.status, 200, "{path}: {}", own.text());
        assert!(own.text().contains(end), "{path}: {}", own.text());

        let headers = [&headers[..], &[("connection", "close")]].concat();
        let older = request("POST", path, &headers, second.as_bytes());
        let older = exchange(setup.gateway.address, &setup.client, &older).await.expect("an answer");
        let older_head = older.split("\r\n\r\n").next().expect("a head").to_ascii_lowercase();
        assert!(older.contains(end), "{path}: {older}");
        let names = |own: &Response| {
            let mut names: Vec<String> = own.headers.iter().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            names
        };
        let mut expected: Vec<_> = older_head
            .lines()
            .skip(1)
            .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
            .filter(|name| !["connection", "transfer-encoding"].contains(&name.as_str()))
            .collect();
        expected.sort_unstable();
        assert_eq!(names(&own), expected, "{path}: the same headers, without those of a connection");
        let content_type = own.header("content-type").expect("a type");
        assert!(older_head.contains(&format!("content-type: {content_type}")), "{path}: {older_head}");
    }
}

#[tokio::test]
async fn requests_of_a_connection_do_not_wait_for_each_other() {
    let setup = set_up("", DEMO).await;
    let connection = setup.connect().await;
    let slow = connection.begin("POST", PROCESS, JSON, user_turn("sleep 3000").to_string().as_bytes()).await;
    let mut others = Vec::new();
    for number in 0..40 {
        let body = user_turn(&format!("echo number {number}.")).to_string();
        others.push(connection.begin("POST", PROCESS, JSON, body.as_bytes()).await);
    }
    // Read at the same time: together they are larger than what one connection may have unread.
    let answers = join_all(others.into_iter().map(|other| other.whole())).await;
    for (number, answer) in answers.into_iter().enumerate() {
        assert!(answer.status == 200 && answer.text().contains(&format!("number {number}.")), "{}", answer.text());
    }
    let answer = slow.whole().await;
    assert!(answer.text().contains("\"status\":\"completed\""), "{}", answer.text());
    assert_eq!(setup.runs().await, 41);
}

#[tokio::test]
async fn a_client_library_uses_it_by_itself() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let config = config(folder.path(), &authority, "", DEMO);
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let mut tls = (*client(&authority, None, &VERSIONS)).clone();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).build().expect("a client");

    let url = format!("https://localhost:{}{PROCESS}", gateway.address.port());
    // Larger than the window, so that the client has to wait for room.
    let text = format!("echo {}", "x".repeat(600_000));
    let request = client.post(url).header("content-type", "application/json").body(user_turn(&text).to_string());
    let answer = request.send().await.expect("an answer");
    assert_eq!((answer.version(), answer.status().as_u16()), (http::Version::HTTP_2, 200));
    let answer = answer.text().await.expect("a whole answer");
    assert!(answer.contains("\"status\":\"completed\"") && answer.contains(&"x".repeat(600_000)));
}

/// The status of a refusal, and its body if it has one.
fn refused(response: &Response) -> (u16, Value) {
    (response.status, serde_json::from_slice(&response.body).unwrap_or_default())
}

#[tokio::test]
async fn refusals_have_the_form_of_the_protocol() {
    let setup = set_up("limits.head = \"4KiB\"\nmax_body = \"64KiB\"\n", DEMO).await;
    let connection = setup.connect().await;
    let small = user_turn("hi").to_string();
    let send = async |method, path, headers: &[(&str, &str)], body: &[u8]| {
        refused(&connection.send(method, path, headers, body).await)
    };

    assert_eq!(send("GET", "/agents/demo/nothing", &[], b"").await.0, 404);
    assert_eq!(send("GET", "/nowhere", &[], b"").await.0, 404);
    assert_eq!(send("PUT", PROCESS, JSON, small.as_bytes()).await.0, 405);
    assert_eq!(send("TRACE", "/healthz", &[], b"").await.0, 405);
    assert_eq!(send("POST", PROCESS, &[("content-type", "text/plain")], small.as_bytes()).await.0, 415);
    assert_eq!(send("POST", PROCESS, &[], small.as_bytes()).await.0, 415, "without a type");
    let packed = [JSON, &[("content-encoding", "gzip")]].concat();
    assert_eq!(send("POST", PROCESS, &packed, small.as_bytes()).await.0, 415);
    let foreign = [JSON, &[("origin", "https://evil.example")]].concat();
    assert_eq!(send("POST", PROCESS, &foreign, small.as_bytes()).await.0, 403);
    assert_eq!(send("GET", "/agents/demo/runs", &[("content-type", "text/plain")], b"").await.0, 200, "no body");

    // Too large: by the length that it announces, or once too much has arrived.
    let large = user_turn(&"x".repeat(100_000)).to_string();
    let length = large.len().to_string();
    let announced = [JSON, &[("content-length", length.as_str())]].concat();
    let announced = connection.open("POST", PROCESS, &announced, true).await.whole().await;
    assert_eq!(refused(&announced).0, 413);
    let (status, body) = send("POST", "/v1/responses", JSON, large.as_bytes()).await;
    assert_eq!((status, &body["error"]["type"]), (413, &json!("invalid_request_error")), "{body}");

    // A head that is a little too large, and one that no endpoint has to see.
    let filler = "x".repeat(5000);
    let (status, body) = send("GET", "/agents/demo/runs", &[("x-filler", &filler)], b"").await;
    assert_eq!((status, &body["code"]), (431, &json!("HEAD_TOO_LARGE")), "{body}");
    let filler = "x".repeat(20_000);
    assert_eq!(send("GET", "/agents/demo/runs", &[("x-filler", &filler)], b"").await.0, 431);

    // The connection continues, and no request of these was run.
    assert_eq!(setup.runs().await, 0);
    assert_eq!(connection.send("GET", "/healthz", &[], b"").await.status, 200);
    let head = connection.send("HEAD", "/healthz", &[], b"").await;
    assert!(head.status == 200 && head.body.is_empty() && head.header("content-length").is_some(), "{head:?}");
    assert!(head.header("date").is_some() && head.header("x-request-id").is_some());
}

/// Sends one request by hand and returns the first frame of its answer.
async fn answer_to(raw: &mut Raw, stream: u32, fields: &[(&str, &str)]) -> Frame {
    raw.send(&frame(kind::HEADERS, 5, stream, &self::fields(fields))).await.expect("a request");
    loop {
        let frame = raw.next().await.expect("an answer");
        if frame.stream == stream && frame.kind != kind::WINDOW_UPDATE {
            return frame;
        }
    }
}

#[tokio::test]
async fn the_host_of_a_request_is_checked_and_heads_of_http1_are_malformed() {
    let setup = set_up("", DEMO).await;
    let connection = setup.connect().await;
    for (uri, host, status) in [
        ("https://localhost/agents/demo/runs", None, 200),
        ("https://localhost/agents/demo/runs", Some("localhost"), 200),
        ("https://localhost/agents/demo/runs", Some("rebound.example"), 400),
        ("https://rebound.example/agents/demo/runs", None, 421),
        ("https://rebound.example/agents/demo/runs", Some("localhost"), 400),
    ] {
        let request = http::Request::builder().uri(uri);
        let request = host.into_iter().fold(request, |request, host| request.header("host", host));
        let answer = connection.start(request.body(()).expect("a request"), false).await.whole().await;
        assert_eq!(answer.status, status, "{uri}, {host:?}: {}", answer.text());
        assert!(status == 200 || answer.json()["code"].is_string(), "{}", answer.text());
    }

    // None of these reaches an endpoint.
    let mut raw = setup.raw(&[]).await;
    let upgrade = [("connection", "upgrade"), ("transfer-encoding", "chunked"), ("upgrade", "websocket")];
    let mut stream = 1;
    for wrong in upgrade {
        let head = [&request_fields("GET", "/healthz")[..], &[wrong]].concat();
        let answer = answer_to(&mut raw, stream, &head).await;
        assert_eq!((answer.kind, answer.code()), (kind::RST_STREAM, 1), "{wrong:?}");
        stream += 2;
    }
    // A tunnel, and a request without an authority.
    let connect = [(":method", "CONNECT"), (":authority", "localhost:80")];
    assert_eq!(answer_to(&mut raw, stream, &connect).await.kind, kind::HEADERS);
    let nameless = [(":method", "GET"), (":scheme", "https"), (":path", "/healthz")];
    assert_eq!(answer_to(&mut raw, stream + 2, &nameless).await.kind, kind::HEADERS);
    raw.send(&get(stream + 4, "/healthz")).await.expect("a request");
    let answer = raw.next_of(kind::HEADERS).await.expect("the connection goes on");
    assert_eq!(answer.stream, stream + 4);

    // Names are in lower case: otherwise not even the rest of the connection can be trusted.
    let head = [&request_fields("GET", "/healthz")[..], &[("X-Upper", "z")]].concat();
    raw.send(&frame(kind::HEADERS, 5, stream + 6, &fields(&head))).await.expect("a request");
    assert_eq!(raw.closed().await, Some(1));
}

#[tokio::test]
async fn an_accepted_head_gets_a_continue() {
    let setup = set_up("", DEMO).await;
    let connection = setup.connect().await;
    let expects = [JSON, &[("expect", "100-continue")]].concat();
    let mut stream = connection.open("POST", PROCESS, &expects, true).await;
    assert!(stream.is_asked_for_its_body().await);
    stream.body.send_data(user_turn("echo hi").to_string().into(), true).expect("the body is sent");
    let answer = stream.whole().await;
    assert!(answer.status == 200 && answer.text().contains("\"status\":\"completed\""), "{}", answer.text());
    assert_eq!(setup.runs().await, 1, "checked once, run once");

    for (path, headers, status) in [
        ("/agents/demo/nothing", vec![], 404),
        (PROCESS, vec![("origin", "https://evil.example")], 403),
        (PROCESS, vec![("content-length", "999999999999")], 413),
    ] {
        let mut stream = connection.open("POST", path, &[&expects[..], &headers].concat(), true).await;
        assert!(!stream.is_asked_for_its_body().await, "{path} {headers:?}");
        assert_eq!(stream.whole().await.status, status, "{path} {headers:?}");
    }
    assert_eq!(setup.runs().await, 1);
}

#[tokio::test]
async fn a_certificate_names_the_caller_of_every_request() {
    let (folder, authority, clients) = (tempfile::tempdir().expect("a folder"), Authority::new(), Authority::new());
    authority.server().write(folder.path());
    std::fs::write(folder.path().join("clients.pem"), clients.pem()).expect("a file");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n\
         tls = {{ cert = \"cert.pem\", key = \"key.pem\", client_ca = \"clients.pem\" }}\n\
         [store]\nkind = \"memory\"\n[auth]\ncertificates = {{ caller = \"san_uri\" }}\n\
         [callers.\"spiffe://example.com/guest\"]\nagents = []\n{DEMO}{ROUTES}"
    );
    let gateway = Gateway::in_folder(&config, folder.path().to_owned()).await;
    let identity = |name: &str| clients.client(&format!("spiffe://example.com/{name}"), "same.example.com");
    let connect = async |name: Option<&str>| {
        let identity = name.map(identity);
        Http2::connect(gateway.address, &client(&authority, identity.as_ref(), &VERSIONS)).await
    };

    let ann = connect(Some("ann")).await;
    let turn = user_turn("hello").to_string();
    assert_eq!(ann.send("POST", PROCESS, JSON, turn.as_bytes()).await.status, 200);
    assert_eq!(ann.send("GET", "/agents/demo/runs", &[], b"").await.json()["total"], 1);
    let bob = connect(Some("bob")).await;
    assert_eq!(bob.send("GET", "/agents/demo/runs", &[], b"").await.json()["total"], 0, "of another caller");
    let guest = connect(Some("guest")).await;
    assert_eq!(guest.send("GET", "/agents/demo/runs", &[], b"").await.status, 403);

    let stranger = connect(None).await;
    for (path, body) in [(PROCESS, turn.as_str()), ("/v1/responses", "{\"model\":\"demo\",\"input\":\"hi\"}")] {
        let answer = stranger.send("POST", path, JSON, body.as_bytes()).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        assert!(answer.header("www-authenticate").is_some(), "{path}");
    }
    assert_eq!(stranger.send("GET", "/healthz", &[], b"").await.status, 200, "the connection stays");
}

#[tokio::test]
async fn a_body_that_comes_slowly_has_its_time() {
    let setup = set_up("timeouts = { body = \"500ms\" }", DEMO).await;
    let connection = setup.connect().await;
    let mut stream = connection.open("POST", PROCESS, JSON, true).await;
    for _ in 0..20 {
        let _ = stream.body.send_data(" ".into(), false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = stream.whole().await;
    assert_eq!(answer.json()["code"], "MALFORMED_REQUEST", "{}", answer.text());
    assert!(answer.text().contains("did not arrive in time"), "{}", answer.text());
    assert_eq!(connection.send("GET", "/healthz", &[], b"").await.status, 200, "the connection stays");
    assert_eq!(setup.runs().await, 0);
}
