//! The upstream-facing half of a protocol: asking an agent, and understanding what it says.
//!
//! Pure, like [`crate::exchange`]: a connector makes a request, a reader turns frames into what was heard. Sending,
//! waiting, timeouts and retries are the gateway's.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::fault::{Fault, FaultKind};
use crate::heard::Heard;
use crate::json::Json;
use crate::model::AgentRequest;
use crate::pending::Pending;
use crate::sse;

/// One upstream-facing protocol.
pub trait UpstreamAdapter: 'static {
    /// How `gateway.toml` names it.
    const NAME: &'static str;
    /// Its own section of an agent: `upstream.options = { … }`.
    type Options: DeserializeOwned + Default + Send + Sync + 'static;
    /// A connector for one agent.
    ///
    /// # Errors
    /// A sentence for the operator.
    fn connect(url: &str, options: Self::Options) -> Result<Box<dyn Connector>, String>;
}

/// A question as it goes out.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The request, with `id`, `session_id` and `user_id` set.
    pub request: &'a AgentRequest,
    /// What this connector remembered of the session ([`Reader::remember`]). `null` at first.
    pub memory: &'a Json,
    /// Items that are answered in this request's input.
    pub answered: &'a [Pending],
}

/// A request to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The method.
    pub method: &'static str,
    /// The whole URL.
    pub url: String,
    /// Headers of the protocol; the operator's are added.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Makes requests for one agent.
pub trait Connector: Send + Sync + 'static {
    /// Asks.
    ///
    /// # Errors
    /// If the question cannot be put in this protocol.
    fn ask(&self, question: &Question<'_>) -> Result<(Ask, Box<dyn Reader>), Fault>;

    /// What has to be sent so that the agent stops, besides closing the connection. Most need nothing.
    fn cancel(&self, question: &Question<'_>) -> Option<Ask> {
        let _ = question;
        None
    }

    /// What an operator should know of how this agent is set: sentences, each naming the setting. Shown by `check`, and
    /// at the start.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The fault in a refusal: status, media type, the beginning of the body, what `retry-after` said.
    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        refusal.fault()
    }
}

/// An answer with a status that is no success.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, cut at a bound.
    pub body: &'a [u8],
    /// What `retry-after` said.
    pub retry_after: Option<Duration>,
}

impl Refusal<'_> {
    /// The fault by the status alone; the body goes to the log.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let (kind, message) = match self.status {
            300..=399 => (FaultKind::UpstreamRefused, "the agent redirects elsewhere, and redirects are not followed"),
            429 => (FaultKind::UpstreamRateLimited, "the agent is rate limited"),
            408 | 504 => (FaultKind::UpstreamTimeout, "the agent took too long"),
            401 | 403 => (FaultKind::UpstreamRefused, "the agent refused the gateway's credentials"),
            404 | 405 => (FaultKind::UpstreamRefused, "the agent has nothing at the URL that the gateway asks"),
            503 => (FaultKind::UpstreamUnreachable, "the agent is not available"),
            _ => (FaultKind::UpstreamRefused, "the agent refused the request"),
        };
        let mut fault = Fault::new(kind, message).with_detail(String::from_utf8_lossy(self.body));
        fault.upstream_status = Some(self.status);
        fault.retry_after = self.retry_after;
        fault
    }

    /// Whether the body may speak to clients: only a status that judges *their* request does. All others judge the
    /// gateway's (its URL, its credentials) or the agent's own state.
    #[must_use]
    pub const fn is_about_the_request(&self) -> bool {
        matches!(self.status, 400 | 409 | 413 | 422 | 429)
    }
}

/// Where a reader says what it heard.
pub trait Ear {
    /// Something was said.
    ///
    /// # Errors
    /// If the run may not grow any further.
    fn hear(&mut self, heard: &Heard<'_>) -> Result<(), Fault>;

    /// How often what was heard said nothing that the protocol knows.
    fn ignored(&self) -> u64 {
        0
    }
}

/// Understands one upstream's answer.
pub trait Reader: Send + 'static {
    /// Reads one frame of an event stream.
    ///
    /// # Errors
    /// If it cannot be understood; the run then ends as failed.
    fn read(&mut self, frame: sse::Frame<'_>, ear: &mut dyn Ear) -> Result<(), Fault>;

    /// Reads an answer that came whole, as plain JSON.
    ///
    /// # Errors
    /// If it cannot be understood.
    fn read_body(&mut self, body: &[u8], ear: &mut dyn Ear) -> Result<(), Fault>;

    /// The body ended. Whether the answer was complete, the normalizer knows; this is for readers that hold something
    /// back.
    ///
    /// # Errors
    /// If what was held back cannot be understood.
    fn end(&mut self, ear: &mut dyn Ear) -> Result<(), Fault> {
        let _ = ear;
        Ok(())
    }

    /// What the connector wants to know at the session's next question.
    fn remember(&self) -> Option<Json> {
        None
    }
}
