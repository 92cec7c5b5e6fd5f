//! The routes: which agents are mounted where, and whether two of them want the same requests.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::agents::Known;
use super::diagnostics::Diagnostic;
use super::document::{Located, RouteTable};
use super::endpoint::{self, EndpointName};
use super::protocols::ClientProtocol;
use super::resolve::Checking;
use super::settings::{Agent, Mount, Route};
use super::suggest;

/// What the gateway answers itself, on no route.
const OWN_ENDPOINTS: [(&str, &str); 2] = [("GET", "/healthz"), ("GET", "/readyz")];

pub(super) fn resolve(
    tables: &[Located<RouteTable>],
    known: &[Known],
    heartbeat: Duration,
    checking: &mut Checking<'_, '_>,
) -> Vec<Arc<Route>> {
    let mut routes = Vec::new();
    let mut placed = Vec::new();
    let mut named = HashSet::new();
    for table in tables {
        if let Some(route) = route(table, known, heartbeat, &mut named, checking) {
            let route = Arc::new(route);
            let place = table.value.path.as_ref().map_or(table.place.clone(), |path| path.place.clone());
            placed.push((Arc::clone(&route), place));
            routes.push(route);
        }
    }
    clashes(&placed, checking);
    if tables.is_empty() && !checking.cuts.contain(&(0..0), "routes") {
        checking.mistake(
            Diagnostic::warning("nothing is mounted: there are no routes")
                .help("add [[routes]] with a protocol and a path"),
        );
    } else {
        for agent in known.iter().filter(|agent| !named.contains(agent.name.as_str())) {
            checking.mistake(
                Diagnostic::warning(format!("agent {:?} is mounted nowhere", agent.name))
                    .at(&agent.place)
                    .label("name it in the \"agents\" of a route, or remove it"),
            );
        }
    }
    routes
}

/// Checks one route, and notes the agents it names, whether or not the rest of it is right.
fn route<'k>(
    written: &Located<RouteTable>,
    known: &'k [Known],
    heartbeat: Duration,
    named: &mut HashSet<&'k str>,
    checking: &mut Checking<'_, '_>,
) -> Option<Route> {
    let table = &written.value;
    let path = path(written, checking);
    let served = agents(written, known, checking);
    named.extend(served.iter().map(|agent| agent.name.as_str()));
    let heartbeat = match &table.heartbeat {
        Some(period) => checking.positive(period, "heartbeat"),
        None => heartbeat,
    };
    let protocol = protocol(written, checking)?;
    let name = table.protocol.as_ref()?;
    let written_options = checking.options(table.options.as_ref(), name);
    let options = (protocol.read)(written_options, &mut checking.found);
    let path = path?;
    if served.len() > 1 && !path.value.contains(Route::AGENT) && !protocol.several_agents {
        let one_each = match path.value.as_str() {
            "/" => "/{agent}".to_owned(),
            path => format!("{path}/{{agent}}"),
        };
        checking.mistake(
            Diagnostic::error(format!(
                "protocol {:?} serves one agent at a path, not {}",
                name.value,
                served.len()
            ))
            .at(&path.place)
            .label(format!("did you mean {one_each:?}?"))
            .help(format!("or name one agent: agents = [{:?}]", served[0].name)),
        );
    }
    let agents: Vec<Arc<Agent>> = served.iter().filter_map(|known| known.agent.clone()).collect();
    if agents.is_empty() {
        return None;
    }
    Some(Route {
        protocol: name.value.clone(),
        path: path.value.clone(),
        agents,
        heartbeat,
        on_disconnect: table.on_disconnect,
        shared_sessions: table.shared_sessions,
        options: options?,
    })
}

fn protocol<'a>(
    written: &Located<RouteTable>,
    checking: &mut Checking<'_, 'a>,
) -> Option<&'a ClientProtocol> {
    let protocols = checking.protocols;
    let known = format!("routes may speak: {}", suggest::list(protocols.client_names()));
    let Some(name) = &written.value.protocol else {
        if !checking.cuts.contain(&written.place, "protocol") {
            let mistake = Diagnostic::error("a route has no protocol").at(&written.place);
            checking.mistake(mistake.label(known));
        }
        return None;
    };
    let declared = protocols.clients().iter().find(|one| one.name == name.value);
    if declared.is_none() {
        let otherwise = if protocols.upstream_names().any(|upstream| upstream == name.value) {
            "spoken with upstreams only"
        } else {
            "not known here"
        };
        let label = suggest::label(&name.value, protocols.client_names(), otherwise);
        checking.mistake(
            Diagnostic::error(format!("no protocol is called {:?}", name.value))
                .at(&name.place)
                .label(label)
                .help(known),
        );
    }
    declared
}

fn path<'t>(
    written: &'t Located<RouteTable>,
    checking: &mut Checking<'_, '_>,
) -> Option<&'t Located<String>> {
    let Some(path) = &written.value.path else {
        if !checking.cuts.contain(&written.place, "path") {
            let mistake = Diagnostic::error("a route has no path").at(&written.place);
            checking.mistake(mistake.label("write path = \"/agents/{agent}\""));
        }
        return None;
    };
    match path_mistake(&path.value) {
        None => Some(path),
        Some(label) => {
            let message = format!("{:?} is not a path to mount at", path.value);
            checking.mistake(Diagnostic::error(message).at(&path.place).label(label));
            None
        }
    }
}

