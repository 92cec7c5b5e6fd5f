//! Audits that people open runs: one entry for each sign-in and run, even if the run is opened several times.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use interlingua_core::{Owner, RunId};

use super::AdminState;
use super::answers::audit;
use super::guard::OperatorIdentity;
use interlingua_engine::RunHandle;
use interlingua_observe::{Action, AuditEntry};

/// Maximum number of remembered openings. After that the oldest is forgotten, and opening its run again adds an entry.
const MAX_OPENED: usize = 1000;

/// The recently opened runs, each with the name of the sign-in.
#[derive(Default)]
pub(super) struct OpenedRuns(Mutex<VecDeque<(String, RunId)>>);

impl OpenedRuns {
    /// Writes an entry with the person, the run and its owner to the audit log, unless this sign-in has opened the run
    /// before.
    pub(super) fn record(&self, state: &AdminState, peer: Option<SocketAddr>, who: &OperatorIdentity, run: &RunHandle) {
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
