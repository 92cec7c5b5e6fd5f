//! The names of a user's sessions. The service identifies sessions by user, the engine by id; this small document maps
//! one to the other. It contains nothing that the engine knows: no status, no messages, no pending items.

use interlingua_core::call::{DocumentCall, Replaces, SessionView};
use interlingua_core::{Call, Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};

use crate::Route;

/// Maximum number of stored sessions per user; the oldest are removed first.
const MAX_SESSIONS: usize = 64;

/// Maximum attempts of a request to write names that other requests change at the same time. Each failed attempt means
/// that another request has succeeded.
const MAX_WRITES: u32 = 192;

/// The names of one user's sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    /// Number for the next session without a name, so that a new session never reuses a deleted one's name.
    next: u64,
    /// In the order of their last use.
    sessions: Vec<String>,
    /// The document that they were read from.
    #[serde(skip)]
    stored: Option<Json>,
}

impl Names {
    /// Parses the stored document of a user.
    pub(crate) fn parse(documents: &[(String, Json)]) -> Self {
        let Some((_, document)) = documents.first() else { return Self::default() };
        Self { stored: Some(document.clone()), ..document.decode().unwrap_or_default() }
    }

    /// Counts the writes of a request that met a change by another one.
    ///
    /// # Errors
    /// It has been tried often enough.
    pub(crate) fn check_conflicts(conflicts: &mut u32) -> Result<(), Fault> {
        *conflicts += 1;
        if *conflicts < MAX_WRITES {
            return Ok(());
        }
        Err(Fault::new(FaultKind::Busy, "other requests change the user's sessions at the same time"))
    }

    /// The call that loads a user's names.
    pub(crate) fn get(route: &Route, user: &str) -> Call {
        Call::Document(DocumentCall::Get { collection: collection(route), key: user.to_owned() })
    }

    /// The call that loads the names of all users.
    pub(crate) fn list(route: &Route) -> Call {
        Call::Document(DocumentCall::List { collection: collection(route), prefix: String::new() })
    }

    /// The call that stores a user's names, if they are still those that were read. Otherwise it is answered with the
    /// names as they are.
    pub(crate) fn put(&self, route: &Route, user: &str) -> Call {
        let (collection, key) = (collection(route), user.to_owned());
        let replaces = self.stored.clone().map_or(Replaces::Nothing, Replaces::Value);
        Call::Document(DocumentCall::Put { collection, key, value: Json::from_serialize(self), replaces })
    }

    /// The session that was used last.
    pub(crate) fn active(&self) -> Option<&str> {
        self.sessions.last().map(String::as_str)
    }

    /// The sessions, the last used one at the end.
    pub(crate) fn sessions(&self) -> &[String] {
        &self.sessions
    }

    pub(crate) fn has(&self, session: &str) -> bool {
        self.sessions.iter().any(|known| known == session)
    }

    /// The name for a user's new session. Two concurrent first requests get the same name, so that one of them is
    /// refused as busy.
    pub(crate) fn new_name(&self, user: &str) -> String {
        format!("hitl_{user}_{}", self.next)
    }

    /// True if this service created the session for this user.
    pub(crate) fn is_created_for(user: &str, session: &str) -> bool {
        let number = session.strip_prefix("hitl_").and_then(|rest| rest.strip_prefix(user)?.strip_prefix('_'));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    }

    /// True if a session may be loaded for a user: it is one of theirs, or it was started over another route and may
    /// turn out to be accessible. Sessions that this service created are accessible to their users only.
    pub(crate) fn may_access(&self, session: &str) -> bool {
        self.has(session) || !Self::is_created_here(session)
    }

    /// True if a loaded session belongs to this user or to no user.
    pub(crate) fn is_open_to(user: &str, view: &SessionView) -> bool {
        view.user.as_deref().is_none_or(|known| known == user)
    }

    /// True if this service created the session, for any user.
    fn is_created_here(session: &str) -> bool {
        let number = session.strip_prefix("hitl_").and_then(|rest| rest.rsplit_once('_'));
        number.is_some_and(|(_, number)| number.parse::<u64>().is_ok())
    }

    /// Makes a session the last used one. True if that changed anything.
    pub(crate) fn activate(&mut self, session: &str) -> bool {
        if self.active() == Some(session) {
            return false;
        }

        self.sessions.retain(|known| known != session);
        self.sessions.push(session.to_owned());

        let surplus = self.sessions.len().saturating_sub(MAX_SESSIONS);
        self.sessions.drain(..surplus);
        true
    }

    pub(crate) fn remove(&mut self, session: &str) {
        self.sessions.retain(|known| known != session);
        self.next += 1;
    }
}

/// The collection for the agent's sessions.
fn collection(route: &Route) -> String {
    format!("hitl.sessions.{}", route.agent.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_deleted_session_is_not_reused() {
        let mut names = Names::default();
        let first = names.new_name("ada");
        assert!(names.activate(&first) && !names.activate(&first));
        assert!(Names::is_created_for("ada", &first) && !Names::is_created_for("ad", &first));
        names.remove(&first);
        assert_ne!(names.new_name("ada"), first);
        assert_ne!(names.new_name("ada_1"), Names { next: 11, ..Names::default() }.new_name("ada"));
    }

    #[test]
    fn sessions_created_here_are_private_and_other_sessions_are_not() {
        let mut names = Names::default();
        let own = names.new_name("ada");
        names.activate(&own);
        for (session, may) in [(own.as_str(), true), ("c1", true), ("hitl_bob_0", false), ("hitl_bob_x", true)] {
            assert_eq!(names.may_access(session), may, "{session}");
        }
    }

    #[test]
    fn the_last_used_session_is_active_and_their_number_is_limited() {
        let mut names = Names::default();
        for number in 0..200 {
            names.activate(&number.to_string());
        }
        assert!(names.activate("150"));
        assert_eq!((names.active(), names.sessions().len()), (Some("150"), MAX_SESSIONS));
        assert!(!names.has("0"));
    }
}
