//! `GET /models` and `GET /models/{id}`: every agent of the route is a model.

use std::sync::Arc;

use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::{Call, Fault, FaultKind, Next, Out, Reply, Request, Step};

use super::{Address, Shared, astray};
use crate::wire;

/// All models, or one.
pub(crate) struct Models {
    shared: Arc<Shared>,
    address: Address,
    one: Option<String>,
}

impl Models {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, address: Address::default(), one: None }
    }
}

impl Exchange for Models {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.address = Address::of(request);
        self.one = Some(request.param("id")).filter(|id| !id.is_empty()).map(str::to_owned);
        Ok(Call::Describe)
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        // What the engine tells is what this caller may know of.
        let Reply::Agents(agents) = reply else { return Err(astray()) };
        let known = self.shared.models().filter(|(_, agent)| agents.iter().any(|card| card.name == agent.name));
        let wanted = known.filter(|(id, _)| self.one.as_deref().is_none_or(|one| one == *id));
        let mut data: Vec<wire::Model<'_>> = wanted
            .map(|(id, agent)| wire::Model {
                id,
                object: "model",
                created: agent.since / 1000,
                owned_by: "interlingua",
            })
            .collect();
        match &self.one {
            Some(one) => {
                let gone = || {
                    let message = format!("The model '{one}' does not exist.");
                    Fault::new(FaultKind::NoSuchAgent, message).with_field("model")
                };
                let model = data.pop().ok_or_else(gone)?;
                self.address.on(&mut out.head);
                out.json(&model);
            }
            None => {
                self.address.on(&mut out.head);
                out.json(&wire::Models { object: "list", data });
            }
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.address.refuse(fault, out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
