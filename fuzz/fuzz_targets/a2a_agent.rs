//! A hostile agent that speaks A2A: bytes through the decoder, the connector's turn and the normalizer. Whatever it
//! sends, the record follows the grammar and does not depend on chunk boundaries.
#![no_main]

use std::sync::LazyLock;

use interlingua_a2a::{A2aUpstream, UpstreamOptions};
use interlingua_core::Record;
use interlingua_core::connector::UpstreamAdapter;
use interlingua_core_testkit::{Answer, drive};
use interlingua_fuzz::{answer, hostile_agent, recorded, turn};
use libfuzzer_sys::fuzz_target;

static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let recorded = recorded(&["a2a/a2a-sdk-1.3.0", "a2a/a2a-sdk-0.3.26", "a2a/a2a-js-sdk-1.3.0"], &[]);
    // Answers have the number of the call.
    recorded.into_iter().map(|body| String::from_utf8_lossy(&body).replace("\"r1\"", "1").into_bytes()).collect()
});

fuzz_target!(|input: &[u8]| hostile_agent(&RECORDED, input, read));

fn read(bytes: &[u8], cut: usize, options: u8) -> Record {
    let breaks_off = options & 1 == 1;
    let binding = if options & 2 == 2 { "JSONRPC" } else { "HTTP+JSON" };
    let version = if options & 4 == 4 { "1.0" } else { "0.3" };
    let options = format!(r#"{{"binding":"{binding}","version":"{version}"}}"#);
    let options: UpstreamOptions = serde_json::from_str(&options).expect("options");
    let connector = A2aUpstream::connect("http://agent/", options).expect("a URL");
    let mut turn = turn(&*connector);
    // The answer to a further request: the task is gone.
    let gone = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Task not found"}}"#;
    drive(&mut *turn, std::iter::once(answer(bytes, cut, breaks_off)).chain((0..32).map(|_| Answer::body(gone)))).record
}
