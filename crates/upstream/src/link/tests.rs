//! Links over a pipe in memory, with the clock under control.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use futures_util::stream::StreamExt as _;
use interlingua_core::connector::{AgentLink, LinkMessages, LinkOut};
use interlingua_core::event::Millis;
use interlingua_core::{Fault, FaultKind, Json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex};

use super::inbox::TopicReader;
use super::links::Links;
use super::{Dial, LinkLimits, Wire, lines};
use crate::send_error::{SendCause, SendError, SendProgress};

/// A protocol whose messages are a topic and a text, and whose handshake is the word `ready`. The word `ask` of the
/// agent keeps the link until a turn sends `answer`.
#[derive(Default)]
struct TopicProtocol {
    is_ready: bool,
    is_needed: bool,
}

impl AgentLink for TopicProtocol {
    fn open(&mut self, _: Millis, out: &mut LinkOut) {
        out.write(b"hello".to_vec());
    }

    fn handshake(&self) -> Option<Json> {
        self.is_ready.then(|| Json::from_serialize(&"ready"))
    }

    fn on_message(&mut self, message: &[u8], _: Millis, out: &mut LinkOut) -> Result<(), Fault> {
        let text = String::from_utf8_lossy(message);
        match (&*text, text.split_once(' ')) {
            ("ready", _) => self.is_ready = true,
            ("ask", _) => self.is_needed = true,
            ("fail", _) => return Err(Fault::new(FaultKind::UpstreamGarbage, "the agent sent nonsense")),
            (_, Some((topic, _))) => out.deliver(topic, message),
            _ => {}
        }
        Ok(())
    }

    fn on_send(&mut self, topic: &str, message: Vec<u8>, _: Millis, out: &mut LinkOut) {
        self.is_needed &= message != b"answer";
        out.write([topic.as_bytes(), b" ", &message].concat());
    }

    fn is_needed(&self) -> bool {
        self.is_needed
    }
}

/// Hands out one end of a pipe for each connection.
#[derive(Default)]
struct Pipes {
    ends: Mutex<Vec<DuplexStream>>,
    dialled: AtomicUsize,
}

impl Dial for Pipes {
    fn dial(&self) -> BoxFuture<'static, Result<Wire, Fault>> {
        self.dialled.fetch_add(1, Ordering::Relaxed);
        let end = self.ends.lock().unwrap_or_else(PoisonError::into_inner).pop();
        ready(match end {
            Some(end) => {
                let (read, write) = tokio::io::split(end);
                Ok(lines(read, write, 1024))
            }
            None => Err(Fault::new(FaultKind::UpstreamUnreachable, "nothing listens")),
        })
        .boxed()
    }
}

/// The agent's end of a pipe.
struct AgentEnd(BufReader<DuplexStream>);

impl AgentEnd {
    async fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.expect("the link reads");
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("the link writes");
        line.trim_end().to_owned()
    }
}

fn links(agents: usize) -> (Links, Vec<AgentEnd>, Arc<Pipes>) {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..agents).map(|_| duplex(64)).unzip();
    let pipes = Arc::new(Pipes { ends: Mutex::new(ours.into_iter().rev().collect()), dialled: AtomicUsize::new(0) });
    let limits = LinkLimits { max_message: 1024, max_kept: 32, max_topics: 2, ..LinkLimits::default() };
    let links = Links::new(Arc::clone(&pipes) as _, Box::new(|| Some(Box::<TopicProtocol>::default())), limits);
    (links, theirs.into_iter().map(|end| AgentEnd(BufReader::new(end))).collect(), pipes)
}

fn messages(topic: &str, texts: &[&str]) -> LinkMessages {
    let messages = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    LinkMessages { topic: topic.to_owned(), messages }
}

async fn next(reader: &mut TopicReader) -> Result<String, FaultKind> {
    let message = reader.next().await.expect("a message or a fault");
    message.map(|message| String::from_utf8_lossy(&message).into_owned()).map_err(|fault| fault.kind)
}

fn kind(error: &SendError) -> (FaultKind, SendProgress) {
    match &error.cause {
        SendCause::Fault(fault) => (fault.kind, error.reach),
        SendCause::Refused(_) => panic!("a link has no refusals"),
    }
}

