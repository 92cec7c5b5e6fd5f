//! The names of a user's sessions. The service knows sessions by their user, the engine by their id; this small
//! record joins the two, and holds nothing that the engine knows: no status, no messages, nothing pending.

use interlingua_core::call::{DocumentCall, SessionView};
use interlingua_core::{Call, Json};
use serde::{Deserialize, Serialize};

use crate::Route;

/// Sessions of one user that are kept in mind; the oldest are forgotten first.
const MAX_SESSIONS: usize = 64;

/// The names of one user's sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    /// Counts the sessions made without a name, so that a new one never goes on where a deleted one ended.
    next: u64,
    /// In the order of their last use.
    sessions: Vec<String>,
}

impl Names {
    /// What was found of a user.
    pub(crate) fn read(documents: &[(String, Json)]) -> Self {
        documents.first().and_then(|(_, document)| document.decode()).unwrap_or_default()
    }

    /// Asks for a user's names.
    pub(crate) fn get(route: &Route, user: &str) -> Call {
        Call::Document(DocumentCall::Get { collection: collection(route), key: user.to_owned() })
    }

    /// Asks for everybody's names.
    pub(crate) fn list(route: &Route) -> Call {
        Call::Document(DocumentCall::List { collection: collection(route), prefix: String::new() })
    }

    /// Keeps a user's names.
    pub(crate) fn put(&self, route: &Route, user: &str) -> Call {
        let (collection, key) = (collection(route), user.to_owned());
        Call::Document(DocumentCall::Put { collection, key, value: Json::from_serialize(self) })
    }

    /// The session that was used last.
    pub(crate) fn active(&self) -> Option<&str> {
        self.sessions.last().map(String::as_str)
    }

    /// The sessions, the one used last at the end.
    pub(crate) fn sessions(&self) -> &[String] {
        &self.sessions
    }

    pub(crate) fn has(&self, session: &str) -> bool {
        self.sessions.iter().any(|known| known == session)
    }

    /// The name of the session a user without one gets. Two first calls at once get the same, so that one of them is
    /// told that the other is under way.
    pub(crate) fn fresh(&self, user: &str) -> String {
        format!("hitl_{user}_{}", self.next)
    }

    /// True for the sessions that this service made for a user.
    pub(crate) fn is_made_for(user: &str, session: &str) -> bool {
        let number = session.strip_prefix("hitl_").and_then(|rest| rest.strip_prefix(user)?.strip_prefix('_'));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    }

    /// True if a session may be looked at for a user: it is one of theirs, or it was begun elsewhere and turns out to be
    /// nobody else's. Those that this service made are known to their users alone.
    pub(crate) fn may_have(&self, session: &str) -> bool {
        self.has(session) || !Self::is_made_here(session)
    }

    /// True if a session that was looked at is this user's, or nobody's in particular.
    pub(crate) fn is_open_to(user: &str, view: &SessionView) -> bool {
        view.user.as_deref().is_none_or(|known| known == user)
    }

    /// True for the sessions that this service made, for whomever.
    fn is_made_here(session: &str) -> bool {
        let number = session.strip_prefix("hitl_").and_then(|rest| rest.rsplit_once('_'));
        number.is_some_and(|(_, number)| number.parse::<u64>().is_ok())
    }

    /// Makes a session the one used last. True if that is news.
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

    /// Forgets a session.
    pub(crate) fn forget(&mut self, session: &str) {
        self.sessions.retain(|known| known != session);
        self.next += 1;
    }
}

/// Sessions belong to an agent.
fn collection(route: &Route) -> String {
    format!("hitl.sessions.{}", route.agent.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_session_s_name_is_not_used_again() {
        let mut names = Names::default();
        let first = names.fresh("ada");
        assert!(names.activate(&first) && !names.activate(&first));
        assert!(Names::is_made_for("ada", &first) && !Names::is_made_for("ad", &first));
        names.forget(&first);
        assert_ne!(names.fresh("ada"), first);
        assert_ne!(names.fresh("ada_1"), Names { next: 11, ..Names::default() }.fresh("ada"));
    }

    #[test]
    fn a_session_begun_elsewhere_may_be_anybodys_and_one_made_here_is_its_users_alone() {
        let mut names = Names::default();
        let own = names.fresh("ada");
        names.activate(&own);
        for (session, may) in [(own.as_str(), true), ("c1", true), ("hitl_bob_0", false), ("hitl_bob_x", true)] {
            assert_eq!(names.may_have(session), may, "{session}");
        }
    }

    #[test]
    fn the_session_used_last_is_active_and_there_are_not_too_many() {
        let mut names = Names::default();
        for number in 0..200 {
            names.activate(&number.to_string());
        }
        assert!(names.activate("150"));
        assert_eq!((names.active(), names.sessions().len()), (Some("150"), MAX_SESSIONS));
        assert!(!names.has("0"));
    }
}
