//! What the server knows of a mounted protocol.

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::exchange::Mounted;

use crate::callers::Limiter;
use crate::config::{Methods, Origins};
use crate::engine::Scope;

/// A mounted protocol.
pub struct Served {
    /// The path without a trailing slash; empty for the root.
    pub path: String,
    /// What the adapter returned for this mount.
    pub mounted: Mounted,
    /// The scope of engine calls. The owner is set for each request.
    pub scope: Scope,
    /// How long a stream may be idle before a keep-alive is sent; zero for never.
    pub heartbeat: Duration,
    /// How callers prove who they are.
    pub auth: Methods,
    /// How many requests the route takes; shared by all of its mounts. `None`: any number.
    pub rate: Option<Arc<Limiter>>,
    /// The web pages that may use the route.
    pub cors: Origins,
    /// The path that separates sessions and runs of this route from those of others. `None` if they are shared.
    pub partition: Option<String>,
}

impl Served {
    /// The agent of the mount, if it has only one.
    pub(super) fn agent(&self) -> Option<&str> {
        match &*self.scope.agents {
            [agent] => Some(&agent.name),
            _ => None,
        }
    }
}
