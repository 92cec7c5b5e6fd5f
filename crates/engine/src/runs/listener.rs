//! Streams that follow no run: they report new runs of a session, and reloads of the configuration.
//!
//! Not here: the steps of a run ([`super::follow`]).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::call::{ListenSession, Notice};
use interlingua_core::{Fault, RunId};
use tokio::sync::watch;

use super::commit::within;
use super::table::RunTable;
use crate::faults;
use crate::sessions::Session;

/// Interval at which a session is read again whose runs other replicas may start.
const REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// A stream of notices.
pub struct Listener {
    runs: Arc<RunTable>,
    session: Option<ListenedSession>,
    /// Changes with each reload. `None`: reloads are not reported.
    reloads: Option<watch::Receiver<u64>>,
    has_begun: bool,
}

struct ListenedSession {
    session: Arc<Session>,
    /// The latest run that was reported, or that the client knew.
    latest: Option<RunId>,
}

impl Listener {
    /// Listens to a session, if one is named. The caller may use its agent.
    pub(crate) async fn new(
        runs: Arc<RunTable>,
        session: Option<ListenSession>,
        owner: &interlingua_core::Owner,
        reloads: Option<watch::Receiver<u64>>,
    ) -> Result<Self, Fault> {
        let session = match session {
            Some(ListenSession { agent, session, user, after }) => {
                let session = runs.sessions().of_user(&agent, owner, &session, user.as_deref()).await?;
                Some(ListenedSession { session, latest: after })
            }
            None => None,
        };
        Ok(Self { runs, session, reloads, has_begun: false })
    }

    /// The next notice. Cancel-safe.
    ///
    /// # Errors
    /// The store cannot be read, or the gateway is closed.
    pub async fn next(&mut self) -> Result<Notice, Fault> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Ok(Notice::Begin);
        }

        let Self { runs, session, reloads, .. } = self;
        let reload = async {
            match reloads {
                // The sender lives as long as the engine.
                Some(reloads) => drop(reloads.changed().await),
                None => std::future::pending().await,
            }
        };
        let run = async {
            match session {
                Some(session) => session.next_run(runs).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = runs.wait_closed() => Err(faults::shutting_down()),
            run = run => run.map(Notice::Run),
            () = reload => Ok(Notice::Agents),
        }
    }
}

impl ListenedSession {
    async fn next_run(&mut self, runs: &RunTable) -> Result<RunId, Fault> {
        // Also while this process has the session's turn: another one may take the next turn unnoticed.
        let interval = (!runs.sessions().is_sole_writer()).then_some(REREAD_INTERVAL);
        loop {
            let mut changed = pin!(self.session.run_started());
            // Registered before the session is read, so that no run is missed in between.
            changed.as_mut().enable();
            runs.sessions().refresh_if_outdated(&self.session).await?;
            let latest = self.session.latest();
            if let Some(run) = latest.filter(|_| latest != self.latest) {
                self.latest = latest;
                return Ok(run);
            }

            within(interval, changed).await;
        }
    }
}
