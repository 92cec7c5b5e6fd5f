//! What the protocols of routes and the agents behind them cannot carry for each other: warnings before a request is lost.
//!
//! Not here: what each of them can carry ([`interlingua_core::capability`]), which the protocols declare themselves.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use interlingua_core::capability::ClientCapabilities;
use interlingua_core::pending::Decision;

use super::diagnostics::Diagnostic;
use super::document::RouteTable;
use super::located::{Located, Table};
use super::protocols::Protocols;
use super::settings::{Agent, Route};
use super::validator::Validator;

/// Compares each route's protocol with each of its agents.
pub(super) fn check(tables: &[Located<Table<RouteTable>>], routes: &[Arc<Route>], validator: &mut Validator<'_, '_>) {
    let carried: Vec<_> = routes.iter().map(|route| (route, capabilities(validator.protocols, route))).collect();
    for (route, capabilities) in &carried {
        let Some(capabilities) = capabilities else { continue };
        for agent in &route.agents {
            if capabilities.tool_declarations && !agent.upstream.capabilities.client_tools {
                validator.report(
                    Diagnostic::warning(format!("agent {:?} is not given the tools of clients", agent.name))
                        .at(&span(tables, route))
                        .label(format!("clients of {:?} can declare tools", route.protocol))
                        .help(format!("agents that speak {:?} take none", agent.upstream.protocol)),
                );
            }

            let is_decided_elsewhere = || {
                carried.iter().any(|(other, capabilities)| {
                    let serves = other.agents.iter().any(|served| served.name == agent.name);
                    let decides = capabilities.as_ref().is_none_or(|capabilities| can_decide(capabilities, agent));
                    serves && decides && other.shared_sessions && route.shared_sessions
                })
            };
            let asks = !agent.upstream.capabilities.decisions.is_empty();
            if asks && !can_decide(capabilities, agent) && !is_decided_elsewhere() {
                validator.report(
                    Diagnostic::warning(format!("no client can answer when agent {:?} asks for approval", agent.name))
                        .at(&span(tables, route))
                        .label(format!("clients of {:?} cannot be asked", route.protocol))
                        .help("serve the agent over another protocol, too"),
                );
            }
        }
    }
}

/// The agents whose own events some client reads: their routes serve the protocol of these events.
pub(super) fn event_readers(protocols: &Protocols, routes: &[Arc<Route>]) -> HashSet<String> {
    let mut read = HashSet::new();
    for route in routes {
        let Some(known) = capabilities(protocols, route).and_then(|carried| carried.protocol_events) else { continue };
        let makes = |agent: &&Arc<Agent>| agent.upstream.capabilities.protocol_events == Some(known);
        read.extend(route.agents.iter().filter(makes).map(|agent| agent.name.clone()));
    }
    read
}

/// True if a client can make at least one decision that settles an approval and that the agent takes.
fn can_decide(capabilities: &ClientCapabilities, agent: &Agent) -> bool {
    let taken = agent.upstream.capabilities.decisions;
    let settles = |decision: &&Decision| **decision != Decision::Cancel && taken.contains(decision);
    capabilities.decisions.iter().any(|decision| settles(&decision))
}

fn capabilities(protocols: &Protocols, route: &Route) -> Option<ClientCapabilities> {
    let declared = protocols.clients().iter().find(|client| client.name == route.protocol)?;
    declared.capabilities.as_ref().map(|capabilities| capabilities(&route.options))
}

/// Where a route stands in the file.
fn span(tables: &[Located<Table<RouteTable>>], route: &Route) -> Range<usize> {
    let paths = tables
        .iter()
        .filter(|table| table.value.protocol.as_ref().is_some_and(|protocol| protocol.value == route.protocol));
    let mut spans = paths.filter_map(|table| table.value.path.as_ref()).filter(|path| path.value == route.path);
    spans.next().map_or(0..0, |path| path.span.clone())
}
