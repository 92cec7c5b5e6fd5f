//! What the tests of this adapter share: opening exchanges as the server does, and the strict-writer rules as checks
//! (docs/protocols/agent-api.md#writer).
#![allow(dead_code, unreachable_pub, reason = "each test file uses what it needs")]

use interlingua_core::call::{Call, Delivery, RunInfo, RunState, RunView};
use interlingua_core::exchange::{Exchange, Flow, Mounted, Next};
use interlingua_core::step::Step;
use interlingua_core::testkit::{self, NOW, RUN};
use interlingua_core::{Fault, Json, Out, ProtocolAdapter, Record, Reply};
use serde_json::Value;

/// A request anybody may send.
pub const HELLO: &[u8] = br#"{"input":[{"role":"user","content":"hi"}]}"#;

/// The adapter, mounted for one agent.
pub struct Native(pub Mounted);

/// An exchange as the server holds it.
pub type Opened = Box<dyn Exchange>;

impl Native {
    /// Mounted with options.
    pub fn new(options: &str) -> Self {
        let mount = testkit::mount("/agents/demo", &["demo"]);
        let options = serde_json::from_str(options).expect("options");
        Self(interlingua_native::Native::mount(&mount, options).expect("it mounts"))
    }

    /// Opens an endpoint and lets it decode a request for [`RUN`].
    pub fn open(&self, method: &str, path: &str, body: &[u8], query: &str) -> (Opened, Result<Call, Fault>) {
        self.asked(method, path, body, query, &[("content-type", "application/json")], &RUN.to_string())
    }

