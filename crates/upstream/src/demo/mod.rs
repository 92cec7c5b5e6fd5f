//! The demo agent: a real one in miniature, without a model and without a network.
//!
//! It streams an answer to its input, a word at a time, and shows on request everything an agent can say or do, so that
//! every protocol can be tried with it. [`words`] lists the words that request it; [`replies`] handles the answers to
//! its own questions. It sends event-stream bytes of the Agent API, which are cut into frames, read and normalized like
//! those of any other agent.
//!
//! Not here: anything a protocol would have to know. To the gateway this agent is nothing special.

mod memory;
mod replies;
mod stage;
mod thoughts;
mod words;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::builder::ResponseBuilder;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use futures_util::stream::{self, StreamExt};
use interlingua_core::agent_api::{Frame, FrameReader};
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::capability::{AskKinds, Media, UpstreamCapabilities};
use interlingua_core::connector::{AgentTurn, EventSink, HttpRequest, Next, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::{Fault, FaultKind, sse};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Body, Conversation, Form, InProcessAgent, Reply, SendError, SendOptions, StopAnswer, Transport, Upstream};
use memory::Memory;
use stage::Performance;

/// The pause between two pieces of text, unless the request sets another.
pub const PACE: Duration = Duration::from_millis(15);

/// Nothing it says is longer, in bytes.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// Options of the demo agent: `upstream = { protocol = "demo", options = { pace_ms = 0 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DemoOptions {
    /// The pause between two pieces of text, in milliseconds.
    pub pace_ms: u64,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { pace_ms: u64::try_from(PACE.as_millis()).unwrap_or(0) }
    }
}

/// Registers the demo agent.
#[derive(Clone, Copy, Debug)]
pub struct Demo;

impl InProcessAgent for Demo {
    const NAME: &'static str = "demo";
    type Options = DemoOptions;

    fn open(options: DemoOptions) -> Arc<dyn Upstream> {
        Arc::new(DemoUpstream::new(Duration::from_millis(options.pace_ms)))
    }
}

/// The demo agent. It remembers a limited number of its sessions.
pub struct DemoUpstream {
    pace: Duration,
    memory: Arc<Mutex<Memory>>,
}

impl DemoUpstream {
    /// An agent that pauses this long between two pieces of text. Zero: not at all.
    #[must_use]
    pub fn new(pace: Duration) -> Self {
        Self { pace, memory: Arc::default() }
    }
}

impl Default for DemoUpstream {
    fn default() -> Self {
        Self::new(PACE)
    }
}

impl Upstream for DemoUpstream {
    fn capabilities(&self) -> UpstreamCapabilities {
        let mut capabilities = UpstreamCapabilities::default();
        capabilities.client_tools = true;
        capabilities.decisions = ALL_DECISIONS;
        capabilities.input_media = Media::ALL;
        capabilities.output_media = Media::ALL;
        capabilities.usage = true;
        capabilities.reasoning = true;
        capabilities.asks = AskKinds::ALL;
        capabilities.protocol_events = Some(words::EVENT_PROTOCOL);
        capabilities
    }

    fn start(&self, request: &TurnRequest<'_>, _: SendOptions<'_>) -> Result<Conversation, Fault> {
        let asked = request.request;
        let history = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take_in(asked);
        let plan = words::plan(request, &history);
        let id = asked.id.clone().unwrap_or_else(|| format!("response_{}", Uuid::now_v7().simple()));
        let now = stage::now();
        let response = ResponseBuilder::new(id, now).session(asked.session_id.clone().unwrap_or_default());
        let performance = Performance::new(plan, response, now, self.pace);
        let turn = Box::new(DemoTurn { asked: false, reader: FrameReader::default() });
        Ok(Conversation::new(turn, Box::new(Stage(Mutex::new(Some(performance)))), Duration::MAX))
    }
}

/// One request, answered by frames of the Agent API.
struct DemoTurn {
    asked: bool,
    reader: FrameReader,
}

impl AgentTurn for DemoTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        let first = !std::mem::replace(&mut self.asked, true);
        Ok(if first { Next::Send(HttpRequest::post("", Vec::new())) } else { Next::Finished })
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        Frame::parse(frame.data).map_or(Ok(()), |frame| self.reader.read(frame, sink))
    }

    fn on_body(&mut self, _: &[u8], _: &mut dyn EventSink) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::Internal, "the demo agent streams every answer"))
    }
}

/// Answers the one request of a turn in this process.
struct Stage(Mutex<Option<Performance>>);

impl Transport for Stage {
    fn send(&self, _: HttpRequest, _: Instant) -> BoxFuture<'static, Result<Reply, SendError>> {
        let performance = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(performance) = performance else {
            let fault = Fault::new(FaultKind::Internal, "the demo agent answers once");
            return ready(Err(SendError::from(fault))).boxed();
        };

        let body = stream::unfold(performance, |mut performance| async {
            let frame = performance.next()?;
            match frame.after {
                // An agent without pauses must not keep others from their turn.
                Duration::ZERO => tokio::task::coop::consume_budget().await,
                pause => tokio::time::sleep(pause).await,
            }
            Some((Ok(Bytes::from(frame.bytes)), performance))
        });
        // An answer that is released may be polled once more.
        let body = body.fuse().boxed();
        ready(Ok(Reply::Answer(Box::new(Body::new(body, Form::Frames, MAX_EVENT, None))))).boxed()
    }

    fn cancel(&self, _: HttpRequest) -> BoxFuture<'static, Result<StopAnswer, Fault>> {
        ready(Ok(StopAnswer { status: 200, body: Vec::new() })).boxed()
    }
}
