//! `GET /v1/models` and `GET /v1/models/{id}`: every agent of the route is a model.

use std::sync::Arc;

use interlingua_adapter_kit::fallback::ErrorWriter as _;
use interlingua_adapter_kit::model_list::ModelList;
use interlingua_core::exchange::Exchange;
use interlingua_core::{Call, Fault, Next, Out, Reply, Request};

use super::{MountedRoute, ResponseHeaders};

/// The length of a page, and the longest one.
const PAGE: usize = 20;
const MAX_PAGE: usize = 1000;

/// Lists models, or describes one.
pub(crate) struct Models {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    /// Id of the model in the path. `None`: list them.
    one: Option<String>,
    limit: usize,
    after: Option<String>,
    before: Option<String>,
}

impl Models {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, headers: ResponseHeaders::default(), one: None, limit: PAGE, after: None, before: None }
    }
}

impl Exchange for Models {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.one = Some(request.param("id")).filter(|id| !id.is_empty()).map(str::to_owned);
        let cursor = |name: &str| request.query(name).filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned);
        (self.after, self.before) = (cursor("after_id"), cursor("before_id"));
        if let Some(limit) = cursor("limit") {
            let number = limit.parse().ok().filter(|number| (1..=MAX_PAGE).contains(number));
            let invalid = || Fault::invalid("limit", format!("must be between 1 and {MAX_PAGE}"));
            self.limit = number.ok_or_else(invalid)?;
        }
        Ok(Call::Describe)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        // The engine returns only the agents this caller may see.
        let Reply::Agents(agents) = reply else { return Err(Fault::unexpected_reply()) };
        if let Some(one) = &self.one {
            let model = self.shared.models.model(one, agents)?;
            self.headers.apply(&mut out.head);
            out.json(&model);
            return Ok(Next::Done);
        }

        let models = self.shared.models.models(agents);
        let place = |id: &Option<String>| {
            let id = id.as_deref()?;
            models.iter().position(|model| model.id == id)
        };
        let from = place(&self.after).map_or(0, |place| place + 1);
        let to = place(&self.before).unwrap_or(models.len()).max(from);
        // A page in front of a model ends with it.
        let window = &models[from..to];
        let (page, has_more) = if self.before.is_some() && self.after.is_none() {
            (&window[window.len().saturating_sub(self.limit)..], window.len() > self.limit)
        } else {
            (&window[..window.len().min(self.limit)], window.len() > self.limit)
        };
        self.headers.apply(&mut out.head);
        out.json(&ModelList::new(page, has_more));
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write(fault, out);
    }
}
