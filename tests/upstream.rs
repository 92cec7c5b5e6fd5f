//! The HTTP upstream client against agents of every behaviour: each kind of failure gives its own fault, and chunk
//! boundaries do not change the frames that are read.
//!
//! Not here: the meaning of a response for a run (tests of the normalizer, behaviour tests of the engine).

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua::upstream::http::{Endpoint, HttpSettings, HttpUpstream};
use interlingua::upstream::{Conversation, SendOptions, StopOutcome, Upstream};
use interlingua_core::connector::TurnRequest;
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, FaultKind, Json};
use interlingua_testing_support::recording::{NullSink, RecordingConnector};
use interlingua_testing_support::upstream::{self as scripted, Reply};

/// An upstream client and the frames it has read.
struct Client {
    upstream: HttpUpstream,
    frames: Arc<Mutex<Vec<String>>>,
}

impl Client {
    fn to(url: impl Into<String>) -> Self {
        Self::with(url, |_| {})
    }

    fn with(url: impl Into<String>, change: impl FnOnce(&mut HttpSettings)) -> Self {
        let mut settings = HttpSettings { max_event: 64 * 1024, ..HttpSettings::default() };
        change(&mut settings);
        let frames = Arc::new(Mutex::new(Vec::new()));
        let connector = RecordingConnector { url: url.into(), frames: Arc::clone(&frames) };
        let endpoint = Endpoint { connector: Box::new(connector), url: None, weight: 1 };
        Self { upstream: HttpUpstream::new(vec![endpoint], settings).expect("valid headers"), frames }
    }

    fn start(&self) -> Conversation {
        let request = AgentRequest { session_id: Some("s1".to_owned()), ..AgentRequest::default() };
        let state = Json::null();
        let request = TurnRequest::new(&request, &state, &[]);
        self.upstream.start(&request, SendOptions::default()).expect("it can be expressed")
    }

    async fn open(&self) -> Result<Conversation, Fault> {
        let mut conversation = self.start();
        let begin = tokio::time::timeout(scripted::TEST_TIMEOUT, conversation.begin());
        begin.await.expect("every request ends")?;
        Ok(conversation)
    }

    /// Reads a complete response: its frames and its result.
    async fn read_all(&self) -> (Vec<String>, Result<(), Fault>) {
        let end = match self.open().await {
            Ok(mut conversation) => {
                let end = tokio::time::timeout(scripted::TEST_TIMEOUT, drain(&mut conversation)).await;
                conversation.release();
                end.expect("every response ends")
            }
            Err(fault) => Err(fault),
        };
        (std::mem::take(&mut self.frames.lock().expect("no reader panics")), end)
    }

    async fn fault(&self) -> Fault {
        self.read_all().await.1.expect_err("the response fails")
    }
}

async fn drain(conversation: &mut Conversation) -> Result<(), Fault> {
    loop {
        match conversation.chunk().await {
            Ok(Some(chunk)) => {
                assert!(chunk.len() <= 512 * 1024, "a chunk of {} bytes", chunk.len());
                conversation.feed(&chunk, &mut NullSink)?;
            }
            Ok(None) => return conversation.finish(&mut NullSink).map(|_| ()),
            Err(fault) => return conversation.fail(fault, &mut NullSink).map(|_| ()),
        }
    }
}

