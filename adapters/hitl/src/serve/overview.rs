//! Lists of sessions: `GET /agent/sessionids/{user_id}`, `GET /agent/active/sessionid/{user_id}` and
//! `GET /system/info`. Only sessions that the engine still has are counted.

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::call::{SessionCall, SessionFilter, SessionView};
use interlingua_core::exchange::Next;
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request};

use crate::serve::fault;
use crate::serve::names::Names;
use crate::{Route, wire};

/// The endpoint that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViewKind {
    Sessions,
    Active,
    System,
}

/// One request: loads the names of the sessions first, then checks which of them the engine has.
pub(crate) struct Overview {
    route: Arc<Route>,
    view_kind: ViewKind,
    users: Vec<(String, Names)>,
}

impl Overview {
    /// `GET /agent/sessionids/{user_id}`
    pub(crate) fn sessions(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), view_kind: ViewKind::Sessions, users: Vec::new() }
    }

    /// `GET /agent/active/sessionid/{user_id}`
    pub(crate) fn active(route: &Arc<Route>) -> Self {
        Self { view_kind: ViewKind::Active, ..Self::sessions(route) }
    }

    /// `GET /system/info`
    pub(crate) fn system(route: &Arc<Route>) -> Self {
        Self { view_kind: ViewKind::System, ..Self::sessions(route) }
    }

    fn write(&self, views: &[SessionView], out: &mut Out) {
        let known: HashSet<&str> = views.iter().map(|view| view.id.as_str()).collect();
        let sessions_of = |names: &Names| -> Vec<String> {
            names.sessions().iter().filter(|session| known.contains(session.as_str())).cloned().collect()
        };
        let users = self.users.iter().map(|(user, names)| (user, sessions_of(names)));

        let users: Vec<(&String, Vec<String>)> = users.filter(|(_, sessions)| !sessions.is_empty()).collect();

        out.status(200);
        match self.view_kind {
            ViewKind::Sessions => {
                let session_ids = users.into_iter().flat_map(|(_, sessions)| sessions).collect();
                out.json(&wire::SessionIds { session_ids });
            }
            ViewKind::Active => {
                let active = users.into_iter().filter_map(|(_, sessions)| sessions.into_iter().last()).next();
                out.json(&wire::ActiveSession { active_session_id: active.unwrap_or_default() });
            }
            ViewKind::System => out.json(&wire::SystemInfo {
                sessions_count: users.iter().map(|(_, sessions)| sessions.len()).sum(),
                active_users: users.into_iter().map(|(user, _)| user.clone()).collect(),
            }),
        }
    }
}

impl Exchange for Overview {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        Ok(match self.view_kind {
            ViewKind::System => Names::list(&self.route),
            ViewKind::Sessions | ViewKind::Active => Names::get(&self.route, request.param("user_id")),
        })
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Documents(documents) => {
                let names = documents.iter().map(|(user, names)| (user.clone(), names.decode().unwrap_or_default()));
                self.users = names.collect();
                Ok(Next::Call(Call::Session(SessionCall::List(SessionFilter::default()))))
            }
            Reply::Sessions(page) => {
                self.write(&page.sessions, out);
                Ok(Next::Done)
            }
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}
