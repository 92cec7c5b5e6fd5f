//! The facts of a request and of the turn that it began.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlingua_core::event::Millis;
use interlingua_core::loss::Loss;

/// The recorded facts of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestParts {
    /// When it began.
    pub(super) at: Millis,
    /// The same on a clock that only goes forward.
    pub(super) started: Option<Instant>,
    /// True: its session is shown as a hash.
    pub(super) hide_session: bool,
    /// The id in `x-request-id`.
    pub(super) id: String,
    pub(super) method: String,
    /// Without its query.
    pub(super) path: String,
    pub(super) client: Option<IpAddr>,
    /// The path of the route as configured; empty outside of all routes.
    pub(super) route: Option<Arc<str>>,
    /// The path of the endpoint below the route, as its protocol names it.
    pub(super) endpoint: &'static str,
    /// The version of HTTP, such as `1.1`.
    pub(super) version: &'static str,
    /// True: it came over TLS.
    pub(super) is_secure: bool,
    /// Its span. `None`: requests are not traced.
    pub(super) span: Option<ServerSpan>,
    pub(super) protocol: &'static str,
    pub(super) caller: Option<Arc<str>>,
    /// 0: the client left before there was an answer.
    pub(super) status: u16,
    pub(super) code: Option<String>,
    pub(super) blame: Option<&'static str>,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// Until the end of the answer.
    pub(super) took: Option<Duration>,
    /// True: the client left before the end of the answer.
    pub(super) client_left: bool,
    /// The content of the request that is not passed on, and the content of the answer that its response does not show.
    pub(super) losses: Vec<Loss>,
    pub(super) turn: Option<TurnPart>,
}

/// The span of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerSpan {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the span.
    pub span: u64,
    /// The span of the client, if it has sent one.
    pub parent: Option<u64>,
    /// True if it is sent to the collector.
    pub sampled: bool,
}

/// The outcome of the turn that a request began.
#[derive(Clone, Debug, Default)]
pub struct TurnPart {
    /// The run's id.
    pub run: String,
    /// The agent's name.
    pub agent: String,
    /// Its version; empty if it is not known.
    pub agent_version: String,
    /// The protocol of the agent.
    pub provider: Arc<str>,
    /// The host and the port it was reached at. `None`: it was not, or is in this process.
    pub server: Option<(String, u16)>,
    /// The session's id.
    pub session: String,
    /// `completed`, `failed`, …
    pub outcome: &'static str,
    /// The code of a failure.
    pub code: Option<String>,
    /// The same if it is one of the gateway's own, else `_OTHER`.
    pub error_type: Option<&'static str>,
    /// The party at fault.
    pub blame: Option<&'static str>,
    /// The number of events of the run.
    pub events: u64,
    /// Time that it waited for its session and for an endpoint. `None`: it never began.
    pub queued: Option<Duration>,
    /// When it was taken up. `None`: never.
    pub began_at: Option<Instant>,
    /// From then to its end.
    pub took: Duration,
    /// Until the agent's first event. `None`: there was none.
    pub first_event: Option<Duration>,
    /// Tokens that the agent reported: input and output.
    pub usage: Option<(u64, u64)>,
    /// The number of retries.
    pub retries: u32,
    /// The first of those: when, and why.
    pub first_retries: Vec<(Millis, String)>,
    /// The content of the request that the agent did not receive, and the content of its answer that a run cannot
    /// contain.
    pub losses: Vec<Loss>,
    /// The number of pending items that it answered.
    pub answers: usize,
    /// The number of pending items of its run or session after it. `None`: it does not wait.
    pub waits_for: Option<usize>,
    /// Why the agent stopped, in the words of the conventions.
    pub finish_reason: &'static str,
    /// The id of its span.
    pub span: Option<u64>,
    /// The calls of tools in it. Only of traced turns.
    pub tools: Vec<ToolPart>,
    /// The messages, if they are traced: the input and the output as JSON.
    pub messages: Option<Box<(String, String)>>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPart {
    /// The tool's name.
    pub name: String,
    /// The id of the call.
    pub call_id: String,
    /// When the call began. `None`: it is not known any more.
    pub started_at: Option<Millis>,
    /// When its output was there. `None`: it has none, or that is not known any more.
    pub ended_at: Option<Millis>,
    /// True if it is the client's to run. False: the agent ran it.
    pub is_client_run: bool,
    /// Arguments and result, if those are traced.
    pub content: Option<Box<(String, String)>>,
}

impl RequestParts {
    /// About how many bytes it holds.
    pub(super) fn size(&self) -> usize {
        const FIXED: usize = 1024;
        const PER_TOOL: usize = 256;
        let pair = |pair: &Option<Box<(String, String)>>| pair.as_ref().map_or(0, |pair| pair.0.len() + pair.1.len());
        let turn = self.turn.as_ref().map_or(0, |turn| {
            let tools = turn.tools.iter().map(|tool| PER_TOOL + pair(&tool.content));
            pair(&turn.messages) + tools.sum::<usize>()
        });
        FIXED + turn
    }

    /// The number of its spans.
    pub(super) fn spans(&self) -> u64 {
        self.turn.as_ref().map_or(1, |turn| 2 + turn.tools.len() as u64)
    }
}
