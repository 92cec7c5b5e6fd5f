//! One client of the cluster: it begins a run on one gateway and reads its stream; whenever the stream breaks, it resumes
//! after the last number that it has, on another one, until the end.
//!
//! Not here: whether what it saw is right (`oracle.rs`).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::agent::Task;
use super::random::Random;
use crate::stream::{Answer, Frame, read_while_active};
use crate::{http, stream};

/// For how long a client reads a stream without frames.
const SILENCE: Duration = Duration::from_secs(4);
/// Time that a client tries to reach the end of a run.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Protocols whose streams are resumed by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    AgentApi,
    Responses,
    AgUi,
}

impl Protocol {
    pub(crate) const ALL: [Self; 3] = [Self::AgentApi, Self::Responses, Self::AgUi];

    pub(crate) fn start(self, task: &Task) -> Vec<u8> {
        let text = task.text();
        match self {
            Self::AgentApi => {
                let body = format!(r#"{{"input":[{{"role":"user","content":"{text}"}}]}}"#);
                http::request("POST", "/agents/demo/process", &[], &body)
            }
            Self::Responses => {
                let body = format!(r#"{{"model":"demo","input":"{text}","stream":true}}"#);
                http::request("POST", "/v1/responses", &[], &body)
            }
            Self::AgUi => {
                let key = &task.key;
                let body = format!(
                    r#"{{"threadId":"{key}","runId":"{key}","messages":[{{"id":"m","role":"user","content":"{text}"}}]}}"#
                );
                http::request("POST", "/ag-ui/demo", &[], &body)
            }
        }
    }

    pub(crate) fn id(self, task: &Task, first: &Frame) -> Option<String> {
        match self {
            Self::AgUi => Some(task.key.clone()),
            Self::AgentApi => stream::id(&first.data, "response_"),
            Self::Responses => stream::id(&first.data, "resp_"),
        }
    }

    /// The request for the stream of a run, after a number if there is one.
    pub(crate) fn resume(self, id: &str, after: Option<u64>) -> Vec<u8> {
        let (path, name, first) = match self {
            Self::AgUi => (format!("/ag-ui/demo?threadId={id}&runId={id}"), "after", '&'),
            Self::AgentApi => (format!("/agents/demo/runs/{id}/events"), "after", '?'),
            Self::Responses => (format!("/v1/responses/{id}?stream=true"), "starting_after", '&'),
        };
        let after = after.map(|after| format!("{first}{name}={after}")).unwrap_or_default();
        http::request("GET", &format!("{path}{after}"), &[], "")
    }
}

/// A client's view of one run.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    pub(crate) protocol: Protocol,
    pub(crate) task: Task,
    /// `None`: the stream broke before its first frame, so the client does not know whether there is a run.
    pub(crate) id: Option<String>,
    /// All frames of all connections, in the order of their arrival.
    pub(crate) frames: Vec<Frame>,
    /// Number of connections after the first one.
    pub(crate) resumed: usize,
    /// Answers that a client must not get.
    pub(crate) wrong: Vec<String>,
}

impl RunView {
    pub(crate) fn is_ended(&self) -> bool {
        self.frames.last().is_some_and(Frame::is_end)
    }
}

/// Begins a run on one of these gateways and follows it to its end.
pub(crate) fn run(protocol: Protocol, task: Task, addresses: &[SocketAddr], random: &mut Random) -> RunView {
    let mut at = random.below(addresses.len());
    let mut seen = begin_at(addresses[at], protocol, task, SILENCE);
    let started = Instant::now();
    while let Some(id) = seen.id.clone().filter(|_| !seen.is_ended() && started.elapsed() < LIMIT) {
        // Another one than before.
        at = (at + 1 + random.below(addresses.len().saturating_sub(1).max(1))) % addresses.len();
        resume(&mut seen, &id, addresses[at]);
    }
    seen
}

/// Begins a run and reads its stream there, until no frame arrived for this time, without resuming it.
pub(crate) fn begin_at(address: SocketAddr, protocol: Protocol, task: Task, silence: Duration) -> RunView {
    let mut seen = RunView { protocol, task, id: None, frames: Vec::new(), resumed: 0, wrong: Vec::new() };
    match read_while_active(address, &protocol.start(&seen.task), silence) {
        Ok(answer) if answer.status == 200 => {
            seen.frames = answer.frames();
            seen.id = seen.frames.first().and_then(|first| protocol.id(&seen.task, first));
        }
        // The client does not ask again: this may be about a run that has begun.
        Ok(answer) if !may_refuse(&answer) => {
            seen.wrong.push(format!("a run was refused with {}: {}", answer.status, answer.text));
        }
        Ok(_) | Err(_) => thread::sleep(RETRY_INTERVAL),
    }
    seen
}

fn resume(seen: &mut RunView, id: &str, address: SocketAddr) {
    let after = seen.frames.last().map(|frame| frame.number);
    match read_while_active(address, &seen.protocol.resume(id, after), SILENCE) {
        Ok(answer) if answer.status == 200 => {
            let frames = answer.frames();
            seen.resumed += 1;
            if frames.is_empty() {
                thread::sleep(RETRY_INTERVAL);
            }
            seen.frames.extend(frames);
        }
        Ok(answer) if !may_refuse(&answer) => {
            let (protocol, status) = (seen.protocol, answer.status);
            seen.wrong.push(format!("{protocol:?} {id} after {after:?} was refused with {status}: {}", answer.text));
            thread::sleep(RETRY_INTERVAL);
        }
        Ok(_) | Err(_) => thread::sleep(RETRY_INTERVAL),
    }
}

/// Whether a gateway may answer so: it is busy, cannot reach the store, or has lost the run to another one.
pub(crate) fn may_refuse(answer: &Answer) -> bool {
    let lost = ["GATEWAY_RESTARTED", "another one knows how it ended"];
    answer.status == 503 || answer.status == 500 && lost.iter().any(|text| answer.text.contains(text))
}
