//! Routes: the mounts of agents, and conflicts between routes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::agents::DeclaredAgent;
use super::diagnostics::Diagnostic;
use super::document::RouteTable;
use super::host::{Origin, Origins};
use super::located::{Table, WithSpan};
use super::protocols::ClientProtocol;
use super::settings::{Agent, Methods, Mount, Route};
use super::tree::TomlValue;
use super::validator::Validator;
use super::{auth, exposure, limits, suggest};
use crate::routing::{EndpointPattern, MountPoint, Overlap, OverlapKind, Table as RoutingTable};

/// The longest path accepted, in bytes.
const MAX_PATH_LEN: usize = 1024;

/// Facts that the checks of all routes need.
#[derive(Clone, Copy)]
pub(super) struct RouteContext<'s> {
    pub(super) heartbeat: Duration,
    pub(super) public_url: Option<&'s str>,
    /// The methods that `[auth]` configures.
    pub(super) auth: Methods,
    /// Whether the gateway listens on a loopback address.
    pub(super) is_local: bool,
}

pub(super) fn resolve(
    tables: &[WithSpan<Table<RouteTable>>],
    known: &[DeclaredAgent],
    shared: RouteContext<'_>,
    validator: &mut Validator<'_, '_>,
) -> Vec<Arc<Route>> {
    let public_url: Option<Arc<str>> = shared.public_url.map(Into::into);
    let mut routes = Vec::new();
    let mut mounted = Vec::new();
    let mut named = HashSet::new();
    for table in tables {
        if let Some(route) = route(table, known, shared, &mut named, validator) {
            let route = Arc::new(Route { public_url: public_url.clone(), ..route });
            let span = table.value.path.as_ref().map_or(table.span.clone(), |path| path.span.clone());
            mounted.push((Arc::clone(&route), span));
            routes.push(route);
        }
    }

    check_conflicts(&mounted, validator);
    if tables.is_empty() && !validator.rejected.contains(&(0..0), "routes") {
        validator.report(
            Diagnostic::warning("no routes are configured, so nothing is served")
                .help("add [[routes]] with a protocol and a path"),
        );
    } else {
        for agent in known.iter().filter(|agent| !named.contains(agent.name.as_str())) {
            validator.report(
                Diagnostic::warning(format!("agent {:?} is not served by any route", agent.name))
                    .at(&agent.span)
                    .label("add it to the \"agents\" of a route, or remove it"),
            );
        }
    }

    routes
}

/// Checks one route. Records the agents it names even if the route has errors.
fn route<'k>(
    located: &WithSpan<Table<RouteTable>>,
    known: &'k [DeclaredAgent],
    shared: RouteContext<'_>,
    named: &mut HashSet<&'k str>,
    validator: &mut Validator<'_, '_>,
) -> Option<Route> {
    let table = &located.value;
    let path = path(located, validator);
    let served = agents(located, known, named, validator);
    let heartbeat = match &table.heartbeat {
        Some(period) => validator.positive(period, "heartbeat"),
        None => shared.heartbeat,
    };
    let protocol = protocol(located, validator)?;
    let name = table.protocol.as_ref()?;
    let raw_options = validator.options(table.options.as_ref(), name);
    let auth = auth::methods(table.auth.as_ref(), shared.auth, validator);
    let limits = limits::of_route(&table.limits, validator);
    let cors = cors(located, &raw_options, (auth, shared.is_local), validator);
    exposure::check_options(&raw_options, validator);
    let options = (protocol.read)(raw_options, &mut validator.found);
    let path = path?;
    let agents: Vec<Arc<Agent>> = served.iter().filter_map(|known| known.agent.clone()).collect();
    if agents.is_empty() {
        return None;
    }

    Some(Route {
        protocol: name.value.clone(),
        path: path.value.clone(),
        agents,
        auth,
        limits,
        heartbeat,
        on_disconnect: table.on_disconnect,
        shared_sessions: table.shared_sessions,
        cors,
        public_url: None,
        options: options?,
    })
}

