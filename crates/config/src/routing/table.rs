//! The routing table itself: how it is assembled, and how a request is found in it.
//!
//! Not here: the rules in words, and what overlaps (the other files of this module).

use std::collections::{BTreeMap, HashMap};

use interlingua_core::Method;
use interlingua_core::exchange::{ReadHeader, Recognizes};
use matchit::{Params, Router};

use super::pattern::{EndpointPattern, Pattern, decode_param, decode_path};

/// The paths of the gateway itself, which belong to no route.
pub(super) const OWN_PATHS: [(&str, OwnPath); 2] = [("/healthz", OwnPath::Health), ("/readyz", OwnPath::Ready)];

/// A path of the gateway itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPath {
    /// `/healthz`: whether the process answers.
    Health,
    /// `/readyz`: whether new runs are accepted.
    Ready,
}

/// A protocol at a mount point: the input of the table.
#[derive(Debug)]
pub struct MountPoint<R> {
    /// Without a trailing slash; empty for the root.
    pub path: String,
    /// The name of the protocol.
    pub protocol: String,
    /// The endpoints of the protocol, in its order.
    pub endpoints: Vec<EndpointPattern>,
    /// The result for requests of this mount.
    pub route: R,
}

/// A mount that cannot be served.
#[derive(Debug, PartialEq, Eq)]
pub struct MountError {
    /// The index of the mount.
    pub mount: usize,
    /// A sentence for the operator.
    pub reason: String,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteMatch<R> {
    /// An endpoint.
    Endpoint(EndpointMatch<R>),
    /// The path has endpoints, but none with this method.
    WrongMethod {
        /// The route whose protocol reports it.
        route: R,
        /// The methods of the path.
        allow: Vec<&'static str>,
    },
    /// The path is below a mount, and has no endpoint. The route's protocol reports it.
    Fallback(R),
    /// A path of the gateway itself, with any method.
    Own(OwnPath),
    /// The path is outside of all mounts.
    Outside,
}

/// The parsed paths of a mount, with the index of their endpoint.
pub(super) struct Paths {
    /// Complete paths, below the mount.
    pub(super) below: Vec<(usize, Pattern)>,
    /// Paths that are also served at the root of the host.
    pub(super) at_root: Vec<(usize, Pattern)>,
}

impl Paths {
    pub(super) fn parse<R>(mount: &MountPoint<R>, is_first: bool) -> Result<Self, String> {
        let mut paths = Self { below: Vec::new(), at_root: Vec::new() };
        for (index, endpoint) in mount.endpoints.iter().enumerate() {
            let parse = |path: &str| {
                Pattern::parse(path).map_err(|reason| format!("its endpoint path {:?} {reason}", endpoint.path))
            };
            if !endpoint.path.is_empty() && !endpoint.path.starts_with('/') {
                return Err(format!("its endpoint path {:?} does not begin with a slash", endpoint.path));
            }

            // The mount point itself, with and without a trailing slash. The path of a request is never empty.
            let is_mount = endpoint.path.is_empty();
            if !(is_mount && mount.path.is_empty()) {
                paths.below.push((index, parse(&format!("{}{}", mount.path, endpoint.path))?));
            }
            if is_mount {
                paths.below.push((index, parse(&format!("{}/", mount.path))?));
            }

            if endpoint.at_root && is_first && !mount.path.is_empty() {
                paths.at_root.push((index, parse(&endpoint.path)?));
            }
            if endpoint.before_mount && !mount.path.is_empty() {
                paths.at_root.push((index, parse(&format!("{}{}", endpoint.path, mount.path))?));
            }
        }
        Ok(paths)
    }
}

/// An endpoint that answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointMatch<R> {
    /// The value of the mount that the endpoint belongs to.
    pub route: R,
    /// The index of the endpoint in the list of its protocol.
    pub endpoint: usize,
    /// The parameters of the path, decoded.
    pub params: Vec<(String, String)>,
}

/// The routing table.
pub struct Table<R> {
    /// Well-known paths at the root of the host.
    pub(super) root: Vec<RouteEndpoints<R>>,
    /// From a path to the longest mount that contains it: an index of `mounts`.
    router: Router<usize>,
    pub(super) mounts: Vec<MountNode<R>>,
}

/// A mount point, and everything that is mounted there.
pub(super) struct MountNode<R> {
    /// In the order of the file. Never empty.
    pub(super) routes: Vec<RouteEndpoints<R>>,
    /// The next shorter mount that contains this one.
    pub(super) parent: Option<usize>,
}

