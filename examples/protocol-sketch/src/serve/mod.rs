//! The endpoints of the protocol.

use interlingua_adapter_kit::fallback::{ErrorWriter as _, Fallback};
use interlingua_core::call::Reply;
use interlingua_core::exchange::Mounted;
use interlingua_core::{Call, Endpoint, Exchange, Fault, Flow, Mount, Next, Out, ProtocolAdapter, Request, Step};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::decode;
use crate::encode::Errors;

/// Serves the protocol to clients.
#[derive(Clone, Copy, Debug)]
pub struct Sketch;

/// Options of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {}

impl ProtocolAdapter for Sketch {
    const NAME: &'static str = crate::NAME;
    type Options = Options;

    fn mount(_: &Mount, _: Options) -> Result<Mounted, String> {
        Ok(Mounted::new(vec![Endpoint::post("", || Run)], Fallback::<Errors>::open()))
    }
}

/// A request that runs an agent.
struct Run;

impl Exchange for Run {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        decode::call(request)
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        // `decode` makes no call, so a run has no steps for this exchange.
        Flow::Close
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Err(Fault::unexpected_reply())
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        Errors.write(fault, out);
    }
}
