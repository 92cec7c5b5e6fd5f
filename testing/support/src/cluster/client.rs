//! A client of several gateways: it begins a run on one of them, reads its stream, and resumes it on any of them after
//! the last number that it has. It blocks.
//!
//! Not here: whether its view is right (`oracle`).

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::stream::{self, Answer, Frame, request};

/// Protocols whose streams are resumed by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    AgentApi,
    Responses,
    AgUi,
}

impl Protocol {
    pub const ALL: [Self; 3] = [Self::AgentApi, Self::Responses, Self::AgUi];
}

/// The input of a run.
#[derive(Clone, Debug)]
pub struct Task {
    pub agent: &'static str,
    /// Unique: AG-UI uses it as the id of the thread and of the run.
    pub key: String,
    /// The session of a run over the Agent API. `None`: a new one.
    pub session: Option<String>,
    pub text: String,
    /// The words of a completed answer. Empty: unknown.
    pub answer: String,
}

impl Task {
    /// A task without a session for an agent whose answer is unknown.
    pub fn new(agent: &'static str, text: impl Into<String>) -> Self {
        Self { agent, key: String::new(), session: None, text: text.into(), answer: String::new() }
    }
}

/// A client's view of one run.
#[derive(Clone, Debug)]
pub struct RunView {
    pub protocol: Protocol,
    pub task: Task,
    /// `None`: the stream broke before its first frame, so the client does not know whether there is a run.
    pub id: Option<String>,
    /// All frames of all connections, in the order of their arrival.
    pub frames: Vec<Frame>,
    /// Number of connections after the first one.
    pub resumed: usize,
    /// Answers that a client must not get.
    pub wrong: Vec<String>,
    /// True if the last answer ended as answers do, whether or not the run had ended.
    pub is_complete: bool,
}

impl RunView {
    /// The view of a client that has not sent its request.
    pub fn new(protocol: Protocol, task: Task) -> Self {
        Self { protocol, task, id: None, frames: Vec::new(), resumed: 0, wrong: Vec::new(), is_complete: false }
    }

    /// Begins a run and reads its stream there, until no frame arrived for this time, without resuming it.
    /// `may_refuse`: answers that are no error.
    pub fn begin(
        address: SocketAddr,
        protocol: Protocol,
        task: Task,
        silence: Duration,
        may_refuse: impl Fn(&Answer) -> bool,
    ) -> Self {
        let mut seen = Self::new(protocol, task);
        let request = seen.start();
        // The client does not ask again if it is refused: this may be about a run that has begun.
        seen.send(address, &request, silence, may_refuse);
        seen
    }

    /// The request that begins the run.
    pub fn start(&self) -> Vec<u8> {
        let Task { agent, key, session, text, .. } = &self.task;
        let (path, body) = match self.protocol {
            Protocol::AgentApi => {
                let mut body = json!({ "input": [{ "role": "user", "content": text }] });
                if let Some(session) = session {
                    body["session_id"] = session.as_str().into();
                }
                (format!("/agents/{agent}/process"), body)
            }
            Protocol::Responses => {
                ("/v1/responses".to_owned(), json!({ "model": agent, "input": text, "stream": true }))
            }
            Protocol::AgUi => {
                let message = json!({ "id": "m", "role": "user", "content": text });
                (format!("/ag-ui/{agent}"), json!({ "threadId": key, "runId": key, "messages": [message] }))
            }
        };
        request("POST", &path, &[], &body.to_string())
    }

    /// Adds frames that arrived.
    pub fn take(&mut self, frames: Vec<Frame>) {
        self.frames.extend(frames);
        if let (None, Some(first)) = (&self.id, self.frames.first()) {
            self.id = match self.protocol {
                Protocol::AgentApi => stream::id(&first.data, "response_"),
                Protocol::Responses => stream::id(&first.data, "resp_"),
                Protocol::AgUi => Some(self.task.key.clone()),
            };
        }
    }

    /// Resumes the run after the last frame. Returns the number of new frames. `may_refuse`: answers that are no error.
    pub fn resume(&mut self, address: SocketAddr, silence: Duration, may_refuse: impl Fn(&Answer) -> bool) -> usize {
        let after = self.frames.last().map(|frame| frame.number);
        let (Some(request), count) = (self.events(after), self.frames.len()) else { return 0 };
        self.resumed += usize::from(self.send(address, &request, silence, may_refuse));
        self.frames.len() - count
    }

    /// Returns true if the gateway answered with a stream.
    fn send(
        &mut self,
        address: SocketAddr,
        request: &[u8],
        silence: Duration,
        may_refuse: impl Fn(&Answer) -> bool,
    ) -> bool {
        match stream::read_while_active(address, request, silence) {
            Ok(answer) if answer.status == 200 => {
                self.is_complete = answer.is_complete;
                self.take(answer.frames());
                return true;
            }
            Ok(answer) if !may_refuse(&answer) => {
                let (protocol, status, last) = (self.protocol, answer.status, self.frames.last());
                let (id, after) = (&self.id, last.map(|frame| frame.number));
                self.wrong
                    .push(format!("{protocol:?} {id:?} after {after:?} was refused with {status}: {}", answer.text));
            }
            Ok(_) | Err(_) => {}
        }
        false
    }

    /// The status and the stream of the run at a gateway, from its first frame.
    ///
    /// # Errors
    /// The gateway cannot be reached, or the run has no id.
    pub fn stored(&self, address: SocketAddr) -> Result<(u16, Vec<Frame>)> {
        let answer = stream::send(address, &self.events(None).context("a run without an id")?)?;
        Ok((answer.status, answer.frames()))
    }

    /// The request for the stream of the run, after a number if there is one. `None`: the run has no id.
    fn events(&self, after: Option<u64>) -> Option<Vec<u8>> {
        let (id, agent) = (self.id.as_ref()?, self.task.agent);
        let (path, name, first) = match self.protocol {
            Protocol::AgUi => (format!("/ag-ui/{agent}?threadId={id}&runId={id}"), "after", '&'),
            Protocol::AgentApi => (format!("/agents/{agent}/runs/{id}/events"), "after", '?'),
            Protocol::Responses => (format!("/v1/responses/{id}?stream=true"), "starting_after", '&'),
        };
        let after = after.map(|after| format!("{first}{name}={after}")).unwrap_or_default();
        Some(request("GET", &format!("{path}{after}"), &[], ""))
    }

    pub fn is_ended(&self) -> bool {
        self.frames.last().is_some_and(Frame::is_end)
    }

    pub fn is_completed(&self) -> bool {
        self.frames.last().is_some_and(Frame::is_completed)
    }
}

/// Whether a gateway may answer so: it is busy, cannot reach the store, or has lost the run to another one.
pub fn may_refuse(answer: &Answer) -> bool {
    let lost = ["GATEWAY_RESTARTED", "another one knows how it ended"];
    answer.status == 503 || answer.status == 500 && lost.iter().any(|text| answer.text.contains(text))
}