/// The endpoints of one route at one mount point.
pub(super) struct RouteEndpoints<R> {
    /// The index of the mount in the input of the table.
    pub(super) mount: usize,
    route: R,
    pub(super) router: Router<Resource>,
}

/// The endpoints of one path, in the order of the protocol.
pub(super) struct Resource {
    pub(super) endpoints: Vec<BoundEndpoint>,
}

pub(super) struct BoundEndpoint {
    pub(super) method: Method,
    /// The index in the list of the protocol.
    index: usize,
    /// The names of the path's parameters.
    names: Vec<String>,
    recognizes: Option<Recognizes>,
}

/// A path of a route that matches a request.
struct Candidate<'t, 'p, R> {
    /// Candidates of the same level share a mount point.
    level: usize,
    endpoints: &'t RouteEndpoints<R>,
    resource: &'t Resource,
    params: Params<'t, 'p>,
}

impl<R: Clone> Table<R> {
    /// Builds the table of these mounts and their paths.
    pub(super) fn assemble(mounts: &[MountPoint<R>], bound: &[Paths]) -> Result<Self, MountError> {
        let mut table = Self { root: Vec::new(), router: Router::new(), mounts: Vec::new() };
        let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, (mount, paths)) in mounts.iter().zip(bound).enumerate() {
            let endpoints = |paths: &[(usize, Pattern)]| {
                let router = router(mount, paths).map_err(|reason| MountError { mount: index, reason })?;
                Ok(RouteEndpoints { mount: index, route: mount.route.clone(), router })
            };
            if !paths.at_root.is_empty() {
                table.root.push(endpoints(&paths.at_root)?);
            }

            let node = *nodes.entry(mount.path.as_str()).or_insert_with(|| {
                table.mounts.push(MountNode { routes: Vec::new(), parent: None });
                table.mounts.len() - 1
            });
            table.mounts[node].routes.push(endpoints(&paths.below)?);
        }

        for (path, node) in &nodes {
            table.mounts[*node].parent = path.rmatch_indices('/').find_map(|(end, _)| nodes.get(&path[..end]).copied());
            let routes = [(*path).to_owned(), format!("{path}/"), format!("{path}/{{*rest}}")];
            for route in routes.into_iter().filter(|route| !route.is_empty()) {
                table.router.insert(route, *node).map_err(|error| {
                    let mount = table.mounts[*node].routes[0].mount;
                    MountError { mount, reason: format!("the path cannot be routed: {error}") }
                })?;
            }
        }
        Ok(table)
    }

    /// Where a request goes. `method` is as in HTTP; `path` is not decoded.
    pub fn find(&self, method: &str, path: &str, header: &ReadHeader<'_>) -> RouteMatch<R> {
        let path = decode_path(path);
        if let Some((_, own)) = OWN_PATHS.iter().find(|(own, _)| *own == path) {
            return RouteMatch::Own(*own);
        }

        let candidates = self.candidates(&path);
        if let Some((candidate, endpoint)) = choose(&candidates, parse_method(method), header) {
            let values = candidate.params.iter().map(|(_, value)| decode_param(value));
            return RouteMatch::Endpoint(EndpointMatch {
                route: candidate.endpoints.route.clone(),
                endpoint: endpoint.index,
                params: endpoint.names.iter().cloned().zip(values).collect(),
            });
        }

        match candidates.first() {
            Some(first) => RouteMatch::WrongMethod {
                route: first.endpoints.route.clone(),
                allow: allowed(candidates.iter().map(|candidate| candidate.resource)),
            },
            None => match self.node(&path) {
                Some(node) => RouteMatch::Fallback(node.routes[0].route.clone()),
                None => RouteMatch::Outside,
            },
        }
    }

    /// The route that answers a CORS preflight request for `method`, and the methods it allows for the path. `None` if
    /// the path has no endpoint.
    pub fn preflight(&self, method: &str, path: &str, header: &ReadHeader<'_>) -> Option<(R, Vec<&'static str>)> {
        let path = decode_path(path);
        let candidates = self.candidates(&path);
        let chosen = choose(&candidates, parse_method(method), header).map(|(candidate, _)| candidate);
        let chosen = chosen.or(candidates.first())?;

        let same_route = candidates.iter().filter(|candidate| candidate.endpoints.mount == chosen.endpoints.mount);
        Some((chosen.endpoints.route.clone(), allowed(same_route.map(|candidate| candidate.resource))))
    }

    /// The paths that match, in the order in which they answer.
    fn candidates<'t, 'p>(&'t self, path: &'p str) -> Vec<Candidate<'t, 'p, R>> {
        let mut candidates = Vec::new();
        let mut add = |level: usize, routes: &'t [RouteEndpoints<R>]| {
            for endpoints in routes {
                if let Ok(matched) = endpoints.router.at(path) {
                    candidates.push(Candidate { level, endpoints, resource: matched.value, params: matched.params });
                }
            }
        };
        add(0, &self.root);

        let mut node = self.node(path);
        for level in 1.. {
            let Some(MountNode { routes, parent }) = node else { break };
            add(level, routes);
            node = parent.map(|parent| &self.mounts[parent]);
        }
        candidates
    }

    /// The longest mount that contains the path.
    fn node(&self, path: &str) -> Option<&MountNode<R>> {
        self.router.at(path).ok().map(|matched| &self.mounts[*matched.value])
    }
}

