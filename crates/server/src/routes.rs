//! The served routes, which can be replaced while the server runs.
//!
//! Not here: the matching of requests ([`interlingua_config::routing`]).

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::dev::RequestHead;
use arc_swap::ArcSwap;
use interlingua_core::Endpoint;

use super::served::ServedRoute;
use interlingua_config::routing::{EndpointMatch, EndpointPattern, MountPoint, RouteMatch, Table};

/// The routing table of a set of routes.
pub struct Routes {
    table: Table<Arc<ServedRoute>>,
    /// In the order of the configuration.
    all: Vec<Arc<ServedRoute>>,
    /// Well-known paths beside a mount, each with the path below the mount that it stands for. Clients that resolve
    /// such a path against the URL of a mount without a slash at its end lose the last segment. Paths that are beside
    /// two mounts are omitted.
    beside: HashMap<String, String>,
}

impl Routes {
    /// Builds the table of these routes. Their order is that of the configuration.
    ///
    /// # Errors
    /// Paths that cannot be routed, and requests that two routes would answer. `interlingua check` rejects both.
    pub fn build(routes: Vec<ServedRoute>) -> Result<Self, String> {
        let points: Vec<MountPoint<Arc<ServedRoute>>> = routes
            .into_iter()
            .map(|served| MountPoint {
                path: served.path.clone(),
                protocol: served.scope.protocol.to_owned(),
                endpoints: served.mounted.endpoints.iter().map(EndpointPattern::from).collect(),
                route: Arc::new(served),
            })
            .collect();
        let (table, overlaps) = Table::build(&points)
            .map_err(|error| format!("route '{}' cannot be served: {}", points[error.mount].path, error.reason))?;

        let all = points.iter().map(|point| Arc::clone(&point.route)).collect();
        match overlaps.iter().find(|overlap| overlap.is_error()) {
            None => Ok(Self { beside: beside(&points), table, all }),
            Some(overlap) => {
                let (first, later) = (&points[overlap.first].path, &points[overlap.later].path);
                Err(format!("the routes '{first}' and '{later}' conflict: {}", overlap.requests.join(", ")))
            }
        }
    }

    /// All routes.
    pub(super) fn all(&self) -> &[Arc<ServedRoute>] {
        &self.all
    }

    /// Matches a request by method, path and headers.
    pub(super) fn find(&self, head: &RequestHead) -> RouteMatch<Arc<ServedRoute>> {
        let path = head.uri.path();
        match self.find_at(head, path) {
            RouteMatch::Outside => self.beside.get(path).map_or(RouteMatch::Outside, |path| self.find_at(head, path)),
            found => found,
        }
    }

    /// Matches a request as if it had another path.
    pub(super) fn find_at(&self, head: &RequestHead, path: &str) -> RouteMatch<Arc<ServedRoute>> {
        self.table.find(head.method.as_str(), path, &|name| header(head, name))
    }

    /// The route that answers a CORS preflight request, and the allowed methods. `None` if no endpoint has the path.
    pub(super) fn preflight(&self, head: &RequestHead) -> Option<(Arc<ServedRoute>, Vec<&'static str>)> {
        // A preflight request lacks the headers of the announced request: match as if it had none.
        let method = header(head, "access-control-request-method").unwrap_or_default();
        self.table.preflight(method, head.uri.path(), &|_| None)
    }
}

fn beside(points: &[MountPoint<Arc<ServedRoute>>]) -> HashMap<String, String> {
    let mut beside: HashMap<String, Option<String>> = HashMap::new();
    for point in points {
        let Some((parent, _)) = point.path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) else { continue };
        for endpoint in point.endpoints.iter().filter(|endpoint| endpoint.at_root) {
            let below = format!("{}{}", point.path, endpoint.path);
            let known = beside.entry(format!("{parent}{}", endpoint.path));
            known.and_modify(|path| *path = None).or_insert(Some(below));
        }
    }
    beside.into_iter().filter_map(|(path, below)| Some((path, below?))).collect()
}

fn header<'a>(head: &'a RequestHead, name: &str) -> Option<&'a str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

/// The routes of a running server. Clones share them.
#[derive(Clone)]
pub struct SharedRoutes(Arc<ArcSwap<Routes>>);

impl SharedRoutes {
    pub(super) fn new(routes: Routes) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(routes)))
    }

    /// Replaces all routes at once. Requests and WebSockets keep their route until they end; later requests use the new
    /// routes, also on open connections.
    pub fn replace(&self, routes: Routes) {
        self.0.store(Arc::new(routes));
    }

    pub(super) fn load(&self) -> Arc<Routes> {
        self.0.load_full()
    }
}

/// The endpoint of a request.
pub(super) struct RoutedEndpoint {
    pub(super) route: Arc<ServedRoute>,
    /// The index of the endpoint in the list of the protocol.
    index: usize,
    /// The parameters of the path, decoded.
    pub(super) params: Vec<(String, String)>,
}

impl RoutedEndpoint {
    pub(super) fn new(found: EndpointMatch<Arc<ServedRoute>>) -> Arc<Self> {
        Arc::new(Self { route: found.route, index: found.endpoint, params: found.params })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.route.mounted.endpoints[self.index]
    }
}
