//! The routes of a gateway that serves all protocols like the shipped configuration, and every path of it, with `x` for
//! parameters.
//!
//! Shared by the behaviour tests, which check every path, and the fault runs (`faults/`). The routes are those of the
//! registry (`testing/protocols`), the paths those of the adapters.

use std::collections::BTreeSet;

pub use interlingua_testing_protocols::{MOUNTS, ROUTES};

use super::endpoints::{Endpoint, endpoints};

/// Configuration of the same routes, each with further lines of its table.
pub fn routes_with(own: &str) -> String {
    ROUTES.replace("[[routes]]\n", &format!("[[routes]]\n{own}\n"))
}

/// Paths of the protocols, with agent `demo`.
pub fn paths() -> BTreeSet<String> {
    endpoints().iter().map(Endpoint::filled).collect()
}

/// Paths of the gateway itself.
pub const OWN_PATHS: &[&str] = &["/healthz", "/readyz"];

/// Paths of the admin listener.
pub const ADMIN_PATHS: &[&str] = &[
    "/healthz",
    "/readyz",
    "/metrics",
    "/api/gateway",
    "/api/config",
    "/api/routes",
    "/api/agents",
    "/api/runs",
    "/api/callers",
    "/api/reload",
    "/api/log",
];
