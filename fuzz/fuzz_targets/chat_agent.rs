//! A hostile agent that speaks Chat Completions: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_chat_completions::{ChatCompletionsUpstream, ThinkTags, UpstreamOptions};
use interlingua_core::Record;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::drive;
use interlingua_fuzz::{answer, hostile_agent, recorded, turn};
use libfuzzer_sys::fuzz_target;

/// Answers that recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]}},{\"index\":0,\"delta\":{\"content\":\"<thi\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"nk>a</think>b\",\"audio\":{\"data\":\"YQ==\",\"transcript\":\"a\"}}}]}\n\ndata: {\"choices\":[{\"delta\":{\"executed_tools\":[{\"index\":0,\"name\":\"s\",\"output\":\"o\"}],\"annotations\":[1]},\"finish_reason\":\"eos\"}]}\n\ndata: [DONE]\n\n",
    b"[{\"error\":{\"code\":429,\"message\":\"try again in 1s\"}}]",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| recorded(&["chat-completions/scripted-model"], SEEDS));

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let think_tags = match options >> 1 & 3 {
        0 => ThinkTags::Off,
        1 => ThinkTags::Opened,
        _ => ThinkTags::Auto,
    };
    let options = UpstreamOptions { think_tags, ..UpstreamOptions::default() };
    let connector = ChatCompletionsUpstream::connect("http://agent/v1", options).expect("a URL");
    let mut turn = turn(&*connector);
    drive(&mut *turn, [answer(bytes, cut, breaks_off)]).record
}
