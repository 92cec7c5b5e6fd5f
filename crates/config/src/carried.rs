//! Warnings about content that is lost between a route's protocol and an agent behind it.
//!
//! Not here: the capabilities themselves ([`interlingua_core::capability`]), which the protocols declare.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use interlingua_core::capability::{ClientCapabilities, UpstreamCapabilities};
use interlingua_core::pending::{Decision, PendingKind};

use super::diagnostics::Diagnostic;
use super::document::{AgentTable, Document, RouteTable};
use super::located::{Table, WithSpan};
use super::protocols::Protocols;
use super::quiet;
use super::settings::{Agent, Route};
use super::validator::Validator;

/// A route and its capabilities. `None`: its protocol declares none, so that no content is missed.
type RouteCapabilities<'a> = (&'a Arc<Route>, Option<ClientCapabilities>);

/// Compares each route's protocol with each of its agents. Each agent has at most one warning of a kind, which lists
/// the routes.
pub(super) fn check(document: &Document, routes: &[Arc<Route>], validator: &mut Validator<'_, '_>) {
    let carried: Vec<RouteCapabilities<'_>> =
        routes.iter().map(|route| (route, validator.protocols.carried_on(route))).collect();
    let mut known: Vec<&Arc<Agent>> = Vec::new();
    for agent in routes.iter().flat_map(|route| &route.agents) {
        if !known.iter().any(|other| other.name == agent.name) {
            known.push(agent);
        }
    }

    for agent in known {
        check_tools(document, agent, &carried, validator);
        check_model(document, agent, &carried, validator);
        check_questions(document, agent, &carried, validator);
    }
    check_events(document, &carried, validator);
}

/// The routes of an agent whose clients miss some content.
fn missing<'a>(
    agent: &Agent,
    carried: &'a [RouteCapabilities<'_>],
    misses: impl Fn(&Route, &ClientCapabilities) -> bool,
) -> Vec<&'a Arc<Route>> {
    let serves = |route: &Route| route.agents.iter().any(|served| served.name == agent.name);
    let of_agent = carried.iter().filter(|(route, _)| serves(route));
    let missing = of_agent.filter(|(route, clients)| clients.as_ref().is_some_and(|clients| misses(route, clients)));
    missing.map(|(route, _)| *route).collect()
}

/// The protocols and paths of routes, for a warning.
fn listed(routes: &[&Arc<Route>]) -> String {
    let routes: Vec<String> = routes.iter().map(|route| format!("{} ({})", route.path, route.protocol)).collect();
    format!("{} {}", if routes.len() == 1 { "route" } else { "routes" }, routes.join(", "))
}

