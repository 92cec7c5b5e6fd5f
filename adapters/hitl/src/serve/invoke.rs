//! `POST /agent/invoke`: a query in a user's session, which is created if it does not exist.

use std::sync::Arc;

use interlingua_core::call::{RunState, SessionCall, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::exchange::Next;
use interlingua_core::loss::Loss;
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request};

use crate::Route;
use crate::decode::body::{BadBody, Body};
use crate::encode::turn::{Turn, instructions};
use crate::serve::fault;
use crate::serve::names::Names;

/// One query.
pub(crate) struct Invoke {
    route: Arc<Route>,
    turn: Turn,
    bad: Option<BadBody>,
    user: String,
    query: String,
    instructions: Option<String>,
    /// The instructions of the request.
    requested_instructions: Option<String>,
    /// The session id in the request.
    requested_session: Option<String>,
    names: Names,
    now: Millis,
    /// True once the write of the names was requested.
    names_stored: bool,
    /// Number of concurrent changes of the names by other requests.
    conflicts: u32,
    /// True if the session was started over another route, which determined its user towards the agent.
    is_foreign: bool,
}

impl Invoke {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            turn: Turn::new(route),
            bad: None,
            user: String::new(),
            query: String::new(),
            instructions: None,
            requested_instructions: None,
            requested_session: None,
            names: Names::default(),
            now: 0,
            names_stored: false,
            conflicts: 0,
            is_foreign: false,
        }
    }

    /// Chooses the session. A session that has to be inspected before the agent is called is loaded next.
    ///
    /// # Errors
    /// If the request names a session that this service created for another user.
    fn choose_session(&mut self, names: Names) -> Result<Call, Fault> {
        self.names = names;
        let active = || self.names.active().map(str::to_owned);
        let session = self.requested_session.clone().or_else(active).unwrap_or_else(|| self.names.new_name(&self.user));
        self.turn.session.clone_from(&session);

        let is_created_here = Names::is_created_for(&self.user, &session);
        if !is_created_here && !self.names.may_access(&session) {
            return Err(self.not_theirs());
        }
        if !is_created_here || self.instructions.is_some() || self.route.options.session_idle.is_some() {
            return Ok(Call::Session(SessionCall::Get { session }));
        }
        Ok(self.store_names())
    }

    /// Chooses again: another request has changed the names since they were read.
    fn choose_again(&mut self, names: Names) -> Result<Call, Fault> {
        Names::check_conflicts(&mut self.conflicts)?;
        self.instructions.clone_from(&self.requested_instructions);
        (self.names_stored, self.is_foreign) = (false, false);
        self.choose_session(names)
    }

    fn not_theirs(&self) -> Fault {
        let message = format!("'{}' is not a session of user '{}'", self.turn.session, self.user);
        Fault::invalid("session_id", message)
    }

    /// Handles the loaded session.
    ///
    /// # Errors
    /// If it belongs to another user.
    fn handle_session(&mut self, view: &SessionView) -> Result<Call, Fault> {
        if !self.names.has(&view.id) && !Names::is_open_to(&self.user, view) {
            return Err(self.not_theirs());
        }
        self.is_foreign = !Names::is_created_for(&self.user, &view.id);
        let idle_ms = self.route.options.session_idle.map(|idle| u64::try_from(idle.0.as_millis()).unwrap_or(u64::MAX));

        let is_working = matches!(view.state, Some(RunState::Queued | RunState::Running));
        let is_expired = idle_ms.is_some_and(|idle| view.updated_at.saturating_add(idle) < self.now);
        if is_expired && !is_working && self.requested_session.is_none() {
            self.names.remove(&self.turn.session);
            self.turn.session = self.names.new_name(&self.user);
        } else if instructions(view) == self.instructions {
            // The same instructions are in effect already.
            self.instructions = None;
        }
        Ok(self.store_names())
    }

    fn store_names(&mut self) -> Call {
        self.names_stored = true;
        if self.names.activate(&self.turn.session) {
            return self.names.put(&self.route, &self.user);
        }
        self.start()
    }

    fn start(&mut self) -> Call {
        let instructions = self.instructions.take().map(Message::system);
        let query = Message::user(std::mem::take(&mut self.query));
        let input = instructions.into_iter().chain([query]).collect();

        let user_id = (!self.is_foreign).then(|| self.user.clone());
        self.turn.start(AgentRequest { input, user_id, ..AgentRequest::default() }, None)
    }
}

impl Exchange for Invoke {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.turn.set_time(request.now);
        let mut body = Body::new(request);
        self.user = body.id("user_id");
        self.query = body.text("query");
        self.instructions = body.optional_text("system_message").filter(|text| !text.is_empty());
        self.requested_instructions.clone_from(&self.instructions);
        self.requested_session = body.optional_id("session_id");
        self.now = request.now;

        body.finish(&mut self.bad).map(|()| Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if self.turn.is_started() {
            return self.turn.reply(&reply, out);
        }
        Ok(Next::Call(match reply {
            Reply::Documents(documents) if self.names_stored => self.choose_again(Names::parse(documents))?,
            Reply::Documents(documents) => self.choose_session(Names::parse(documents))?,
            Reply::Session([view]) => self.handle_session(view)?,
            Reply::Done => self.start(),
            _ => return Err(Fault::unexpected_reply()),
        }))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        if self.turn.is_started() {
            return self.turn.on_not_found();
        }
        // The session is new, or was deleted.
        (!self.names_stored).then(|| self.store_names())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        match self.bad.as_ref().filter(|bad| bad.matches(fault)) {
            Some(bad) => fault::write_bad_fields(&bad.0, out),
            None => self.turn.fail(fault, out),
        }
    }

    fn losses(&self) -> &[Loss] {
        self.turn.losses()
    }
}
