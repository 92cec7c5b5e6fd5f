//! Every endpoint of every client protocol, as the adapters declare them below the mounts of [`super::paths::MOUNTS`].
//!
//! Not here: the requests.

use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::AgentCard;
use interlingua_core::capability::Media;
use interlingua_testing_protocols::{Serves, served};

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
    served().flat_map(|(_, serves)| endpoints_of(&serves)).collect()
}

fn endpoints_of(serves: &Serves) -> Vec<Endpoint> {
    let card = AgentCard {
        name: "demo".to_owned(),
        description: String::new(),
        version: String::new(),
        server_label: "demo".to_owned(),
        since: 0,
        decisions: ALL_DECISIONS,
        input_media: Media::ALL,
    };
    let path = serves.path_of(&card.name);
    let mounted = serves.mounted(card);
    let endpoints = mounted.endpoints.iter().map(|endpoint| Endpoint {
        method: endpoint.method.as_str(),
        path: format!("{path}{}", endpoint.path),
        websocket: endpoint.websocket.is_some(),
    });
    endpoints.collect()
}