fn check_tools(
    document: &Document,
    agent: &Agent,
    carried: &[RouteCapabilities<'_>],
    validator: &mut Validator<'_, '_>,
) {
    if agent.upstream.capabilities.client_tools {
        return;
    }
    let routes = missing(agent, carried, |_, clients| clients.tool_declarations);
    let Some(first) = routes.first() else { return };
    let message = format!("agent {:?} will not receive tools that clients declare", agent.name);
    validator.report(
        Diagnostic::warning(message)
            .at(&span(&document.routes, first))
            .label(format!("agents that speak {:?} take none", agent.upstream.protocol))
            .help(listed(&routes))
            .code(quiet::CLIENT_TOOLS, Some(&agent.name)),
    );
}

fn check_model(
    document: &Document,
    agent: &Agent,
    carried: &[RouteCapabilities<'_>],
    validator: &mut Validator<'_, '_>,
) {
    if !agent.upstream.capabilities.wants_model {
        return;
    }
    let routes = missing(agent, carried, |_, clients| !clients.names_model);
    let Some(first) = routes.first() else { return };
    let help = "write options = { model = \"…\" } in its upstream: most servers refuse a request without";
    validator.report(
        Diagnostic::warning(format!("requests to agent {:?} will name no model", agent.name))
            .at(&span(&document.routes, first))
            .label(format!("clients cannot name one: {}", listed(&routes)))
            .help(help)
            .code(quiet::MODEL, Some(&agent.name)),
    );
}

/// Warns of questions that no client can answer, neither over one of the routes nor over a route that shares its
/// sessions.
fn check_questions(
    document: &Document,
    agent: &Agent,
    carried: &[RouteCapabilities<'_>],
    validator: &mut Validator<'_, '_>,
) {
    let is_answered_elsewhere = |route: &Route, kind| {
        carried.iter().any(|(other, capabilities)| {
            let serves = other.agents.iter().any(|served| served.name == agent.name);
            let answers = capabilities.as_ref().is_none_or(|capabilities| can_answer(capabilities, agent, kind));
            serves && answers && other.shared_sessions && route.shared_sessions
        })
    };
    let asked = pending_kinds(&agent.upstream.capabilities);
    let unanswered = |route: &Route, clients: &ClientCapabilities| -> Vec<&'static str> {
        let asked = asked.iter();
        let missing =
            asked.filter(|(kind, _)| !can_answer(clients, agent, *kind) && !is_answered_elsewhere(route, *kind));
        missing.map(|(_, words)| *words).collect()
    };
    let routes = missing(agent, carried, |route, clients| !unanswered(route, clients).is_empty());
    let Some(first) = routes.first() else { return };
    let mut what: Vec<&str> = Vec::new();
    for (route, clients) in carried {
        let Some(clients) = clients.as_ref().filter(|_| routes.iter().any(|known| Arc::ptr_eq(known, route))) else {
            continue;
        };
        for words in unanswered(route, clients) {
            if !what.contains(&words) {
                what.push(words);
            }
        }
    }
    validator.report(
        Diagnostic::warning(format!("no client can answer when agent {:?} {}", agent.name, what.join(" or ")))
            .at(&span(&document.routes, first))
            .label(format!("clients cannot be asked: {}", listed(&routes)))
            .help("serve the agent over another protocol, too")
            .code(quiet::QUESTIONS, Some(&agent.name)),
    );
}

/// The kinds of items that the agent can leave open, with words for a message.
fn pending_kinds(agent: &UpstreamCapabilities) -> Vec<(PendingKind, &'static str)> {
    let asks_approval = agent.asks.approval || !agent.decisions.is_empty();
    let all = [
        (asks_approval, PendingKind::Approval, "asks for approval"),
        (agent.asks.input, PendingKind::Input, "asks a question"),
        (agent.asks.auth, PendingKind::Auth, "asks for a login"),
    ];
    all.into_iter().filter(|(asks, ..)| *asks).map(|(_, kind, words)| (kind, words)).collect()
}

/// Whether a client can settle an item of this kind.
fn can_answer(clients: &ClientCapabilities, agent: &Agent, kind: PendingKind) -> bool {
    match kind {
        PendingKind::Approval => can_decide(clients, agent),
        PendingKind::Input => clients.asks.input,
        PendingKind::Auth => clients.asks.auth,
        PendingKind::Tool => clients.client_tools,
    }
}

/// Warns of stored events that no client reads.
fn check_events(document: &Document, carried: &[RouteCapabilities<'_>], validator: &mut Validator<'_, '_>) {
    for (name, table) in document.agents.iter() {
        let served: Vec<_> = carried
            .iter()
            .filter_map(|(route, clients)| Some((route.agents.iter().find(|agent| agent.name == name.value)?, clients)))
            .collect();
        let Some((agent, _)) = served.first() else { continue };
        let mut clients = served.iter().map(|(_, clients)| clients.as_ref());
        let are_shown = clients.any(|clients| clients.is_none_or(|clients| reads_events(clients, agent)));
        if agent.upstream.capabilities.keeps_unread_events && !are_shown {
            let place = option_span(&table.value, "events", validator);
            validator.report(
                Diagnostic::warning(format!("the events that agent {name:?} keeps reach no client", name = name.value))
                    .at(&place)
                    .label("no route of the agent can pass them on")
                    .help("leave \"events\" out: they are kept as soon as a route has clients that read them")
                    .code(quiet::EVENTS, Some(&name.value)),
            );
        }
    }
}

/// The position of an option of an agent's upstream, else that of its protocol.
fn option_span(agent: &AgentTable, option: &str, validator: &Validator<'_, '_>) -> Range<usize> {
    let Some(upstream) = &agent.upstream else { return 0..0 };
    let options = upstream.value.options.as_ref().and_then(|options| validator.options.get(options.0));
    let table = options.and_then(|options| options.get_ref().as_table());
    match (table.and_then(|table| table.get(option)), &upstream.value.protocol) {
        (Some(value), _) => value.span(),
        (None, Some(protocol)) => protocol.span.clone(),
        (None, None) => upstream.span.clone(),
    }
}

/// Whether clients get the events that exist only in the agent's own protocol.
fn reads_events(clients: &ClientCapabilities, agent: &Agent) -> bool {
    let own = agent.upstream.capabilities.protocol_events;
    own.is_some() && (clients.any_protocol_events || clients.protocol_events == own)
}

/// The agents whose own events some client reads, because a route serves the protocol of these events or shows all.
pub(super) fn event_readers(protocols: &Protocols, routes: &[Arc<Route>]) -> HashSet<String> {
    let mut read = HashSet::new();
    for route in routes {
        let Some(clients) = protocols.carried_on(route) else { continue };
        let agents = route.agents.iter().filter(|agent| reads_events(&clients, agent));
        read.extend(agents.map(|agent| agent.name.clone()));
    }
    read
}

/// Whether a client can make at least one decision that settles an approval and that the agent accepts.
fn can_decide(capabilities: &ClientCapabilities, agent: &Agent) -> bool {
    let taken = agent.upstream.capabilities.decisions;
    let settles = |decision: &&Decision| **decision != Decision::Cancel && taken.contains(decision);
    capabilities.decisions.iter().any(|decision| settles(&decision))
}

/// The position of a route in the file.
fn span(tables: &[WithSpan<Table<RouteTable>>], route: &Route) -> Range<usize> {
    let paths = tables
        .iter()
        .filter(|table| table.value.protocol.as_ref().is_some_and(|protocol| protocol.value == route.protocol));
    let mut spans = paths.filter_map(|table| table.value.path.as_ref()).filter(|path| path.value == route.path);
    spans.next().map_or(0..0, |path| path.span.clone())
}
