//! A hostile agent that speaks AG-UI: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_ag_ui::{AgUiUpstream, Events, UpstreamOptions};
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::testkit::{Answer, drive, grammar, recorded_exchanges, render};
use interlingua_core::{Json, Record};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

/// What recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"TOOL_CALL_CHUNK\",\"toolCallId\":\"a\",\"toolCallName\":\"f\",\"delta\":\"{\"}\n\ndata: {\"type\":\"TOOL_CALL_CHUNK\",\"toolCallId\":\"b\",\"toolCallName\":\"f\",\"delta\":\"1}\"}\n\ndata: {\"type\":\"STATE_SNAPSHOT\",\"snapshot\":{\"messages\":[{\"tool_calls\":[{\"id\":\"b\",\"args\":{}}]}]}}\n\ndata: {\"type\":\"TOOL_CALL_RESULT\",\"toolCallId\":\"b\",\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"url\",\"value\":\"u\"}}]}\n\ndata: {\"type\":\"MESSAGES_SNAPSHOT\",\"messages\":[{\"id\":\"x\",\"role\":\"assistant\",\"content\":\"a\",\"toolCalls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}\n\ndata: {\"type\":\"RUN_FINISHED\",\"outcome\":{\"type\":\"success\",\"pendingToolCallIds\":[\"a\"]}}\n\n",
    b"data: {\"type\":\"CUSTOM\",\"name\":\"on_interrupt\",\"value\":\"{\\\"action_requests\\\":[{\\\"name\\\":\\\"a\\\"},{\\\"name\\\":\\\"b\\\"}]}\"}\n\ndata: {\"type\":\"RUN_FINISHED\"}\n\n",
    b"{\"type\":\"RUN_ERROR\",\"message\":\"no\",\"code\":\"x\"}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts/ag-ui");
    let folders = ["ag-ui-protocol-1.0.0", "pydantic-ai-2.68.0", "agno-3.1.10"];
    let recorded = folders.iter().flat_map(|name| recorded_exchanges(&folder.join(name)));
    recorded.map(|(_, exchange)| exchange.body).chain(SEEDS.iter().map(|seed| seed.to_vec())).collect()
});

fuzz_target!(|input: &[u8]| {
    let [options, cut, input @ ..] = input else { return };
    let seeds: Vec<&[u8]> = RECORDED.iter().map(Vec::as_slice).collect();
    let Some(bytes) = edited(&seeds, input) else { return };

    let whole = read(&bytes, bytes.len().max(1), *options);
    grammar(&whole).unwrap_or_else(|broken| panic!("{broken}\n{}", render(&whole)));
    assert!(read(&bytes, usize::from(*cut).max(1), *options) == whole, "chunk boundaries change the record");
});

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let options = UpstreamOptions {
        events: if options & 2 == 0 { Events::Drop } else { Events::All },
        confirm_calls: if options & 4 == 0 { Vec::new() } else { vec!["delete_file".to_owned()] },
        ..UpstreamOptions::default()
    };
    let connector = AgUiUpstream::connect("http://agent", options).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed");
    let pieces = || bytes.chunks(cut).map(<[u8]>::to_vec).collect();
    let answer = match bytes.first() {
        Some(b'{' | b'[' | b'<') => Answer::Body(bytes.to_vec()),
        _ if breaks_off => Answer::Cut(pieces()),
        _ => Answer::Stream(pieces()),
    };
    drive(&mut *turn, [answer]).record
}
