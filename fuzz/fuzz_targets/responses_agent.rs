//! A hostile agent that speaks Responses: bytes through the decoder, the connector's turn and the normalizer, in the
//! foreground and in the background. Whatever it sends, the record follows the grammar, does not depend on chunk
//! boundaries, and no request goes to another host.
#![no_main]

use std::sync::LazyLock;

use interlingua_core::connector::{Connector, UpstreamAdapter};
use interlingua_core_testkit::{Answer, DrivenTurn, drive, grammar, render};
use interlingua_core::{Fault, FaultKind, Record};
use interlingua_fuzz::{edited, recorded, turn};
use interlingua_responses::connect::Background;
use interlingua_responses::{ResponsesUpstream, UpstreamOptions};
use libfuzzer_sys::fuzz_target;

/// Number of times that the server gives its answer.
const ANSWERS: usize = 40;

/// Everything that the description has, and deviations.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"queued\"}}\n\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"id\":\"w\",\"type\":\"web_search_call\",\"action\":{\"q\":1},\"results\":[1]}}\n\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"id\":\"m\",\"type\":\"mcp_call\",\"name\":\"n\",\"arguments\":\"{}\",\"error\":{\"content\":[{\"text\":\"x\"}]}}}\n\n",
    b"data: {\"type\":\"response.custom_tool_call_input.delta\",\"delta\":\"a\"}\n\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"n\"}}\n\ndata: {\"type\":\"response.custom_tool_call_input.delta\",\"delta\":\"\\ud83d\\n\"}\n\ndata: {\"type\":\"response.reasoning_text.delta\",\"delta\":\"h\",\"content_index\":\"1\"}\n\ndata: {\"type\":\"error\",\"error\":{\"message\":\"m\"}}\n\n",
    b"{\"object\":\"response\",\"id\":\"r\",\"status\":\"in_progress\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"so far\"}]},{\"type\":\"image_generation_call\",\"result\":\"AQ==\"},{\"type\":\"mcp_approval_request\",\"id\":\"a\",\"name\":\"n\",\"arguments\":\"{}\"}]}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| recorded(&["responses/smg-1.13.0"], SEEDS));

fuzz_target!(|input: &[u8]| {
    let [background, cut, input @ ..] = input else { return };
    let seeds: Vec<&[u8]> = RECORDED.iter().map(Vec::as_slice).collect();
    let Some(bytes) = edited(&seeds, input) else { return };
    let background = match background % 3 {
        0 => Background::Off,
        1 => Background::Poll,
        _ => Background::Stream,
    };

    let whole = read(&bytes, bytes.len().max(1), background);
    let record = &whole.record;
    grammar(record).unwrap_or_else(|broken| panic!("{broken}\n{}", render(record)));
    for request in &whole.requests {
        assert!(request.url.starts_with("http://agent/v1/responses"), "{}", request.url);
    }
    let cut: Record = read(&bytes, usize::from(*cut).max(1), background).record;
    assert!(cut == whole.record, "chunk boundaries change the record");
});

fn read(bytes: &[u8], cut: usize, background: Background) -> DrivenTurn {
    let options = UpstreamOptions { background, ..UpstreamOptions::default() };
    let connector: Box<dyn Connector> = ResponsesUpstream::connect("http://agent/v1", options).expect("a URL");
    let mut turn = turn(&*connector);
    let answer = match bytes.first() {
        Some(b'{' | b'[' | b'<') => Answer::Body(bytes.to_vec()),
        _ => Answer::Stream(bytes.chunks(cut).map(<[u8]>::to_vec).collect()),
    };
    // An answer that never finishes is polled until the server has deleted it.
    let mut forgotten = Fault::new(FaultKind::UpstreamRefused, "gone");
    forgotten.upstream_status = Some(404);
    let forgotten = std::iter::repeat_n(Answer::Fault(forgotten), ANSWERS);
    drive(&mut *turn, std::iter::repeat_n(answer, ANSWERS).chain(forgotten))
}
