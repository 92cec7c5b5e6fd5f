//! Clients that send what costs the gateway more than them: they are asked to be calm, the others are served.

use crate::support::gateway::{DEMO, user_turn};
use crate::support::http2::{
    END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, REFUSED_STREAM, Raw, fields, frame, get, kind, request_fields,
};
use crate::support::process::Process;
use crate::support::tls::{Authority, VERSIONS, client};

use super::{Setup, config, post, set_up};

fn odd(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// Sends all of it, and asserts that the gateway closes the connection for it, while another one is served.
async fn assert_calmed(setup: &Setup, what: &str, parts: impl IntoIterator<Item = Vec<u8>>) {
    let other = setup.connect().await;
    let mut raw = setup.raw(&[]).await;
    let flood = parts.into_iter().flatten().collect::<Vec<u8>>();
    // It may be closed before all of it is taken.
    let _ = raw.send(&flood).await;
    assert_eq!(raw.closed().await, Some(ENHANCE_YOUR_CALM), "{what}");
    assert!(raw.next().await.is_none(), "{what}: nothing follows");
    assert_eq!(other.send("GET", "/healthz", &[], b"").await.status, 200, "{what}: others are served");
}

#[tokio::test]
async fn floods_of_frames_end_the_connection() {
    let server = "limits = { http2_control_frames = 100, http2_resets = 20 }\n[observe]\naccess_log = { path = \"access.jsonl\" }";
    let setup = set_up(server, DEMO).await;
    let reset = |stream| frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let repeat = |frame: Vec<u8>| std::iter::repeat_n(frame, 1000);

    assert_calmed(&setup, "PING", repeat(frame(kind::PING, 0, 0, &[0; 8]))).await;
    assert_calmed(&setup, "PING answers", repeat(frame(kind::PING, 1, 0, &[0; 8]))).await;
    assert_calmed(&setup, "SETTINGS", repeat(frame(kind::SETTINGS, 0, 0, &[]))).await;
    assert_calmed(&setup, "PRIORITY", repeat(frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 3, 1]))).await;
    assert_calmed(&setup, "unknown", repeat(frame(0xbe, 0, 0, &[1, 2, 3]))).await;
    assert_calmed(&setup, "WINDOW_UPDATE", repeat(frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))).await;
    let empty = repeat(frame(kind::DATA, 0, 1, &[]));
    assert_calmed(&setup, "empty DATA", std::iter::once(post(1)).chain(empty)).await;
    let small = std::iter::repeat_n(frame(kind::DATA, 0, 1, b" "), 20_000);
    let refused = frame(kind::HEADERS, END_HEADERS, 1, &fields(&request_fields("POST", "/nowhere")));
    let small: Vec<_> = std::iter::once(refused).chain(small).collect();
    assert_bounded(&setup, small).await;

    // Streams that are reset at once, and streams that are reset when they are answered.
    assert_calmed(&setup, "rapid reset", odd(500).flat_map(|stream| [get(stream, "/healthz"), reset(stream)])).await;
    let mut raw = setup.raw(&[]).await;
    for stream in odd(20) {
        raw.send(&post(stream)).await.expect("a request");
        raw.send(&reset(stream)).await.expect("as many as allowed");
    }
    raw.send(&get(41, "/healthz")).await.expect("a request");
    assert!(raw.next_of(kind::HEADERS).await.is_some(), "as many as allowed");
    raw.send(&[post(43), reset(43), post(45), reset(45)].concat()).await.expect("too many");
    assert_eq!(raw.closed().await, Some(ENHANCE_YOUR_CALM));

    assert_eq!(setup.runs().await, 0, "none was run");
}

/// Sends all of it, and asserts that others are served meanwhile. Whether the connection stays is not said.
async fn assert_bounded(setup: &Setup, parts: Vec<Vec<u8>>) {
    let other = setup.connect().await;
    let mut raw = setup.raw(&[]).await;
    let _ = raw.send(&parts.concat()).await;
    assert_eq!(other.send("GET", "/healthz", &[], b"").await.status, 200);
}

#[tokio::test]
async fn heads_without_an_end_and_heads_that_unpack_end_the_connection() {
    let setup = set_up("", DEMO).await;
    // CONTINUATION frames without an end, with fields and without.
    let block = fields(&request_fields("GET", "/healthz"));
    let filler = fields(&[("x-filler", &"x".repeat(1000))]);
    for filler in [vec![], filler] {
        let mut raw = setup.raw(&[]).await;
        let begin = frame(kind::HEADERS, END_STREAM, 1, &block);
        let more = std::iter::repeat_n(frame(kind::CONTINUATION, 0, 1, &filler), 200);
        let _ = raw.send(&std::iter::once(begin).chain(more).flatten().collect::<Vec<_>>()).await;
        assert!(raw.closed().await.is_some_and(|code| code != 0), "{} bytes each", filler.len());
    }

    // One field that the table keeps, and references to it of one byte each: 3.9 KB in memory.
    for references in [12, 10_000] {
        let mut block = fields(&request_fields("GET", "/healthz"));
        let large = fields(&[("x-large", &"x".repeat(3900))]);
        block.push(0x40);
        block.extend(&large[1..]);
        block.extend(std::iter::repeat_n(0x80 | 62, references));
        let mut raw = setup.raw(&[]).await;
        let _ = raw.send(&frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &block)).await;
        if references == 12 {
            // A bare 431, and the connection continues.
            let refused = raw.next_of(kind::HEADERS).await.expect("an answer");
            assert_ne!(refused.flags & END_STREAM, 0);
            raw.send(&get(3, "/healthz")).await.expect("a request");
            assert_eq!(raw.next_of(kind::HEADERS).await.expect("an answer").stream, 3);
        } else {
            assert_eq!(raw.closed().await, Some(ENHANCE_YOUR_CALM));
        }
    }
    assert_eq!(setup.runs().await, 0);
}

