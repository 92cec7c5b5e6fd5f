//! An engine without sockets, with the agent `demo`, and the scope of its caller.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlingua::callers::{Callers, Usage};
use interlingua::engine::{Agent, Engine, History, HistoryLimit, Limits, RetentionRules, RouteAgents, Scope};
use interlingua::metrics::Metrics;
use interlingua::ports::{WebhookClient, WebhookError};
use interlingua::store::{OwnerBoundsOf, Retention, Store};
use interlingua::upstream::{ForwardedHeaders, Upstream};
use interlingua_core::Owner;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::AgentCard;
use interlingua_core::public_address::{Policy, RefusedAddress};
use interlingua_core::push::PushRequest;

/// The name of the agent.
pub const AGENT: &str = "demo";

/// A webhook client that accepts every delivery.
struct AcceptingClient;

impl WebhookClient for AcceptingClient {
    fn check_url(&self, _: &str, _: &Policy) -> BoxFuture<'static, Result<(), RefusedAddress>> {
        Box::pin(ready(Ok(())))
    }

    fn post(&self, _: &str, _: &Policy, _: PushRequest) -> BoxFuture<'static, Result<(), WebhookError>> {
        Box::pin(ready(Ok(())))
    }
}

/// An engine, and the scope of an anonymous caller of the protocol `test`, without push notifications.
pub fn engine(store: Arc<dyn Store>, upstream: Arc<dyn Upstream>, history: History) -> (Engine, Scope) {
    let card = Arc::new(AgentCard {
        name: AGENT.to_owned(),
        server_label: AGENT.to_owned(),
        decisions: ALL_DECISIONS,
        ..AgentCard::default()
    });
    let metrics = Metrics::new();
    let agent = Agent {
        protocol: "agent-api".into(),
        name: AGENT.to_owned(),
        card: Arc::clone(&card),
        upstream,
        protocol_events: false.into(),
        history,
        history_limit: HistoryLimit { turns: 50, bytes: 1 << 20 },
        queue_turns: true,
        max_run_bytes: 64 << 20,
        usage: Arc::new(Usage::default()),
        metrics: metrics.agent(AGENT),
    };
    let retention = Retention {
        age: Duration::from_secs(3600),
        runs: 100_000,
        documents: 100_000,
        bytes: u64::MAX,
        collections: Vec::new(),
        parts: Vec::new(),
        routes: Vec::new(),
        attached: Vec::new(),
        bounds: OwnerBoundsOf::default(),
    };
    let scope = Scope {
        owner: Owner::anonymous(),
        caller: Callers::anonymous_only().anonymous(),
        path: Arc::from("/"),
        agents: RouteAgents::new(vec![card]),
        protocol: "test",
        detach: false,
        first_event_timeout: Duration::from_secs(10),
        push: None,
        route: None,
        trace: None,
        request: None,
        forwarded: ForwardedHeaders::default(),
        connection: None,
    };
    let engine = Engine::new(
        vec![Arc::new(agent)],
        store,
        Arc::new(AcceptingClient),
        RetentionRules { retention, scopes: Vec::new() },
        Callers::anonymous_only(),
        Limits::default(),
        metrics,
    );
    (engine, scope)
}
