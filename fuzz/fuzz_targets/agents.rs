//! Hostile agents of every protocol of the registry: bytes through the decoder, the connector's turn and the
//! normalizer. Whatever an agent sends, the record follows the grammar, does not depend on chunk boundaries, and no
//! request goes to another host. The first byte chooses the protocol.
//!
//! Not here: conversations that only one protocol has (`a2a_agent`, `responses_agent`, …).
#![no_main]

use std::sync::LazyLock;

use interlingua_core::{Fault, FaultKind, Record};
use interlingua_core_testkit::{Answer, drive};
use interlingua_fuzz::{answer, hostile_agent, recorded_answers, turn};
use interlingua_testing_agents::deltas::deltas;
use interlingua_testing_protocols::{Connects, connected};
use libfuzzer_sys::fuzz_target;

/// The agent's server.
const SERVER: &str = "http://agent";
/// Number of requests after the answer that find nothing.
const LATER_REQUESTS: usize = 64;

struct Agent {
    connects: Connects,
    /// Bodies of the answers before the hostile one.
    earlier: &'static [&'static str],
    seeds: Vec<Vec<u8>>,
}

static AGENTS: LazyLock<Vec<Agent>> = LazyLock::new(|| {
    let agent = |(protocol, connects): (&'static interlingua_testing_protocols::Protocol, Connects)| Agent {
        connects,
        earlier: deltas(protocol.name, "").map_or(&[], |deltas| deltas.earlier()),
        seeds: recorded_answers(protocol.name),
    };
    connected().map(agent).collect()
});

fuzz_target!(|input: &[u8]| {
    let [protocol, input @ ..] = input else { return };
    let agent = &AGENTS[usize::from(*protocol) % AGENTS.len()];
    hostile_agent(&agent.seeds, input, |bytes, cut, options| agent.read(bytes, cut, options));
});

impl Agent {
    fn read(&self, bytes: &[u8], cut: usize, choices: u8) -> Record {
        let Connects { path, options, variants, connect, .. } = self.connects;
        // The last choice selects no variant.
        let variant = variants.get(usize::from(choices >> 1) % (variants.len() + 1)).unwrap_or(&"");
        let options = if options.is_empty() { (*variant).to_owned() } else { format!("{options}, {variant}") };
        let connector = connect(&format!("{SERVER}{path}"), options.trim_end_matches(", ")).expect("a connector");
        let mut turn = turn(&*connector);

        let mut gone = Fault::new(FaultKind::UpstreamRefused, "gone");
        gone.upstream_status = Some(404);
        let earlier = self.earlier.iter().map(|body| Answer::body(body));
        let later = std::iter::repeat_n(Answer::Fault(gone), LATER_REQUESTS);
        let driven = drive(&mut *turn, earlier.chain([answer(bytes, cut, choices & 1 == 1)]).chain(later));
        for request in &driven.requests {
            assert!(request.url.starts_with(SERVER), "{}", request.url);
        }
        let _ = turn.session_state();
        driven.record
    }
}
