//! Runs that a person opened: the audit log has one entry for a person and a run, however often it is opened.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use interlingua_core::{Owner, RunId};

use super::AdminState;
use super::answers::audit;
use super::guard::OperatorIdentity;
use crate::engine::RunHandle;
use crate::observe::{Action, AuditEntry};

/// Number of remembered openings. Beyond it, an opening is recorded again.
const MAX_OPENED: usize = 1000;

/// The recently opened runs.
#[derive(Default)]
pub(super) struct OpenedRuns(Mutex<VecDeque<(String, RunId)>>);

impl OpenedRuns {
    /// Notes in the audit log that someone opened a run, and whose it is, the first time in a session.
    pub(super) fn note(&self, state: &AdminState, peer: Option<SocketAddr>, who: &OperatorIdentity, run: &RunHandle) {
        let opened = (who.session_name(), run.id());
        {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if known.contains(&opened) {
                return;
            }
            if known.len() >= MAX_OPENED {
                known.pop_front();
            }
            known.push_back(opened);
        }
        let owner = run.view(|view| Owner::from_key(&view.info.owner).principal().to_string());
        let entry = AuditEntry::new(Action::RunOpened).target(run.id().to_string()).detail(format!("of {owner}"));
        audit(state, peer, &who.name, entry);
    }
}
