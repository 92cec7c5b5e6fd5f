//! How agents on the network are asked and heard, however they behave: every way an answer can fail gives its own
//! fault, and no way of cutting an answer into pieces changes what is heard.
//!
//! Not here: what an answer means for a run (the normalizer's tests and the behaviour tests of the engine).

#[path = "support/upstream.rs"]
mod scripted;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interlingua::upstream::http::{HttpSettings, HttpUpstream};
use interlingua::upstream::{Conversation, Upstream};
use interlingua_core::agent_api::Frame;
use interlingua_core::connector::{Ask, Connector, Ear, Question, Reader};
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, FaultKind, Json, sse};
use scripted::Answer;

/// Asks a URL, and remembers every frame it is told.
struct Plain {
    url: String,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Connector for Plain {
    fn ask(&self, question: &Question<'_>) -> Result<(Ask, Box<dyn Reader>), Fault> {
        let body = serde_json::to_vec(question.request).expect("a request is JSON");
        let headers = vec![("content-type", "application/json".to_owned()), ("x-both", "protocol".to_owned())];
        let ask = Ask { method: "POST", url: self.url.clone(), headers, body };
        Ok((ask, Box::new(Remembering(Arc::clone(&self.heard)))))
    }

    fn cancel(&self, question: &Question<'_>) -> Option<Ask> {
        let body = serde_json::to_vec(&question.request.session_id).expect("an id is JSON");
        Some(Ask { method: "POST", url: self.url.replace("/process", "/stop"), headers: Vec::new(), body })
    }
}

struct Remembering(Arc<Mutex<Vec<String>>>);

impl Remembering {
    fn remember(&self, data: &[u8]) {
        self.0.lock().expect("no reader panics").push(String::from_utf8_lossy(data).into_owned());
    }
}

impl Reader for Remembering {
    fn read(&mut self, frame: sse::Frame<'_>, ear: &mut dyn Ear) -> Result<(), Fault> {
        self.remember(frame.data);
        Frame::parse(frame.data).map_or(Ok(()), |heard| ear.hear(&heard))
    }