    /// The same with headers and an id in the path.
    pub fn asked(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        query: &str,
        headers: &[(&str, &str)],
        id: &str,
    ) -> (Opened, Result<Call, Fault>) {
        let mut endpoints = self.0.endpoints.iter();
        let endpoint = endpoints.find(|endpoint| endpoint.method.as_str() == method && endpoint.path == path);
        let mut exchange = (endpoint.expect("there is such an endpoint").open)();
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

/// What was written, as text.
pub fn text(out: Out) -> String {
    String::from_utf8(out.body.to_vec()).expect("answers are UTF-8")
}

/// The whole stream of a run on `/process`.
pub fn process(record: &Record) -> String {
    process_with(record, "{}")
}

/// The same under options.
pub fn process_with(record: &Record, options: &str) -> String {
    encoded(Native::new(options).open("POST", "/process", HELLO, "").0, record)
}

/// The stream of a run on `/runs/{id}/events`.
pub fn follow(record: &Record, after: Option<u64>) -> String {
    let query = after.map(|after| format!("after={after}")).unwrap_or_default();
    let (exchange, call) = Native::new("{}").open("GET", "/runs/{id}/events", b"", &query);
    call.expect("it can be followed");
    encoded(exchange, record)
}

fn encoded(mut exchange: Opened, record: &Record) -> String {
    let mut out = Out::new();
    let mut flow = Flow::More;
    for step in record.steps(0) {
        assert_eq!(flow, Flow::More, "nothing follows the end");
        flow = exchange.encode(step, &mut out);
    }
    assert_eq!(flow, Flow::Close, "the end of the run is the end of the stream");
    text(out)
}

/// A stream that is written while the run grows.
pub struct ActiveRun {
    exchange: Opened,
    out: Out,
    text: String,
}

impl ActiveRun {
    /// A stream that has not begun.
    pub fn new() -> Self {
        let exchange = Native::new("{}").open("POST", "/process", HELLO, "").0;
        Self { exchange, out: Out::new(), text: String::new() }
    }

    /// Writes one step.
    pub fn step(&mut self, step: Step<'_>) {
        self.exchange.encode(step, &mut self.out);
    }

    /// Writes a record's frames from a sequence number on.
    pub fn see(&mut self, record: &Record, seen: &mut u64) {
        record.steps(*seen).for_each(|step| self.step(step));
        *seen = record.len();
    }

    pub fn text(&mut self) -> &str {
        let written = text(std::mem::take(&mut self.out));
        self.text.push_str(&written);
        &self.text
    }
}

/// What is known of a run besides, in this state.
pub fn about(state: RunState) -> RunInfo {
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
        retention: None,
    }
}

/// The state a record is in.
pub fn state(record: &Record) -> RunState {
    record.run().end.map_or(RunState::Running, RunState::Ended)
}

/// The answer to `stream: false`.
pub fn whole(record: &Record) -> Value {
    let (mut exchange, _) = Native::new("{}").open("POST", "/process", HELLO, "");
    let about = about(state(record));
    let mut out = Out::new();
    let next = exchange.reply(Reply::Run(RunView { record, info: &about, pending: &[] }), &mut out);
    assert!(matches!(next, Ok(Next::Done)));
    assert_eq!(out.head.get("content-type"), Some("application/json"));
    serde_json::from_slice(&out.body).expect("JSON")
}

/// The objects in the frames of a stream.
pub fn frames(stream: &str) -> Vec<Value> {
    assert!(stream.is_empty() || stream.ends_with("\n\n"), "a stream ends with a whole frame: {stream}");
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

/// The strict-writer rules. Says which one is broken.
pub fn lawful(frames: &[Value]) -> Result<(), String> {
    let check = |holds: bool, broken: &dyn Fn() -> String| if holds { Ok(()) } else { Err(broken()) };
    let mut message: Option<&Value> = None;
    let mut slot: Option<(&Value, String)> = None;
    let mut finished: Vec<&Value> = Vec::new();
    for (place, frame) in frames.iter().enumerate() {
        let object = frame["object"].as_str().unwrap_or("");
        let status = frame["status"].as_str().unwrap_or("");
        check(frame["sequence_number"] == place, &|| format!("frame {place} is numbered otherwise"))?;
        let terminal = object == "response" && !matches!(status, "created" | "in_progress");
        check(terminal == (place + 1 == frames.len()), &|| format!("frame {place} ends the stream, or does not"))?;
        match (object, status) {
            ("response", "created" | "in_progress") => {
                check(place < 2 && frame["output"].is_null(), &|| format!("frame {place} begins again"))?;
            }
            ("response", _) => {}
            ("message", "in_progress") => {
                check(message.is_none(), &|| format!("frame {place} opens a second message"))?;
                check(frame["content"].is_null(), &|| format!("frame {place} opens a message with content"))?;
                message = Some(&frame["id"]);
            }
            ("message", _) => {
                check(message == Some(&frame["id"]), &|| format!("frame {place} ends what is not open"))?;
                check(slot.is_none(), &|| format!("frame {place} leaves a slot open"))?;
                message = None;
                finished.push(frame);
            }
            ("content", status) => {
                check(message == Some(&frame["msg_id"]), &|| format!("frame {place} fills what is not open"))?;
                let fits = slot.as_ref().is_none_or(|(index, _)| **index == frame["index"]);
                check(fits, &|| format!("frame {place} fills a second slot"))?;
                let text = frame["text"].as_str().unwrap_or("").to_owned();
                let sent = slot.take().map(|(_, sent)| sent).unwrap_or_default();
                if status == "completed" {
                    let grown = frame["type"] != "text" || sent.is_empty() || sent == text;
                    check(grown, &|| format!("frame {place} says {text:?} where {sent:?} was sent"))?;
                } else {
                    let sent = if frame["delta"] == true { sent + &text } else { text };
                    slot = Some((&frame["index"], sent));
                }
            }
            _ => return Err(format!("frame {place} is no object of the protocol")),
        }
    }
    check(message.is_none(), &|| "a message is left open".into())?;
    let last = frames.last().ok_or("the stream is empty")?;
    let output: Vec<&Value> = last["output"].as_array().into_iter().flatten().collect();
    check(output == finished, &|| "the output is not what was sent".into())?;
    for name in ["id", "session_id", "created_at"] {
        let responses = || frames.iter().filter(|frame| frame["object"] == "response");
        check(responses().all(|frame| frame[name] == last[name]), &|| format!("the response's {name} changes"))?;
    }
    Ok(())
}