const FRAMES: [&str; 3] = [r#"{"n":1,"text":"hé"}"#, r#"{"n":2}"#, r#"{"n":3,"text":"世界"}"#];

fn stream() -> String {
    FRAMES.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

fn assert_fault(fault: &Fault, kind: FaultKind, expected: &str) {
    assert_eq!(fault.kind, kind, "{fault} ({:?})", fault.detail);
    assert!(fault.message.contains(expected), "{fault} does not say {expected:?}");
    assert!(!fault.message.contains("127.0.0.1"), "{fault} contains an address");
}

#[tokio::test]
async fn a_request_carries_the_headers_of_the_connector_and_of_the_operator() {
    let agent = scripted::Upstream::always(Reply::frames(FRAMES));
    let client = Client::with(agent.url("/process"), |settings| {
        settings.headers =
            vec![("authorization".to_owned(), "Bearer x".into()), ("x-both".to_owned(), "operator".into())];
    });
    let (frames, end) = client.read_all().await;
    end.expect("the response completes");
    assert_eq!(frames, FRAMES);

    let request = agent.requests().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/process"));
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(header("accept-encoding"), Some("identity"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("authorization"), Some("Bearer x"));
    assert_eq!(header("x-both"), Some("operator"));
    assert_eq!(request.json()["session_id"], "s1");
}

#[tokio::test]
async fn an_invalid_header_name_is_refused_at_construction() {
    let settings = HttpSettings { headers: vec![("a b".to_owned(), "x".into())], ..HttpSettings::default() };
    let connector = RecordingConnector { url: String::new(), frames: Arc::default() };
    let endpoint = Endpoint { connector: Box::new(connector), url: None, weight: 1 };
    let complaint = HttpUpstream::new(vec![endpoint], settings).err().expect("a space is not allowed");
    assert!(complaint.contains("\"a b\""), "{complaint}");
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let client = Client::to(format!("http://{}/process", scripted::unused_address()));
    assert_fault(&client.fault().await, FaultKind::UpstreamUnreachable, "could not be reached");
    let client = Client::to("http://no-such-host.invalid/process");
    assert_fault(&client.fault().await, FaultKind::UpstreamUnreachable, "could not be reached");
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_times_out() {
    let unresponsive = scripted::FullBacklog::new().await;
    let client = Client::with(format!("http://{}/process", unresponsive.address), |settings| {
        settings.connection.connect = Duration::from_millis(300);

        // Shorter, but starts only once connected.
        settings.first_byte = Duration::from_millis(50);
    });
    let started = Instant::now();
    assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "did not accept a connection");
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_tls_handshake_that_never_completes_times_out() {
    let agent = scripted::Upstream::always(Reply::frames(FRAMES));
    let url = agent.url("/process").replace("http:", "https:");
    let client = Client::with(url, |settings| settings.connection.connect = Duration::from_millis(300));
    assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "did not accept a connection");
    assert_eq!(agent.requests().len(), 0);
}

#[tokio::test]
async fn an_agent_that_never_responds_times_out() {
    let agent = scripted::Upstream::always(Reply::silence());
    let client = Client::with(agent.url("/process"), |settings| settings.first_byte = Duration::from_millis(100));
    assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "did not begin to answer");
    // It received one request, and its connection was closed.
    agent.wait_for_disconnects(1).await;
    assert_eq!(agent.requests().len(), 1);
}

#[tokio::test]
async fn an_agent_that_stops_sending_times_out() {
    let agent = scripted::Upstream::always(Reply::events().frame(FRAMES[0]).chunk("data: {").hang());
    let client = Client::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(100));
    let (frames, end) = client.read_all().await;
    assert_eq!(frames, FRAMES[..1]);
    assert_fault(&end.expect_err("it is silent"), FaultKind::UpstreamTimeout, "fell silent");
    agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn comments_reset_the_idle_timeout_and_incomplete_lines_do_not() {
    let often = Duration::from_millis(250);
    let idle = |settings: &mut HttpSettings| settings.idle = Duration::from_secs(1);
    let beating = (0..6).fold(Reply::events(), |reply, _| reply.pause(often).chunk(":\n"));
    let agent = scripted::Upstream::always(beating.frame(FRAMES[0]).done());
    let (frames, end) = Client::with(agent.url("/process"), idle).read_all().await;
    end.expect("comments reset the idle timeout");
    assert_eq!(frames, FRAMES[..1]);

    let crumbling = (0..60).fold(Reply::events(), |reply, _| reply.pause(often).chunk("x"));
    let agent = scripted::Upstream::always(crumbling.hang());
    let fault = Client::with(agent.url("/process"), idle).fault().await;
    assert_fault(&fault, FaultKind::UpstreamTimeout, "fell silent");
    agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn time_in_which_the_caller_does_not_read_is_not_idle_time() {
    let agent = scripted::Upstream::always(Reply::events().wait("go").frame(FRAMES[0]).done());
    let client = Client::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(400));
    let mut conversation = client.open().await.expect("the response starts");
    // Blocks for longer than the idle timeout without reading.
    std::thread::sleep(Duration::from_millis(500));
    agent.open("go");
    drain(&mut conversation).await.expect("it ends well");
}

#[tokio::test]
async fn an_endless_response_is_cut_off_by_the_total_timeout() {
    for flood in [": beat\n\n", "data: {}\n\n"] {
        let chunk = format!("{:x}\r\n{flood}\r\n", flood.len());
        let agent = scripted::Upstream::always(Reply::events().flood(chunk));
        let client = Client::with(agent.url("/process"), |settings| settings.total = Duration::from_millis(300));
        assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "took too long");
        agent.wait_for_disconnects(1).await;
    }

    let agent = scripted::Upstream::always(Reply::silence());
    let client = Client::with(agent.url("/process"), |settings| settings.total = Duration::from_millis(100));
    assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "took too long");
}