    fn read_body(&mut self, body: &[u8], _: &mut dyn Ear) -> Result<(), Fault> {
        self.remember(b"whole");
        self.remember(body);
        Ok(())
    }
}

struct NoEar;

impl Ear for NoEar {
    fn hear(&mut self, _: &Heard<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// A way to an agent, and what was heard over it.
struct Way {
    upstream: HttpUpstream,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Way {
    fn to(url: impl Into<String>) -> Self {
        Self::with(url, |_| {})
    }

    fn with(url: impl Into<String>, change: impl FnOnce(&mut HttpSettings)) -> Self {
        let mut settings = HttpSettings { max_event: 64 * 1024, ..HttpSettings::default() };
        change(&mut settings);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let connector = Plain { url: url.into(), heard: Arc::clone(&heard) };
        Self { upstream: HttpUpstream::new(Box::new(connector), settings).expect("good headers"), heard }
    }

    async fn open(&self) -> Result<Conversation, Fault> {
        let request = AgentRequest { session_id: Some("s1".to_owned()), ..AgentRequest::default() };
        let memory = Json::null();
        let asked = self.upstream.open(&Question { request: &request, memory: &memory, answered: &[] }, None);
        tokio::time::timeout(scripted::STUCK, asked).await.expect("every question ends")
    }

    /// The whole answer: its frames, and how it ended.
    async fn hear(&self) -> (Vec<String>, Result<(), Fault>) {
        let end = match self.open().await {
            Ok(mut conversation) => {
                let end = tokio::time::timeout(scripted::STUCK, listen(&mut conversation)).await;
                conversation.release();
                end.expect("every answer ends")
            }
            Err(fault) => Err(fault),
        };
        (std::mem::take(&mut self.heard.lock().expect("no reader panics")), end)
    }

    async fn fault(&self) -> Fault {
        self.hear().await.1.expect_err("the answer fails")
    }
}

async fn listen(conversation: &mut Conversation) -> Result<(), Fault> {
    loop {
        match conversation.chunk().await {
            Ok(Some(chunk)) => {
                assert!(chunk.len() <= 512 * 1024, "a piece of {} bytes", chunk.len());
                conversation.feed(&chunk, &mut NoEar)?;
            }
            Ok(None) => return conversation.finish(&mut NoEar),
            Err(fault) => {
                conversation.finish(&mut NoEar)?;
                return Err(fault);
            }
        }
    }
}

const FRAMES: [&str; 3] = [r#"{"n":1,"text":"hé"}"#, r#"{"n":2}"#, r#"{"n":3,"text":"世界"}"#];

fn stream() -> String {
    FRAMES.iter().map(|frame| format!("data: {frame}\n\n")).collect()
}

fn expect(fault: &Fault, kind: FaultKind, words: &str) {
    assert_eq!(fault.kind, kind, "{fault} ({:?})", fault.detail);
    assert!(fault.message.contains(words), "{fault} does not say {words:?}");
    assert!(!fault.message.contains("127.0.0.1"), "{fault} tells an address");
}

#[tokio::test]
async fn a_question_goes_out_as_the_connector_and_the_operator_want_it() {
    let agent = scripted::Upstream::always(Answer::frames(FRAMES));
    let way = Way::with(agent.url("/process"), |settings| {
        settings.headers =
            vec![("authorization".to_owned(), "Bearer x".into()), ("x-both".to_owned(), "operator".into())];
    });
    let (frames, end) = way.hear().await;
    end.expect("the answer ends well");
    assert_eq!(frames, FRAMES);
    let asked = agent.asked().remove(0);
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/process"));
    let header = |name: &str| asked.headers.get(name).map(String::as_str);
    assert_eq!(header("accept-encoding"), Some("identity"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("authorization"), Some("Bearer x"));
    assert_eq!(header("x-both"), Some("operator"));
    assert_eq!(asked.json()["session_id"], "s1");
}

#[tokio::test]
async fn a_header_http_does_not_allow_is_refused_before_anything_is_sent() {
    let settings = HttpSettings { headers: vec![("a b".to_owned(), "x".into())], ..HttpSettings::default() };
    let connector = Plain { url: String::new(), heard: Arc::default() };
    let complaint = HttpUpstream::new(Box::new(connector), settings).err().expect("a space is not allowed");
    assert!(complaint.contains("\"a b\""), "{complaint}");
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let way = Way::to(format!("http://{}/process", scripted::nobody()));
    expect(&way.fault().await, FaultKind::UpstreamUnreachable, "could not be reached");
    let way = Way::to("http://no-such-host.invalid/process");
    expect(&way.fault().await, FaultKind::UpstreamUnreachable, "could not be reached");
}

#[tokio::test]
async fn a_connection_that_is_not_accepted_times_out() {
    let deaf = scripted::Deaf::new().await;
    let way = Way::with(format!("http://{}/process", deaf.address), |settings| {
        settings.connect = Duration::from_millis(300);
        // Shorter, but only counted from the connection.
        settings.first_byte = Duration::from_millis(50);
    });
    let began = Instant::now();
    expect(&way.fault().await, FaultKind::UpstreamTimeout, "did not accept a connection");
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn an_agent_that_does_not_speak_tls_is_not_waited_for() {
    let agent = scripted::Upstream::always(Answer::frames(FRAMES));
    let url = agent.url("/process").replace("http:", "https:");
    let way = Way::with(url, |settings| settings.connect = Duration::from_millis(300));
    expect(&way.fault().await, FaultKind::UpstreamTimeout, "did not accept a connection");
    assert_eq!(agent.asked().len(), 0);
}

#[tokio::test]
async fn an_agent_that_never_begins_to_answer_times_out() {
    let agent = scripted::Upstream::always(Answer::silence());
    let way = Way::with(agent.url("/process"), |settings| settings.first_byte = Duration::from_millis(100));
    expect(&way.fault().await, FaultKind::UpstreamTimeout, "did not begin to answer");
    // It was asked once, and knows that nobody waits any more.
    agent.wait_left(1).await;
    assert_eq!(agent.asked().len(), 1);
}

#[tokio::test]
async fn an_agent_that_falls_silent_times_out() {
    let agent = scripted::Upstream::always(Answer::events().frame(FRAMES[0]).chunk("data: {").hang());
    let way = Way::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(100));
    let (frames, end) = way.hear().await;
    assert_eq!(frames, FRAMES[..1]);
    expect(&end.expect_err("it is silent"), FaultKind::UpstreamTimeout, "fell silent");
    agent.wait_left(1).await;
}

#[tokio::test]
async fn comments_are_signs_of_life_and_crumbs_are_not() {
    let often = Duration::from_millis(250);
    let idle = |settings: &mut HttpSettings| settings.idle = Duration::from_secs(1);
    let beating = (0..6).fold(Answer::events(), |answer, _| answer.pause(often).chunk(":\n"));
    let agent = scripted::Upstream::always(beating.frame(FRAMES[0]).done());
    let (frames, end) = Way::with(agent.url("/process"), idle).hear().await;
    end.expect("it was never silent for long");
    assert_eq!(frames, FRAMES[..1]);

    let crumbling = (0..60).fold(Answer::events(), |answer, _| answer.pause(often).chunk("x"));
    let agent = scripted::Upstream::always(crumbling.hang());
    let fault = Way::with(agent.url("/process"), idle).fault().await;
    expect(&fault, FaultKind::UpstreamTimeout, "fell silent");
    agent.wait_left(1).await;
}

#[tokio::test]
async fn an_answer_nobody_had_time_to_read_was_not_silent() {
    let agent = scripted::Upstream::always(Answer::events().wait("go").frame(FRAMES[0]).done());
    let way = Way::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(400));
    let mut conversation = way.open().await.expect("it begins");
    // The time itself is the matter here: longer than the bound, and nobody waits.
    std::thread::sleep(Duration::from_millis(500));
    agent.open("go");
    listen(&mut conversation).await.expect("it ends well");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_by_the_total_time() {
    for flood in [": beat\n\n", "data: {}\n\n"] {
        let chunk = format!("{:x}\r\n{flood}\r\n", flood.len());
        let agent = scripted::Upstream::always(Answer::events().flood(chunk));
        let way = Way::with(agent.url("/process"), |settings| settings.total = Duration::from_millis(300));
        expect(&way.fault().await, FaultKind::UpstreamTimeout, "took too long");
        agent.wait_left(1).await;
    }
    let agent = scripted::Upstream::always(Answer::silence());
    let way = Way::with(agent.url("/process"), |settings| settings.total = Duration::from_millis(100));
    expect(&way.fault().await, FaultKind::UpstreamTimeout, "took too long");
}

#[tokio::test]
async fn what_is_nested_deeper_or_holds_more_than_clients_can_read_is_not_passed_on() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(100_000));
    for (data, words) in [(&deep, "is nested deeper than 128 levels"), (&many, "has more than 100,000 values")] {
        let roomy = |settings: &mut HttpSettings| settings.max_event = 1 << 20;
        let agent = scripted::Upstream::always(Answer::frames([FRAMES[0], data.as_str(), FRAMES[1]]));
        let (frames, end) = Way::with(agent.url("/process"), roomy).hear().await;
        assert_eq!(frames, FRAMES[..1], "what came before stays");
        expect(&end.expect_err("no client could read it"), FaultKind::UpstreamGarbage, words);

        let agent = scripted::Upstream::always(Answer::whole(200, &[("content-type", "application/json")], data));
        let (frames, end) = Way::with(agent.url("/process"), roomy).hear().await;
        assert!(frames.is_empty());
        expect(&end.expect_err("no client could read it"), FaultKind::UpstreamGarbage, words);
    }
}

#[tokio::test]
async fn any_cut_gives_the_same_frames() {
    let stream = stream();
    let mut at = 0;
    let bytes = stream.clone().into_bytes();
    let agent = scripted::Upstream::deciding(move |_| {
        let (left, right) = bytes.split_at(at);
        at += 1;
        Answer::events().chunk(left).chunk(right).done()
    });
    let way = Way::to(agent.url("/process"));
    for cut in 0..=stream.len() {
        let (frames, end) = way.hear().await;
        end.expect("the answer ends well");
        assert_eq!(frames, FRAMES, "cut at {cut}");
    }
    let agent = scripted::Upstream::always(Answer::events().pieces(&stream, 1).done());
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    end.expect("the answer ends well");
    assert_eq!(frames, FRAMES);
}

#[tokio::test]
async fn an_agent_that_vanishes_anywhere_truncates_the_answer_and_takes_nothing_back() {
    let stream = stream();
    for reset in [false, true] {
        let mut at = 0;
        let bytes = stream.clone().into_bytes();
        let agent = scripted::Upstream::deciding(move |_| {
            let answer = Answer::events().chunk(&bytes[..at]);
            at += 1;
            if reset { answer.reset() } else { answer.close() }
        });
        let way = Way::to(agent.url("/process"));
        for cut in 0..=stream.len() {
            let (frames, end) = way.hear().await;
            let fault = end.expect_err("it vanished");
            // A reset may overtake even the head of the answer.
            let words = if reset { "connection" } else { "broke in the middle" };
            expect(&fault, FaultKind::UpstreamTruncated, words);
            assert_eq!(frames, FRAMES[..frames.len()], "cut at {cut}");
            if !reset {
                // A frame that lacks only its blank line is whole: an object ends itself.
                let whole = (1..=FRAMES.len()).filter(|n| {
                    let length: usize = FRAMES[..*n].iter().map(|frame| frame.len() + 8).sum();
                    cut >= length - 2
                });
                assert_eq!(frames.len(), whole.count(), "cut at {cut}");
            }
        }
        assert_eq!(agent.asked().len(), stream.len() + 1, "an answer that broke is not asked for again");
    }
}

#[tokio::test]
async fn a_body_shorter_than_announced_is_truncated() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100\r\n\r\n";
    let agent = scripted::Upstream::always(Answer::raw(head).and_raw("data: {}\n\n").close());
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    assert_eq!(frames, ["{}"]);
    expect(&end.expect_err("it is too short"), FaultKind::UpstreamTruncated, "broke in the middle");
}

#[tokio::test]
async fn a_body_without_length_ends_with_its_connection() {
    let head = "HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let agent = scripted::Upstream::always(Answer::raw(head).and_raw("data: {}").close());
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    end.expect("the only end such a body has");
    assert_eq!(frames, ["{}"]);
}

#[tokio::test]
async fn what_is_no_http_is_garbage() {
    for nonsense in ["SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "\0\0\0\0\0\0\0\0\r\n\r\n"] {
        let agent = scripted::Upstream::always(Answer::raw(nonsense).close());
        expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamGarbage, "could not be read");
    }
    let agent = scripted::Upstream::always(Answer::events().frame(FRAMES[0]).and_raw("zz\r\nnonsense\r\n").close());
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    assert_eq!(frames, FRAMES[..1]);
    expect(&end.expect_err("no such chunk"), FaultKind::UpstreamGarbage, "not framed as HTTP");
}

#[tokio::test]
async fn a_head_without_end_is_garbage_and_bounded() {
    let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\n\r\n", "x".repeat(1024 * 1024));
    let many = "x-many: 1\r\n".repeat(100_000);
    let answers = [
        Answer::raw(large).hang(),
        Answer::raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n")).hang(),
        Answer::raw("HTTP/1.1 200 OK\r\nx-endless: ").flood("x".repeat(1024)),
    ];
    for answer in answers {
        let agent = scripted::Upstream::always(answer);
        expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamGarbage, "head of the agent's answer");
        agent.wait_left(1).await;
    }
}

#[tokio::test]
async fn an_event_without_end_is_too_large() {
    let chunk = format!("{:x}\r\n{}\r\n", 1024, "x".repeat(1024));
    let agent = scripted::Upstream::always(Answer::events().frame(FRAMES[0]).chunk("data: ").flood(chunk));
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    assert_eq!(frames, FRAMES[..1]);
    expect(&end.expect_err("it has no end"), FaultKind::UpstreamTooLarge, "larger than 65536 bytes");
}

#[tokio::test]
async fn a_million_tiny_frames_are_heard() {
    let agent = scripted::Upstream::always(Answer::events().pieces("data:1\n\n".repeat(1_000_000), 100_000).done());
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    end.expect("the answer ends well");
    assert_eq!(frames.len(), 1_000_000);
}

#[tokio::test]
async fn an_answer_that_comes_whole_is_read_whole() {
    let body = r#"{"object":"response","status":"completed"}"#;
    for kind in ["application/json", "application/problem+json; charset=utf-8", "text/plain", ""] {
        let headers = [("content-type", kind)];
        let answer = Answer::head(200, &headers[..usize::from(!kind.is_empty())]).pieces(body, 7).done();
        let agent = scripted::Upstream::always(answer);
        let (told, end) = Way::to(agent.url("/process")).hear().await;
        end.expect("the answer ends well");
        assert_eq!(told, ["whole", body], "as {kind:?}");
    }
    let flood = format!("{:x}\r\n{}\r\n", 1024, "[".repeat(1024));
    let agent = scripted::Upstream::always(Answer::head(200, &[("content-type", "application/json")]).flood(flood));
    expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamTooLarge, "larger than 65536 bytes");
}

