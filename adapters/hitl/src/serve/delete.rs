//! `DELETE /agent/session/{user_id}` and `/{user_id}/{session_id}`: cancels and deletes sessions.

use std::sync::Arc;

use interlingua_core::call::SessionCall;
use interlingua_core::exchange::Next;
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request};

use crate::serve::fault;
use crate::serve::names::Names;
use crate::serve::user_and_session;
use crate::{Route, wire};

/// One deletion.
pub(crate) struct Delete {
    route: Arc<Route>,
    user: String,
    requested_session: Option<String>,
    names: Names,
    /// The session that is being deleted.
    session: Option<String>,
    deleted: usize,
    /// The names to remove.
    removed: Vec<String>,
    names_stored: bool,
    /// Number of concurrent changes of the names by other requests.
    conflicts: u32,
}

impl Delete {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            user: String::new(),
            requested_session: None,
            names: Names::default(),
            session: None,
            deleted: 0,
            removed: Vec::new(),
            names_stored: false,
            conflicts: 0,
        }
    }

    fn not_found(&self) -> Fault {
        match &self.requested_session {
            None => Fault::not_found(format_args!("a session of user '{}'", self.user)),
            Some(session) => Fault::not_found(format_args!("session '{session}' of user '{}'", self.user)),
        }
    }

    /// Deletes the next session; after the last one, stores the remaining names.
    fn delete_next(&mut self) -> Call {
        let is_first = self.session.is_none();
        if let Some(session) = self.session.take() {
            self.names.remove(&session);
            self.removed.push(session);
        }

        let next = match &self.requested_session {
            Some(requested_session) => is_first.then(|| requested_session.clone()),
            // The last used one: each removal makes another one the last.
            None => self.names.active().map(str::to_owned),
        };
        if let Some(session) = next {
            self.session = Some(session.clone());
            return Call::Session(SessionCall::Delete { session });
        }

        self.names_stored = true;
        self.names.put(&self.route, &self.user)
    }

    /// Removes the names again: another request has changed them since they were read.
    fn remove_again(&mut self, names: Names) -> Result<Call, Fault> {
        Names::check_conflicts(&mut self.conflicts)?;
        self.names = names;
        for session in &self.removed {
            self.names.remove(session);
        }
        Ok(self.names.put(&self.route, &self.user))
    }

    fn write(&self, out: &mut Out) {
        let message = match &self.requested_session {
            None => format!("the session of user '{}' is deleted", self.user),
            Some(session) => format!("session '{session}' of user '{}' is deleted", self.user),
        };

        out.status(200);
        out.json(&wire::DeletionResponse { status: "success", message });
    }
}

impl Exchange for Delete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        (self.user, self.requested_session) = user_and_session(request);
        Ok(Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Documents(documents) if self.names_stored => {
                Ok(Next::Call(self.remove_again(Names::parse(documents))?))
            }
            Reply::Documents(documents) => {
                self.names = Names::parse(documents);
                let exists = match &self.requested_session {
                    Some(session) => self.names.may_access(session),
                    // The last used one: each removal makes another one the last.
                    None => self.names.active().is_some(),
                };

                if !exists {
                    return Err(self.not_found());
                }

                if let Some(session) = self.requested_session.clone().filter(|session| !self.names.has(session)) {
                    // The session was started over another route: its user has to be checked first.
                    return Ok(Next::Call(Call::Session(SessionCall::Get { session })));
                }
                Ok(Next::Call(self.delete_next()))
            }
            Reply::Session([view]) if Names::is_open_to(&self.user, view) => Ok(Next::Call(self.delete_next())),
            Reply::Session(_) => Err(self.not_found()),
            Reply::Done if self.names_stored && self.deleted == 0 => Err(self.not_found()),
            Reply::Done if self.names_stored => {
                self.write(out);
                Ok(Next::Done)
            }
            Reply::Done => {
                self.deleted += 1;
                Ok(Next::Call(self.delete_next()))
            }
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        // The engine has deleted the session already.
        self.session.is_some().then(|| self.delete_next())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}
