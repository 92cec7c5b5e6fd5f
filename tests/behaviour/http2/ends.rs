//! Ends of streams and connections over HTTP/2: clients that disconnect or do not read, and a gateway that stops.

use std::time::{Duration, Instant};

use h2::Reason;
use h2::client::Builder;

use super::{PROCESS, Setup, config, post, set_up};
use crate::support::agent::{text_reply, text_reply_then_hang, text_reply_until};
use crate::support::gateway::{DEMO, JSON, agent, user_turn};
use crate::support::http2::{
    CANCEL, END_STREAM, Http2, Raw, fields, frame, get, kind, read, read_until, read_with_trailers, request_fields,
};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::tls::{Authority, VERSIONS, client};
use crate::support::upstream::{Reply, Upstream};

/// A disconnect is noticed at once, not when the next heartbeat is due.
const MAX_NOTICE_TIME: Duration = Duration::from_secs(1);

async fn with_agent(upstream: &Upstream, server: &str) -> Setup {
    set_up(server, &agent("demo", &upstream.url("/process"), "", "")).await
}

fn turn() -> Vec<u8> {
    user_turn("hi").to_string().into_bytes()
}

async fn wait_for_cancellation(setup: &Setup) {
    poll_until("the run to be canceled", async || {
        let runs = setup.connect().await.send("GET", "/agents/demo/runs", &[], b"").await.json();
        (runs["data"][0]["status"] == "canceled" && runs["total"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_reset_stream_cancels_its_agent_before_and_within_the_answer() {
    for (reply, seen) in
        [(Reply::silence(), None), (Reply::events().hang(), None), (text_reply_then_hang(&["so far"]), Some("so far"))]
    {
        let upstream = Upstream::always(reply);
        let setup = with_agent(&upstream, "").await;
        let connection = setup.connect().await;
        let mut stream = connection.begin("POST", PROCESS, JSON, &turn()).await;
        upstream.wait_for_requests(1).await;
        let left = match seen {
            None => {
                let left = Instant::now();
                stream.body.send_reset(Reason::CANCEL);
                left
            }
            Some(text) => {
                let (_, _, mut body) = stream.head().await;
                read_until(&mut body, text).await;
                let left = Instant::now();
                // The library resets a stream whose body is dropped.
                drop(body);
                left
            }
        };
        upstream.wait_for_disconnects(1).await;
        assert!(left.elapsed() < MAX_NOTICE_TIME, "noticed after {:?}", left.elapsed());
        wait_for_cancellation(&setup).await;
        assert_eq!(connection.send("GET", "/healthz", &[], b"").await.status, 200, "the connection stays");
    }
}

#[tokio::test]
async fn a_lost_connection_cancels_the_agents_of_all_its_streams() {
    let upstream = Upstream::always(text_reply_then_hang(&["so far"]));
    let setup = with_agent(&upstream, "").await;
    let connection = setup.connect().await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(connection.begin("POST", PROCESS, JSON, &turn()).await);
    }
    upstream.wait_for_requests(5).await;
    let left = Instant::now();
    connection.cut();
    upstream.wait_for_disconnects(5).await;
    assert!(left.elapsed() < MAX_NOTICE_TIME, "noticed after {:?}", left.elapsed());
    assert_eq!(upstream.requests().len(), 5, "each was sent once");
}

#[tokio::test]
async fn a_stalled_stream_is_reset_and_others_continue() {
    // Long enough for a client on a busy machine that reads as much as it can.
    let setup = set_up("timeouts = { write = \"2s\" }\nheartbeat = \"50ms\"", DEMO).await;
    let mut builder = Builder::new();
    builder.initial_window_size(1000).initial_connection_window_size(1 << 20);
    let connection = Http2::with(setup.gateway.address, &setup.client, &builder).await;
    let long = user_turn("long 20000 0").to_string();
    let stalled = connection.begin("POST", PROCESS, JSON, long.as_bytes()).await;
    let (status, _, body) = stalled.head().await;
    assert_eq!(status, 200);

    // A client that reads as much as it can is served to the end, however small its window is.
    let other = connection.send("POST", PROCESS, JSON, long.as_bytes()).await;
    assert!(other.text().contains("\"status\":\"completed\""));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let error = read(body).await.expect_err("it was reset");
    assert_eq!(error.reason(), Some(Reason::CANCEL));
    assert_eq!(connection.send("GET", "/healthz", &[], b"").await.status, 200, "the connection stays");
}

#[tokio::test]
async fn a_client_without_any_window_gets_no_further() {
    let setup = set_up("timeouts = { write = \"500ms\", idle = \"500ms\" }", DEMO).await;
    // SETTINGS_INITIAL_WINDOW_SIZE 0, then one byte at a time.
    let mut raw = setup.raw(&[(4, 0)]).await;
    raw.send(&post(1)).await.expect("a request");
    let body = user_turn("long 20000 0").to_string();
    raw.send(&frame(kind::DATA, END_STREAM, 1, body.as_bytes())).await.expect("its body");
    raw.next_of(kind::HEADERS).await.expect("a head");
    let started = Instant::now();
    let reset = loop {
        raw.send(&frame(kind::WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes())).await.expect("an update");
        match tokio::time::timeout(Duration::from_millis(150), raw.next()).await {
            Ok(Some(frame)) if frame.kind == kind::RST_STREAM => break frame,
            Ok(Some(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Ok(None) => panic!("the connection is closed"),
        }
    };
    assert_eq!(reset.code(), CANCEL);
    assert!(started.elapsed() > Duration::from_millis(300), "{:?}", started.elapsed());
    assert_eq!(raw.closed().await, Some(0), "and then nothing is asked for");
}

/// Waits for the end of a connection, and returns what it ends with and when.
async fn closed(mut raw: Raw) -> (Option<u32>, Duration) {
    let started = Instant::now();
    (raw.closed().await, started.elapsed())
}

#[tokio::test]
async fn a_stalled_client_is_disconnected() {
    let setup = set_up("timeouts = { head = \"500ms\", idle = \"3s\" }", DEMO).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Half of: the preface, a frame, a header block, the header of a frame.
    let block = fields(&request_fields("GET", "/healthz"));
    let parts: [&[&[u8]]; 4] = [
        &[&preface[..20]],
        &[preface, &frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])[..12]],
        &[preface, &frame(kind::SETTINGS, 0, 0, &[]), &frame(kind::HEADERS, 1, 1, &block)],
        &[preface, &frame(kind::SETTINGS, 0, 0, &[]), &frame(kind::PING, 0, 0, &[0; 8])[..4]],
    ];
    for (number, parts) in parts.iter().enumerate() {
        let mut raw = Raw::silent(setup.gateway.address, &setup.client).await;
        raw.send(&parts.concat()).await.expect("a part");
        let (_, elapsed) = closed(raw).await;
        assert!((400..2500).contains(&elapsed.as_millis()), "{number}: {elapsed:?}");
    }
    // Nothing at all.
    let (_, elapsed) = closed(Raw::silent(setup.gateway.address, &setup.client).await).await;
    assert!((400..2500).contains(&elapsed.as_millis()), "{elapsed:?}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_pings_do_not_keep_it() {
    let setup = set_up("timeouts = { idle = \"700ms\" }", DEMO).await;
    let mut raw = setup.raw(&[]).await;
    raw.send(&get(1, "/healthz")).await.expect("a request");
    raw.next_of(kind::HEADERS).await.expect("an answer");
    let started = Instant::now();
    while raw.send(&frame(kind::PING, 0, 0, &[1; 8])).await.is_ok() && started.elapsed() < Duration::from_millis(650) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(raw.closed().await, Some(0));
    assert!((500..2500).contains(&started.elapsed().as_millis()), "{:?}", started.elapsed());

    // A stream that is silent for longer is not idle.
    let body = user_turn("sleep 1500").to_string();
    let answer = setup.connect().await.send("POST", PROCESS, JSON, body.as_bytes()).await;
    assert!(answer.text().contains("\"status\":\"completed\""), "{}", answer.text());
}

/// A process with TLS in front of an agent.
fn process(upstream: &Upstream) -> (tempfile::TempDir, Authority, Process) {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let agent = agent("demo", &upstream.url("/process"), "", "");
    let config = config(folder.path(), &authority, "", &agent).replace("drain = \"1ms\"", "drain = \"30s\"");
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start(folder.path());
    (folder, authority, process)
}

#[tokio::test]
async fn a_stopping_process_sends_goaway_and_finishes_streams() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let (_folder, authority, process) = process(&upstream);
    let client = client(&authority, None, &VERSIONS);
    let connection = Http2::connect(process.address, &client).await;
    let (status, _, mut body) = connection.begin("POST", PROCESS, JSON, &turn()).await.head().await;
    assert_eq!(status, 200);
    read_until(&mut body, "so far").await;

    let mut idle = Raw::connect(process.address, &client, &[]).await;
    idle.send(&get(1, "/healthz")).await.expect("a request");
    idle.next_of(kind::HEADERS).await.expect("an answer");
    process.terminate();
    // Without a stream, and without a word of the client, the connection is closed.
    assert_eq!(idle.closed().await, Some(0));
    // Who comes now is answered once, and no new turn begins.
    let late = Http2::connect(process.address, &client).await;
    let refused = late.send("POST", PROCESS, JSON, &turn()).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("GATEWAY_SHUTTING_DOWN")));
    assert_eq!(late.end().await, None, "it was closed in order");
    upstream.open("on");
    let rest = String::from_utf8(read(body).await.expect("a whole body")).expect("text");
    assert!(rest.contains("\"status\":\"completed\""), "{rest}");
    assert_eq!(connection.end().await, None, "it was closed in order");
    assert_eq!(process.wait().await.code(), Some(0));
}

#[tokio::test]
async fn idle_connections_delay_a_stop_only_for_a_moment() {
    let upstream = Upstream::always(Reply::silence());
    let (_folder, authority, process) = process(&upstream);
    let client = client(&authority, None, &VERSIONS);
    let connection = Http2::connect(process.address, &client).await;
    assert_eq!(connection.send("GET", "/healthz", &[], b"").await.status, 200);
    let _deaf = Raw::connect(process.address, &client, &[]).await;
    let _silent = Raw::silent(process.address, &client).await;

    process.terminate();
    let started = Instant::now();
    assert_eq!(process.wait().await.code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    drop(connection);
}

#[tokio::test]
async fn trailers_end_a_reply_a_stream_and_a_refusal() {
    let upstream = Upstream::always(text_reply(&["hello"]));
    let route = "[[routes]]\nprotocol = \"contract\"\npath = \"/contract\"\nagents = [\"demo\"]\n";
    let agents = format!("{}{route}", agent("demo", &upstream.url("/process"), "", ""));
    let setup = set_up("", &agents).await;
    let connection = setup.connect().await;
    let post = async |body: &str| {
        let stream = connection.begin("POST", "/contract/trailers", JSON, body.as_bytes()).await;
        let (status, headers, body) = stream.head().await;
        let head = headers.into_iter().find_map(|(name, value)| (name == "status").then_some(value));
        let (body, trailers) = read_with_trailers(body).await.expect("a whole response");
        let trailer = trailers.and_then(|trailers| Some(trailers.get("status")?.to_str().ok()?.to_owned()));
        (status, String::from_utf8(body).expect("text"), head, trailer)
    };

    let (status, body, head, trailer) = post(r#"{"text":"hi"}"#).await;
    assert!(body.contains("\"run\""), "{body}");
    assert_eq!((status, head, trailer.as_deref()), (200, None, Some("replied")));

    let (status, body, head, trailer) = post(r#"{"text":"hi","stream":true}"#).await;
    assert!(body.contains("hello"), "{body}");
    assert_eq!((status, head, trailer.as_deref()), (200, None, Some("streamed")));

    // Without a body, the trailers are part of the head.
    let refused = post(r#"{"texts":"hi"}"#).await;
    assert_eq!(refused, (400, String::new(), Some("INVALID_PARAMETER".to_owned()), None));
}
