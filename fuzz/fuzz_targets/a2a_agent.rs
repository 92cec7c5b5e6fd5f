//! A hostile agent that speaks A2A: bytes through the decoder, the connector's turn and the normalizer. Whatever it sends,
//! the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_a2a::{A2aUpstream, UpstreamOptions};
use interlingua_core::connector::{TurnRequest, UpstreamAdapter};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core::testkit::{Answer, drive, grammar, recorded_exchanges, render};
use interlingua_core::{Json, Record};
use interlingua_fuzz::edited;
use libfuzzer_sys::fuzz_target;

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts/a2a");
    let folders = ["a2a-sdk-1.3.0", "a2a-sdk-0.3.26", "a2a-js-sdk-1.3.0"].map(|server| folder.join(server));
    let recorded = folders.iter().flat_map(|folder| recorded_exchanges(folder)).map(|(_, exchange)| exchange.body);
    // Answers have the number of the call.
    recorded.map(|body| String::from_utf8_lossy(&body).replace("\"r1\"", "1").into_bytes()).collect()
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
    let binding = if options & 2 == 2 { "JSONRPC" } else { "HTTP+JSON" };
    let version = if options & 4 == 4 { "1.0" } else { "0.3" };
    let options = format!(r#"{{"binding":"{binding}","version":"{version}"}}"#);
    let options: UpstreamOptions = serde_json::from_str(&options).expect("options");
    let connector = A2aUpstream::connect("http://agent/", options).expect("a URL");
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    let mut turn = connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed");
    let pieces = || bytes.chunks(cut).map(<[u8]>::to_vec).collect();
    let answer = match bytes.first() {
        Some(b'{' | b'[' | b'<') => Answer::Body(bytes.to_vec()),
        _ if breaks_off => Answer::Cut(pieces()),
        _ => Answer::Stream(pieces()),
    };
    // If it is asked again, the task is gone.
    let gone = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Task not found"}}"#;
    drive(&mut *turn, std::iter::once(answer).chain((0..32).map(|_| Answer::body(gone)))).record
}
