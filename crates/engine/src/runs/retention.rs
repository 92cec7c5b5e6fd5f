//! How long runs are kept, and by whose rules.

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

/// How long runs are kept.
pub struct RetentionRules {
    /// The rules, for all runs and for each route that has its own.
    pub retention: Retention,
    /// The mounts of routes with rules of their own: what happens to their runs is delivered as their protocol does.
    pub scopes: Vec<Scope>,
}

/// The rules in force. A reload of the configuration replaces them.
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

    /// Where a run was started, if that route has rules of its own.
    pub(crate) fn scope_of(&self, run: &ActiveRun) -> Option<Scope> {
        self.0.load().scope_of(run)
    }

    /// True if a run has waited for longer than it may.
    pub(crate) fn is_stale(&self, about: &RunInfo) -> bool {
        self.0.load().retention.is_stale(about, clock::now())
    }

    /// True if a run's time is over.
    pub(crate) fn is_gone(&self, about: &RunInfo) -> bool {
        self.0.load().retention.is_expired(about, clock::now())
    }
}

impl RetentionRules {
    /// Where a run was started, if that route has rules of its own.
    fn scope_of(&self, run: &ActiveRun) -> Option<Scope> {
        run.view(|view| {
            let owner = view.info.retention.as_ref()?;
            let scope = self
                .scopes
                .iter()
                .find(|scope| scope.route.as_deref() == Some(owner.route.as_str()) && scope.offers(&view.run().agent));
            scope.map(|scope| Scope { owner: Owner::from_key(&view.info.owner), ..scope.clone() })
        })
    }
}

/// Whose rules a new run is kept by.
pub(crate) fn owner_of_new_run(agent: &Agent, session: &Session, scope: &Scope) -> Option<RetentionOwner> {
    let route = scope.route.as_ref()?.to_string();
    // Later turns are sent what was said in this one.
    let remembered = agent.history == History::Gateway || session.doc().is_conversation;
    Some(RetentionOwner { route, remembered })
}
