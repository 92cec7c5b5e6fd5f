//! The routes: which agents are mounted where, and whether two of them want the same requests.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::agents::Known;
use super::diagnostics::Diagnostic;
use super::document::{Located, RouteTable, Table};
use super::endpoint::EndpointName;
use super::host::{Origin, Origins};
use super::protocols::ClientProtocol;
use super::resolve::Validator;
use super::settings::{Agent, Mount, Route};
use super::suggest;
use super::tree::Written;

/// What the gateway answers itself, on no route.
const OWN_ENDPOINTS: [(&str, &str); 2] = [("GET", "/healthz"), ("GET", "/readyz")];

/// Longer paths are no paths anybody would type.
const MAX_PATH_LEN: usize = 1024;

pub(super) fn resolve(
    tables: &[Located<Table<RouteTable>>],
    known: &[Known],
    heartbeat: Duration,
    public_url: Option<&str>,
    checking: &mut Validator<'_, '_>,
) -> Vec<Arc<Route>> {
    let public_url: Option<Arc<str>> = public_url.map(Into::into);
    let mut routes = Vec::new();
    let mut placed = Vec::new();
    let mut named = HashSet::new();
    for table in tables {
        if let Some(route) = route(table, known, heartbeat, &mut named, checking) {
            let route = Arc::new(Route { public_url: public_url.clone(), ..route });
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

/// Beyond loopback, a route that anyone may use has to say so: nobody opens one by changing the address alone.
pub(super) fn check_exposure(tables: &[Located<Table<RouteTable>>], listen: IpAddr, checking: &mut Validator<'_, '_>) {
    if listen.to_canonical().is_loopback() {
        return;
    }
    for table in tables.iter().filter(|table| table.value.auth.is_none()) {
        if checking.cuts.contain(&table.place, "auth") {
            continue;
        }
        checking.mistake(
            Diagnostic::error(format!("the gateway listens on {listen}, and this route asks nobody for credentials"))
                .at(&table.place)
                .label("write auth = \"none\" to let anyone who can connect use it")
                .help("or listen on 127.0.0.1, behind a proxy that checks credentials"),
        );
    }
}

/// Checks one route, and notes the agents it names, whether or not the rest of it is right.
fn route<'k>(
    written: &Located<Table<RouteTable>>,
    known: &'k [Known],
    heartbeat: Duration,
    named: &mut HashSet<&'k str>,
    checking: &mut Validator<'_, '_>,
) -> Option<Route> {
    let table = &written.value;
    let path = path(written, checking);
    let served = agents(written, known, named, checking);
    let heartbeat = match &table.heartbeat {
        Some(period) => checking.positive(period, "heartbeat"),
        None => heartbeat,
    };
    let protocol = protocol(written, checking)?;
    let name = table.protocol.as_ref()?;
    let written_options = checking.options(table.options.as_ref(), name);
    let cors = cors(written, &written_options, checking);
    let options = (protocol.read)(written_options, &mut checking.found);
    let path = path?;
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
        cors,
        public_url: None,
        options: options?,
    })
}

/// The origins whose pages may use a route. Those that may all are warned of: as yet nobody is asked who they are, so
/// every web page that a user of the gateway opens could use it.
fn cors(
    written: &Located<Table<RouteTable>>,
    options: &Written<'_>,
    checking: &mut Validator<'_, '_>,
) -> Option<Origins> {
    let warning = |place: &Range<usize>| {
        Diagnostic::warning("pages of any origin may use this route, and nobody is asked for a key")
            .at(place)
            .label("list the origins, like [\"https://app.example.com\"]")
    };
    let Some(cors) = &written.value.cors else {
        // How some protocols spell it. Which ones, and in which words, is theirs.
        let option = options.get_ref().as_table().and_then(|table| table.get("cors"));
        let is_on = |value: &DeValue<'_>| value.as_bool() == Some(true) || value.as_str() == Some("on");
        if let Some(option) = option.filter(|option| is_on(option.get_ref())) {
            checking.mistake(warning(&option.span()));
        }
        return None;
    };
    let mut origins = Vec::new();
    for origin in &cors.value {
        if origin.value == "*" {
            checking.mistake(warning(&origin.place));
            return Some(Origins::Any);
        }
        match origin.value.parse::<Origin>() {
            Ok(read) => origins.push(read),
            Err(label) => {
                let mistake = Diagnostic::error(format!("{:?} is not an origin", origin.value)).at(&origin.place);
                checking.mistake(mistake.label(label));
            }
        }
    }
    Some(Origins::Listed(origins))
}