/// Routes the paths of one mount. Those that differ only in the names of parameters are one path.
fn router<R>(mount: &MountPoint<R>, paths: &[(usize, Pattern)]) -> Result<Router<Resource>, String> {
    let mut resources: HashMap<String, Resource> = HashMap::new();
    for (index, pattern) in paths {
        let endpoint = &mount.endpoints[*index];
        resources.entry(pattern.to_route()).or_insert_with(|| Resource { endpoints: Vec::new() }).endpoints.push(
            BoundEndpoint {
                method: endpoint.method,
                index: *index,
                names: pattern.names.clone(),
                recognizes: endpoint.recognizes,
            },
        );
    }

    // In reverse, plain parameters come before those with a prefix. The other order is refused for some paths
    // (https://github.com/ibraheemdev/matchit/issues/96), and the verdict must not depend on the order of endpoints.
    let mut resources: Vec<(String, Resource)> = resources.into_iter().collect();
    resources.sort_by(|(one, _), (other, _)| other.cmp(one));
    let mut router = Router::new();
    for (route, resource) in resources {
        let path = mount.endpoints[resource.endpoints[0].index].path.clone();
        router
            .insert(route, resource)
            .map_err(|_| format!("its endpoint {path:?} cannot be told apart from another endpoint"))?;
    }

    // A path that its own sample does not find would never be served.
    for (index, pattern) in paths {
        let found = router.at(&pattern.sample()).is_ok_and(|found: matchit::Match<'_, '_, &Resource>| {
            found.value.endpoints.iter().any(|endpoint| endpoint.index == *index)
        });
        if !found {
            return Err(format!("its endpoint {:?} is hidden by another endpoint", mount.endpoints[*index].path));
        }
    }
    Ok(router)
}

/// The endpoint that answers a request with this method.
fn choose<'c, 't, 'p, R>(
    candidates: &'c [Candidate<'t, 'p, R>],
    method: Option<Method>,
    header: &ReadHeader<'_>,
) -> Option<(&'c Candidate<'t, 'p, R>, &'t BoundEndpoint)> {
    let method = method?;
    let with_method = candidates.iter().filter_map(|candidate| {
        let endpoint = candidate.resource.endpoints.iter().find(|endpoint| endpoint.method == method)?;
        Some((candidate, endpoint))
    });

    let mut matching = with_method.clone();
    let first = matching.next()?;
    if matching.next().is_none_or(|(second, _)| second.level != first.0.level) {
        return Some(first);
    }
    let shared = || with_method.clone().take_while(|(candidate, _)| candidate.level == first.0.level);
    let recognized = shared().find(|(_, endpoint)| endpoint.recognizes.is_some_and(|recognizes| recognizes(header)));
    Some(recognized.or_else(|| shared().find(|(_, endpoint)| endpoint.recognizes.is_none())).unwrap_or(first))
}

/// The method of endpoints that answer a request. HEAD is answered like GET.
fn parse_method(method: &str) -> Option<Method> {
    Some(match method {
        "GET" | "HEAD" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        _ => return None,
    })
}

/// The methods of these paths, each once.
fn allowed<'t>(resources: impl Iterator<Item = &'t Resource>) -> Vec<&'static str> {
    let mut allow = Vec::new();
    for endpoint in resources.flat_map(|resource| &resource.endpoints) {
        let head = (endpoint.method == Method::Get).then_some("HEAD");
        for method in std::iter::once(endpoint.method.as_str()).chain(head) {
            if !allow.contains(&method) {
                allow.push(method);
            }
        }
    }
    allow
}
