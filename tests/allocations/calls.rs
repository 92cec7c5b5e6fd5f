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

use allocation_counter::measure;
use interlingua::engine::{Answer, Engine, History, Scope};
use interlingua::store::Memory;
use interlingua::upstream::http::{Endpoint, HttpSettings, HttpUpstream};
use interlingua_core::Out;
use interlingua_core::call::{AgentCard, Reply};
use interlingua_core::exchange::Mounted;
use interlingua_core_testkit::ClientRequest;
use interlingua_testing_agents::deltas::deltas;
use interlingua_testing_protocols::{connected, served};
use interlingua_testing_support::engine::engine;
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

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (engine, scope) = {
            let _guard = runtime.enter();
            engine(Arc::new(Memory::new()), Arc::new(upstream), History::Upstream)
        };
        let scope = Scope { protocol: client, ..scope };
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
