//! How long runs are kept, and by whose rules.

use interlingua_core::Owner;
use interlingua_core::call::{RetentionOwner, RunInfo};

use super::active_run::ActiveRun;
use super::agent::{Agent, History};
use super::scope::Scope;
use super::session::Session;
use crate::clock;
use crate::store::Retention;

/// How long runs are kept.
pub struct RetentionRules {
    /// The rules, for all runs and for each route that has its own.
    pub retention: Retention,
    /// The mounts of routes with rules of their own: what happens to their runs is delivered as their protocol does.
    pub scopes: Vec<Scope>,
}

impl RetentionRules {
    /// Where a run was started, if that route has rules of its own.
    pub(super) fn scope_of(&self, run: &ActiveRun) -> Option<Scope> {
        run.view(|view| {
            let owner = view.info.retention.as_ref()?;
            let scope = self
                .scopes
                .iter()
                .find(|scope| scope.route.as_deref() == Some(owner.route.as_str()) && scope.offers(&view.run().agent));
            scope.map(|scope| Scope { owner: Owner::from_key(&view.info.owner), ..scope.clone() })
        })
    }

    /// True if a run has waited for longer than it may.
    pub(super) fn is_stale(&self, about: &RunInfo) -> bool {
        self.retention.is_stale(about, clock::now())
    }

    /// True if a run's time is over.
    pub(super) fn is_gone(&self, about: &RunInfo) -> bool {
        self.retention.is_expired(about, clock::now())
    }
}

/// Whose rules a new run is kept by.
pub(super) fn owner_of_new_run(agent: &Agent, session: &Session, scope: &Scope) -> Option<RetentionOwner> {
    let route = scope.route.as_ref()?.to_string();
    // Later turns are sent what was said in this one.
    let remembered = agent.history == History::Gateway || session.doc().is_conversation;
    Some(RetentionOwner { route, remembered })
}