#[tokio::test]
async fn streams_beyond_the_limit_are_refused_and_may_come_again() {
    let setup = set_up("limits = { http2_streams = 2 }", DEMO).await;
    let mut raw = setup.raw(&[]).await;
    for stream in [1, 3, 5] {
        raw.send(&post(stream)).await.expect("a request");
    }
    let refused = raw.next_of(kind::RST_STREAM).await.expect("an answer");
    assert_eq!((refused.stream, refused.code()), (5, REFUSED_STREAM));

    let body = user_turn("echo hi").to_string();
    raw.send(&frame(kind::DATA, END_STREAM, 1, body.as_bytes())).await.expect("a body");
    let end = loop {
        let frame = raw.next_of(kind::DATA).await.expect("an answer");
        if frame.flags & END_STREAM != 0 {
            break frame;
        }
    };
    assert_eq!(end.stream, 1);
    raw.send(&get(7, "/healthz")).await.expect("a request");
    assert_eq!(raw.next_of(kind::HEADERS).await.expect("an answer").stream, 7);
    assert_eq!(setup.runs().await, 1);
}

#[tokio::test]
async fn streams_of_an_address_are_limited_over_all_its_connections() {
    let setup = set_up("limits = { http2_streams_per_address = 2 }", DEMO).await;
    let (mut one, mut other) = (setup.raw(&[]).await, setup.raw(&[]).await);
    one.send(&post(1)).await.expect("a request");
    // The first is under way once a later one on the same connection is refused.
    for stream in [3, 5] {
        one.send(&post(stream)).await.expect("a request");
    }
    let refused = one.next_of(kind::RST_STREAM).await.expect("an answer");
    assert_eq!((refused.stream, refused.code()), (5, REFUSED_STREAM));
    other.send(&get(1, "/healthz")).await.expect("a request");
    let refused = other.next_of(kind::RST_STREAM).await.expect("an answer");
    assert_eq!((refused.stream, refused.code()), (1, REFUSED_STREAM));

    for stream in [1, 3] {
        let body = user_turn("echo hi").to_string();
        one.send(&frame(kind::DATA, END_STREAM, stream, body.as_bytes())).await.expect("a body");
        while one.next_of(kind::DATA).await.expect("an answer").flags & END_STREAM == 0 {}
    }
    // A stream is given back a moment after its last frame.
    for stream in odd(1000).skip(1) {
        other.send(&get(stream, "/healthz")).await.expect("a request");
        let answer = loop {
            let frame = other.next().await.expect("an answer");
            if [kind::HEADERS, kind::RST_STREAM].contains(&frame.kind) && frame.stream == stream {
                break frame;
            }
        };
        if answer.kind == kind::HEADERS {
            return;
        }
        assert_eq!(answer.code(), REFUSED_STREAM);
        tokio::task::yield_now().await;
    }
    panic!("no stream was given back");
}

#[tokio::test]
async fn exceeded_limits_are_counted() {
    let (folder, authority) = (tempfile::tempdir().expect("a folder"), Authority::new());
    let server = "limits = { http2_control_frames = 100 }\n[admin]\nlisten = \"127.0.0.1:0\"";
    std::fs::write(folder.path().join("gateway.toml"), config(folder.path(), &authority, server, DEMO))
        .expect("a file");
    let process = Process::start(folder.path());
    let metrics = async || process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
    let line = |limit: &str, count: u32| format!("interlingua_limited_total{{limit=\"{limit}\"}} {count}\n");
    assert!(metrics().await.contains(&line("http2_control_frames", 0)));

    let mut raw = Raw::connect(process.address, &client(&authority, None, &VERSIONS), &[]).await;
    raw.send(&frame(kind::PING, 0, 0, &[0; 8]).repeat(150)).await.expect("a flood");
    assert_eq!(raw.closed().await, Some(ENHANCE_YOUR_CALM));
    let counted = metrics().await;
    assert!(counted.contains(&line("http2_control_frames", 1)), "{counted}");
    assert!(counted.contains(&line("http2_resets", 0)), "{counted}");
}
