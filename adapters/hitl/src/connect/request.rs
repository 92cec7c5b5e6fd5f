//! The request of a turn: a query, or the answer to a question.

use interlingua_adapter_kit::links;
use interlingua_core::connector::{HttpRequest, TurnRequest};
use interlingua_core::http_url::{below, segment};
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Message, MessageType, Role, Sampling};
use interlingua_core::{Fault, FaultKind};
use serde::Serialize;
use serde_json::Value;

use super::asks;
use super::options::{ServiceUser, UpstreamOptions};

/// The requests of a turn.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) request: HttpRequest,
    /// The request for the status of the run.
    pub(super) status: HttpRequest,
    /// None: it answers a question.
    pub(super) query: Option<String>,
}

#[derive(Serialize)]
struct Invoke<'a> {
    user_id: &'a str,
    query: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_message: Option<&'a str>,
}

#[derive(Serialize)]
struct Resume<'a> {
    user_id: &'a str,
    session_id: &'a str,
    response_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
}

impl Outgoing {
    /// `session`: the service's own id of the session, if known.
    ///
    /// # Errors
    /// If there is neither a query nor an answer, or one that decides nothing.
    pub(super) fn new(
        base: &str,
        options: &UpstreamOptions,
        turn: &TurnRequest<'_>,
        session: Option<&str>,
        losses: &mut Losses,
    ) -> Result<Self, Fault> {
        let request = turn.request;
        let user = match options.user {
            ServiceUser::Session => request.session_id.as_deref(),
            ServiceUser::User => request.user_id.as_deref().or(request.session_id.as_deref()),
        };
        let user = user.unwrap_or_default();
        let mut status = HttpRequest::post(below(base, &format!("/agent/status/{}", segment(user))), Vec::new());
        status.method = "GET";
        status.headers = vec![("accept".into(), "application/json".to_owned())];

        if request.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            losses.lost(ContentKind::ToolDeclaration, "the protocol has no tools of clients");
        }
        if request.sampling != Sampling::default() {
            losses.lost(ContentKind::Sampling, "the protocol has no parameters of a model");
        }

        let answered = asks::service_answer(turn, options.words, losses)?;
        let (path, body, query) = if let Some(answered) = answered {
            let session_id = answered.session_id.as_deref().or(session).unwrap_or_default();
            let body = Resume { user_id: user, session_id, response_type: answered.response_type, args: answered.args };
            ("/agent/resume", serde_json::to_vec(&body), None)
        } else {
            let said = NewMessages::new(turn, losses);
            if said.query.is_empty() {
                return Err(Fault::new(FaultKind::Invalid, "this agent takes a text, and the input has none"));
            }
            let system_message = Some(said.system.as_str()).filter(|text| !text.is_empty());
            let body = serde_json::to_vec(&Invoke { user_id: user, query: &said.query, system_message });
            ("/agent/invoke", body, Some(said.query))
        };
        let body = body.map_err(|error| {
            Fault::new(FaultKind::Internal, "the request cannot be written for the agent").with_detail(error)
        })?;
        let mut request = HttpRequest::post(below(base, path), body);
        request.headers[1].1 = "application/json".to_owned();
        Ok(Self { request, status, query })
    }
}

/// The content of the new messages.
#[derive(Default)]
struct NewMessages {
    query: String,
    system: String,
}

impl NewMessages {
    fn new(turn: &TurnRequest<'_>, losses: &mut Losses) -> Self {
        let mut said = Self::default();
        for (_, message) in turn.new_messages() {
            match (&message.kind, &message.role) {
                (MessageType::Message, Some(Role::System)) => paragraph(&mut said.system, &text(message, losses)),
                (MessageType::Message, Some(Role::Other(role))) if role.as_ref() == "developer" => {
                    paragraph(&mut said.system, &text(message, losses));
                }
                (MessageType::Message, Some(Role::Assistant)) => {
                    losses.lost(ContentKind::History, "the service keeps its own, and takes the user's words alone");
                }
                (MessageType::Message, _) => paragraph(&mut said.query, &text(message, losses)),
                (kind, _) if kind.is_output() => {
                    losses.lost(ContentKind::ClientOutput, "the agent did not ask for it");
                }
                _ => losses.lost(ContentKind::History, "the service keeps its own, and takes the user's words alone"),
            }
        }
        said
    }
}

fn paragraph(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

/// The text of a message: all that can be sent.
fn text(message: &Message, losses: &mut Losses) -> String {
    links::as_text(message, "a query of this protocol holds nothing but text", losses)
}
