//! `DELETE /agent/session/{user_id}` and `/{user_id}/{session_id}`: sessions are stopped and forgotten.

use std::sync::Arc;

use interlingua_core::call::SessionCall;
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request, Step};

use crate::names::Names;
use crate::{Route, fault, wire};

/// One removal.
pub(crate) struct Delete {
    route: Arc<Route>,
    user: String,
    named: Option<String>,
    names: Names,
    /// The session that is being removed.
    session: Option<String>,
    removed: usize,
    is_kept: bool,
}

impl Delete {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            user: String::new(),
            named: None,
            names: Names::default(),
            session: None,
            removed: 0,
            is_kept: false,
        }
    }

    fn not_found(&self) -> Fault {
        match &self.named {
            None => Fault::not_found(format_args!("a session of user '{}'", self.user)),
            Some(session) => Fault::not_found(format_args!("session '{session}' of user '{}'", self.user)),
        }
    }

    /// Removes the next one; when none is left, keeps the names of the others.
    fn go_on(&mut self) -> Call {
        let is_first = self.session.is_none();
        if let Some(session) = self.session.take() {
            self.names.forget(&session);
        }
        let next = match &self.named {
            Some(named) => is_first.then(|| named.clone()),
            None => self.names.active().map(str::to_owned),
        };
        if let Some(session) = next {
            self.session = Some(session.clone());
            return Call::Session(SessionCall::Delete { session });
        }
        self.is_kept = true;
        self.names.put(&self.route, &self.user)
    }

    fn write(&self, out: &mut Out) {
        let message = match &self.named {
            None => format!("the session of user '{}' is deleted", self.user),
            Some(session) => format!("session '{session}' of user '{}' is deleted", self.user),
        };
        out.status(200);
        out.json(&wire::Deleted { status: "success", message });
    }
}

impl Exchange for Delete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.user = request.param("user_id").to_owned();
        self.named = Some(request.param("session_id").to_owned()).filter(|session| !session.is_empty());
        Ok(Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Documents(documents) => {
                self.names = Names::read(documents);
                let is_there = match &self.named {
                    Some(session) => self.names.may_have(session),
                    None => self.names.active().is_some(),
                };
                if !is_there {
                    return Err(self.not_found());
                }
                if let Some(session) = self.named.clone().filter(|session| !self.names.has(session)) {
                    // Begun elsewhere: whose it is has to be known first.
                    return Ok(Next::Call(Call::Session(SessionCall::Look { session })));
                }
                Ok(Next::Call(self.go_on()))
            }
            Reply::Session([view]) if Names::is_open_to(&self.user, view) => Ok(Next::Call(self.go_on())),
            Reply::Session(_) => Err(self.not_found()),
            Reply::Done if self.is_kept && self.removed == 0 => Err(self.not_found()),
            Reply::Done if self.is_kept => {
                self.write(out);
                Ok(Next::Done)
            }
            Reply::Done => {
                self.removed += 1;
                Ok(Next::Call(self.go_on()))
            }
            _ => Err(fault::unexpected()),
        }
    }

    fn missed(&mut self, _: &Fault) -> Option<Call> {
        // The engine has forgotten it already.
        self.session.is_some().then(|| self.go_on())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