/// The origins whose pages may use a route. Warns if every origin may, and the route needs no key: any web page that
/// someone opens could then use it, since browsers send certificates by themselves.
fn cors(
    located: &WithSpan<Table<RouteTable>>,
    options: &TomlValue<'_>,
    (auth, is_local): (Methods, bool),
    validator: &mut Validator<'_, '_>,
) -> Option<Origins> {
    let warning = |span: &Range<usize>| {
        let diagnostic = if auth.certificates || !(auth.any() || is_local) {
            Diagnostic::error("pages of any origin may only use routes that ask for a key or a token in a header")
        } else if auth.any() {
            Diagnostic::warning("pages of any origin may use this route")
        } else {
            Diagnostic::warning("pages of any origin may use this route, without authentication")
        };
        diagnostic.at(span).label("list the origins, like [\"https://app.example.com\"]")
    };
    let Some(cors) = &located.value.cors else {
        // Some protocols have an option for a key, which only they can interpret.
        let option = options.get_ref().as_table().and_then(|table| table.get("cors"));
        let is_on = |value: &DeValue<'_>| value.as_bool() == Some(true) || value.as_str() == Some("on");
        if let Some(option) = option.filter(|option| is_on(option.get_ref())) {
            validator.report(warning(&option.span()));
        }
        return None;
    };
    let mut origins = Vec::new();
    for origin in &cors.value {
        if origin.value == "*" {
            validator.report(warning(&origin.span));
            return Some(Origins::Any);
        }

        match origin.value.parse::<Origin>() {
            Ok(read) => origins.push(read),
            Err(label) => {
                let diagnostic = Diagnostic::error(format!("{:?} is not an origin", origin.value)).at(&origin.span);
                validator.report(diagnostic.label(label));
            }
        }
    }

    Some(Origins::Listed(origins))
}

fn protocol<'a>(
    located: &WithSpan<Table<RouteTable>>,
    validator: &mut Validator<'_, 'a>,
) -> Option<&'a ClientProtocol> {
    let protocols = validator.protocols;
    let known = format!("route protocols: {}", suggest::list(protocols.client_names()));
    let Some(name) = &located.value.protocol else {
        if !validator.rejected.contains(&located.span, "protocol") {
            let diagnostic = Diagnostic::error("a route needs a protocol").at(&located.span);
            validator.report(diagnostic.label(known));
        }
        return None;
    };
    let declared = protocols.clients().iter().find(|one| one.name == name.value);
    if declared.is_none() {
        let fallback = if protocols.upstream_names().any(|upstream| upstream == name.value) {
            "supported for upstreams only"
        } else {
            "unknown name"
        };
        let label =
            suggest::protocol(&name.value, protocols.client_names(), |product| protocols.of_product(product), fallback);
        validator.report(
            Diagnostic::error(format!("unknown protocol {:?}", name.value)).at(&name.span).label(label).help(known),
        );
    }

    declared
}

fn path<'t>(
    located: &'t WithSpan<Table<RouteTable>>,
    validator: &mut Validator<'_, '_>,
) -> Option<&'t WithSpan<String>> {
    let Some(path) = &located.value.path else {
        if !validator.rejected.contains(&located.span, "path") {
            let diagnostic = Diagnostic::error("a route needs a path").at(&located.span);
            validator.report(diagnostic.label("write path = \"/agents/{agent}\""));
        }
        return None;
    };

    match path_error(&path.value) {
        None => Some(path),
        Some(label) => {
            let message = format!("invalid path {:?}", path.value);
            validator.report(Diagnostic::error(message).at(&path.span).label(label));
            None
        }
    }
}

