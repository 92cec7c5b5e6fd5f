//! `DELETE`: ends a session, cancels its open calls, and deletes the records of sessions that have expired.

use std::sync::Arc;

use interlingua_core::call::{DocumentCall, Replaces, Reply, Target};
use interlingua_core::{Call, Exchange, Fault, FaultKind, Json, Next, Out, Request, RunId};

use super::challenge;
use super::route::Route;
use super::session::{self, ENDED, SESSION_TAG};
use super::shared::SharedState;
use crate::envelope::RpcError;
use crate::envelope::rpc_error::INVALID_REQUEST;

/// The exchange that ends a session.
pub(crate) struct Delete {
    shared: SharedState,
    head: challenge::RequestHead,
    stage: Stage,
}

enum Stage {
    /// Checking that the session has not ended before.
    Checking,
    /// Noting that it has ended.
    Noting,
    /// Finding its open calls.
    Finding,
    /// Cancelling these runs.
    Cancelling(Vec<RunId>),
    /// Finding sessions that have expired.
    Cleaning,
    /// Forgetting these.
    Forgetting(Vec<String>),
}

impl Delete {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { shared: SharedState::new(route), head: challenge::RequestHead::default(), stage: Stage::Checking }
    }

    fn refuse(&mut self, error: RpcError) -> Fault {
        let fault = Fault::new(FaultKind::NotFound, error.message.clone());
        self.shared.refusal = Some(error);
        fault
    }

    fn cancel_next(&mut self, mut runs: Vec<RunId>) -> Next {
        match runs.pop() {
            Some(run) => {
                self.stage = Stage::Cancelling(runs);
                Next::Call(Call::Cancel(Target::Run(run)))
            }
            None => {
                self.stage = Stage::Cleaning;
                Next::Call(Call::Document(DocumentCall::List { collection: ENDED.to_owned(), prefix: String::new() }))
            }
        }
    }

    fn forget_next(&mut self, mut keys: Vec<String>, out: &mut Out) -> Next {
        match keys.pop() {
            Some(key) => {
                self.stage = Stage::Forgetting(keys);
                Next::Call(Call::Document(DocumentCall::Delete { collection: ENDED.to_owned(), key }))
            }
            None => {
                out.status(204);
                Next::Done
            }
        }
    }

    /// The keys of sessions that are too old to be used.
    fn expired(&self, documents: &[(String, Json)]) -> Vec<String> {
        const AT_ONCE: usize = 20;
        let ttl = u64::try_from(self.shared.route.options.session_ttl.0.as_millis()).unwrap_or(u64::MAX);
        let oldest = self.shared.now.saturating_sub(ttl);
        let is_expired = |key: &str| {
            key.split('-').next().and_then(|time| u64::from_str_radix(time, 16).ok()).is_none_or(|time| time < oldest)
        };
        documents.iter().map(|(key, _)| key.clone()).filter(|key| is_expired(key)).take(AT_ONCE).collect()
    }
}

impl Exchange for Delete {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.head.read(request);
        self.shared.read(request);
        match session::read(&self.shared, request) {
            Ok(Some(session)) => {
                let call = session::check(&session);
                self.shared.session = Some(session);
                Ok(call)
            }
            Ok(None) => Err(self.refuse(RpcError::bad(INVALID_REQUEST, "the header Mcp-Session-Id is missing"))),
            Err(error) => Err(error.into_fault(&mut self.shared)),
        }
    }

    fn read_head(&mut self, request: &Request<'_>) {
        self.head.refused(request);
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Some(session) = self.shared.session.clone() else { return Err(Fault::unexpected_reply()) };
        match (std::mem::replace(&mut self.stage, Stage::Checking), reply) {
            (Stage::Checking, Reply::Documents([])) => {
                self.stage = Stage::Noting;
                Ok(Next::Call(Call::Document(DocumentCall::Put {
                    collection: ENDED.to_owned(),
                    key: session::key(&session),
                    value: Json::from_serialize(&true),
                    replaces: Replaces::Anything,
                })))
            }
            (Stage::Checking, _) => Err(self.refuse(session::unknown())),
            (Stage::Noting, _) => {
                self.stage = Stage::Finding;
                Ok(Next::Call(session::open_calls(SESSION_TAG, session.id)))
            }
            (Stage::Finding, Reply::Runs(page)) => {
                let runs = page.runs.iter().map(|view| view.run().id).collect();
                Ok(self.cancel_next(runs))
            }
            (Stage::Cancelling(runs), _) => Ok(self.cancel_next(runs)),
            (Stage::Cleaning, Reply::Documents(documents)) => {
                let expired = self.expired(documents);
                Ok(self.forget_next(expired, out))
            }
            (Stage::Forgetting(keys), _) => Ok(self.forget_next(keys, out)),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        // A run that was deleted meanwhile.
        matches!(self.stage, Stage::Cancelling(_)).then_some(Call::Nothing)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        challenge::fail(&self.shared, &self.head, fault, out);
    }
}
