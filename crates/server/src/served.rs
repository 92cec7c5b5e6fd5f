//! A mounted protocol with the settings of its route.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::exchange::Mounted;

use interlingua_callers::Limiter;
use interlingua_config::{Methods, Origins};
use interlingua_engine::Scope;

/// A mounted protocol.
pub struct ServedRoute {
    /// The path without a trailing slash; empty for the root.
    pub path: String,
    /// The adapter's mount.
    pub mounted: Mounted,
    /// The scope of engine calls. The owner is set for each request.
    pub scope: Scope,
    /// Time without an event after which a stream sends a keep-alive; zero for never.
    pub heartbeat: Duration,
    /// The accepted credentials.
    pub auth: Methods,
    /// The limit of the route's requests, which all of its mounts share. `None`: unlimited.
    pub rate: Option<Arc<Limiter>>,
    /// The web pages that may use the route.
    pub cors: Origins,
    /// The path that separates sessions and runs of this route from other routes. `None`: they are shared.
    pub partition: Option<String>,
}

impl ServedRoute {
    /// The agent of the route. `None` if the route has several.
    pub(super) fn agent(&self) -> Option<&str> {
        self.scope.agents.only().map(|agent| agent.name.as_str())
    }
}
