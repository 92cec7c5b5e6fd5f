//! The rates of routes. A reload keeps the state of a rate that it does not change.
//!
//! Not here: counting ([`interlingua_callers::Limiter`]), and the rates of callers.

use std::sync::Arc;

use interlingua_callers::Limiter;
use interlingua_config::Route;

/// The routes that have a rate.
#[derive(Clone, Default)]
pub(super) struct RouteRates(Vec<(Arc<Route>, Arc<Limiter>)>);

impl RouteRates {
    /// The rate of a route, of which there is one however often the route is mounted. `running`: the rates in force
    /// until now.
    pub(super) fn limiter(&mut self, route: &Arc<Route>, running: &Self) -> Option<Arc<Limiter>> {
        let rate = route.limits.rate?;
        if let Some((_, limiter)) = self.0.iter().find(|(known, _)| Arc::ptr_eq(known, route)) {
            return Some(Arc::clone(limiter));
        }

        let is_unchanged =
            |known: &(Arc<Route>, Arc<Limiter>)| is_same(&known.0, route) && known.1.is(rate, route.limits.burst);
        let limiter = match running.0.iter().find(|known| is_unchanged(known)) {
            Some((_, limiter)) => Arc::clone(limiter),
            None => Arc::new(Limiter::new(rate, route.limits.burst)),
        };
        self.0.push((Arc::clone(route), Arc::clone(&limiter)));
        Some(limiter)
    }
}

/// True if two routes of two configurations are the same one for clients. Two routes of one configuration may have the
/// same path for different agents.
fn is_same(one: &Route, other: &Route) -> bool {
    let has = |name: &str| other.agents.iter().any(|agent| agent.name == name);
    one.protocol == other.protocol && one.path == other.path && one.agents.iter().any(|agent| has(&agent.name))
}