/// What is wrong with a path, as a suggestion.
fn path_mistake(path: &str) -> Option<String> {
    if path == "/" {
        return None;
    }
    let Some(inner) = path.strip_prefix('/') else {
        return Some(format!("did you mean {:?}?", format!("/{path}")));
    };
    if inner.ends_with('/') {
        let meant = match path.trim_end_matches('/') {
            "" => "/",
            meant => meant,
        };
        return Some(format!("did you mean {meant:?}?"));
    }
    let mut agents = 0;
    for segment in inner.split('/') {
        if segment == Route::AGENT {
            agents += 1;
        } else if segment.contains(['{', '}']) {
            return Some("{agent} alone between two slashes is the only variable".to_owned());
        } else if matches!(segment, "" | "." | "..") {
            return Some("every part between two slashes needs a name".to_owned());
        } else if !segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)) {
            return Some("letters, digits and - . _ ~ ! $ & ' ( ) * + , ; = : @ are possible".to_owned());
        }
    }
    (agents > 1).then(|| "{agent} can stand there once".to_owned())
}

/// The agents a route names, or every one.
fn agents<'k>(
    written: &Located<RouteTable>,
    known: &'k [Known],
    checking: &mut Checking<'_, '_>,
) -> Vec<&'k Known> {
    let Some(list) = &written.value.agents else {
        if known.is_empty() && !checking.cuts.contain(&written.place, "agents") {
            let mistake = Diagnostic::error("there are no agents to mount").at(&written.place);
            checking.mistake(mistake.help("add a table [agents.NAME] with an upstream"));
        }
        return known.iter().collect();
    };
    if list.value.is_empty() && !checking.cuts.contain(&written.place, "agents") {
        let mistake = Diagnostic::error("a route serves no agents").at(&list.place);
        checking.mistake(mistake.label("name some, or leave \"agents\" out for every agent"));
    }
    let mut served: Vec<&Known> = Vec::new();
    for name in &list.value {
        let Some(agent) = known.iter().find(|known| known.name == name.value) else {
            let names = known.iter().map(|known| known.name.as_str());
            let label = suggest::label(&name.value, names.clone(), "not known here");
            let help = match known {
                [] => "there are no agents".to_owned(),
                _ => format!("agents are: {}", suggest::list(names)),
            };
            let mistake = Diagnostic::error(format!("no agent is called {:?}", name.value));
            checking.mistake(mistake.at(&name.place).label(label).help(help));
            continue;
        };
        if served.iter().any(|known| known.name == agent.name) {
            let mistake = Diagnostic::error(format!("agent {:?} is named twice", name.value));
            checking.mistake(mistake.at(&name.place).label("once is enough"));
        } else {
            served.push(agent);
        }
    }
    served
}

/// Finds requests that two mounts would answer, or one that is the gateway's own.
fn clashes(routes: &[(Arc<Route>, Range<usize>)], checking: &mut Checking<'_, '_>) {
    let mounts: Vec<(usize, Mount, Vec<EndpointName>)> = routes
        .iter()
        .enumerate()
        .flat_map(|(index, (route, _))| {
            let names = endpoints(route, checking.protocols.clients());
            route.mounts().into_iter().map(move |mount| {
                let below = names.iter().map(|name| name.below(&mount.path)).collect();
                (index, mount, below)
            })
        })
        .collect();
    // One message for each pair of routes: what is wrong is their paths, not their endpoints.
    let mut told = HashSet::new();
    for (later, (index, mount, endpoints)) in mounts.iter().enumerate() {
        for (method, path) in OWN_ENDPOINTS {
            let own = EndpointName::new(method, path);
            if endpoints.iter().any(|one| one.clashes_with(&own)) && told.insert((*index, *index)) {
                checking.mistake(
                    Diagnostic::error(format!("\"{method} {path}\" is the gateway's own"))
                        .at(&routes[*index].1)
                        .label("mount it at another path"),
                );
            }
        }
        for (first, earlier, others) in &mounts[..later] {
            if first == index || !endpoint::is_below(&mount.path, &earlier.path) {
                continue;
            }
            let clash = endpoints.iter().find(|one| others.iter().any(|other| other.clashes_with(one)));
            if let Some(clash) = clash
                && told.insert((*first, *index))
            {
                let request = format!("{} {}", clash.method, clash.path);
                checking.mistake(
                    Diagnostic::error(format!("two routes answer {:?}", request.trim_start_matches("* ")))
                        .at(&routes[*index].1)
                        .label("mount one of them at another path")
                        .also(&routes[*first].1, "mounted here first"),
                );
            }
        }
    }
}

fn endpoints(route: &Route, protocols: &[ClientProtocol]) -> Vec<EndpointName> {
    let declared = protocols.iter().find(|protocol| protocol.name == route.protocol);
    match declared.and_then(|protocol| protocol.endpoints.as_ref()) {
        Some(endpoints) => endpoints(&route.options),
        // Who does not say what it answers is taken to answer whatever has its path.
        None => vec![EndpointName::new("*", "")],
    }
}
