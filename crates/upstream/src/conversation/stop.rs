//! Asking an agent to stop, where closing the connection is not enough.
//!
//! Some agents are stopped by an id that only their answer has. If a turn is canceled before that, its answer is read
//! on for a moment, and thrown away. Not here: when a turn is canceled (the engine).

use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use interlingua_core::Fault;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{EventSink, HttpRequest};
use tokio::time::timeout;

use super::{Conversation, Flow};

/// Time that an answer is read for the id that stops the agent.
const ID_TIMEOUT: Duration = Duration::from_secs(2);

/// The outcome of a request to stop an agent.
#[derive(Clone, Debug)]
pub enum StopOutcome {
    /// The request was sent.
    Sent,
    /// The agent continues; the reason as a clause.
    Refused(String),
    /// The request failed.
    Failed(Fault),
    /// The id for the request did not arrive in time.
    Unknown,
    /// It ended by itself.
    Ended,
}

/// An agent's answer to a request to stop.
pub struct StopAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body, cut at a bound, secrets masked.
    pub body: Vec<u8>,
}

impl Conversation {
    /// Asks the agent to stop, with the ids that the turn has received, or receives within two seconds. Best effort,
    /// bounded in time. `None`: no request is necessary, so that dropping the conversation is enough.
    #[must_use]
    pub fn stop(mut self) -> Option<LocalBoxFuture<'static, StopOutcome>> {
        let known = self.turn.cancel();
        if known.is_none()
            && self.is_taken
            && let Some(messages) = self.turn.cancel_messages()
        {
            let written = self.transport.notify(messages);
            return Some(
                async move { written.await.map_or_else(StopOutcome::Failed, |()| StopOutcome::Sent) }.boxed_local(),
            );
        }
        if known.is_none() && (self.requests == 0 || !self.turn.cancels_once_known()) {
            return None;
        }

        let stopping = async move {
            let request = match known {
                Some(request) => request,
                None => match timeout(ID_TIMEOUT, self.learn()).await {
                    Ok(Ok(request)) => request,
                    Ok(Err(stopped)) => return stopped,
                    Err(_) => return StopOutcome::Unknown,
                },
            };
            let answer = self.transport.cancel(request).await;
            self.interpret(answer)
        };
        Some(stopping.boxed_local())
    }

    /// Continues to read until the turn has a request that cancels it.
    async fn learn(&mut self) -> Result<HttpRequest, StopOutcome> {
        let mut sink = Discard::default();
        loop {
            let goes_on = match self.chunk().await {
                Ok(Some(chunk)) => self.feed(&chunk, &mut sink).is_ok(),
                Ok(None) => matches!(self.finish(&mut sink), Ok(Flow::Continues)),
                Err(_) => false,
            };
            if sink.has_ended {
                return Err(StopOutcome::Ended);
            }
            match self.turn.cancel() {
                Some(request) => return Ok(request),
                None if goes_on => {}
                None => return Err(StopOutcome::Unknown),
            }
        }
    }

    fn interpret(&self, answer: Result<StopAnswer, Fault>) -> StopOutcome {
        match answer {
            Ok(StopAnswer { status, body }) => match self.turn.cancel_refused(status, &body) {
                Some(why) => StopOutcome::Refused(interlingua_base::secrets::mask(&why).into_owned()),
                None if (200..300).contains(&status) => StopOutcome::Sent,
                None => StopOutcome::Refused(format!("it answered {status}")),
            },
            Err(fault) => StopOutcome::Failed(fault),
        }
    }
}

/// Discards the events of a canceled turn.
#[derive(Default)]
struct Discard {
    has_ended: bool,
}

impl EventSink for Discard {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.has_ended |= match event {
            AgentEvent::Response(response) => response.end.is_some(),
            AgentEvent::Error(_) => true,
            _ => false,
        };
        Ok(())
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}
