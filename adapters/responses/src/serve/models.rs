//! `GET /models` and `GET /models/{id}`: every agent of the route is a model.

use std::sync::Arc;

use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::model_list::ModelList;
use interlingua_core::{Call, Fault, Next, Out, Reply, Request, Step};

use super::{ResponseHeaders, Shared};

/// Lists all models, or describes one.
pub(crate) struct Models {
    shared: Arc<Shared>,
    headers: ResponseHeaders,
    /// Id of the model in the path. `None`: list all.
    one: Option<String>,
}

impl Models {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, headers: ResponseHeaders::default(), one: None }
    }
}

impl Exchange for Models {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        self.one = Some(request.param("id")).filter(|id| !id.is_empty()).map(str::to_owned);
        Ok(Call::Describe)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        // The engine returns only the agents this caller may see.
        let Reply::Agents(agents) = reply else { return Err(Fault::unexpected_reply()) };
        let names = &self.shared.names;
        match &self.one {
            Some(one) => {
                let model = names.model(one, agents)?;
                self.headers.apply(&mut out.head);
                out.json(&model);
            }
            None => {
                let models = names.models(agents);
                self.headers.apply(&mut out.head);
                out.json(&ModelList::new(&models, false));
            }
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write_error(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
