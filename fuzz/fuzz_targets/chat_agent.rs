//! A hostile agent that speaks Chat Completions: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_chat_completions::{ChatCompletionsUpstream, ThinkTags, UpstreamOptions};
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::testkit::{Answer, drive, grammar, recorded_exchanges, render};
use interlingua_core::{Json, Record};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

/// What recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}},{\"index\":0,\"delta\":{\"content\":\"<thi\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"nk>a</think>b\",\"audio\":{\"data\":\"YQ==\",\"transcript\":\"a\"}}}]}\n\ndata: {\"choices\":[{\"delta\":{\"executed_tools\":[{\"index\":0,\"name\":\"s\",\"output\":\"o\"}],\"annotations\":[1]},\"finish_reason\":\"eos\"}]}\n\ndata: [DONE]\n\n",
    b"[{\"error\":{\"code\":429,\"message\":\"try again in 1s\"}}]",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts/chat-completions/scripted-model");
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
    let think_tags = match options >> 1 & 3 {
        0 => ThinkTags::Off,
        1 => ThinkTags::Opened,
        _ => ThinkTags::Auto,
    };
    let options = UpstreamOptions { think_tags, ..UpstreamOptions::default() };
    let connector = ChatCompletionsUpstream::connect("http://agent/v1", options).expect("a URL");
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
