//! `POST /agent/resume`: a person's decision on the question that was shown. Stricter than the original: an answer that
//! is unclear, or contains no decision, starts no run.

use std::sync::Arc;

use interlingua_core::answer::{Answer, AnswerBody, NOT_TAKEN, NOT_WAITING, UNDECIDED, decision_word};
use interlingua_core::call::{RunState, SessionCall, SessionView};
use interlingua_core::exchange::Next;
use interlingua_core::json::Json;
use interlingua_core::loss::Loss;
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::Decision;
use interlingua_core::{Call, Exchange, Extra, Fault, FaultKind, Out, Reply, Request};

use crate::Route;
use crate::decode::body::{BadBody, Body};
use crate::encode::turn::Turn;
use crate::serve::fault;
use crate::serve::names::Names;

/// One answer.
pub(crate) struct Resume {
    route: Arc<Route>,
    turn: Turn,
    bad: Option<BadBody>,
    user: String,
    response_type: String,
    args: Option<Json>,
    /// True if the user has any session: then an unknown session id is a client error rather than an unknown user.
    user_has_sessions: bool,
    /// True if the requested session is one of them.
    owns_session: bool,
}

impl Resume {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        let (user, response_type) = (String::new(), String::new());
        let turn = Turn::new(route);
        Self {
            route: Arc::clone(route),
            turn,
            bad: None,
            user,
            response_type,
            args: None,
            user_has_sessions: false,
            owns_session: false,
        }
    }

    fn find_session(&mut self, names: &Names) -> Result<Call, Fault> {
        self.user_has_sessions = !names.sessions().is_empty();
        self.owns_session = names.has(&self.turn.session);
        if !names.may_access(&self.turn.session) {
            return Err(self.not_found());
        }
        Ok(Call::Session(SessionCall::Get { session: self.turn.session.clone() }))
    }

    fn not_found(&self) -> Fault {
        let (user, session) = (&self.user, &self.turn.session);
        if self.user_has_sessions {
            Fault::new(FaultKind::Conflict, format!("'{session}' is not a session of user '{user}'"))
        } else {
            Fault::not_found(format_args!("a session of user '{user}'"))
        }
    }

    fn start(&mut self, view: &SessionView) -> Result<Call, Fault> {
        if !self.owns_session && !Names::is_open_to(&self.user, view) {
            return Err(self.not_found());
        }
        let is_working = matches!(view.state, Some(RunState::Queued | RunState::Running));
        let item =
            view.pending.first().filter(|_| !is_working).ok_or_else(|| {
                Fault::new(FaultKind::Conflict, "the session is not interrupted").with_code(NOT_WAITING)
            })?;

        let Some(decision) = decision_word(&self.response_type) else {
            let message =
                format!("unknown response_type '{}': must be accept, edit, response or reject", self.response_type);
            return Err(Fault::invalid("response_type", message).with_code(UNDECIDED));
        };
        // `args` contains the arguments here, so an empty object has none; the core would accept it as arguments.
        let is_empty = self.args.as_ref().and_then(Json::decode::<Extra>).is_some_and(|args| args.is_empty());
        if decision == Decision::Edit && is_empty {
            return Err(Fault::invalid("args", "an edit needs the new arguments as an object").with_code(NOT_TAKEN));
        }

        // The core parses this form of answers.
        let mut payload = Extra::new();
        payload.push("type", Json::from_serialize(&self.response_type));
        let args = self.args.take().map(|args| if decision == Decision::Respond { text_in(&args) } else { args });
        payload.push("args", args.unwrap_or_else(Json::null));
        let answer = Answer::new(item.id.clone(), AnswerBody::Payload(Json::from_serialize(&payload)));

        // If the session was started over another route, that route determined its user towards the agent.
        let user_id = Some(self.user.clone()).filter(|user| Names::is_created_for(user, &view.id));
        Ok(self.turn.start(AgentRequest { user_id, ..AgentRequest::default() }, Some(answer)))
    }
}

/// The text of a response: a field of an object in this protocol, a plain text in agents' own forms.
fn text_in(args: &Json) -> Json {
    let fields: Option<Extra> = args.decode();
    let only = fields.filter(|fields| fields.len() == 1);
    let text = only.and_then(|fields| fields.get("args").or(fields.get("message")).cloned());
    text.unwrap_or_else(|| args.clone())
}

impl Exchange for Resume {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.turn.set_time(request.now);
        let mut body = Body::new(request);
        self.user = body.id("user_id");
        self.turn.session = body.id("session_id");
        self.response_type = body.text("response_type");
        self.args = body.json("args");

        body.finish(&mut self.bad).map(|()| Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        if self.turn.is_started() {
            return self.turn.reply(&reply, out);
        }
        Ok(Next::Call(match reply {
            Reply::Documents(documents) => self.find_session(&Names::parse(documents))?,
            Reply::Session([view]) => self.start(view)?,
            _ => return Err(Fault::unexpected_reply()),
        }))
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        self.turn.on_not_found()
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        if let Some(bad) = self.bad.as_ref().filter(|bad| bad.matches(fault)) {
            return fault::write_bad_fields(&bad.0, out);
        }

        let missing = self.not_found();
        // If one of the user's own sessions is missing, the original fault says so.
        let is_unknown = fault.kind == FaultKind::NotFound && !self.turn.is_started() && !self.owns_session;
        let fault = if is_unknown { &missing } else { fault };
        let is_bad_answer = matches!(fault.code.as_deref(), Some(UNDECIDED | NOT_TAKEN | NOT_WAITING));

        match fault.kind {
            // The original has one status for all reasons why the session cannot be answered now.
            FaultKind::Conflict | FaultKind::Busy | FaultKind::Waiting => fault::write_as(400, fault, out),
            _ if is_bad_answer => fault::write_as(400, fault, out),
            _ => self.turn.fail(fault, out),
        }
    }

    fn losses(&self) -> &[Loss] {
        self.turn.losses()
    }
}
