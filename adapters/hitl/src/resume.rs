//! `POST /agent/resume`: what a person decided about the question that was shown. Strict where the original is
//! careless: what decides nothing, or not what it says, runs nothing.

use std::sync::Arc;

use interlingua_core::answer::{Answer, Given, NOT_TAKEN, NOT_WAITING, UNDECIDED, decision_word};
use interlingua_core::call::{RunState, SessionCall, SessionView};
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::json::Json;
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::Decision;
use interlingua_core::{Call, Exchange, Extra, Fault, FaultKind, Out, Reply, Request, Step};

use crate::body::{BadBody, Body};
use crate::names::Names;
use crate::turn::Turn;
use crate::{Route, fault};

/// One answer.
pub(crate) struct Resume {
    route: Arc<Route>,
    turn: Turn,
    bad: Option<BadBody>,
    user: String,
    word: String,
    args: Option<Json>,
    /// Whether the user has any session: then another one is a mistake, and no unknown user.
    is_known: bool,
    /// Whether this session is one of them.
    has: bool,
}

impl Resume {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        let (user, word) = (String::new(), String::new());
        let turn = Turn::new(route);
        Self { route: Arc::clone(route), turn, bad: None, user, word, args: None, is_known: false, has: false }
    }

    fn find(&mut self, names: &Names) -> Result<Call, Fault> {
        self.is_known = !names.sessions().is_empty();
        self.has = names.has(&self.turn.session);
        if !names.may_have(&self.turn.session) {
            return Err(self.not_found());
        }
        Ok(Call::Session(SessionCall::Look { session: self.turn.session.clone() }))
    }

    fn not_found(&self) -> Fault {
        let (user, session) = (&self.user, &self.turn.session);
        if self.is_known {
            Fault::new(FaultKind::Conflict, format!("'{session}' is no session of user '{user}'"))
        } else {
            Fault::not_found(format_args!("a session of user '{user}'"))
        }
    }

    fn answer(&mut self, view: &SessionView) -> Result<Call, Fault> {
        if !self.has && !Names::is_open_to(&self.user, view) {
            return Err(self.not_found());
        }
        let is_working = matches!(view.state, Some(RunState::Queued | RunState::Running));
        let item =
            view.pending.first().filter(|_| !is_working).ok_or_else(|| {
                Fault::new(FaultKind::Conflict, "the session is not interrupted").with_code(NOT_WAITING)
            })?;
        let Some(decision) = decision_word(&self.word) else {
            let message = format!("unknown response_type '{}': must be accept, edit, response or reject", self.word);
            return Err(Fault::invalid("response_type", message).with_code(UNDECIDED));
        };
        // The table would take an empty object for the arguments; here they stand inside of it.
        let is_empty = self.args.as_ref().and_then(Json::decode::<Extra>).is_some_and(|args| args.is_empty());
        if decision == Decision::Edit && is_empty {
            return Err(Fault::invalid("args", "an edit needs the new arguments as an object").with_code(NOT_TAKEN));
        }
        // The table that reads everybody's answers knows this form.
        let mut payload = Extra::new();
        payload.push("type", Json::from_serialize(&self.word));
        payload.push("args", self.args.take().unwrap_or_else(Json::null));
        let answer = Answer::new(item.id.clone(), Given::Payload(Json::from_serialize(&payload)));
        // In a session that was begun elsewhere, whose it is towards the agent was settled there.
        let user_id = Some(self.user.clone()).filter(|user| Names::is_made_for(user, &view.id));
        Ok(self.turn.ask(AgentRequest { user_id, ..AgentRequest::default() }, Some(answer)))
    }
}

impl Exchange for Resume {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let mut body = Body::new(request);
        self.user = body.id("user_id");
        self.turn.session = body.id("session_id");
        self.word = body.text("response_type");
        self.args = body.json("args");
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
            Reply::Documents(documents) => self.find(&Names::read(documents))?,
            Reply::Session([view]) => self.answer(view)?,
            _ => return Err(fault::unexpected()),
        }))
    }

    fn missed(&mut self, _: &Fault) -> Option<Call> {
        self.turn.missed()
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if let Some(bad) = self.bad.as_ref().filter(|bad| bad.is(fault)) {
            return fault::write_bad_fields(&bad.0, out);
        }
        let missing = self.not_found();
        // One of the user's own that is gone is said to be gone.
        let is_missing = fault.kind == FaultKind::NotFound && !self.turn.is_asked() && !self.has;
        let fault = if is_missing { &missing } else { fault };
        let is_refused = matches!(fault.code.as_deref(), Some(UNDECIDED | NOT_TAKEN | NOT_WAITING));
        match fault.kind {
            // Whatever the reason why this cannot be answered now, the original has one status for it.
            FaultKind::Conflict | FaultKind::Busy | FaultKind::Waiting => fault::write_as(400, fault, out),
            _ if is_refused => fault::write_as(400, fault, out),
            _ => self.turn.fail(fault, out),
        }
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