/// A suggestion for an invalid path; `None` if the path is valid.
fn path_error(path: &str) -> Option<String> {
    if path == "/" {
        return None;
    }
    if path.len() > MAX_PATH_LEN {
        return Some(format!("at most {MAX_PATH_LEN} characters are allowed"));
    }
    let Some(inner) = path.strip_prefix('/') else {
        return Some(format!("did you mean {:?}?", format!("/{path}")));
    };

    if inner.ends_with('/') {
        let suggestion = match path.trim_end_matches('/') {
            "" => "/",
            suggestion => suggestion,
        };
        return Some(format!("did you mean {suggestion:?}?"));
    }
    let mut agents = 0;
    for segment in inner.split('/') {
        if segment == Route::AGENT {
            agents += 1;
        } else if segment.contains(['{', '}']) {
            return Some("the only variable is {agent}, as a complete path segment".to_owned());
        } else if matches!(segment, "" | "." | "..") {
            return Some("path segments must not be empty, \".\" or \"..\"".to_owned());
        } else if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)) {
            return Some("letters, digits and - . _ ~ ! $ & ' ( ) * + , ; = : @ are allowed".to_owned());
        }
    }

    (agents > 1).then(|| "{agent} may occur only once".to_owned())
}

/// The agents that a route names, or all of them.
fn agents<'k>(
    located: &WithSpan<Table<RouteTable>>,
    known: &'k [DeclaredAgent],
    named: &mut HashSet<&'k str>,
    validator: &mut Validator<'_, '_>,
) -> Vec<&'k DeclaredAgent> {
    let mut all = || {
        named.extend(known.iter().map(|known| known.name.as_str()));
        known.iter().collect()
    };
    let unreadable = validator.rejected.contains(&located.span, "agents");
    if unreadable {
        // The route does not say which agents it means. None of them is reported as not served.
        all();
    }
    let Some(list) = &located.value.agents else {
        if unreadable {
            return Vec::new();
        }
        if known.is_empty() {
            let diagnostic = Diagnostic::error("no agents are configured").at(&located.span);
            validator.report(diagnostic.help("add a table [agents.NAME] with an upstream"));
        }
        return all();
    };

    if list.value.is_empty() && !unreadable {
        let diagnostic = Diagnostic::error("\"agents\" of a route is empty").at(&list.span);
        validator.report(diagnostic.label("list some, or leave \"agents\" out to serve all of them"));
    }
    let mut served: Vec<&DeclaredAgent> = Vec::new();
    for name in &list.value {
        let Some(agent) = known.iter().find(|known| known.name == name.value) else {
            if validator.rejected.has_key(&name.value) {
                continue;
            }
            let names = known.iter().map(|known| known.name.as_str());
            let label = suggest::label(&name.value, names.clone(), "unknown name");
            named.extend(suggest::nearest(&name.value, names.clone()));
            let help = match known {
                [] => "no agents are configured".to_owned(),
                _ => format!("agents: {}", suggest::list(names)),
            };
            let diagnostic = Diagnostic::error(format!("unknown agent {:?}", name.value));
            validator.report(diagnostic.at(&name.span).label(label).help(help));
            continue;
        };

        if served.iter().any(|known| known.name == agent.name) {
            let diagnostic = Diagnostic::error(format!("agent {:?} is listed twice", name.value));
            validator.report(diagnostic.at(&name.span).label("once is enough"));
        } else {
            named.insert(&agent.name);
            served.push(agent);
        }
    }

    served
}

/// Tries every mount, and builds the routing table of the server from them. Reports requests that two routes would
/// answer, and requests for the gateway's own paths.
fn check_conflicts(routes: &[(Arc<Route>, Range<usize>)], validator: &mut Validator<'_, '_>) {
    // With the index of the route.
    let mut mounts: Vec<(usize, Mount)> = Vec::new();
    let mut points = Vec::new();
    for (index, (route, span)) in routes.iter().enumerate() {
        for mount in route.mounts() {
            match endpoints(&mount, validator.protocols.clients()) {
                Ok(endpoints) => {
                    points.push(MountPoint {
                        path: mount.path.trim_end_matches('/').to_owned(),
                        protocol: route.protocol.clone(),
                        endpoints,
                        route: (),
                    });
                    mounts.push((index, mount));
                }
                Err(reason) => {
                    // The mounts of the other agents would give the same error.
                    validator.report(cannot_mount(&mount, &reason).at(span));
                    break;
                }
            }
        }
    }

    match RoutingTable::build(&points) {
        Ok((_, overlaps)) => report_overlaps(routes, &mounts, &overlaps, validator),
        Err(error) => {
            let (route, mount) = &mounts[error.mount];
            validator.report(cannot_mount(mount, &error.reason).at(&routes[*route].1));
        }
    }
}

