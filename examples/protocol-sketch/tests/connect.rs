//! The skeleton's connector refuses every turn. Replace these tests with the first answer of an agent.

use interlingua_core::Json;
use interlingua_core::connector::{TurnRequest, UpstreamAdapter as _};
use interlingua_core::model::AgentRequest;
use interlingua_sketch::{SketchUpstream, UpstreamOptions};

#[test]
fn a_turn_is_refused_as_not_implemented() {
    let connector = SketchUpstream::connect("http://agent/", UpstreamOptions::default()).expect("a connector");
    let (request, state) = (AgentRequest::default(), Json::null());
    let refused = connector.turn(&TurnRequest::new(&request, &state, &[]));
    assert!(refused.is_err_and(|fault| fault.message.contains("not implemented")));
}
