//! The metadata of the route as a protected resource (RFC 9728), for OAuth clients.

use std::sync::Arc;

use interlingua_core::{Call, Exchange, Fault, FaultKind, Next, Out, Reply, Request};
use serde_json::json;

use super::challenge;
use super::route::Route;
use super::shared::SharedState;

/// The name of the resource for people.
const NAME: &str = "Interlingua";

/// `GET /.well-known/oauth-protected-resource`.
pub(crate) struct Metadata {
    shared: SharedState,
    base_url: String,
}

impl Metadata {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { shared: SharedState::new(route), base_url: String::new() }
    }
}

impl Exchange for Metadata {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        request.base_url.clone_into(&mut self.base_url);
        if self.shared.route.issuers.is_empty() {
            return Err(Fault::new(FaultKind::NoSuchPath, "clients get no tokens for this route"));
        }
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let route = &self.shared.route;
        let mut metadata = json!({
            "resource": route.resource(&self.base_url),
            "authorization_servers": route.issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": NAME,
        });
        if !route.options.scopes.is_empty() {
            metadata["scopes_supported"] = json!(route.options.scopes);
        }
        // Without a configured URL the document depends on the request.
        let cache = if route.public_url.is_some() { "max-age=300" } else { "no-store" };
        out.header("cache-control", cache);
        out.header("access-control-allow-origin", "*");
        out.json(&metadata);
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        challenge::fail(&self.shared, &challenge::RequestHead::default(), fault, out);
    }
}