#[tokio::test]
async fn a_stream_that_is_not_called_one_is_heard_all_the_same() {
    for headers in [&[][..], &[("content-type", "text/plain; charset=utf-8")], &[("content-type", "Text/Event-Stream")]]
    {
        let agent = scripted::Upstream::always(Answer::head(200, headers).pieces(stream(), 5).done());
        let (frames, end) = Way::to(agent.url("/process")).hear().await;
        end.expect("the answer ends well");
        assert_eq!(frames, FRAMES);
    }
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    let agent = scripted::Upstream::always(Answer::whole(200, &[("content-type", "text/html")], "<p>welcome"));
    expect(
        &Way::to(agent.url("/process")).fault().await,
        FaultKind::UpstreamGarbage,
        "neither an event stream nor JSON",
    );
}

#[tokio::test]
async fn a_refusal_keeps_status_and_wish_and_hides_its_text() {
    let headers = [("content-type", "application/json"), ("retry-after", "30")];
    let agent = scripted::Upstream::always(Answer::whole(429, &headers, r#"{"detail":"quota of 10.0.0.7"}"#));
    let fault = Way::to(agent.url("/process")).fault().await;
    expect(&fault, FaultKind::UpstreamRateLimited, "rate limited");
    assert_eq!((fault.upstream_status, fault.retry_after), (Some(429), Some(Duration::from_secs(30))));
    assert!(fault.detail.is_some_and(|detail| detail.contains("quota")) && !fault.message.contains("quota"));

    let headers = [("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")];
    let agent = scripted::Upstream::always(Answer::whole(429, &headers, ""));
    assert_eq!(Way::to(agent.url("/process")).fault().await.retry_after, Some(Duration::ZERO));
}

#[tokio::test]
async fn a_refusal_without_end_is_cut() {
    let flood = format!("{:x}\r\n{}\r\n", 1024, "x".repeat(1024));
    let agent = scripted::Upstream::always(Answer::head(500, &[]).flood(flood));
    let fault = Way::to(agent.url("/process")).fault().await;
    expect(&fault, FaultKind::UpstreamRefused, "refused the request");
    assert!(fault.detail.is_some_and(|detail| (512..700).contains(&detail.len())), "the log needs no more");
    agent.wait_left(1).await;

    let agent = scripted::Upstream::always(Answer::head(500, &[]).chunk("half").hang());
    let way = Way::with(agent.url("/process"), |settings| settings.idle = Duration::from_millis(100));
    assert!(way.fault().await.detail.is_some_and(|detail| detail.ends_with("/process answered 500: half")));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = scripted::Upstream::always(Answer::frames(FRAMES));
    let location = other.url("/process");
    let agent = scripted::Upstream::always(Answer::whole(307, &[("location", &location)], ""));
    let fault = Way::to(agent.url("/process")).fault().await;
    expect(&fault, FaultKind::UpstreamRefused, "redirects");
    assert_eq!(fault.upstream_status, Some(307));
    assert!(fault.detail.is_some_and(|detail| detail.ends_with(&format!("answered 307, to {location}"))));
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn an_unavailable_agent_is_asked_again() {
    let unavailable = Answer::whole(503, &[], "starting");
    let agent = scripted::Upstream::answering([unavailable.clone(), unavailable.clone(), Answer::frames(FRAMES)]);
    let (frames, end) = Way::to(agent.url("/process")).hear().await;
    end.expect("the third time it answers");
    assert_eq!((frames.len(), agent.asked().len()), (3, 3));
    assert_eq!(agent.asked()[0].body, agent.asked()[2].body);

    let agent = scripted::Upstream::always(unavailable);
    let way = Way::with(agent.url("/process"), |settings| settings.retries = 1);
    expect(&way.fault().await, FaultKind::UpstreamUnreachable, "not available");
    assert_eq!(agent.asked().len(), 2);
}

#[tokio::test]
async fn an_agent_that_asks_for_a_long_pause_gets_it() {
    let agent = scripted::Upstream::always(Answer::whole(503, &[("retry-after", "120")], ""));
    let fault = Way::to(agent.url("/process")).fault().await;
    assert_eq!(fault.retry_after, Some(Duration::from_secs(120)));
    assert_eq!(agent.asked().len(), 1);
}

#[tokio::test]
async fn a_question_that_may_have_been_heard_is_not_asked_again() {
    for answer in [Answer::nothing(), Answer::default().reset(), Answer::raw("HTTP/1.1 2").close()] {
        let agent = scripted::Upstream::always(answer);
        expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamTruncated, "before it answered");
        assert_eq!(agent.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_connection_serves_one_question_after_another() {
    let agent = scripted::Upstream::always(Answer::frames(FRAMES));
    let way = Way::to(agent.url("/process"));
    for _ in 0..5 {
        way.hear().await.1.expect("the answer ends well");
    }
    assert_eq!((agent.asked().len(), agent.connections()), (5, 1));
}

#[tokio::test]
async fn an_answer_let_go_after_its_last_word_leaves_the_connection_usable() {
    let agent = scripted::Upstream::always(Answer::events().frame(FRAMES[0]).wait("end").done());
    let way = Way::to(agent.url("/process"));
    let mut conversation = way.open().await.expect("it begins");
    let chunk = conversation.chunk().await.expect("it goes on").expect("a frame");
    conversation.feed(&chunk, &mut NoEar).expect("a good frame");
    conversation.release();
    agent.open("end");
    // Whether the rest is read at once or only after the next question began is a matter of luck; both are fine.
    way.hear().await.1.expect("the answer ends well");
    assert_eq!(agent.left(), 0);
}

#[tokio::test]
async fn a_pooled_connection_that_was_dead_is_replaced() {
    for reset in [false, true] {
        let mut over_first = 0;
        let agent = scripted::Upstream::deciding(move |asked| {
            over_first += usize::from(asked.connection == 0);
            match (asked.connection, over_first) {
                (0, 2) if reset => Answer::default().reset(),
                (0, 2) => Answer::nothing(),
                _ => Answer::frames(FRAMES),
            }
        });
        let way = Way::to(agent.url("/process"));
        way.hear().await.1.expect("over a new connection");
        way.hear().await.1.expect("over the pooled one, which dies, then over a new one");
        assert_eq!((agent.asked().len(), agent.connections()), (3, 2));
    }
}

#[tokio::test]
async fn dropping_an_answer_closes_its_connection() {
    let agent = scripted::Upstream::always(Answer::events().frame(FRAMES[0]).hang());
    let way = Way::to(agent.url("/process"));
    let mut conversation = way.open().await.expect("it begins");
    conversation.chunk().await.expect("it goes on").expect("a frame");
    assert_eq!(agent.left(), 0);
    drop(conversation);
    agent.wait_left(1).await;
}

#[tokio::test]
async fn taking_a_question_back_closes_its_connection() {
    let agent = scripted::Upstream::always(Answer::silence());
    let way = Way::to(agent.url("/process"));
    tokio::select! {
        _ = way.open() => panic!("it never answers"),
        () = agent.wait_asked(1) => {}
    }
    agent.wait_left(1).await;
}

#[tokio::test]
async fn an_agent_is_told_to_stop() {
    let agent = scripted::Upstream::answering([Answer::whole(200, &[], "{}"), Answer::whole(500, &[], "")]);
    let way = Way::to(agent.url("/process"));
    let request = AgentRequest { session_id: Some("s1".to_owned()), ..AgentRequest::default() };
    for _ in 0..2 {
        way.upstream.stop(&Question { request: &request, memory: &Json::null(), answered: &[] }, None).await;
    }
    let asked = agent.asked();
    assert_eq!((asked[0].path.as_str(), asked[0].body.as_slice()), ("/stop", br#""s1""#.as_slice()));
    assert_eq!(asked.len(), 2);
}

fn packed(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

const PACKED: [(&str, &str); 2] = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];

#[tokio::test]
async fn an_answer_that_came_packed_is_unpacked_however_it_is_cut() {
    let packed = packed(&stream());
    let mut at = 0;
    let bytes = packed.clone();
    let agent = scripted::Upstream::deciding(move |_| {
        let (left, right) = bytes.split_at(at);
        at += 1;
        Answer::head(200, &PACKED).chunk(left).chunk(right).done()
    });
    let way = Way::to(agent.url("/process"));
    for cut in 0..=packed.len() {
        let (frames, end) = way.hear().await;
        end.expect("the answer ends well");
        assert_eq!(frames, FRAMES, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_packed_frame_is_heard_as_soon_as_it_is_there() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    write!(encoder, "data: {}\n\n", FRAMES[0]).expect("memory takes everything");
    encoder.flush().expect("memory takes everything");
    let first = std::mem::take(encoder.get_mut());
    let agent = scripted::Upstream::always(Answer::head(200, &PACKED).chunk(first).hang());
    let way = Way::to(agent.url("/process"));
    let mut conversation = way.open().await.expect("it begins");
    while way.heard.lock().expect("no reader panics").is_empty() {
        let chunk = conversation.chunk().await.expect("it goes on").expect("a piece");
        conversation.feed(&chunk, &mut NoEar).expect("a good frame");
    }
    assert_eq!(*way.heard.lock().expect("no reader panics"), FRAMES[..1]);
}

#[tokio::test]
async fn a_bomb_is_refused_before_it_costs_anything() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        encoder.write_all(&[b'\n'; 1024 * 1024]).expect("memory takes everything");
    }
    let bomb = encoder.finish().expect("memory takes everything");
    assert!(bomb.len() < 128 * 1024);
    let agent = scripted::Upstream::always(Answer::head(200, &PACKED).pieces(&bomb, 64 * 1024).done());
    let began = Instant::now();
    expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamGarbage, "next to nothing");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    // One that is a single event meets the bound on events first.
    let bomb = packed(&format!("data: {}", "x".repeat(16 * 1024 * 1024)));
    let agent = scripted::Upstream::always(Answer::head(200, &PACKED).chunk(&bomb).done());
    expect(&Way::to(agent.url("/process")).fault().await, FaultKind::UpstreamTooLarge, "larger than");
}

#[tokio::test]
async fn packing_that_is_broken_or_unknown_is_told() {
    let whole = packed(&stream());
    let cases = [
        (
            Answer::head(200, &PACKED).chunk("no gzip at all").done(),
            FaultKind::UpstreamGarbage,
            "could not be unpacked",
        ),
        (
            Answer::head(200, &PACKED).chunk(&whole[..whole.len() - 9]).done(),
            FaultKind::UpstreamTruncated,
            "ended before it was complete",
        ),
        (
            Answer::head(200, &PACKED).chunk(&whole).chunk("and more, packed by nobody").done(),
            FaultKind::UpstreamGarbage,
            "could not be unpacked",
        ),
        (Answer::head(200, &PACKED).chunk(&whole).close(), FaultKind::UpstreamTruncated, "broke in the middle"),
        (
            Answer::head(200, &[("content-encoding", "br")]).chunk("?").done(),
            FaultKind::UpstreamGarbage,
            "nobody asked for",
        ),
    ];
    for (answer, kind, words) in cases {
        let agent = scripted::Upstream::always(answer);
        expect(&Way::to(agent.url("/process")).fault().await, kind, words);
    }
}
