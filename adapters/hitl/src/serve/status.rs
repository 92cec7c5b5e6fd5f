//! `GET /agent/status/{user_id}` and `/{user_id}/{session_id}`: the state of a session, as the engine reports it.

use std::sync::Arc;

use interlingua_core::call::{RunState, RunView, SessionCall, SessionView, Target};
use interlingua_core::exchange::Next;
use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core::{Call, End, Exchange, Fault, Out, Reply, Request};

use crate::encode::turn::{conversation, response};
use crate::serve::fault;
use crate::serve::names::Names;
use crate::serve::user_and_session;
use crate::{Route, wire};

/// One status request.
pub(crate) struct Status {
    route: Arc<Route>,
    user: String,
    requested_session: Option<String>,
    /// True if it is one of the user's own sessions.
    owns_session: bool,
    /// The session, while its latest run is being loaded.
    session: Option<SessionView>,
}

impl Status {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            user: String::new(),
            requested_session: None,
            owns_session: false,
            session: None,
        }
    }

    fn not_found(&self, out: &mut Out) {
        let message = match &self.requested_session {
            None => format!("user '{}' has no session", self.user),
            Some(session) => format!("user '{}' has no session '{session}'", self.user),
        };
        out.status(200);
        out.json(&wire::SessionStatus {
            user_id: self.user.clone(),
            session_id: self.requested_session.clone(),
            status: "not_found",
            message: Some(message),
            last_query: None,
            last_updated: None,
            last_response: None,
        });
    }

    fn write(&self, view: &SessionView, run: Option<&RunView<'_>>, out: &mut Out) {
        let status = status(view);
        let last_response = run.filter(|_| !matches!(status, "running" | "idle")).map(|run| {
            let mut last = response(&self.route, &view.id, run.run(), &view.pending);
            if last.status == "completed" {
                let is_included = view.items.iter().any(|item| item.run == Some(run.run().id));
                let run_messages: Vec<Message> =
                    if is_included { Vec::new() } else { run.run().conversation().collect() };
                last.result = Some(conversation(&self.route, &view.items, &run_messages));
            }
            last
        });

        let run_input = run.into_iter().flat_map(|run| &run.run().turns).flat_map(|turn| &turn.input);
        let session_messages = view.items.iter().map(|item| &item.message);

        out.status(200);
        out.json(&wire::SessionStatus {
            user_id: self.user.clone(),
            session_id: Some(view.id.clone()),
            status,
            message: last_response.as_ref().and_then(|last| last.message.clone()),
            last_query: session_messages.chain(run_input).rfind(|message| is_query(message)).map(Message::text),
            last_updated: Some(wire::seconds(view.updated_at)),
            last_response,
        });
    }
}

fn is_query(message: &Message) -> bool {
    message.kind == MessageType::Message && message.role == Some(Role::User)
}

fn status(view: &SessionView) -> &'static str {
    match view.state {
        None => "idle",
        Some(RunState::Queued | RunState::Running) => "running",
        Some(RunState::Ended(End::Failed | End::Rejected | End::Canceled)) => "error",
        Some(_) if !view.pending.is_empty() => "interrupted",
        Some(_) => "completed",
    }
}

impl Exchange for Status {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        (self.user, self.requested_session) = user_and_session(request);
        Ok(Names::get(&self.route, &self.user))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Documents(documents) => {
                let names = Names::parse(documents);
                self.owns_session =
                    self.requested_session.as_deref().is_none_or(|requested_session| names.has(requested_session));

                let session = self.requested_session.as_deref().filter(|session| names.may_access(session));
                let session = if self.requested_session.is_some() { session } else { names.active() };

                if let Some(session) = session {
                    return Ok(Next::Call(Call::Session(SessionCall::Get { session: session.to_owned() })));
                }
                self.not_found(out);
            }
            Reply::Session([view]) if !self.owns_session && !Names::is_open_to(&self.user, view) => self.not_found(out),
            Reply::Session([view]) => {
                if let Some(latest) = view.latest {
                    self.session = Some(view.clone());
                    return Ok(Next::Call(Call::Fetch(Target::Run(latest))));
                }
                self.write(view, None, out);
            }
            Reply::Run(run) => {
                let Some(view) = self.session.take() else { return Err(Fault::unexpected_reply()) };
                self.write(&view, Some(&run), out);
            }
            // The session or the run was not found.
            Reply::Done => match self.session.take() {
                Some(view) => self.write(&view, None, out),
                None => self.not_found(out),
            },
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        Some(Call::Nothing)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}
