//! A hostile agent that speaks Anthropic Messages: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_anthropic_messages::{AnthropicMessagesUpstream, UpstreamOptions};
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::testkit::{Answer, drive, grammar, recorded_exchanges, render};
use interlingua_core::{Json, Record};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

/// What recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"s\",\"content\":[]}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_details\":{\"explanation\":\"no\"}},\"usage\":{\"output_tokens\":1}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    b"data: {\"type\":\"content_block_delta\",\"index\":\"1\",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"url\":\"u\"}}}\n\nevent: error\ndata: {\"message\":\"no\"}\n\n",
    b"{\"type\":\"message\",\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{}\"},{\"type\":\"later\",\"x\":1}],\"usage\":{\"input_tokens\":1.5}}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/transcripts/anthropic-messages/litellm-1.104.9");
    let recorded = recorded_exchanges(&folder).into_iter().map(|(_, exchange)| exchange.body);
    recorded.chain(SEEDS.iter().map(|seed| seed.to_vec())).collect()
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
    let options = UpstreamOptions::default();
    let connector = AnthropicMessagesUpstream::connect("http://agent", options).expect("a URL");
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