fn protocol<'a>(written: &Located<Table<RouteTable>>, checking: &mut Validator<'_, 'a>) -> Option<&'a ClientProtocol> {
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

fn path<'t>(written: &'t Located<Table<RouteTable>>, checking: &mut Validator<'_, '_>) -> Option<&'t Located<String>> {
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
    if path.len() > MAX_PATH_LEN {
        return Some(format!("at most {MAX_PATH_LEN} letters are possible"));
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
    written: &Located<Table<RouteTable>>,
    known: &'k [Known],
    named: &mut HashSet<&'k str>,
    checking: &mut Validator<'_, '_>,
) -> Vec<&'k Known> {
    let mut every = || {
        named.extend(known.iter().map(|known| known.name.as_str()));
        known.iter().collect()
    };
    let unreadable = checking.cuts.contain(&written.place, "agents");
    if unreadable {
        // Nobody knows which agents were meant: none counts as forgotten.
        every();
    }
    let Some(list) = &written.value.agents else {
        if unreadable {
            return Vec::new();
        }
        if known.is_empty() {
            let mistake = Diagnostic::error("there are no agents to mount").at(&written.place);
            checking.mistake(mistake.help("add a table [agents.NAME] with an upstream"));
        }
        return every();
    };
    if list.value.is_empty() && !unreadable {
        let mistake = Diagnostic::error("a route serves no agents").at(&list.place);
        checking.mistake(mistake.label("name some, or leave \"agents\" out for every agent"));
    }
    let mut served: Vec<&Known> = Vec::new();
    for name in &list.value {
        let Some(agent) = known.iter().find(|known| known.name == name.value) else {
            if checking.cuts.name(&name.value) {
                continue;
            }
            let names = known.iter().map(|known| known.name.as_str());
            let label = suggest::label(&name.value, names.clone(), "not known here");
            named.extend(suggest::nearest(&name.value, names.clone()));
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
            named.insert(&agent.name);
            served.push(agent);
        }
    }
    served
}

/// Tries every mount, and finds requests that two routes would answer, or one that is the gateway's own.
///
/// One clash for each route at most: what is wrong is its path, not its endpoints.
fn clashes(routes: &[(Arc<Route>, Range<usize>)], checking: &mut Validator<'_, '_>) {
    let own = OWN_ENDPOINTS.map(|(method, path)| EndpointName::new(method, path));
    // By path, since endpoints of two mounts can only meet where one lies below the other.
    let mut mounted: BTreeMap<String, Vec<(usize, Vec<EndpointName>)>> = BTreeMap::new();
    for (index, (route, place)) in routes.iter().enumerate() {
        for mount in route.mounts() {
            match endpoints(&mount, checking.protocols.clients()) {
                Ok(endpoints) => {
                    let path = mount.path.trim_end_matches('/').to_owned();
                    mounted.entry(path).or_default().push((index, endpoints));
                }
                Err(reason) => {
                    // The other agents' mounts would only say the same again.
                    checking.mistake(cannot_mount(&mount, &reason).at(place));
                    break;
                }
            }
        }
    }
    let mut told = HashSet::new();
    for (path, here) in &mounted {
        let above = path.match_indices('/').map(|(end, _)| &path[..end]).chain([path.as_str()]);
        let neighbours: Vec<&(usize, Vec<EndpointName>)> =
            above.filter_map(|above| mounted.get(above)).flatten().collect();
        for (index, endpoints) in here {
            let takes_own = endpoints.iter().any(|one| own.iter().any(|own| own.clashes_with(one)));
            if takes_own && told.insert(*index) {
                let (route, place) = &routes[*index];
                let message =
                    format!("path {:?} takes \"/healthz\" or \"/readyz\", which are the gateway's own", route.path);
                checking.mistake(Diagnostic::error(message).at(place).label("mount it at another path"));
            }
            for (other, theirs) in neighbours.iter().copied() {
                let (first, later) = (index.min(other), index.max(other));
                if first == later || told.contains(later) {
                    continue;
                }
                let clash = endpoints.iter().find(|one| theirs.iter().any(|it| it.clashes_with(one)));
                if let Some(clash) = clash {
                    told.insert(*later);
                    let request = format!("{} {}", clash.method, clash.path);
                    let request = request.trim_start_matches("* ");
                    checking.mistake(
                        Diagnostic::error(format!("two routes answer {request:?}"))
                            .at(&routes[*later].1)
                            .label("mount one of them at another path")
                            .also(&routes[*first].1, "mounted here first"),
                    );
                }
            }
        }
    }
}

/// What a protocol answers at a mount, as whole paths, or why it cannot be mounted so.
fn endpoints(mount: &Mount, protocols: &[ClientProtocol]) -> Result<Vec<EndpointName>, String> {
    let declared = protocols.iter().find(|protocol| protocol.name == mount.protocol());
    let names = match declared.and_then(|protocol| protocol.mounting.as_ref()) {
        Some(mounting) => mounting(mount)?,
        // Who does not say what it answers is taken to answer whatever has its path.
        None => vec![EndpointName::new("*", "")],
    };
    Ok(names.iter().map(|name| name.below(&mount.path)).collect())
}

fn cannot_mount(mount: &Mount, reason: &str) -> Diagnostic {
    let several = mount.agents.len() > 1;
    let (reason, label) = match reason.split_once('\n') {
        Some((reason, label)) => (reason, label.to_owned()),
        // By far the most common reason why a protocol does not like several agents.
        None if several => {
            (reason, format!("did you mean {:?}?", format!("{}/{}", mount.path.trim_end_matches('/'), Route::AGENT)))
        }
        None => (reason, "cannot be mounted so".to_owned()),
    };
    let mistake = Diagnostic::error(format!("protocol {:?}: {reason}", mount.protocol())).label(label);
    match mount.agents.first() {
        Some(agent) if several => mistake.help(format!("or name one agent: agents = [{:?}]", agent.name)),
        _ => mistake,
    }
}
