//! Shared by the tests of this adapter: opening exchanges as the server does, and a checker of the strict-writer rules
//! (docs/protocols/agent-api.md#writer).
#![allow(dead_code, unreachable_pub, reason = "each test file uses what it needs")]

use interlingua_core::call::{Call, Delivery, RunInfo, RunState, RunView};
use interlingua_core::exchange::{Exchange, Flow, Mounted, Next};
use interlingua_core::step::Step;
use interlingua_core::{Fault, Json, Out, ProtocolAdapter, Record, Reply};
use interlingua_core_testkit::{self as testkit, NOW, RUN};
use serde_json::Value;

/// A minimal valid request.
pub const HELLO: &[u8] = br#"{"input":[{"role":"user","content":"hi"}]}"#;

/// The adapter, mounted for one agent.
pub struct Native(pub Mounted);

/// An exchange as the server stores it.
pub type OpenExchange = Box<dyn Exchange>;

impl Native {
    /// Mounts the adapter with these options, in JSON.
    pub fn new(options: &str) -> Self {
        let mount = testkit::mount("/agents/demo", &["demo"]);
        let options = serde_json::from_str(options).expect("options");
        Self(interlingua_native::Native::mount(&mount, options).expect("valid options"))
    }

    /// Opens an endpoint and decodes a request for [`RUN`].
    pub fn open(&self, method: &str, path: &str, body: &[u8], query: &str) -> (OpenExchange, Result<Call, Fault>) {
        self.open_with(method, path, body, query, &[("content-type", "application/json")], &RUN.to_string())
    }

    /// The same with headers and another id in the path.
    pub fn open_with(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        query: &str,
        headers: &[(&str, &str)],
        id: &str,
    ) -> (OpenExchange, Result<Call, Fault>) {
        let mut endpoints = self.0.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.method.as_str() == method && endpoint.path == path);
        let mut exchange = (endpoint.expect("a known endpoint").open)();
        let request = testkit::ClientRequest {
            query,
            headers,
            params: &[("id".to_owned(), id.to_owned())],
            body,
            base_url: "http://gateway/agents/demo",
            ..testkit::ClientRequest::new(method, path)
        };
        let call = request.decode(&mut *exchange);
        (exchange, call)
    }
}

/// The body that was written, as text.
pub fn text(out: Out) -> String {
    String::from_utf8(out.body.to_vec()).expect("answers are UTF-8")
}

/// The complete stream of a run on `/process`.
pub fn process(record: &Record) -> String {
    process_with(record, "{}")
}

/// The same with options.
pub fn process_with(record: &Record, options: &str) -> String {
    encoded(Native::new(options).open("POST", "/process", HELLO, "").0, record)
}

/// The stream of a run on `/runs/{id}/events`.
pub fn follow(record: &Record, after: Option<u64>) -> String {
    let query = after.map(|after| format!("after={after}")).unwrap_or_default();
    let (exchange, call) = Native::new("{}").open("GET", "/runs/{id}/events", b"", &query);
    call.expect("a valid query");
    encoded(exchange, record)
}

fn encoded(mut exchange: OpenExchange, record: &Record) -> String {
    let mut out = Out::new();
    let mut flow = Flow::More;
    for step in record.steps(0) {
        assert_eq!(flow, Flow::More, "no step after the end of the stream");
        flow = exchange.encode(step, &mut out);
    }

    assert_eq!(flow, Flow::Close, "the stream ends with the run");
    text(out)
}

/// A stream that is encoded while the run is active.
pub struct ActiveRun {
    exchange: OpenExchange,
    out: Out,
    text: String,
}

impl ActiveRun {
    /// A stream that has not started.
    pub fn new() -> Self {
        let exchange = Native::new("{}").open("POST", "/process", HELLO, "").0;
        Self { exchange, out: Out::new(), text: String::new() }
    }

    /// Encodes one step.
    pub fn step(&mut self, step: Step<'_>) {
        self.exchange.encode(step, &mut self.out);
    }

    /// Encodes the steps of a record from `next` on, and moves `next` to its end.
    pub fn catch_up(&mut self, record: &Record, next: &mut u64) {
        record.steps(*next).for_each(|step| self.step(step));
        *next = record.len();
    }

    /// The complete output so far.
    pub fn text(&mut self) -> &str {
        let written = text(std::mem::take(&mut self.out));
        self.text.push_str(&written);
        &self.text
    }
}

