//! A hostile agent that speaks AG-Kit: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_ag_kit::{AgKitUpstream, UnansweredCalls, UpstreamOptions};
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core_testkit::drive;
use interlingua_core::{Json, Record};
use interlingua_fuzz::{answer, hostile_agent, recorded};
use libfuzzer_sys::fuzz_target;

/// Answers that recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"interrupt\",\"id\":\"i\",\"payload\":{\"action_requests\":[{\"name\":\"a\",\"args\":{}},{\"name\":\"b\"}],\"review_configs\":[]}}\n\ndata: [DONE]\n\n",
    b"{\"error\":\"Server error\",\"details\":\"away\"}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| recorded(&["ag-kit/cloudbase-agent-server-0.1.1"], SEEDS));

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let unanswered_calls = if options & 2 == 2 { UnansweredCalls::Plugin } else { UnansweredCalls::Tool };
    let options = UpstreamOptions { unanswered_calls, ..UpstreamOptions::default() };
    let connector = AgKitUpstream::connect("http://agent", options).expect("a URL");
    let tool = r#"{"type":"function","function":{"name":"locate"}}"#;
    let request = AgentRequest {
        input: vec![Message::user("hi")].into(),
        tools: Json::parse(tool).map(|tool| vec![tool]),
        ..AgentRequest::default()
    };
    // As after an interrupt: results of the call before it may come.
    let state = Json::parse(r#"{"calls":[{"id":"call_1","name":"delete_file"}]}"#).expect("JSON");
    let mut turn = connector.turn(&TurnRequest::new(&request, &state, &[])).expect("it can be expressed");
    let record = drive(&mut *turn, [answer(bytes, cut, breaks_off)]).record;
    let _ = turn.session_state();
    record
}
