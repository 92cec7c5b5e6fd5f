//! Shared parts of OpenAI's HTTP APIs: the headers of every response, answers on unknown paths, and the list of models.
//!
//! Not here: error objects ([`crate::openai_error`]), and the document of a model ([`crate::model_list`]).

use std::sync::Arc;

use crate::fallback::{ErrorWriter, Fallback};
use crate::model_list::{ModelList, ModelNames};
use crate::openai_error::ErrorObject;
use interlingua_core::call::{Call, Reply};
use interlingua_core::exchange::{Cors, Endpoint, Exchange, Mounted, Next, Request};
use interlingua_core::fault::Fault;
use interlingua_core::out::{Head, Out};

/// The headers of every response to one request.
#[derive(Debug, Default)]
pub struct ResponseHeaders {
    request_id: Option<String>,
}

impl ResponseHeaders {
    /// Headers for the response to a request.
    #[must_use]
    pub fn for_request(request: &Request<'_>) -> Self {
        Self { request_id: Some(request.new_id.to_prefixed("req_")) }
    }

    /// Sets the headers.
    pub fn apply(&self, head: &mut Head) {
        if let Some(id) = &self.request_id {
            head.set("x-request-id", id.as_str());
        }
        head.set("openai-version", "2020-10-01");
    }

    /// Writes the error that a protocol has made of a fault, as an HTTP response.
    pub fn write_error(&self, error: &ErrorObject<'_>, fault: &Fault, out: &mut Out) {
        self.apply(&mut out.head);
        error.write(Some(fault), out);
    }
}

impl ErrorWriter for ResponseHeaders {
    fn read(&mut self, request: &Request<'_>) {
        *self = Self::for_request(request);
    }

    fn no_such_path(request: &Request<'_>) -> String {
        format!("Invalid URL ({} {})", request.method, request.path)
    }

    fn write(&self, fault: &Fault, out: &mut Out) {
        self.write_error(&ErrorObject::from_fault(fault), fault, out);
    }
}

/// A mounted API with these endpoints.
#[must_use]
pub fn mounted(endpoints: Vec<Endpoint>) -> Mounted {
    let mounted = Mounted::new(endpoints, Fallback::<ResponseHeaders>::open());
    Mounted { cors: cors(), ..mounted }
}

/// CORS headers: scripts may read the rate limits of a response.
#[must_use]
pub fn cors() -> Cors {
    let mut cors = Cors::default();
    let rate_limits = ["limit", "remaining", "reset"]
        .into_iter()
        .flat_map(|value| ["requests", "tokens"].map(|counted| format!("x-ratelimit-{value}-{counted}")));
    cors.expose_headers.extend(rate_limits);
    cors
}

/// The endpoints for models: `GET /models` and `GET /models/{id}`. Every agent of the route is a model.
#[must_use]
pub fn model_endpoints(names: &Arc<ModelNames>) -> [Endpoint; 2] {
    // Model names may contain slashes.
    ["/models/{*id}", "/models"].map(|path| {
        let names = Arc::clone(names);
        // Other model APIs serve the same document.
        Endpoint { common: Some("models"), ..Endpoint::get(path, move || Models::new(Arc::clone(&names))) }
    })
}

/// Lists all models, or describes one.
struct Models {
    names: Arc<ModelNames>,
    headers: ResponseHeaders,
    /// Id of the model in the path. `None`: list all.
    one: Option<String>,
}

impl Models {
    fn new(names: Arc<ModelNames>) -> Self {
        Self { names, headers: ResponseHeaders::default(), one: None }
    }
}

impl Exchange for Models {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers.read(request);
        self.one = Some(request.param("id")).filter(|id| !id.is_empty()).map(str::to_owned);
        Ok(Call::Describe)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        // The engine returns only the agents this caller may see.
        let Reply::Agents(agents) = reply else { return Err(Fault::unexpected_reply()) };
        match &self.one {
            Some(one) => {
                let model = self.names.model(one, agents)?;
                self.headers.apply(&mut out.head);
                out.json(&model);
            }
            None => {
                let models = self.names.models(agents);
                self.headers.apply(&mut out.head);
                out.json(&ModelList::new(&models, false));
            }
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.headers.write(fault, out);
    }
}
