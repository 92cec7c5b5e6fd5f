//! A hostile agent that speaks AG-UI: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_ag_ui::{AgUiUpstream, Events, UpstreamOptions};
use interlingua_core::Record;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::drive;
use interlingua_fuzz::{answer, hostile_agent, recorded, turn};
use libfuzzer_sys::fuzz_target;

/// Answers that recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"TOOL_CALL_CHUNK\",\"toolCallId\":\"a\",\"toolCallName\":\"f\",\"delta\":\"{\"}\n\ndata: {\"type\":\"TOOL_CALL_CHUNK\",\"toolCallId\":\"b\",\"toolCallName\":\"f\",\"delta\":\"1}\"}\n\ndata: {\"type\":\"STATE_SNAPSHOT\",\"snapshot\":{\"messages\":[{\"tool_calls\":[{\"id\":\"b\",\"args\":{}}]}]}}\n\ndata: {\"type\":\"TOOL_CALL_RESULT\",\"toolCallId\":\"b\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"value\":\"u\"}}]}\n\ndata: {\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{\"id\":\"x\",\"role\":\"assistant\",\"content\":\"a\",\"toolCalls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}\n\ndata: {\"type\":\"RUN_FINISHED\",\"outcome\":{\"type\":\"success\",\"pendingToolCallIds\":[\"a\"]}}\n\n",
    b"data: {\"type\":\"CUSTOM\",\"name\":\"on_interrupt\",\"value\":\"{\\\"action_requests\\\":[{\\\"name\\\":\\\"a\\\"},{\\\"name\\\":\\\"b\\\"}]}\"}\n\ndata: {\"type\":\"RUN_FINISHED\"}\n\n",
    b"{\"type\":\"RUN_ERROR\",\"message\":\"no\",\"code\":\"x\"}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| recorded(&["ag-ui/ag-ui-protocol-1.0.0", "ag-ui/pydantic-ai-2.68.0", "ag-ui/agno-3.1.10"], SEEDS));

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let options = UpstreamOptions {
        events: if options & 2 == 0 { Events::Drop } else { Events::All },
        confirm_calls: if options & 4 == 0 { Vec::new() } else { vec!["delete_file".to_owned()] },
        ..UpstreamOptions::default()
    };
    let connector = AgUiUpstream::connect("http://agent", options).expect("a URL");
    let mut turn = turn(&*connector);
    drive(&mut *turn, [answer(bytes, cut, breaks_off)]).record
}
