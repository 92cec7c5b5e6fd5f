//! The facts of a request and of the turn that it began.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::event::Millis;

/// What is known of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestParts {
    /// When it began.
    pub(super) at: Millis,
    /// As `x-request-id` reports it.
    pub(super) id: String,
    pub(super) method: String,
    /// Without its query.
    pub(super) path: String,
    pub(super) client: Option<IpAddr>,
    /// The path of the route as configured; empty outside of all routes.
    pub(super) route: Option<Arc<str>>,
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
    pub(super) turn: Option<TurnPart>,
}

/// What became of the turn that a request began.
#[derive(Clone, Debug, Default)]
pub struct TurnPart {
    /// The run's id.
    pub run: String,
    /// The agent's name.
    pub agent: String,
    /// The session's id.
    pub session: String,
    /// `completed`, `failed`, …
    pub outcome: &'static str,
    /// The code of a failure.
    pub code: Option<String>,
    /// Whose failure it is.
    pub blame: Option<&'static str>,
    /// How many events the turn has.
    pub events: u64,
    /// From its beginning to its end.
    pub took: Duration,
    /// Until the agent's first event. `None`: there was none.
    pub first_event: Option<Duration>,
    /// Tokens that the agent reported: input and output.
    pub usage: Option<(u64, u64)>,
}
