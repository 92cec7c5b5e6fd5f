//! A hostile agent that speaks Anthropic Messages: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_anthropic_messages::{AnthropicMessagesUpstream, UpstreamOptions};
use interlingua_core::Record;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::drive;
use interlingua_fuzz::{answer, hostile_agent, recorded, turn};
use libfuzzer_sys::fuzz_target;

/// Answers that recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"s\",\"content\":[]}}\n\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\"}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_details\":{\"explanation\":\"no\"}},\"usage\":{\"output_tokens\":1}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    b"data: {\"type\":\"content_block_delta\",\"index\":\"1\",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}\n\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"url\":\"u\"}}}\n\nevent: error\ndata: {\"message\":\"no\"}\n\n",
    b"{\"type\":\"message\",\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"{}\"},{\"type\":\"later\",\"x\":1}],\"usage\":{\"input_tokens\":1.5}}",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| recorded(&["anthropic-messages/litellm-1.104.9"], SEEDS));

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let options = UpstreamOptions::default();
    let connector = AnthropicMessagesUpstream::connect("http://agent", options).expect("a URL");
    let mut turn = turn(&*connector);
    drive(&mut *turn, [answer(bytes, cut, breaks_off)]).record
}
