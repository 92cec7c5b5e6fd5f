//! The exchanges, one for each endpoint of docs/protocols/chat-completions.md#endpoints, and what they share.
//!
//! Here: the mounted route, and the headers of every response. Not here: writing answers ([`crate::encode`]).

pub(crate) mod complete;
pub(crate) mod judge;
pub(crate) mod models;

use interlingua_core::answer::{offer, supported_decisions};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::model_list::ModelNames;
use interlingua_core::out::Head;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, Step};

use crate::fault;
use crate::options::Options;

/// A mounted route.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) names: ModelNames,
}

impl Shared {
    /// These items with the decisions that the agent takes, without the calls that the client runs.
    pub(crate) fn limited(&self, agent: &str, items: &[Pending]) -> Vec<Pending> {
        let taken = self.names.card(agent).map_or(&[][..], |card| card.decisions);
        let asked = items.iter().filter(|item| item.kind != PendingKind::Tool);
        let limit =
            |item: &Pending| Pending { decisions: offer(item, supported_decisions(item, taken)), ..item.clone() };
        asked.map(limit).collect()
    }
}

/// Headers of every HTTP response.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders {
    request_id: Option<String>,
}

impl ResponseHeaders {
    /// Headers for the response to a request.
    pub(crate) fn for_request(request: &Request<'_>) -> Self {
        Self { request_id: Some(request.new_id.to_prefixed("req_")) }
    }

    /// Sets the headers.
    pub(crate) fn apply(&self, head: &mut Head) {
        if let Some(id) = &self.request_id {
            head.set("x-request-id", id.as_str());
        }
        head.set("openai-version", "2020-10-01");
    }

    /// Writes a fault as an HTTP error.
    pub(crate) fn write_error(&self, fault: &Fault, out: &mut Out) {
        self.apply(&mut out.head);
        fault::error(fault).write(Some(fault), out);
    }
}

/// Answers requests that match no endpoint.
#[derive(Default)]
pub(crate) struct Fallback {
    headers: ResponseHeaders,
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        Err(Fault::new(FaultKind::NoSuchPath, format!("Invalid URL ({} {})", request.method, request.path)))
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(Fault::unexpected_reply())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write_error(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
