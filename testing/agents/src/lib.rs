//! Scripted agents: each plays the scenarios of `interlingua_core_testkit::scenario` as a server of its protocol does,
//! over a real socket, without a model.
//!
//! # How to write one
//!
//! One file per protocol, written from the protocol's own text and from recorded servers, never from an adapter of the
//! gateway: an error on both sides would cancel out.
//!
//! 1. Implement [`ScriptedAgent`]. Its [`answer`](ScriptedAgent::answer) gets each request of the gateway and finds out
//!    with [`Stage::play`] which turn of which scenario it belongs to: the last mark in its bytes, or in a path that
//!    has an id of the agent's own making.
//! 2. Say with [`Play::received`] what the request has for the agent, as items: the user's words without their mark
//!    ([`Play::words`]), media, declared tools, outputs, decisions, instructions, temperature. Only new items: items of
//!    earlier turns do not count, but say [`Play::remembers`] if the request contains them or names the
//!    session, context or response of an earlier turn.
//! 3. Write each act of the turn as frames ([`Reply::frame`]): one chunk each, so that a test can cut between any two.
//!    Ids of calls and questions are [`Play::id`], so that the answer to them carries the mark of the next turn.
//! 4. Write the ending: errors, also the body of a refused request, have the protocol's own form.
//! 5. Say with [`speaks`](ScriptedAgent::speaks) which acts the protocol cannot express. They are not tried.
//! 6. Name it in [`all`], and write a stream of text deltas for benchmarks in [`deltas`].
//!
//! Not here: scenarios, and what clients are shown.

mod a2a;
mod ag_kit;
mod ag_ui;
mod agent_api;
mod agentscope;
mod anthropic_messages;
mod askers;
mod chat_completions;
pub mod delta_cost;
pub mod deltas;
mod hitl;
mod responses;
pub mod server;
mod stage;
mod tool_output;

pub use askers::{Asker, askers, numbering_asker};
pub use server::{ReceivedRequest, Reply, Upstream};
pub use stage::{AnswerCut, Play, Stage};

use std::sync::Arc;

use a2a::A2a;
use anthropic_messages::AnthropicMessages;
use chat_completions::{ChatCompletions, ReasoningForm};
use interlingua_core_testkit::scenario::{AgentAct, Turn};
use responses::Responses;

/// An agent of one protocol.
pub trait ScriptedAgent: Send + Sync + 'static {
    /// The name of the protocol in `gateway.toml`.
    fn protocol(&self) -> &'static str;

    /// The path that is appended to the server's address.
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

    /// Whether it sends its answer bit by bit.
    fn streams(&self) -> bool {
        true
    }

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
        Arc::new(agent_api::AgentApi::default()),
        Arc::new(ChatCompletions::default()),
        Arc::new(Responses::default()),
        Arc::new(ag_ui::AgUi::default()),
        Arc::new(A2a::default()),
        Arc::new(ag_kit::AgKit::default()),
        Arc::new(hitl::Hitl::default()),
        Arc::new(AnthropicMessages::default()),
        Arc::new(agentscope::Agentscope::default()),
    ]
}

/// Agents of the same protocols that say the same in other forms, or to a gateway with other settings. Each has a name.
#[must_use]
pub fn variants() -> Vec<(&'static str, Arc<dyn ScriptedAgent>)> {
    let a2a = |is_old, is_rest| Arc::new(A2a::new(a2a::Form { is_old, is_rest }));
    let chat = |dialect| Arc::new(ChatCompletions { dialect });
    let reasoning = |field, form| chat_completions::Dialect::Reasoning(field, form);
    let anthropic = |dialect| Arc::new(AnthropicMessages { dialect });
    let responses = |settings| Arc::new(ConfiguredAgent { agent: Responses::default(), settings });
    vec![
        ("a2a 1.0 over HTTP+JSON", a2a(false, true)),
        ("a2a 0.3 over JSON-RPC", a2a(true, false)),
        ("a2a 0.3 over HTTP+JSON", a2a(true, true)),
        ("ag-ui, a snapshot under other ids", Arc::new(ag_ui::AgUi { lists_messages: true, ..ag_ui::AgUi::default() })),
        ("responses, the whole history", responses(r#"options = { model = "scripted", chain = "full" }"#)),
        ("responses, in a conversation", responses(r#"options = { model = "scripted", chain = "conversation" }"#)),
        (
            "responses, asked for later",
            responses(r#"options = { model = "scripted", background = "poll", poll_interval = "10ms" }"#),
        ),
        ("responses, in the background", responses(r#"options = { model = "scripted", background = "stream" }"#)),
        ("chat-completions of vLLM", chat(chat_completions::Dialect::Vllm)),
        ("chat-completions of Ollama", chat(chat_completions::Dialect::Ollama)),
        ("chat-completions of OpenRouter", chat(chat_completions::Dialect::OpenRouter)),
        ("chat-completions, reasoning_text", chat(reasoning("reasoning_text", ReasoningForm::Text))),
        ("chat-completions, thinking", chat(reasoning("thinking", ReasoningForm::Text))),
        ("chat-completions, reasoning_details", chat(reasoning("reasoning_details", ReasoningForm::Details))),
        ("chat-completions of Gemini", chat(reasoning("content", ReasoningForm::Marked))),
        ("chat-completions, late names", chat(chat_completions::Dialect::LateNames)),
        (
            "chat-completions, parts by default",
            Arc::new(ConfiguredAgent {
                agent: ChatCompletions::default(),
                settings: r#"options = { model = "scripted" }"#,
            }),
        ),
        ("anthropic-messages of LiteLLM", anthropic(anthropic_messages::Dialect::LiteLlm)),
        ("anthropic-messages, an imitation", anthropic(anthropic_messages::Dialect::Imitation)),
    ]
}

/// An agent behind a gateway with other settings.
struct ConfiguredAgent<A> {
    agent: A,
    settings: &'static str,
}

impl<A: ScriptedAgent> ScriptedAgent for ConfiguredAgent<A> {
    fn protocol(&self) -> &'static str {
        self.agent.protocol()
    }

    fn path(&self) -> &'static str {
        self.agent.path()
    }

    fn settings(&self) -> &'static str {
        self.settings
    }

    fn agent_settings(&self) -> &'static str {
        self.agent.agent_settings()
    }

    fn speaks(&self, act: &AgentAct) -> bool {
        self.agent.speaks(act)
    }

    fn streams(&self) -> bool {
        self.agent.streams()
    }

    fn answer(&self, request: &ReceivedRequest, stage: &Stage) -> Reply {
        self.agent.answer(request, stage)
    }

    fn plays(&self, turn: &Turn) -> bool {
        self.agent.plays(turn)
    }
}

/// Serves an agent on a socket, and cuts the replies of plays that have a cut.
pub fn serve(agent: Arc<dyn ScriptedAgent>, stage: Arc<Stage>) -> Upstream {
    Upstream::with_handler(move |request| {
        stage.keep_request(request);
        stage.cut(agent.answer(request, &stage))
    })
}

/// The agent of this protocol.
///
/// # Panics
/// No agent has this name.
#[must_use]
pub fn find(protocol: &str) -> Arc<dyn ScriptedAgent> {
    let found = all().into_iter().find(|agent| agent.protocol() == protocol);
    found.unwrap_or_else(|| panic!("no agent speaks {protocol:?}"))
}
