//! A hostile service of AgentScope 2.0: bytes of its stream, and of its session's messages, through the decoder, the
//! connector's turn and the normalizer. Whatever it sends, the record follows the grammar and does not depend on chunk
//! boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_agentscope::{AgentscopeUpstream, Events, UpstreamOptions};
use interlingua_core::Record;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::{Answer, drive, recorded_exchanges};
use interlingua_fuzz::{hostile_agent, transcripts, turn};
use libfuzzer_sys::fuzz_target;

/// Answers that recorded servers do not send.
const SEEDS: &[&[u8]] = &[
    b"data: {\"id\":\"1\",\"type\":\"REPLY_START\",\"reply_id\":\"r\"}\n\ndata: {\"id\":\"2\",\"type\":\"DATA_BLOCK_START\",\"reply_id\":\"r\",\"block_id\":\"b\",\"media_type\":\"image/png\"}\n\ndata: {\"id\":\"3\",\"type\":\"DATA_BLOCK_DELTA\",\"reply_id\":\"r\",\"block_id\":\"b\",\"data\":\"aA==\"}\n\ndata: {\"id\":\"4\",\"type\":\"TOOL_RESULT_DATA_DELTA\",\"reply_id\":\"r\",\"tool_call_id\":\"c\",\"media_type\":\"audio/wav\",\"url\":\"http://x\"}\n\ndata: {\"id\":\"5\",\"type\":\"REPLY_END\",\"reply_id\":\"r\",\"finished_reason\":\"exceed_max_iters\"}\n\n",
];

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = transcripts().join("agentscope/agentscope-2.0.10");
    let recorded = recorded_exchanges(&folder).into_iter();
    let recorded = recorded.filter(|(name, _)| name.ends_with("-stream") || name.ends_with("-messages"));
    recorded.map(|(_, exchange)| exchange.body).chain(SEEDS.iter().map(|seed| seed.to_vec())).collect()
});

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let events = if options & 1 == 1 { Events::Keep } else { Events::Drop };
    let options = UpstreamOptions { agent_id: "a".to_owned(), events, ..UpstreamOptions::default() };
    let connector = AgentscopeUpstream::connect("http://service", options).expect("a connector");
    let mut turn = turn(&*connector);

    let stream = |bytes: &[u8]| Answer::Cut(bytes.chunks(cut).map(<[u8]>::to_vec).collect());
    let mut answers = vec![Answer::body(r#"{"session_id":"s"}"#), Answer::body(r#"{"status":"started"}"#)];
    if bytes.first() == Some(&b'{') {
        // The messages, of a reply whose stream is over.
        answers.push(stream(b"data: {\"type\":\"REPLY_END\",\"id\":\"z\"}\n\n"));
        answers.push(Answer::body(&String::from_utf8_lossy(bytes)));
    } else {
        answers.push(stream(bytes));
    }
    // However often it looks at the session then.
    answers.extend((0..64).map(|_| Answer::body(r#"{"messages":[],"is_running":false}"#)));
    drive(&mut *turn, answers).record
}
