//! The demo agent: a real one in miniature, without a model and without a network.
//!
//! It streams an answer to what it was asked, a few letters at a time, and shows on request everything an agent can
//! say or do, so that every protocol can be tried with it. Which words ask for what stands in [`words`]; what it does
//! about answers to its own questions, in [`replies`]. It speaks native event-stream bytes, which are cut into
//! frames, read and normalized like those of any other agent.
//!
//! Not here: anything a protocol would have to know. To the gateway this agent is nothing special.

mod memory;
mod replies;
mod stage;
mod words;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use futures_util::stream::{self, StreamExt};
use interlingua_core::builder::ResponseBuilder;
use interlingua_core::connector::{Ear, Question, Reader};
use interlingua_core::agent_api::Frame;
use interlingua_core::{Fault, FaultKind, sse};
use uuid::Uuid;

use super::{Conversation, Form, Trace, Upstream};
use memory::Memory;
use stage::Performance;

/// The pause between two pieces of text, where nothing else is said.
pub const PACE: Duration = Duration::from_millis(15);

/// Nothing it says is longer, in bytes.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// What an operator may choose: `upstream = { protocol = "demo", options = { pace_ms = 0 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
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

/// The demo agent. It remembers the sessions it was asked in, a bounded number of them.
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
    fn open(&self, question: &Question<'_>, _: Option<&Trace>) -> BoxFuture<'static, Result<Conversation, Fault>> {
        let request = question.request;
        let history = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take_in(request);
        let plan = words::plan(question, &history);
        let id = request.id.clone().unwrap_or_else(|| format!("response_{}", Uuid::now_v7().simple()));
        let now = stage::now();
        let response = ResponseBuilder::new(id, now).session(request.session_id.clone().unwrap_or_default());
        let performance = Performance::new(plan, response, now, self.pace);
        let body = stream::unfold(performance, |mut performance| async {
            let beat = performance.next()?;
            match beat.after {
                // An agent without pauses must not keep others from their turn.
                Duration::ZERO => tokio::task::coop::consume_budget().await,
                pause => tokio::time::sleep(pause).await,
            }
            Some((Ok(Bytes::from(beat.bytes)), performance))
        });
        // Whoever lets go of an answer may look once more whether there is anything left of it.
        let body = body.fuse();
        ready(Ok(Conversation::new(body.boxed(), Box::new(Native), Form::Frames, MAX_EVENT, None))).boxed()
    }

    fn stop(&self, _: &Question<'_>, _: Option<&Trace>) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}

/// Hears native frames. The agent speaks the native tongue, so there is nothing to translate.
struct Native;

impl Reader for Native {
    fn read(&mut self, frame: sse::Frame<'_>, ear: &mut dyn Ear) -> Result<(), Fault> {
        Frame::parse(frame.data).map_or(Ok(()), |heard| ear.hear(&heard))
    }

    fn read_body(&mut self, _: &[u8], _: &mut dyn Ear) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::Internal, "the demo agent never answers whole"))
    }
}
