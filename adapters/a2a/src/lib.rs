//! A2A 1.0 and 0.3, both bindings at the same URLs, in front of agents that do not speak A2A.
//!
//! Name, options and the endpoint table live here. `decode` turns client messages into requests of the canonical model
//! (the Agent API). `encode` turns runs into statuses and artifacts, the source of streams, tasks and push
//! notifications. `wire` encodes them for each dialect. `serve` holds the exchanges. `connect` is the other half: it
//! calls agents that speak A2A.
//!
//! A task is one run with several turns, and a context is a session. Both live in the engine; this crate stores
//! nothing.

mod card;
mod connect;
mod decode;
mod dialect;
mod encode;
mod errors;
mod generation;
mod losses;
mod options;
mod parts;
mod sample;
mod serve;
mod time;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use interlingua_core::call::AgentCard;
use interlingua_core::capability::ClientCapabilities;
use interlingua_core::console::{ClientSnippets, ConsoleSupport, DecisionNotice};
use interlingua_core::exchange::{AnnouncedUrl, Cors, Mounted, RunRules};
use interlingua_core::pending::Decision;
use interlingua_core::sample::Sample;
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};

pub use card::{Algorithm, CardOptions, CardSigning, Flow, Flows, Provider, Requirement, Scheme, Skill};
pub use connect::{A2aUpstream, UpstreamContext, UpstreamOptions, UpstreamStatusText};
pub use dialect::{Binding, Generation, rpc_methods};
pub use options::{
    ArtifactPer, CardFrom, CardWithoutVersion, Deduplicate, Extension, Incomplete, MissingVersion, Options, PushEvents,
    PushV03, Reasoning, ReplyAs, StatusText, Tools, TurnEnd, WhileWorking,
};

/// Protocol name in `gateway.toml`.
pub(crate) const NAME: &str = "a2a";
/// Media type of A2UI parts; passed through unchanged (docs/protocols/a2a.md#extensions).
pub(crate) const A2UI: &str = "application/json+a2ui";

/// The protocol adapter that serves A2A to clients.
#[derive(Clone, Copy, Debug)]
pub struct A2a;

/// State shared by all exchanges of one mount.
pub(crate) struct Route {
    pub(crate) options: Options,
    /// Mount path without a trailing slash.
    pub(crate) path: String,
    pub(crate) agents: Vec<Arc<AgentCard>>,
    /// URL in agent cards. `None` if it is not configured: each card then carries the URL of its request.
    pub(crate) public_url: Option<String>,
    /// The decisions about approvals that the agent accepts.
    pub(crate) decisions: &'static [Decision],
    /// The authentication schemes of this mount, by the names in its cards. Empty: callers are anonymous.
    pub(crate) schemes: BTreeMap<String, Scheme>,
    /// Signs 1.0 cards. `None`: cards are not signed.
    pub(crate) signer: Option<card::CardSigner>,
}

impl Route {
    fn new(mount: &Mount, options: Options) -> Result<Self, String> {
        options.check()?;
        card::check(&options)?;
        let Some(first) = mount.agents.first() else {
            return Err("an \"a2a\" route needs an agent".into());
        };
        if mount.agents.len() > 1 && options.tenants.is_empty() {
            return Err(
                "an \"a2a\" route serves one agent: add {agent} to its path, or map each agent to a tenant".into()
            );
        }
        for agent in options.tenants.values() {
            if !mount.agents.iter().any(|known| known.name == *agent) {
                return Err(format!(
                    "\"tenants\" of an \"a2a\" route names the agent \"{agent}\", which the route does not serve"
                ));
            }
        }

        let configured_url = options.public_url.as_ref().map(|url| url.replace("{agent}", &first.name));
        let public_url =
            configured_url.or_else(|| mount.public_url.clone()).map(|url| url.trim_end_matches('/').to_owned());
        if options.card_signing.is_some() && public_url.is_none() {
            // The caller chooses the Host header: a signature over it would vouch for any address.
            return Err("\"card_signing\" needs a fixed public URL, not one taken from a request\n\
                        set public_url in [server], or in the options of this route"
                .into());
        }

        let signer = options.card_signing.as_ref().map(card::CardSigner::new).transpose()?;
        Ok(Self {
            public_url,
            signer,
            decisions: first.decisions,
            schemes: card::of_route(&mount.schemes),
            agents: mount.agents.clone(),
            path: mount.path.clone(),
            options,
        })
    }
}

