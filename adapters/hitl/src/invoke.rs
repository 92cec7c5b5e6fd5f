//! `POST /agent/invoke`: a query in a user's session, which is made if there is none.

use std::sync::Arc;

use interlingua_core::call::{RunState, SessionCall, SessionView};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request, Step};

use crate::body::{BadBody, Body};
use crate::names::Names;
use crate::turn::{Turn, instructions};
use crate::{Route, fault};

/// One query.
pub(crate) struct Invoke {
    route: Arc<Route>,
    turn: Turn,
    bad: Option<BadBody>,
    user: String,
    query: String,
    instructions: Option<String>,
    /// The session the client named.
    named: Option<String>,
    names: Names,
    now: Millis,
    has_looked: bool,
    /// The session was begun elsewhere: whose it is towards the agent was settled there.
    is_elsewhere: bool,
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
            named: None,
            names: Names::default(),
            now: 0,
            has_looked: false,
            is_elsewhere: false,
        }
    }

    /// The names are known: which session, and what has to be known of it before the agent is asked?
    fn choose(&mut self, names: Names) -> Call {
        self.names = names;
        let active = || self.names.active().map(str::to_owned);
        let session = self.named.clone().or_else(active).unwrap_or_else(|| self.names.fresh(&self.user));
        self.turn.session.clone_from(&session);
        let is_own = Names::is_made_for(&self.user, &session);
        if !is_own || self.instructions.is_some() || self.route.options.session_idle.is_some() {
            return Call::Session(SessionCall::Look { session });
        }
        self.keep_names()
    }

    /// The session is known.
    fn look(&mut self, view: &SessionView) -> Call {
        self.is_elsewhere = !Names::is_made_for(&self.user, &view.id);
        let idle = self.route.options.session_idle.map(|idle| u64::try_from(idle.0.as_millis()).unwrap_or(u64::MAX));
        let is_working = matches!(view.state, Some(RunState::Queued | RunState::Running));
        let is_over = idle.is_some_and(|idle| view.updated_at.saturating_add(idle) < self.now);
        if is_over && !is_working && self.named.is_none() {
            self.names.forget(&self.turn.session);
            self.turn.session = self.names.fresh(&self.user);
        } else if instructions(view) == self.instructions {
            // They hold already.
            self.instructions = None;
        }
        self.keep_names()
    }

    fn keep_names(&mut self) -> Call {
        self.has_looked = true;
        if self.names.activate(&self.turn.session) {
            return self.names.put(&self.route, &self.user);
        }
        self.ask()
    }

    fn ask(&mut self) -> Call {
        let instructions = self.instructions.take().map(Message::system);
        let query = Message::user(std::mem::take(&mut self.query));
        let input = instructions.into_iter().chain([query]).collect();
        let user_id = (!self.is_elsewhere).then(|| self.user.clone());
        self.turn.ask(AgentRequest { input, user_id, ..AgentRequest::default() }, None)
    }
}

impl Exchange for Invoke {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let mut body = Body::new(request);
        self.user = body.id("user_id");
        self.query = body.text("query");
        self.instructions = body.optional_text("system_message").filter(|text| !text.is_empty());
        self.named = body.optional_id("session_id");
        self.now = request.now;
        self.turn.at(request.now);
        body.finish().map_err(|bad| {
            let fault = bad.fault();
            self.bad = Some(bad);
            fault
        })?;
        Ok(Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if self.turn.is_asked() {
            return self.turn.reply(&reply, out);
        }
        Ok(Next::Call(match reply {
            Reply::Documents(documents) => self.choose(Names::read(documents)),
            Reply::Session([view]) => self.look(view),
            Reply::Done => self.ask(),
            _ => return Err(fault::unexpected()),
        }))
    }

    fn missed(&mut self, _: &Fault) -> Option<Call> {
        if self.turn.is_asked() {
            return self.turn.missed();
        }
        // The session is new, or was forgotten.
        (!self.has_looked).then(|| self.keep_names())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        match self.bad.as_ref().filter(|bad| bad.is(fault)) {
            Some(bad) => fault::write_bad_fields(&bad.0, out),
            None => self.turn.fail(fault, out),
        }
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
