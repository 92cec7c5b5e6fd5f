//! Requests from clients with a wrong base URL: it lacks `/v1`, lacks the path of the mount, or has `/v1` twice.

use std::sync::Arc;

use actix_web::dev::RequestHead;

use super::routes::Routes;
use super::served::ServedRoute;
use interlingua_config::routing::RouteMatch;

/// The path part of the base URLs of OpenAI's clients.
const VERSION: &str = "/v1";
/// Maximum number of tried mounts. Each one costs a lookup in the routing table.
const MAX_MOUNTS: usize = 64;

/// The endpoint that a request probably meant: its route, and the path that would have reached it. `None`: no such
/// mistake explains the path.
pub(super) fn intended_endpoint(routes: &Routes, head: &RequestHead) -> Option<(Arc<ServedRoute>, String)> {
    let path = head.uri.path();
    let doubled = path.split_once("/v1/v1/").map(|(before, after)| format!("{before}{VERSION}/{after}"));
    let mounts = routes.all().iter().take(MAX_MOUNTS).map(|route| route.path.trim_end_matches('/'));
    let missing = mounts.flat_map(|mount| {
        // The version is part of the mount's path, or of its endpoints' paths.
        let is_versioned = mount.ends_with(VERSION) || path.starts_with("/v1/");
        let below = path.strip_prefix(mount).filter(|below| below.starts_with('/') && !is_versioned);
        [is_versioned.then(|| format!("{mount}{path}")), below.map(|below| format!("{mount}{VERSION}{below}"))]
    });
    doubled.into_iter().chain(missing.flatten()).find_map(|meant| match routes.find_at(head, &meant) {
        RouteMatch::Endpoint(found) => Some((found.route, meant)),
        _ => None,
    })
}
