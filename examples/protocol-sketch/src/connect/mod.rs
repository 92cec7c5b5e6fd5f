//! Calls agents that speak the protocol.

use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::{AgentTurn, Connector, TurnRequest, UpstreamAdapter};
use interlingua_core::server_signs::ServerSigns;
use interlingua_core::{Fault, FaultKind};
use schemars::JsonSchema;
use serde::Deserialize;

/// Calls agents.
#[derive(Clone, Copy, Debug)]
pub struct SketchUpstream;

/// Options of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {}

impl UpstreamAdapter for SketchUpstream {
    const NAME: &'static str = crate::NAME;
    const SIGNS: ServerSigns = ServerSigns::NONE;
    type Options = UpstreamOptions;

    fn connect(_: &str, _: UpstreamOptions) -> Result<Box<dyn Connector>, String> {
        Ok(Box::new(SketchConnector))
    }
}

struct SketchConnector;

impl Connector for SketchConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        UpstreamCapabilities::default()
    }

    fn turn(&self, _: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let message = format!("the connector of the protocol {} is not implemented yet", crate::NAME);
        Err(Fault::new(FaultKind::Unsupported, message))
    }
}