#[tokio::test(start_paused = true)]
async fn topics_share_a_link_and_keep_their_messages_between_two_turns() {
    let (links, mut agents, pipes) = links(1);
    agents[0].say("ready\n").await;
    let (link, info) = links.connect().await.expect("a link");
    assert_eq!(info.handshake.text(), "\"ready\"");
    let mut one = link.converse(messages("one", &["a", "b"])).await.expect("a reader");
    let mut two = links.connect().await.expect("the same link").0.converse(messages("two", &["c"])).await.expect("one");
    let mut received = Vec::new();
    for _ in 0..4 {
        received.push(agents[0].line().await);
    }
    assert_eq!(received, ["hello", "one a", "one b", "two c"]);
    let busy = link.converse(messages("one", &[])).await.err().expect("one turn reads a topic");
    assert_eq!(kind(&busy), (FaultKind::Busy, SendProgress::NotSent));

    // Pieces of lines, line ends of Windows, and empty lines.
    for piece in ["two 1\r\n\none", " 1\none 2\no", "ne 3\n"] {
        agents[0].say(piece).await;
    }
    assert_eq!(next(&mut two).await.as_deref(), Ok("two 1"));
    assert_eq!(next(&mut one).await.as_deref(), Ok("one 1"));
    drop(one);
    let mut later = link.converse(messages("one", &[])).await.expect("the turn before has ended");
    assert_eq!(next(&mut later).await.as_deref(), Ok("one 2"));
    assert_eq!(next(&mut later).await.as_deref(), Ok("one 3"));
    assert_eq!(pipes.dialled.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn topics_that_no_turn_reads_are_bounded() {
    let (links, mut agents, _) = links(1);
    agents[0].say("ready\n").await;
    let (link, _) = links.connect().await.expect("a link");
    for number in 0..10 {
        agents[0].say(&format!("one {number:08}\n")).await;
    }
    agents[0].say("two 1\nthree 1\nfour 1\n").await;
    // The link has read everything once it has read this.
    let mut last = link.converse(messages("last", &["now"])).await.expect("a reader");
    while agents[0].line().await != "last now" {}
    agents[0].say("last 1\n").await;
    assert_eq!(next(&mut last).await.as_deref(), Ok("last 1"));

    let mut one = link.converse(messages("one", &[])).await.expect("a reader");
    assert_eq!(next(&mut one).await.as_deref(), Ok("one 00000000"));
    assert_eq!(next(&mut one).await.as_deref(), Ok("one 00000001"));
    assert_eq!(next(&mut one).await, Err(FaultKind::UpstreamTooLarge));
    drop(one);
    let mut again = link.converse(messages("one", &[])).await.expect("a reader");
    agents[0].say("one 9\n").await;
    assert_eq!(next(&mut again).await.as_deref(), Ok("one 9"));
    // Two topics were kept.
    let mut three = link.converse(messages("three", &[])).await.expect("a reader");
    agents[0].say("three 2\n").await;
    assert_eq!(next(&mut three).await.as_deref(), Ok("three 2"));
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_connection_ends_its_turns_and_the_next_one_connects_again() {
    let (links, mut agents, pipes) = links(4);
    let long = format!("one {}\n", "x".repeat(2000));
    let ends = [
        ("one 1\n", FaultKind::UpstreamTruncated),
        ("fail\n", FaultKind::UpstreamGarbage),
        (&long, FaultKind::UpstreamTooLarge),
    ];
    for (text, expected) in ends {
        let mut agent = agents.remove(0);
        agent.say("ready\n").await;
        let (link, _) = links.connect().await.expect("a link");
        let mut one = link.converse(messages("one", &["go"])).await.expect("a reader");
        let _ = agent.0.get_mut().write_all(text.as_bytes()).await;
        drop(agent);
        if expected == FaultKind::UpstreamTruncated {
            assert_eq!(next(&mut one).await.as_deref(), Ok("one 1"));
        }
        assert_eq!(next(&mut one).await, Err(expected));
        assert!(link.send(messages("one", &["late"])).await.is_err());
    }
    agents[0].say("ready\n").await;
    links.connect().await.expect("a link");
    assert_eq!(pipes.dialled.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_cannot_be_opened_fails_its_turn_only() {
    let (links, mut agents, _) = links(2);
    // It accepts the connection, and never completes the handshake.
    let error = links.connect().await.err().expect("no handshake");
    assert_eq!(kind(&error), (FaultKind::UpstreamTimeout, SendProgress::NotSent));
    agents[1].say("ready\n").await;
    links.connect().await.expect("a link");
    drop(agents);

    let (unreachable, _, _) = self::links(0);
    let error = unreachable.connect().await.err().expect("no connection");
    assert_eq!(kind(&error), (FaultKind::UpstreamUnreachable, SendProgress::NotSent));
}

#[tokio::test(start_paused = true)]
async fn a_link_is_closed_once_it_is_neither_used_nor_needed() {
    let (links, mut agents, _) = links(1);
    agents[0].say("ready\nask\n").await;
    let (link, _) = links.connect().await.expect("a link");
    let hour = Duration::from_secs(60 * 60);
    tokio::time::sleep(hour).await;
    // The agent waits for an answer.
    link.send(messages("one", &["answer"])).await.expect("the link is open");
    let reader = link.converse(messages("one", &[])).await.expect("a reader");
    tokio::time::sleep(hour).await;
    drop(reader);
    link.send(messages("one", &["more"])).await.expect("a turn has read it");
    tokio::time::sleep(hour).await;
    assert_eq!(
        link.send(messages("one", &["late"])).await.map_err(|fault| fault.kind),
        Err(FaultKind::UpstreamTruncated)
    );
    drop(agents);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_read_ends_its_link() {
    let (links, mut agents, _) = links(1);
    agents[0].say("ready\n").await;
    let (link, _) = links.connect().await.expect("a link");
    let long = "x".repeat(200);
    let mut one = link.converse(messages("one", &[&long])).await.expect("a reader");
    assert_eq!(next(&mut one).await, Err(FaultKind::UpstreamTimeout));
    drop(agents);
}
