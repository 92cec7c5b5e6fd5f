//! Finds and follows the runs of a caller. Runs of other callers do not exist for it.
//!
//! Not here: lists of runs ([`super::lists`]), and ending them ([`crate::turns::canceller`]).

use std::sync::Arc;

use interlingua_core::call::{Tags, Target};
use interlingua_core::{Fault, RunId};

use super::active_run::Publish;
use super::commit;
use super::follow::{Follower, follow, settled};
use super::handle::RunHandle;
use super::retention::SharedRules;
use super::scope::Scope;
use super::table::RunTable;
use crate::faults::{self, store_fault};

/// Finds runs for callers.
pub(crate) struct RunAccess {
    runs: Arc<RunTable>,
    rules: Arc<SharedRules>,
}

impl RunAccess {
    pub(crate) const fn new(runs: Arc<RunTable>, rules: Arc<SharedRules>) -> Self {
        Self { runs, rules }
    }

    /// A run of the caller.
    pub(crate) async fn find(&self, target: &Target, scope: &Scope) -> Result<RunHandle, Fault> {
        let id = match target {
            Target::Run(id) => *id,
            Target::Latest(session) => self.latest(session, scope).await?,
        };
        self.check_owner(id, scope).await?;
        let handle = self.runs.find(id).await?.ok_or_else(|| faults::run_not_found(id))?;

        let is_kept = scope.connection.as_ref().is_some_and(|connection| connection.contains(id));
        let is_visible = handle.view(|view| {
            view.info.owner == scope.owner.key()
                && scope.agents.contains(&view.run().agent)
                && (view.info.stored || view.run().end.is_none() || is_kept)
                && !self.rules.is_gone(view.info)
        });
        if is_visible { Ok(handle) } else { Err(faults::run_not_found(id)) }
    }

    /// Whether a run belongs to the caller, before it is loaded: what another caller's run costs, and that there is no
    /// room for it, would show that it is there.
    async fn check_owner(&self, id: RunId, scope: &Scope) -> Result<(), Fault> {
        let owner = match self.runs.in_memory(id) {
            Some(run) => Some(run.view(|view| view.info.owner.clone())),
            None => self.runs.store().owner_of(id).await.map_err(|error| store_fault(&error))?,
        };
        if owner.as_deref() == Some(scope.owner.key()) { Ok(()) } else { Err(faults::run_not_found(id)) }
    }

    async fn latest(&self, session: &str, scope: &Scope) -> Result<RunId, Fault> {
        let owner = scope.owner.key().to_owned();
        let found = self.runs.store().latest(scope.agent_names(), owner, session.to_owned()).await;
        found
            .map_err(|error| store_fault(&error))?
            .ok_or_else(|| Fault::not_found(format_args!("a run in session '{session}'")))
    }

    /// Follows a run of the caller.
    pub(crate) async fn follow(&self, target: &Target, scope: &Scope) -> Result<Follower, Fault> {
        follow(&self.runs, self.find(target, scope).await?).await
    }

    /// Replaces the tags of a run of the caller.
    pub(crate) async fn tag(&self, target: &Target, tags: Tags, scope: &Scope) -> Result<RunHandle, Fault> {
        let run = settled(&self.runs, self.find(target, scope).await?).await;
        let held = self.runs.activate(run).await?;
        held.update(Publish::Later, |state| state.about.tags = tags);
        commit::settle(self.runs.store(), &held).await?;
        Ok(held.handle())
    }
}
