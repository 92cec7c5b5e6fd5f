//! A2A, both generations and both bindings at the same URLs, in front of agents that never heard of it.
//!
//! Name, options and the table of endpoints live here. What a client says becomes a native question in `input`; what
//! an agent says becomes statuses and artifacts in `updates`, which streams, tasks and push notifications are all made
//! of; `wire` spells them for each dialect; `serve` is the exchange between the two. `connect` is the other half: it asks
//! agents that speak A2A.
//!
//! A task is one run with several turns, and a context is a session. Both live in the engine; nothing is kept here.

mod card;
mod connect;
mod dialect;
mod direct;
mod errors;
mod history;
mod input;
mod options;
mod parts;
mod push;
mod says;
mod serve;
mod task;
mod time;
mod updates;
mod wire;

use std::sync::Arc;

use interlingua_core::call::AgentCard;
use interlingua_core::exchange::{Announced, Cors, Mounted};
use interlingua_core::{Endpoint, Mount, ProtocolAdapter};

pub use card::{Algorithm, CardOptions, CardSigning, Flow, Flows, Provider, Requirement, Scheme, Skill};
pub use connect::{A2aUpstream, UpstreamContext, UpstreamOptions, UpstreamStatusText};
pub use dialect::{Binding, Generation};
pub use options::{
    ArtifactPer, CardFrom, CardWithoutVersion, Deduplicate, Extension, Incomplete, MissingVersion, Options, PushEvents,
    PushOld, Reasoning, ReplyAs, StatusText, Tools, TurnEnd, WhileWorking,
};

/// How `gateway.toml` names it.
pub(crate) const NAME: &str = "a2a";
/// The media type of A2UI parts, which stays with them (section 12).
pub(crate) const A2UI: &str = "application/json+a2ui";

/// Serves A2A to clients.
#[derive(Clone, Copy, Debug)]
pub struct A2a;

/// What all exchanges of one mount share.
pub(crate) struct Route {
    pub(crate) options: Options,
    /// Where it is mounted, without a slash at its end.
    pub(crate) path: String,
    pub(crate) agents: Vec<Arc<AgentCard>>,
    /// The URL cards name, where the configuration knows it.
    pub(crate) public_url: Option<String>,
    /// Whether the agent takes edited arguments.
    pub(crate) edits: bool,
    /// Whether callers can prove who they are.
    pub(crate) authenticates: bool,
    /// What signs its cards.
    pub(crate) signer: Option<card::CardSigner>,
}

impl Route {
    fn new(mount: &Mount, options: Options) -> Result<Self, String> {
        options.check()?;
        let Some(first) = mount.agents.first() else {
            return Err("an \"a2a\" route serves an agent".into());
        };
        if mount.agents.len() > 1 && options.tenants.is_empty() {
            return Err("an \"a2a\" route serves one agent: put {agent} in its path, or give each a tenant".into());
        }
        for agent in options.tenants.values() {
            if !mount.agents.iter().any(|known| known.name == *agent) {
                return Err(format!(
                    "the tenants of an \"a2a\" route name the agent \"{agent}\", which it does not serve"
                ));
            }
        }
        let told = options.public_url.as_ref().map(|url| url.replace("{agent}", &first.name));
        let public_url = told.or_else(|| mount.public_url.clone()).map(|url| url.trim_end_matches('/').to_owned());
        if options.card_signing.is_some() && public_url.is_none() {
            // Whoever asks names the host: a signature over it would vouch for any address.
            return Err("\"card_signing\" needs a URL that does not come from a request\n\
                        set public_url in [server], or in the options of this route"
                .into());
        }
        let signer = options.card_signing.as_ref().map(card::CardSigner::new).transpose()?;
        Ok(Self {
            public_url,
            signer,
            edits: first.approval_extension,
            authenticates: mount.authenticates,
            agents: mount.agents.clone(),
            path: mount.path.clone(),
            options,
        })
    }
}

impl Route {
    /// Settings that cannot have their effect.
    fn warnings(&self) -> Vec<String> {
        let idle = self.options.extended_card.is_some() && self.extended_card().is_none();
        let text = "\"extended_card\" is set, but nobody can sign in here: no card offers it and nobody gets it";
        if idle { vec![text.to_owned()] } else { Vec::new() }
    }
}

impl ProtocolAdapter for A2a {
    const NAME: &'static str = NAME;
    type Options = Options;

    fn mount(mount: &Mount, options: Options) -> Result<Mounted, String> {
        let route = Arc::new(Route::new(mount, options)?);
        let stray = Arc::clone(&route);
        let cors = Cors {
            allow_headers: ["a2a-version", "a2a-extensions", "x-a2a-extensions", "authorization", "content-type"]
                .into_iter()
                .chain(["accept", "traceparent", "tracestate"])
                .map(str::to_owned)
                .collect(),
            expose_headers: ["a2a-extensions", "x-a2a-extensions", "etag", "retry-after", "x-request-id"]
                .map(str::to_owned)
                .to_vec(),
        };
        Ok(Mounted {
            curl: vec![
                "curl {url}/.well-known/agent-card.json".into(),
                "curl -N {url} -H 'A2A-Version: 1.0' -H 'content-type: application/json' -d '{\"jsonrpc\":\"2.0\",\"id\":1,\
                 \"method\":\"SendStreamingMessage\",\"params\":{\"message\":{\"messageId\":\"m1\",\
                 \"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"hello\"}]}}}'"
                    .into(),
            ],
            max_body: Some(route.options.max_body),
            cors,
            any_origin: route.options.cors,
            announced_url: Some(route.public_url.clone().map_or(Announced::AsAsked, Announced::Fixed)),
            push: route.options.push.then(|| push::notifiers(&route)),
            retention: Some(route.options.keep()),
            warnings: route.warnings(),
            ..Mounted::new(endpoints(&route), Box::new(move || Box::new(serve::Fallback::new(&stray))))
        })
    }

    fn options_schema() -> serde_json::Value {
        options::schema()
    }
}

/// The table: static paths before those with a tenant in front, actions before the tasks they are done to.
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
        endpoints.push(Endpoint::post("", move || serve::Serve::rpc(&route)));
    }
    if route.options.bindings.contains(&Binding::Rest) {
        // Those of a generation that is not served are answered too: with what is.
        for (method, path, generation, operation) in serve::REST {
            let route = Arc::clone(route);
            let open = move || serve::Serve::rest(&route, *generation, *operation);
            endpoints.push(Endpoint::new(*method, path, open));
        }
    }
    endpoints
}
