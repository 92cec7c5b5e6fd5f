//! Allocations of a whole call, from the request of a client to its answer, with an agent behind a socket. Fails above the
//! recorded number + 3 %.
//!
//! The engine and the connection to the agent run on one thread, whose allocations are counted; the agent runs on another
//! one. Not here: the HTTP server (`cargo xtask bench load`), and single deltas (`connectors`, `encoders`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use futures_util::future::{BoxFuture, ready};
use interlingua::callers::{Callers, Usage};
use interlingua::engine::{self, Answer, Engine, Limits, RetentionRules, RouteAgents, Scope};
use interlingua::metrics::Metrics;
use interlingua::ports::{WebhookClient, WebhookError};
use interlingua::store::{Memory, OwnerBoundsOf, Retention};
use interlingua::upstream::ForwardedHeaders;
use interlingua::upstream::http::{Endpoint, HttpSettings, HttpUpstream};
use interlingua_core::call::{AgentCard, Reply};
use interlingua_core::exchange::Mounted;
use interlingua_core::public_address::{Policy, RefusedAddress};
use interlingua_core::push::PushRequest;
use interlingua_core::{Out, Owner};
use interlingua_core_testkit::ClientRequest;
use interlingua_testing_agents::deltas::deltas;
use interlingua_testing_protocols::{connected, served};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/allocations.txt");
/// Set to write the file of recorded numbers.
const RECORD: &str = "RECORD_ALLOCATIONS";
/// Calls before allocations are counted, and calls that are counted.
const CALLS: [u64; 2] = [20, 60];
/// Deltas of the answer, which is read at once. A longer one is read in parts, whose number varies.
const DELTAS: usize = 5;
/// The growth over the recorded number that fails, in per cent.
const MAX_GROWTH: u64 = 3;

/// A client protocol and the body of its request for a complete answer, and the protocol of the agent.
const PAIRS: &[(&str, &str, &str)] = &[
    ("responses", r#"{"model":"demo","input":"Say hello to the people of the town"}"#, "agent-api"),
    ("responses", r#"{"model":"demo","input":"Say hello to the people of the town","store":false}"#, "agent-api"),
    ("chat-completions", r#"{"model":"demo","messages":[{"role":"user","content":"Say hello"}]}"#, "chat-completions"),
    ("chat-completions", r#"{"model":"demo","messages":[{"role":"user","content":"Say hello"}]}"#, "agent-api"),
    (
        "anthropic-messages",
        r#"{"model":"demo","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#,
        "responses",
    ),
];

/// A webhook client without receivers.
struct NoWebhooks;

impl WebhookClient for NoWebhooks {
    fn check_url(&self, _: &str, _: &Policy) -> BoxFuture<'static, Result<(), RefusedAddress>> {
        Box::pin(ready(Ok(())))
    }

    fn post(&self, _: &str, _: &Policy, _: PushRequest) -> BoxFuture<'static, Result<(), WebhookError>> {
        Box::pin(ready(Ok(())))
    }
}

/// Answers each request of each connection with one event stream, written at once.
fn serve(listener: TcpListener, answer: Arc<Vec<u8>>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || answer_requests(stream, &answer));
        }
    });
}

