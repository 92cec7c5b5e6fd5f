//! `GET /healthz`: clients check only the status (docs/protocols/ag-kit.md#endpoints).

use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::exchange::Next;
use interlingua_core::time;
use interlingua_core::{Call, Exchange, Fault, Out, Reply, Request};

use crate::serve::fault;
use crate::{Route, wire};

/// Reports that the route exists. Whether the agent works can only be found out by calling it.
pub(crate) struct Health {
    route: Arc<Route>,
    now: Millis,
}

impl Health {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route), now: 0 }
    }
}

impl Exchange for Health {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.now = request.now;
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        out.status(200);
        out.json(&wire::Health {
            status: "healthy",
            timestamp: time::format_rfc3339(self.now),
            service: "interlingua",
            version: env!("CARGO_PKG_VERSION"),
            base_path: &self.route.path,
        });
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::fail(fault, out);
    }
}
