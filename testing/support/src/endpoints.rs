//! Every endpoint of every client protocol, as the adapters declare them below the mounts of [`super::paths::MOUNTS`].
//!
//! Not here: the requests.

use std::sync::Arc;

use interlingua_core::ProtocolAdapter;
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::AgentCard;
use interlingua_core::exchange::Mount;

use super::pairs::{ALL_PROTOCOLS, MOUNTS, Protocol};

/// An endpoint of a route for the agent `demo`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub method: &'static str,
    /// With parameters in braces.
    pub path: String,
    pub websocket: bool,
}

impl Endpoint {
    /// The path, with parameters filled in by `x`.
    pub fn filled(&self) -> String {
        let parts = self.path.split(['{', '}']).enumerate();
        parts.map(|(index, part)| if index % 2 == 1 { "x" } else { part }).collect()
    }
}

/// All of them.
pub fn endpoints() -> Vec<Endpoint> {
    ALL_PROTOCOLS.into_iter().flat_map(endpoints_of).collect()
}

fn endpoints_of(protocol: Protocol) -> Vec<Endpoint> {
    match protocol {
        Protocol::AgentApi => declared::<interlingua_native::Native>(),
        Protocol::Responses => declared::<interlingua_responses::Responses>(),
        Protocol::ChatCompletions => declared::<interlingua_chat_completions::ChatCompletions>(),
        Protocol::AnthropicMessages => declared::<interlingua_anthropic_messages::AnthropicMessages>(),
        Protocol::A2a => declared::<interlingua_a2a::A2a>(),
        Protocol::AgKit => declared::<interlingua_ag_kit::AgKit>(),
        Protocol::AgUi => declared::<interlingua_ag_ui::AgUi>(),
        Protocol::Hitl => declared::<interlingua_hitl::Hitl>(),
    }
}

fn declared<P: ProtocolAdapter>() -> Vec<Endpoint> {
    let card = AgentCard {
        name: "demo".to_owned(),
        description: String::new(),
        version: String::new(),
        server_label: "demo".to_owned(),
        since: 0,
        decisions: ALL_DECISIONS,
    };
    let path = MOUNTS.iter().find(|(name, _)| *name == P::NAME).expect("it is mounted").1.replace("{agent}", "demo");
    let mount = Mount { path: path.clone(), agents: vec![Arc::new(card)], public_url: None, schemes: Vec::new() };
    let mounted = P::mount(&mount, P::Options::default()).expect("the default options are valid");
    let endpoints = mounted.endpoints.iter().map(|endpoint| Endpoint {
        method: endpoint.method.as_str(),
        path: format!("{path}{}", endpoint.path),
        websocket: endpoint.websocket.is_some(),
    });
    endpoints.collect()
}