impl Route {
    /// Startup warnings about settings that have no effect.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.options.extended_card.is_some() && self.extended_card().is_none() {
            let text = "\"extended_card\" is set, but callers cannot authenticate on this route: it is never offered or \
                        served";
            warnings.push(text.to_owned());
        }

        let cards = std::iter::once(&self.options.card).chain(&self.options.extended_card);
        if !self.schemes.is_empty() && cards.into_iter().any(|card| !card.security_schemes.is_empty()) {
            let text = "\"security_schemes\" of the card are ignored: they follow from \"auth\" of the route";
            warnings.push(text.to_owned());
        }
        warnings
    }
}

impl ProtocolAdapter for A2a {
    const NAME: &'static str = NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let route = Arc::new(Route::new(mount, options)?);
        let fallback_route = Arc::clone(&route);

        let cors = Cors {
            allow_headers: ["a2a-version", "a2a-extensions", "x-a2a-extensions", "authorization", "content-type"]
                .into_iter()
                .chain(["x-api-key", "accept", "traceparent", "tracestate"])
                .map(str::to_owned)
                .collect(),
            expose_headers: ["a2a-extensions", "x-a2a-extensions", "etag"]
                .map(str::to_owned)
                .into_iter()
                .chain(Cors::default().expose_headers)
                .collect(),
            any_origin: route.options.cors,
        };

        Ok(Mounted {
            max_body: Some(route.options.max_body.bytes()),
            cors,
            announced_url: Some(route.public_url.clone().map_or(AnnouncedUrl::AsAsked, AnnouncedUrl::Fixed)),
            runs: RunRules {
                push: route.options.push.then(|| serve::notifications::notifiers(&route)),
                retention: Some(route.options.retention()),
                ..RunRules::default()
            },
            warnings: route.warnings(),
            console: ConsoleSupport {
                curl: vec![
                    "curl {url}/.well-known/agent-card.json".into(),
                    "curl -N {url} -H 'A2A-Version: 1.0' -H 'content-type: application/json' -d '{\"jsonrpc\":\"2.0\",\"id\":1,\
                 \"method\":\"SendStreamingMessage\",\"params\":{\"message\":{\"messageId\":\"m1\",\
                 \"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"hello\"}]}}}'"
                        .into(),
                ],
                decision_notice: DecisionNotice::Notified,
                sample: route.options.bindings.contains(&Binding::JsonRpc).then_some(Box::new(sample::request) as Sample),
                snippets: ClientSnippets { python: Some(include_str!("console/python.template")), typescript: None },
                ..ConsoleSupport::default()
            },
            ..Mounted::new(endpoints(&route), Box::new(move || Box::new(serve::Fallback::new(&fallback_route))))
        })
    }

    fn capabilities(options: &Options) -> ClientCapabilities {
        // A2A has no place where a client declares its tools, only one for the outputs of those an agent knows of.
        let mut capabilities = ClientCapabilities::interactive();
        capabilities.reasoning = options.reasoning != Reasoning::Drop;
        capabilities
    }
}

/// Endpoint table. Order matters: static paths before paths with a tenant prefix, task actions before the task itself.
fn endpoints(route: &Arc<Route>) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let route = Arc::clone(route);
        let at_root = route.options.well_known_at_root;
        let card = Endpoint::get(path, move || card::serve::Card::new(&route));
        endpoints.push(Endpoint { at_root, public: true, ..card });
    }

    if route.options.bindings.contains(&Binding::JsonRpc) {
        let route = Arc::clone(route);

        endpoints.push(Endpoint::post("", move || serve::A2aExchange::rpc(&route)));
    }

    if route.options.bindings.contains(&Binding::Rest) {
        // Paths of a version that is not served exist too: they answer which versions are.
        for (method, path, generation, operation) in serve::REST {
            let route = Arc::clone(route);
            let open = move || serve::A2aExchange::rest(&route, *generation, *operation);
            endpoints.push(Endpoint::new(*method, path, open));
        }
    }
    endpoints
}
