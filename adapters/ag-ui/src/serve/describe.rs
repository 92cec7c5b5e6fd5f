//! The agent's abilities, as the protocol's capabilities (docs/protocols/ag-ui.md#capabilities). Unknown abilities are
//! left out: an absent field means that the agent lacks the ability.

use std::sync::Arc;

use interlingua_core::exchange::Next;
use interlingua_core::pending::Decision;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Reply, Request};
use serde_json::{Value, json};

use super::options::{Media, Options, ReasoningForm};
use super::{Route, fault};

/// `GET` of the capabilities.
pub(super) struct Describe {
    route: Arc<Route>,
}

impl Describe {
    pub(super) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route) }
    }

    fn capabilities(&self) -> Value {
        let Route { options, agent, .. } = &*self.route;
        let mut identity = json!({ "name": agent.name, "type": "interlingua", "provider": "Interlingua" });
        for (name, value) in [("description", &agent.description), ("version", &agent.version)] {
            if !value.is_empty() {
                identity[name] = json!(value);
            }
        }

        let mut capabilities = json!({
            "identity": identity,
            "transport": transport(options),
            "tools": { "supported": true, "clientProvided": true },
            "multimodal": { "input": { "image": true, "audio": true, "video": true, "file": true } },
        });
        if options.media != Media::Drop {
            capabilities["multimodal"]["output"] = json!({ "image": true, "audio": true });
        }
        capabilities["reasoning"] = json!({
            "supported": options.reasoning != ReasoningForm::Drop,
            "streaming": options.reasoning != ReasoningForm::Drop,
        });
        if !agent.decisions.is_empty() {
            capabilities["humanInTheLoop"] = json!({
                "supported": true, "approvals": true, "interrupts": true,
                "approveWithEdits": agent.decisions.contains(&Decision::Edit),
            });
        }
        capabilities
    }
}

fn transport(options: &Options) -> Value {
    json!({
        "streaming": true,
        "websocket": false,
        "httpBinary": options.protobuf.0,
        "pushNotifications": false,
        "resumable": options.event_ids.0,
    })
}

impl Exchange for Describe {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        if self.route.options.capabilities_path.as_deref() != Some(request.param("name")) {
            return Err(Fault::new(FaultKind::NoSuchPath, "no endpoint at this path"));
        }
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        out.json(&self.capabilities());
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}