#[tokio::test]
async fn json_that_is_too_deep_or_too_large_for_clients_is_not_passed_on() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(100_000));
    for (data, expected) in [(&deep, "is nested deeper than 128 levels"), (&many, "has more than 100,000 values")] {
        let roomy = |settings: &mut HttpSettings| settings.max_event = 1 << 20;
        let agent = scripted::Upstream::always(Reply::frames([FRAMES[0], data.as_str(), FRAMES[1]]));
        let (frames, end) = Client::with(agent.url("/process"), roomy).read_all().await;
        assert_eq!(frames, FRAMES[..1], "earlier frames are kept");
        assert_fault(&end.expect_err("no client could read it"), FaultKind::UpstreamGarbage, expected);

        let agent = scripted::Upstream::always(Reply::complete(200, &[("content-type", "application/json")], data));
        let (frames, end) = Client::with(agent.url("/process"), roomy).read_all().await;
        assert!(frames.is_empty());
        assert_fault(&end.expect_err("no client could read it"), FaultKind::UpstreamGarbage, expected);
    }
}

#[tokio::test]
async fn chunk_boundaries_do_not_change_the_frames() {
    let stream = stream();
    let mut at = 0;
    let bytes = stream.clone().into_bytes();
    let agent = scripted::Upstream::with_handler(move |_| {
        let (left, right) = bytes.split_at(at);
        at += 1;
        Reply::events().chunk(left).chunk(right).done()
    });
    let client = Client::to(agent.url("/process"));

    for cut in 0..=stream.len() {
        let (frames, end) = client.read_all().await;
        end.expect("the response completes");
        assert_eq!(frames, FRAMES, "cut at {cut}");
    }

    let agent = scripted::Upstream::always(Reply::events().pieces(&stream, 1).done());
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    end.expect("the response completes");
    assert_eq!(frames, FRAMES);
}

#[tokio::test]
async fn a_connection_lost_at_any_byte_truncates_the_response_and_keeps_complete_frames() {
    let stream = stream();
    for reset in [false, true] {
        let mut at = 0;
        let bytes = stream.clone().into_bytes();
        let agent = scripted::Upstream::with_handler(move |_| {
            let answer = Reply::events().chunk(&bytes[..at]);
            at += 1;
            if reset { answer.reset() } else { answer.close() }
        });
        let client = Client::to(agent.url("/process"));
        for cut in 0..=stream.len() {
            let (frames, end) = client.read_all().await;
            let fault = end.expect_err("it vanished");
            // A reset may discard even the response head.
            let expected = if reset { "connection" } else { "broke in the middle" };
            assert_fault(&fault, FaultKind::UpstreamTruncated, expected);
            assert_eq!(frames, FRAMES[..frames.len()], "cut at {cut}");
            if !reset {
                // A frame without its blank line is complete: a JSON object has its own end.
                let full = (1..=FRAMES.len()).filter(|n| {
                    let length: usize = FRAMES[..*n].iter().map(|frame| frame.len() + 8).sum();
                    cut >= length - 2
                });
                assert_eq!(frames.len(), full.count(), "cut at {cut}");
            }
        }
        assert_eq!(agent.requests().len(), stream.len() + 1, "a broken response is not retried");
    }
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_truncated() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\n";
    let agent = scripted::Upstream::always(Reply::raw(head).and_raw("data: {}\n\n").close());
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    assert_eq!(frames, ["{}"]);
    assert_fault(&end.expect_err("it is too short"), FaultKind::UpstreamTruncated, "broke in the middle");
}

