//! Scripted agents: each plays the scenarios of `interlingua_core::testkit::scenario` as a server of its protocol does,
//! over a real socket, without a model.
//!
//! # How to write one
//!
//! One file per protocol, written from the protocol's own text and from recorded servers, never from an adapter of the
//! gateway: an error that stands on both sides would cancel out.
//!
//! 1. Implement [`ScriptedAgent`]. Its [`answer`](ScriptedAgent::answer) gets each request of the gateway and finds out
//!    with [`Stage::play`] which turn of which scenario it belongs to: the last mark in its bytes, or in a path that has
//!    an id of the agent's own making.
//! 2. Say with [`Play::received`] what the request has for the agent, as items: the user's words without their mark
//!    ([`Play::words`]), media, declared tools, outputs, decisions, instructions, temperature. Only what is new: items of
//!    earlier turns do not count, but say [`Play::remembers`] if they stand in the request or if the request names the
//!    session, context or response of an earlier turn.
//! 3. Write each act of the turn as frames ([`Reply::frame`]): one chunk each, so that a test can cut between any two.
//!    Ids of calls and questions are [`Play::id`], so that the answer to them carries the mark of the next turn.
//! 4. Write the ending: errors, also the body of a refused request, have the protocol's own form.
//! 5. Say with [`speaks`](ScriptedAgent::speaks) which acts the protocol has no word for. They are not tried.
//! 6. Name it in [`all`], and write a stream of text deltas for benchmarks in [`deltas`].
//!
//! Not here: scenarios, and what clients are shown.

mod a2a;
mod ag_kit;
mod ag_ui;
mod agent_api;
mod agentscope;
mod anthropic_messages;
mod chat_completions;
pub mod delta_cost;
pub mod deltas;
mod hitl;
mod responses;
pub mod server;
mod stage;

pub use server::{ReceivedRequest, Reply, Upstream};
pub use stage::{Cut, Play, Stage};

use std::sync::Arc;

use interlingua_core::testkit::scenario::{AgentAct, Turn};

/// An agent of one protocol.
pub trait ScriptedAgent: Send + Sync + 'static {
    /// The name of the protocol in `gateway.toml`.
    fn protocol(&self) -> &'static str;

    /// What is appended to the address of the server to make the agent's URL.
    fn path(&self) -> &'static str;

    /// Further lines of `[agents.X.upstream]`.
    fn settings(&self) -> &'static str {
        ""
    }

    /// Further lines of `[agents.X]`.
    fn agent_settings(&self) -> &'static str {
        ""
    }

    /// Whether an agent of this protocol can do this.
    fn speaks(&self, act: &AgentAct) -> bool;

    /// Answers a request.
    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply;

    /// Whether an agent of this protocol can do all of a turn.
    fn plays(&self, turn: &Turn) -> bool {
        turn.agent.iter().all(|act| self.speaks(act))
    }
}

/// Every agent.
#[must_use]
pub fn all() -> Vec<Arc<dyn ScriptedAgent>> {
    vec![
        Arc::new(agent_api::AgentApi),
        Arc::new(chat_completions::ChatCompletions),
        Arc::new(responses::Responses),
        Arc::new(ag_ui::AgUi),
        Arc::new(a2a::A2a::default()),
        Arc::new(ag_kit::AgKit),
        Arc::new(hitl::Hitl::default()),
        Arc::new(anthropic_messages::AnthropicMessages),
        Arc::new(agentscope::Agentscope::default()),
    ]
}

/// Puts an agent on a socket. Where a play is to be cut, its reply is.
pub fn serve(agent: Arc<dyn ScriptedAgent>, stage: Arc<Stage>) -> Upstream {
    Upstream::with_handler(move |request| stage.cut(agent.answer(request, &stage)))
}

/// The agent of this protocol.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn find(protocol: &str) -> Arc<dyn ScriptedAgent> {
    let found = all().into_iter().find(|agent| agent.protocol() == protocol);
    found.unwrap_or_else(|| panic!("no agent speaks {protocol:?}"))
}
