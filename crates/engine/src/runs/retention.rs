//! Retention rules of the gateway and of its routes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use interlingua_core::Owner;
use interlingua_core::call::{RetentionOwner, RunInfo};

use super::active_run::ActiveRun;
use super::scope::Scope;
use crate::agent::{Agent, History};
use crate::sessions::Session;
use interlingua_base::clock;
use interlingua_store::Retention;

/// The retention rules of the gateway and of its routes.
pub struct RetentionRules {
    /// The rules for all runs and for the runs of each route with its own rules.
    pub retention: Retention,
    /// The mounts of routes with their own rules. They are used to push the end of a run that the gateway ends.
    pub scopes: Vec<Scope>,
}

/// The current rules. A reload of the configuration replaces them.
pub(crate) struct SharedRules(ArcSwap<RetentionRules>);

impl SharedRules {
    pub(crate) fn new(rules: RetentionRules) -> Self {
        Self(ArcSwap::from_pointee(rules))
    }

    pub(crate) fn replace(&self, rules: RetentionRules) {
        self.0.store(Arc::new(rules));
    }

    pub(crate) fn load(&self) -> Arc<RetentionRules> {
        self.0.load_full()
    }

    /// The scope of the route that started a run. `None`: the route has no rules of its own, or does not exist any more.
    pub(crate) fn scope_of(&self, run: &ActiveRun) -> Option<Scope> {
        let rules = self.load();
        run.view(|view| {
            let route = view.info.retention.as_ref()?.route.as_str();
            let is_origin =
                |scope: &&Scope| scope.route.as_deref() == Some(route) && scope.agents.contains(&view.run().agent);
            let scope = rules.scopes.iter().find(is_origin)?.clone();
            Some(Scope { owner: Owner::from_key(&view.info.owner), ..scope })
        })
    }

    /// True if a run has waited longer than the rules allow.
    pub(crate) fn is_stale(&self, about: &RunInfo) -> bool {
        self.0.load().retention.is_stale(about, clock::now())
    }

    /// True if a run is expired.
    pub(crate) fn is_gone(&self, about: &RunInfo) -> bool {
        self.0.load().retention.is_expired(about, clock::now())
    }
}

/// The route whose rules apply to a new run. `None`: only the general rules apply.
pub(crate) fn owner_of_new_run(agent: &Agent, session: &Session, scope: &Scope) -> Option<RetentionOwner> {
    let route = scope.route.as_ref()?.to_string();
    // Later turns of the session need the messages of this run.
    let remembered = agent.history == History::Gateway || session.is_conversation();
    Some(RetentionOwner { route, remembered })
}