#[tokio::test]
async fn a_body_without_length_ends_with_its_connection() {
    let head = "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let agent = scripted::Upstream::always(Reply::raw(head).and_raw("data: {}").close());
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    end.expect("the only end such a body has");
    assert_eq!(frames, ["{}"]);
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_protocol_error() {
    for nonsense in ["SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\0\0\0\0\0\0\0\0\r\n\r\n"] {
        let agent = scripted::Upstream::always(Reply::raw(nonsense).close());
        assert_fault(&Client::to(agent.url("/process")).fault().await, FaultKind::UpstreamGarbage, "could not be read");
    }

    let agent = scripted::Upstream::always(Reply::events().frame(FRAMES[0]).and_raw("zz\r\nnonsense\r\n").close());
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    assert_eq!(frames, FRAMES[..1]);
    assert_fault(&end.expect_err("no such chunk"), FaultKind::UpstreamGarbage, "not framed as HTTP");
}

#[tokio::test]
async fn an_endless_response_head_is_a_protocol_error() {
    let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let many = "x-many: 1\r\n".repeat(100_000);
    let answers = [
        Reply::raw(large).hang(),
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n")).hang(),
        Reply::raw("HTTP/1.1 200 OK\r\nx-endless: ").flood("x".repeat(1024)),
    ];

    for answer in answers {
        let agent = scripted::Upstream::always(answer);
        assert_fault(
            &Client::to(agent.url("/process")).fault().await,
            FaultKind::UpstreamGarbage,
            "head of the agent's answer",
        );
        agent.wait_for_disconnects(1).await;
    }
}

#[tokio::test]
async fn endless_interim_responses_time_out() {
    let agent = scripted::Upstream::always(Reply::raw("").flood("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"));
    let client = Client::with(agent.url("/process"), |settings| settings.first_byte = Duration::from_millis(100));
    assert_fault(&client.fault().await, FaultKind::UpstreamTimeout, "did not begin to answer");
    agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn endless_chunk_extensions_and_trailers_are_a_protocol_error() {
    let answer = || Reply::events().frame(FRAMES[0]);
    for answer in
        [answer().and_raw("1;").flood("x".repeat(1024)), answer().and_raw("0\r\n").flood("a: b\r\n".repeat(100))]
    {
        let agent = scripted::Upstream::always(answer);
        let (frames, end) = Client::to(agent.url("/process")).read_all().await;
        assert_eq!(frames, FRAMES[..1]);
        assert_fault(&end.expect_err("it has no end"), FaultKind::UpstreamGarbage, "not framed as HTTP");
        agent.wait_for_disconnects(1).await;
    }
}

#[tokio::test]
async fn an_endless_event_is_too_large() {
    let chunk = format!("{:x}\r\n{}\r\n", 1024, "x".repeat(1024));
    let agent = scripted::Upstream::always(Reply::events().frame(FRAMES[0]).chunk("data: ").flood(chunk));
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    assert_eq!(frames, FRAMES[..1]);
    assert_fault(&end.expect_err("it has no end"), FaultKind::UpstreamTooLarge, "larger than 65536 bytes");
}

#[tokio::test]
async fn a_million_tiny_frames_are_received() {
    let agent = scripted::Upstream::always(Reply::events().pieces("data:1\n\n".repeat(1_000_000), 100_000).done());
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    end.expect("the response completes");
    assert_eq!(frames.len(), 1_000_000);
}

#[tokio::test]
async fn a_response_that_is_not_streamed_is_read_as_one_body() {
    let body = r#"{"object":"response","status":"completed"}"#;
    for kind in ["application/json", "application/problem+json; charset=utf-8", "text/plain", ""] {
        let headers = [("content-type", kind)];
        let answer = Reply::head(200, &headers[..usize::from(!kind.is_empty())]).pieces(body, 7).done();
        let agent = scripted::Upstream::always(answer);
        let (received, end) = Client::to(agent.url("/process")).read_all().await;
        end.expect("the response completes");
        assert_eq!(received, ["whole", body], "as {kind:?}");
    }

    let flood = format!("{:x}\r\n{}\r\n", 1024, "[".repeat(1024));
    let agent = scripted::Upstream::always(Reply::head(200, &[("content-type", "application/json")]).flood(flood));
    assert_fault(
        &Client::to(agent.url("/process")).fault().await,
        FaultKind::UpstreamTooLarge,
        "larger than 65536 bytes",
    );
}

#[tokio::test]
async fn an_event_stream_with_another_content_type_is_recognised() {
    for headers in [&[][..], &[("content-type", "text/plain; charset=utf-8")], &[("content-type", "Text/Event-Stream")]]
    {
        let agent = scripted::Upstream::always(Reply::head(200, headers).pieces(stream(), 5).done());
        let (frames, end) = Client::to(agent.url("/process")).read_all().await;
        end.expect("the response completes");
        assert_eq!(frames, FRAMES);
    }
}

#[tokio::test]
async fn an_html_page_is_a_protocol_error() {
    let agent = scripted::Upstream::always(Reply::complete(200, &[("content-type", "text/html")], "<p>welcome"));
    assert_fault(
        &Client::to(agent.url("/process")).fault().await,
        FaultKind::UpstreamGarbage,
        "neither an event stream nor JSON",
    );
}

#[tokio::test]
async fn a_refusal_keeps_its_status_and_retry_after_and_hides_its_text() {
    let headers = [("content-type", "application/json"), ("retry-after", "30")];
    let agent = scripted::Upstream::always(Reply::complete(429, &headers, r#"{"detail":"quota of 10.0.0.7"}"#));
    let fault = Client::to(agent.url("/process")).fault().await;
    assert_fault(&fault, FaultKind::UpstreamRateLimited, "rate limited");
    assert_eq!((fault.upstream_status, fault.retry_after), (Some(429), Some(Duration::from_secs(30))));
    assert!(fault.detail.is_some_and(|detail| detail.contains("quota")) && !fault.message.contains("quota"));

    let headers = [("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")];
    let agent = scripted::Upstream::always(Reply::complete(429, &headers, ""));
    assert_eq!(Client::to(agent.url("/process")).fault().await.retry_after, Some(Duration::ZERO));
}

#[tokio::test]
async fn an_endless_refusal_body_is_cut_off() {
    let flood = format!("{:x}\r\n{}\r\n", 1024, "x".repeat(1024));
    let agent = scripted::Upstream::always(Reply::head(500, &[]).flood(flood));
    let fault = Client::to(agent.url("/process")).fault().await;
    assert_fault(&fault, FaultKind::AgentFailed, "the agent failed (500)");
    assert!(fault.detail.is_some_and(|detail| (512..700).contains(&detail.len())), "the log needs no more");
    agent.wait_for_disconnects(1).await;

    let agent = scripted::Upstream::always(Reply::head(500, &[]).chunk("half").hang());
    let client = Client::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(100));
    assert!(client.fault().await.detail.is_some_and(|detail| detail.ends_with("/process answered 500: half")));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = scripted::Upstream::always(Reply::frames(FRAMES));
    let location = other.url("/process");
    let agent = scripted::Upstream::always(Reply::complete(307, &[("location", &location)], ""));
    let fault = Client::to(agent.url("/process")).fault().await;
    assert_fault(&fault, FaultKind::UpstreamMisconfigured, "redirects");
    assert_eq!(fault.upstream_status, Some(307));
    assert!(fault.detail.is_some_and(|detail| detail.ends_with(&format!("answered 307, to {location}"))));
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn an_unavailable_agent_is_retried() {
    let unavailable = Reply::complete(503, &[], "starting");
    let agent = scripted::Upstream::in_order([unavailable.clone(), unavailable.clone(), Reply::frames(FRAMES)]);
    let (frames, end) = Client::to(agent.url("/process")).read_all().await;
    end.expect("the third attempt succeeds");
    assert_eq!((frames.len(), agent.requests().len()), (3, 3));
    assert_eq!(agent.requests()[0].body, agent.requests()[2].body);

    let agent = scripted::Upstream::always(unavailable);
    let client = Client::with(agent.url("/process"), |settings| settings.retries = 1);
    assert_fault(&client.fault().await, FaultKind::UpstreamOverloaded, "not available");
    assert_eq!(agent.requests().len(), 2);
}

#[tokio::test]
async fn a_long_retry_after_is_not_waited_for() {
    let agent = scripted::Upstream::always(Reply::complete(503, &[("retry-after", "120")], ""));
    let fault = Client::to(agent.url("/process")).fault().await;
    assert_eq!(fault.retry_after, Some(Duration::from_secs(120)));
    assert_eq!(agent.requests().len(), 1);
}

#[tokio::test]
async fn a_request_that_may_have_been_processed_is_not_retried() {
    for answer in [Reply::nothing(), Reply::default().reset(), Reply::raw("HTTP/1.1 2").close()] {
        let agent = scripted::Upstream::always(answer);
        assert_fault(
            &Client::to(agent.url("/process")).fault().await,
            FaultKind::UpstreamTruncated,
            "before it answered",
        );
        assert_eq!(agent.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_connection_serves_consecutive_requests() {
    let agent = scripted::Upstream::always(Reply::frames(FRAMES));
    let client = Client::to(agent.url("/process"));
    for _ in 0..5 {
        client.read_all().await.1.expect("the response completes");
    }
    assert_eq!((agent.requests().len(), agent.connections()), (5, 1));
}

#[tokio::test]
async fn a_response_released_after_its_last_frame_keeps_the_connection_reusable() {
    let agent = scripted::Upstream::always(Reply::events().frame(FRAMES[0]).wait("end").done());
    let client = Client::to(agent.url("/process"));
    let mut conversation = client.open().await.expect("the response starts");
    let chunk = conversation.chunk().await.expect("more data").expect("a frame");
    conversation.feed(&chunk, &mut NullSink).expect("a good frame");
    conversation.release();
    agent.open("end");

    // The rest may be read before or after the next request starts; both are fine.
    client.read_all().await.1.expect("the response completes");
    assert_eq!(agent.disconnects(), 0);
}

#[tokio::test]
async fn a_dead_pooled_connection_is_replaced() {
    for reset in [false, true] {
        let mut over_first = 0;
        let agent = scripted::Upstream::with_handler(move |request| {
            over_first += usize::from(request.connection == 0);
            match (request.connection, over_first) {
                (0, 2) if reset => Reply::default().reset(),
                (0, 2) => Reply::nothing(),
                _ => Reply::frames(FRAMES),
            }
        });
        let client = Client::to(agent.url("/process"));
        client.read_all().await.1.expect("over a new connection");
        client.read_all().await.1.expect("over the pooled one, which dies, then over a new one");
        assert_eq!((agent.requests().len(), agent.connections()), (3, 2));
    }
}

#[tokio::test]
async fn dropping_a_response_closes_its_connection() {
    let agent = scripted::Upstream::always(Reply::events().frame(FRAMES[0]).hang());
    let client = Client::to(agent.url("/process"));
    let mut conversation = client.open().await.expect("the response starts");
    conversation.chunk().await.expect("more data").expect("a frame");
    assert_eq!(agent.disconnects(), 0);
    drop(conversation);
    agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn dropping_a_pending_request_closes_its_connection() {
    let agent = scripted::Upstream::always(Reply::silence());
    let client = Client::to(agent.url("/process"));
    tokio::select! {
        _ = client.open() => panic!("it never answers"),
        () = agent.wait_for_requests(1) => {}
    }
    agent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn a_stop_request_is_sent_to_the_agent() {
    let agent = scripted::Upstream::in_order([Reply::complete(200, &[], "{}"), Reply::complete(500, &[], "")]);
    let client = Client::to(agent.url("/process"));
    let stopped = client.start().stop().expect("it has the route").await;
    assert!(matches!(stopped, StopOutcome::Sent), "{stopped:?}");
    let stopped = client.start().stop().expect("it has the route").await;
    assert!(matches!(&stopped, StopOutcome::Refused(why) if why.contains("500")), "{stopped:?}");

    let requests = agent.requests();
    assert_eq!((requests[0].path.as_str(), requests[0].body.as_slice()), ("/stop", br#""s1""#.as_slice()));
    assert_eq!(requests.len(), 2);
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).expect("writes to memory succeed");
    encoder.finish().expect("writes to memory succeed")
}

const GZIP_HEADERS: [(&str, &str); 2] = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];

#[tokio::test]
async fn a_compressed_response_is_decoded_at_any_chunk_boundary() {
    let compressed = gzip(&stream());
    let mut at = 0;
    let bytes = compressed.clone();
    let agent = scripted::Upstream::with_handler(move |_| {
        let (left, right) = bytes.split_at(at);
        at += 1;
        Reply::head(200, &GZIP_HEADERS).chunk(left).chunk(right).done()
    });
    let client = Client::to(agent.url("/process"));
    for cut in 0..=compressed.len() {
        let (frames, end) = client.read_all().await;
        end.expect("the response completes");
        assert_eq!(frames, FRAMES, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_compressed_frame_is_delivered_as_soon_as_it_is_flushed() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    write!(encoder, "data: {}\n\n", FRAMES[0]).expect("writes to memory succeed");
    encoder.flush().expect("writes to memory succeed");
    let first = std::mem::take(encoder.get_mut());
    let agent = scripted::Upstream::always(Reply::head(200, &GZIP_HEADERS).chunk(first).hang());
    let client = Client::to(agent.url("/process"));
    let mut conversation = client.open().await.expect("the response starts");
    while client.frames.lock().expect("no reader panics").is_empty() {
        let chunk = conversation.chunk().await.expect("more data").expect("a piece");
        conversation.feed(&chunk, &mut NullSink).expect("a good frame");
    }
    assert_eq!(*client.frames.lock().expect("no reader panics"), FRAMES[..1]);
}

#[tokio::test]
async fn a_decompression_bomb_is_refused_early() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        encoder.write_all(&[b'\n'; 1024 * 1024]).expect("writes to memory succeed");
    }

    let bomb = encoder.finish().expect("writes to memory succeed");
    assert!(bomb.len() < 128 * 1024);
    let agent = scripted::Upstream::always(Reply::head(200, &GZIP_HEADERS).pieces(&bomb, 64 * 1024).done());
    let started = Instant::now();
    assert_fault(&Client::to(agent.url("/process")).fault().await, FaultKind::UpstreamGarbage, "next to nothing");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    // A bomb in a single event meets the event limit first.
    let bomb = gzip(&format!("data: {}", "x".repeat(16 * 1024 * 1024)));
    let agent = scripted::Upstream::always(Reply::head(200, &GZIP_HEADERS).chunk(&bomb).done());
    assert_fault(&Client::to(agent.url("/process")).fault().await, FaultKind::UpstreamTooLarge, "larger than");
}

#[tokio::test]
async fn broken_or_unknown_compression_is_reported() {
    let full = gzip(&stream());
    let cases = [
        (
            Reply::head(200, &GZIP_HEADERS).chunk("no gzip at all").done(),
            FaultKind::UpstreamGarbage,
            "could not be unpacked",
        ),
        (
            Reply::head(200, &GZIP_HEADERS).chunk(&full[..full.len() - 9]).done(),
            FaultKind::UpstreamTruncated,
            "ended before it was complete",
        ),
        (
            Reply::head(200, &GZIP_HEADERS).chunk(&full).chunk("and more, not requested").done(),
            FaultKind::UpstreamGarbage,
            "could not be unpacked",
        ),
        (Reply::head(200, &GZIP_HEADERS).chunk(&full).close(), FaultKind::UpstreamTruncated, "broke in the middle"),
        (
            Reply::head(200, &[("content-encoding", "br")]).chunk("?").done(),
            FaultKind::UpstreamGarbage,
            "was not requested",
        ),
    ];
    for (answer, kind, expected) in cases {
        let agent = scripted::Upstream::always(answer);
        assert_fault(&Client::to(agent.url("/process")).fault().await, kind, expected);
    }
}
