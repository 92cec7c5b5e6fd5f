//! The exchanges, one for each endpoint of docs/protocols/anthropic-messages.md#endpoints, and what they share.
//!
//! Here: the mounted route, and the headers of every response. Not here: writing answers, see [`crate::encode`].

pub(crate) mod count;
pub(crate) mod create;
pub(crate) mod models;

use interlingua_adapter_kit::fallback::ErrorWriter;
use interlingua_adapter_kit::model_list::ModelNames;
use interlingua_core::answer::chat::ApprovalForm;
use interlingua_core::answer::offer;
use interlingua_core::exchange::Exchange;
use interlingua_core::out::Head;
use interlingua_core::pending::Pending;
use interlingua_core::{Call, Fault, Next, Out, Reply, Request};

use crate::echo::Thinking;
use crate::fault::ApiError;
use crate::options::{Options, Reasoning};

#[derive(Debug)]
pub(crate) struct MountedRoute {
    pub(crate) options: Options,
    pub(crate) models: ModelNames,
}

impl MountedRoute {
    /// The display of reasoning for a client that requested this one.
    pub(crate) const fn thinking(&self, asked: Thinking) -> Thinking {
        match self.options.reasoning {
            Reasoning::Asked => asked,
            Reasoning::Always => Thinking::Shown,
            Reasoning::Hide => Thinking::Hidden,
        }
    }

    /// These items with the decisions that the agent takes.
    pub(crate) fn limited(&self, agent: &str, items: &[Pending]) -> Vec<Pending> {
        let taken = self.models.card(agent).map_or(&[][..], |card| card.decisions);
        items.iter().map(|item| Pending { decisions: offer(item, taken), ..item.clone() }).collect()
    }

    /// True if approvals and questions end in an error.
    pub(crate) fn refuses_questions(&self) -> bool {
        self.options.approvals == ApprovalForm::Refuse
    }
}

/// Headers of every HTTP response (docs/protocols/anthropic-messages.md#transport).
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders {
    request_id: Option<String>,
}

impl ResponseHeaders {
    /// Headers for the response to a request.
    pub(crate) fn for_request(request: &Request<'_>) -> Self {
        Self { request_id: Some(request.new_id.to_prefixed("req_")) }
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Sets the headers. Clients of this protocol know the id by the first name, the gateway's log by the second.
    pub(crate) fn apply(&self, head: &mut Head) {
        if let Some(id) = &self.request_id {
            head.set("request-id", id.as_str());
            head.set("x-request-id", id.as_str());
        }
    }
}

impl ErrorWriter for ResponseHeaders {
    fn read(&mut self, request: &Request<'_>) {
        *self = Self::for_request(request);
    }

    fn no_such_path(request: &Request<'_>) -> String {
        format!("Not found: {} {}", request.method, request.path)
    }

    fn write(&self, fault: &Fault, out: &mut Out) {
        self.apply(&mut out.head);
        ApiError::from_fault(fault).write(Some(fault), self.request_id(), out);
    }
}

/// Answers clients that check whether a server exists.
#[derive(Default)]
pub(crate) struct Hello {
    headers: ResponseHeaders,
}

impl Exchange for Hello {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        self.headers.apply(&mut out.head);
        out.json(&serde_json::json!({ "status": "ok" }));
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write(fault, out);
    }
}