fn answer_requests(mut stream: TcpStream, answer: &[u8]) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(1..) = stream.read(&mut buffer).inspect(|read| request.extend_from_slice(&buffer[..*read])) else {
            return;
        };
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if length.is_none_or(|length| body.len() >= length) {
            request.clear();
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

fn event_stream(protocol: &str, count: usize) -> Vec<u8> {
    let deltas = deltas(protocol, "word ").expect("its answers come in deltas");
    let mut frames = String::from_utf8(deltas.stream(count)).expect("text");
    frames.push_str(&deltas.end(1, count).concat());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{frames}\r\n0\r\n\r\n", frames.len()).into_bytes()
}

/// A gateway without a server for HTTP.
struct Fixture {
    runtime: Runtime,
    tasks: LocalSet,
    engine: Engine,
    scope: Scope,
    mounted: Mounted,
    path: &'static str,
    body: &'static str,
}

impl Fixture {
    fn new((client, body, agent): (&'static str, &'static str, &str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        serve(listener, Arc::new(event_stream(agent, DELTAS)));

        let (_, connects) = connected().find(|(protocol, _)| protocol.name == agent).expect("a connector");
        let url = format!("http://{address}{}", connects.path);
        let connector = (connects.connect)(&url, connects.options).expect("options");
        let endpoint = Endpoint { connector, url: Some(url.parse().expect("a URL")), weight: 1 };
        let upstream = HttpUpstream::new(vec![endpoint], HttpSettings::default()).expect("an upstream");

        let card =
            Arc::new(AgentCard { name: "demo".to_owned(), server_label: "demo".to_owned(), ..AgentCard::default() });
        let metrics = Metrics::new();
        let agent = engine::Agent {
            protocol: agent.into(),
            name: "demo".to_owned(),
            card: Arc::clone(&card),
            upstream: Arc::new(upstream),
            protocol_events: false.into(),
            history: engine::History::Upstream,
            history_limit: engine::HistoryLimit { turns: 50, bytes: 1 << 20 },
            queue_turns: true,
            max_run_bytes: 64 << 20,
            usage: Arc::new(Usage::default()),
            metrics: metrics.agent("demo"),
        };
        let retention = Retention {
            age: Duration::from_secs(3600),
            runs: 100_000,
            documents: 100_000,
            bytes: u64::MAX,
            collections: Vec::new(),
            parts: Vec::new(),
            routes: Vec::new(),
            attached: Vec::new(),
            bounds: OwnerBoundsOf::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let engine = {
            let _guard = runtime.enter();
            Engine::new(
                vec![Arc::new(agent)],
                Arc::new(Memory::new()),
                Arc::new(NoWebhooks),
                RetentionRules { retention, scopes: Vec::new() },
                Callers::anonymous_only(),
                Limits::default(),
                metrics,
            )
        };
        let scope = Scope {
            owner: Owner::anonymous(),
            caller: Callers::anonymous_only().anonymous(),
            path: Arc::from("/"),
            agents: RouteAgents::new(vec![card]),
            protocol: client,
            detach: false,
            first_event_timeout: Duration::from_secs(10),
            push: None,
            route: None,
            trace: None,
            request: None,
            forwarded: ForwardedHeaders::default(),
            connection: None,
        };
        let (_, serves) = served().find(|(protocol, _)| protocol.name == client).expect("a protocol");
        let path = serves.sample("demo", "hi").expect("a sample request").endpoint;
        let mounted = serves.mounted(AgentCard { name: "demo".to_owned(), ..AgentCard::default() });
        Self { runtime, tasks: LocalSet::new(), engine, scope, mounted, path, body }
    }

    /// Makes calls. Returns the last answer.
    fn call(&self, count: u64) -> String {
        let mut answered = String::new();
        self.tasks.block_on(&self.runtime, async {
            for _ in 0..count {
                answered = self.call_once().await;
                // The run has ended; its task leaves the table after it has answered.
                while self.engine.working() > 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        answered
    }

    async fn call_once(&self) -> String {
        let endpoint = self.mounted.endpoints.iter();
        let endpoint =
            endpoint.clone().find(|endpoint| endpoint.path == self.path && endpoint.method.as_str() == "POST");
        let mut exchange = (endpoint.expect("an endpoint").open)();
        let id = interlingua::clock::new_id();
        let request = ClientRequest { new_id: id, ..ClientRequest::post(self.path, self.body.as_bytes()) };
        let call = request.decode(&mut *exchange).expect("a valid request");
        let answer = self.engine.answer(call, &self.scope).await.expect("an answer");
        let Answer::Run(run) = answer else { panic!("the answer is no run") };
        let mut out = Out::new();
        run.view_safe(|view| exchange.reply(Reply::Run(view), &mut out)).expect("a reply");
        String::from_utf8(out.body.to_vec()).expect("text")
    }

    /// Allocations of a call.
    fn allocations(&self) -> u64 {
        let answered = self.call(CALLS[0]);
        assert!(answered.contains("word word"), "{answered}");
        measure(|| drop(self.call(CALLS[1]))).count_total / CALLS[1]
    }
}

#[test]
fn a_call_allocates_no_more_than_recorded() {
    let mut counted = BTreeMap::new();
    for pair in PAIRS {
        let (client, body, agent) = pair;
        let kind = if body.contains("\"store\":false") { " without storing" } else { "" };
        counted.insert(format!("{client} to {agent}{kind}"), Fixture::new(*pair).allocations());
    }

    if std::env::var_os(RECORD).is_some() {
        let mut lines = String::new();
        for (subject, count) in &counted {
            writeln!(lines, "{count} {subject}").expect("a string");
        }
        std::fs::write(RECORDED, lines).expect("the file is written");
        return;
    }
    let recorded = std::fs::read_to_string(RECORDED).expect("recorded numbers");
    let recorded: BTreeMap<&str, u64> = recorded
        .lines()
        .map(|line| line.split_once(' ').expect("a number and a subject"))
        .map(|(count, subject)| (subject, count.parse().expect("a number")))
        .collect();
    let limit = |count: u64| count + count * MAX_GROWTH / 100;
    let grown = counted
        .iter()
        .filter(|(subject, count)| recorded.get(subject.as_str()).is_none_or(|recorded| **count > limit(*recorded)));
    let grown: Vec<_> = grown.collect();
    assert!(grown.is_empty(), "more than recorded: {grown:#?}; {RECORD}=1 records the numbers");
}