/// Reports at most one error per route: its path is the problem, not each of its endpoints. The mounts of a route with
/// `{agent}` in its path share their warnings.
fn report_overlaps(
    routes: &[(Arc<Route>, Range<usize>)],
    mounts: &[(usize, Mount)],
    overlaps: &[Overlap],
    validator: &mut Validator<'_, '_>,
) {
    let mut reported = HashSet::new();
    let mut warned = HashSet::new();
    for overlap in overlaps {
        let (first, later) = (mounts[overlap.first].0, mounts[overlap.later].0);
        if overlap.kind == OverlapKind::Common && have_same_agents(&routes[first].0, &routes[later].0) {
            continue;
        }
        let is_new = if overlap.is_error() { reported.insert(later) } else { warned.insert((first, later)) };
        if !is_new {
            continue;
        }

        let ((route, span), (_, first_span)) = (&routes[later], &routes[first]);
        let request = &overlap.requests[0];
        validator.report(match overlap.kind {
            OverlapKind::Own => {
                let message =
                    format!("path {:?} conflicts with the gateway's own \"/healthz\" or \"/readyz\"", route.path);
                Diagnostic::error(message).at(span).label("mount it at another path")
            }
            OverlapKind::Conflict => Diagnostic::error(format!("two routes serve {request:?}"))
                .at(span)
                .label("mount one of them at another path")
                .also(first_span, "mounted here first"),
            OverlapKind::Shared | OverlapKind::Common | OverlapKind::Root => {
                let answers = mounts[overlap.answers].0;
                let (mine, other) = if answers == later {
                    ("this route answers", "not this route")
                } else {
                    ("not this route", "this route answers")
                };
                shared_requests(overlap).at(span).label(mine).also(first_span, other)
            }
        });
    }
}

/// True if two routes serve the same agents, in any order.
fn have_same_agents(one: &Route, other: &Route) -> bool {
    let names = |route: &Route| route.agents.iter().map(|agent| agent.name.clone()).collect::<HashSet<_>>();
    names(one) == names(other)
}

/// A warning that names the requests, of which one route answers all.
fn shared_requests(overlap: &Overlap) -> Diagnostic {
    let requests = suggest::list(overlap.requests.iter().map(String::as_str));
    let reason = match overlap.kind {
        OverlapKind::Common => "the first route in the file answers, with its own agents",
        OverlapKind::Root => "well-known paths at the root of the host belong to the first route of their protocol",
        _ => "the first route in the file answers; everything else goes to the route that has it",
    };
    Diagnostic::warning(format!("two routes have the same endpoints: {requests}")).help(reason)
}

/// The endpoints of a mount, or the reason why it cannot be mounted.
fn endpoints(mount: &Mount, protocols: &[ClientProtocol]) -> Result<Vec<EndpointPattern>, String> {
    let declared = protocols.iter().find(|protocol| protocol.name == mount.protocol());
    declared
        .and_then(|protocol| protocol.try_mount.as_ref())
        .map_or_else(|| Ok(Vec::new()), |try_mount| try_mount(mount))
}

fn cannot_mount(mount: &Mount, reason: &str) -> Diagnostic {
    let several = mount.agents.len() > 1;
    let (reason, label) = match reason.split_once('\n') {
        Some((reason, label)) => (reason, label.to_owned()),
        // By far the most common cause: the protocol serves one agent per mount.
        None if several => {
            (reason, format!("did you mean {:?}?", format!("{}/{}", mount.path.trim_end_matches('/'), Route::AGENT)))
        }
        None => (reason, "cannot be mounted like this".to_owned()),
    };

    let diagnostic = Diagnostic::error(format!("protocol {:?}: {reason}", mount.protocol())).label(label);
    match mount.agents.first() {
        Some(agent) if several => diagnostic.help(format!("or name one agent: agents = [{:?}]", agent.name)),
        _ => diagnostic,
    }
}
