//! A hostile agent behind the human-in-the-loop service: bodies through the connector's turn and the normalizer, as the
//! answer to a call and as the status after a broken connection. For any input, the record follows the grammar.
#![no_main]

use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::{Answer, drive, grammar, render};
use interlingua_core::{Fault, FaultKind};
use interlingua_fuzz::{edited, turn};
use interlingua_hitl::{HitlUpstream, UpstreamOptions};
use libfuzzer_sys::fuzz_target;

const SEEDS: &[&[u8]] = &[
    br#"{"session_id":"s","status":"completed","timestamp":5.5,"message":null,"result":{"messages":[{"type":"human","content":"hi"},{"type":"ai","content":[{"type":"text","text":"a"},"b"],"additional_kwargs":{"reasoning_content":"hm"},"tool_calls":[{"name":"f","args":{"x":1},"id":"c"}],"invalid_tool_calls":[{"name":"f","args":"{","id":"d"}]},{"type":"tool","content":"ok","tool_call_id":"c","status":"error"}]},"interrupt_data":null}"#,
    br#"{"session_id":"s","status":"interrupted","timestamp":6,"interrupt_data":{"action_request":{"action":"send","args":{"to":"x"}},"config":{"allow_accept":true,"allow_ignore":true},"description":"Send?","interrupt_type":"unknown"}}"#,
    br#"{"session_id":"s","status":"error","timestamp":7,"message":"away"}"#,
    br#"{"user_id":"u","session_id":"s","status":"completed","last_query":"hi","last_response":{"status":"completed","timestamp":9.0,"result":{"messages":[]}}}"#,
    br#"{"user_id":"u","status":"running","last_query":"hi","last_response":null}"#,
];

fuzz_target!(|input: &[u8]| {
    let [options, input @ ..] = input else { return };
    let Some(bytes) = edited(SEEDS, input) else { return };

    let connector = HitlUpstream::connect("http://agent", UpstreamOptions::default()).expect("a URL");
    let mut turn = turn(&*connector);
    let broken = Answer::Fault(Fault::new(FaultKind::UpstreamTruncated, "the connection broke"));
    let answer = Answer::Body(bytes);
    // The answers to requests after an invalid answer.
    let rest = [answer, Answer::body("{}"), Answer::body("{}")];
    let answers = (options & 1 == 1).then_some(broken).into_iter().chain(rest);
    let record = drive(&mut *turn, answers).record;
    grammar(&record).unwrap_or_else(|wrong| panic!("{wrong}\n{}", render(&record)));
    let _ = turn.session_state();
});