/// The facts about a run in this state.
pub fn run_info(state: RunState) -> RunInfo {
    RunInfo {
        protocol: "agent-api".into(),
        owner: "anonymous".into(),
        state,
        changed_at: NOW,
        previous: None,
        delivery: Delivery::Collect,
        stored: true,
        request: interlingua_core::model::AgentRequest::default(),
        labels: Json::null(),
        tags: interlingua_core::call::Tags::new(),
        retention: None,
    }
}

/// The state of a record.
pub fn state(record: &Record) -> RunState {
    record.run().end.map_or(RunState::Running, RunState::Ended)
}

/// The answer to `stream: false`.
pub fn collected(record: &Record) -> Value {
    let (mut exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let info = run_info(state(record));
    let mut out = Out::new();
    let next = exchange.reply(Reply::Run(RunView { record, info: &info, pending: &[] }), &mut out);

    assert!(matches!(next, Ok(Next::Done)));
    assert_eq!(out.head.get("content-type"), Some("application/json"));
    serde_json::from_slice(&out.body).expect("JSON")
}

/// The objects in the frames of a stream.
pub fn frames(stream: &str) -> Vec<Value> {
    assert!(stream.is_empty() || stream.ends_with("\n\n"), "a stream ends with a complete frame: {stream}");

    stream
        .split("\n\n")
        .filter(|frame| !frame.is_empty())
        .map(|frame| {
            let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).expect("a frame has data");
            assert!(frame.lines().all(|line| line.starts_with("data: ") || line.starts_with("id: ")), "{frame}");
            serde_json::from_str(data).expect("a frame is JSON")
        })
        .collect()
}

/// Checks the strict-writer rules. The error names the broken rule.
pub fn check_stream(frames: &[Value]) -> Result<(), String> {
    let check = |holds: bool, broken: &dyn Fn() -> String| if holds { Ok(()) } else { Err(broken()) };
    let mut message: Option<&Value> = None;
    let mut slot: Option<(&Value, String)> = None;
    let mut finished: Vec<&Value> = Vec::new();

    for (index, frame) in frames.iter().enumerate() {
        let object = frame["object"].as_str().unwrap_or("");
        let status = frame["status"].as_str().unwrap_or("");
        check(frame["sequence_number"] == index, &|| format!("frame {index} has the wrong number"))?;
        let terminal = object == "response" && !matches!(status, "created" | "in_progress");
        check(terminal == (index + 1 == frames.len()), &|| {
            format!("frame {index} is terminal but not last, or last but not terminal")
        })?;

        match (object, status) {
            ("response", "created" | "in_progress") => {
                check(index < 2 && frame["output"].is_null(), &|| format!("frame {index} starts the response again"))?;
            }
            ("response", _) => {}
            ("message", "in_progress") => {
                check(message.is_none(), &|| format!("frame {index} opens a second message"))?;
                check(frame["content"].is_null(), &|| format!("frame {index} opens a message with content"))?;
                message = Some(&frame["id"]);
            }
            ("message", _) => {
                check(message == Some(&frame["id"]), &|| format!("frame {index} ends a message that is not open"))?;
                check(slot.is_none(), &|| format!("frame {index} leaves a slot open"))?;
                message = None;
                finished.push(frame);
            }
            ("content", status) => {
                check(message == Some(&frame["msg_id"]), &|| {
                    format!("frame {index} has a content of a message that is not open")
                })?;
                let fits = slot.as_ref().is_none_or(|(open, _)| **open == frame["index"]);
                check(fits, &|| format!("frame {index} fills a second slot"))?;

                let text = frame["text"].as_str().unwrap_or("").to_owned();
                let sent = slot.take().map(|(_, sent)| sent).unwrap_or_default();
                if status == "completed" {
                    let matches = frame["type"] != "text" || sent.is_empty() || sent == text;
                    check(matches, &|| format!("frame {index} completes the text {sent:?} as {text:?}"))?;
                } else {
                    let sent = if frame["delta"] == true { sent + &text } else { text };
                    slot = Some((&frame["index"], sent));
                }
            }
            _ => return Err(format!("frame {index} is not an object of the protocol")),
        }
    }

    check(message.is_none(), &|| "a message is left open".into())?;
    let last = frames.last().ok_or("the stream is empty")?;
    let output: Vec<&Value> = last["output"].as_array().into_iter().flatten().collect();
    check(output == finished, &|| "the output differs from the messages that were sent".into())?;
    for name in ["id", "session_id", "created_at"] {
        let responses = || frames.iter().filter(|frame| frame["object"] == "response");
        check(responses().all(|frame| frame[name] == last[name]), &|| format!("the response's {name} changes"))?;
    }
    Ok(())
}
