//! Shared by the fuzz targets: interprets the input as edits of a valid seed, so that the fuzzer does not have to
//! discover JSON or TOML. And what the hostile agents have alike: their seeds, and what must hold of what they send.

pub mod mcp;

use std::path::{Path, PathBuf};

use interlingua_core::connector::{AgentTurn, Connector, TurnRequest};
use interlingua_core::model::{AgentRequest, Message};
use interlingua_core_testkit::{Answer, grammar, recorded_exchanges, render};
use interlingua_core::{Json, Record};

/// The first byte selects a seed, which is edited by the following bytes. Without such a seed they are returned
/// unchanged. `None` if the input is empty.
///
/// An edit is `position (two bytes), removed bytes (one), inserted bytes (one), the inserted bytes`. Positions wrap
/// around.
pub fn edited(seeds: &[&[u8]], input: &[u8]) -> Option<Vec<u8>> {
    let [which, edits @ ..] = input else { return None };
    let Some(seed) = usize::from(*which).checked_sub(1).and_then(|which| seeds.get(which)) else {
        return Some(edits.to_vec());
    };
    let mut text = seed.to_vec();
    let mut rest = edits;

    while let [high, low, removed, new, tail @ ..] = rest {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
        let to = (at + usize::from(*removed)).min(text.len());
        let new = usize::from(*new).min(tail.len());
        let (new, tail) = tail.split_at(new);
        text.splice(at..to, new.iter().copied());
        rest = tail;
    }
    Some(text)
}

/// The folder of recorded exchanges.
pub fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/transcripts")
}

/// Answers that were recorded, by their folders in `tests/transcripts`, and further seeds.
pub fn recorded(folders: &[&str], seeds: &[&[u8]]) -> Vec<Vec<u8>> {
    let recorded = folders.iter().flat_map(|folder| recorded_exchanges(&transcripts().join(folder)));
    recorded.map(|(_, exchange)| exchange.body).chain(seeds.iter().map(|seed| seed.to_vec())).collect()
}

/// Every recorded answer of a protocol's agents, and its seeds in `fuzz/seeds`.
pub fn recorded_answers(protocol: &str) -> Vec<Vec<u8>> {
    let folders = below(&transcripts().join(protocol)).into_iter().filter(|path| path.is_dir());
    let recorded = folders.flat_map(|folder| recorded_exchanges(&folder)).map(|(_, exchange)| exchange.body);
    seeds(protocol, "agent-").into_iter().chain(recorded).collect()
}

/// Bodies of requests of a protocol in `fuzz/seeds`.
pub fn client_seeds(protocol: &str) -> Vec<Vec<u8>> {
    seeds(protocol, "client-")
}

fn seeds(protocol: &str, prefix: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(protocol);
    let is_wanted = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    below(&folder).iter().filter(|path| is_wanted(path)).map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// The entries of a folder, in order. A folder that is missing has none.
fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Reads what an agent sends, as a whole and in pieces: the records follow the grammar and are the same. `read` gets
/// the bytes, the size of a piece, and a byte that chooses options.
///
/// # Panics
/// If they do not.
pub fn hostile_agent(seeds: &[Vec<u8>], input: &[u8], read: impl Fn(&[u8], usize, u8) -> Record) {
    let [options, cut, input @ ..] = input else { return };
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let Some(bytes) = edited(&seeds, input) else { return };

    let whole = read(&bytes, bytes.len().max(1), *options);
    grammar(&whole).unwrap_or_else(|broken| panic!("{broken}\n{}", render(&whole)));
    assert!(read(&bytes, usize::from(*cut).max(1), *options) == whole, "chunk boundaries change the record");
}

/// A turn with a message of the user.
///
/// # Panics
/// If the connector cannot send one.
pub fn turn(connector: &dyn Connector) -> Box<dyn AgentTurn> {
    let request = AgentRequest { input: vec![Message::user("hi")].into(), ..AgentRequest::default() };
    connector.turn(&TurnRequest::new(&request, &Json::null(), &[])).expect("it can be expressed")
}

/// The answer that bytes encode: a body, or a stream in pieces of this size, whose connection breaks or not.
pub fn answer(bytes: &[u8], cut: usize, breaks_off: bool) -> Answer {
    let pieces = || bytes.chunks(cut).map(<[u8]>::to_vec).collect();
    match bytes.first() {
        Some(b'{' | b'[' | b'<') => Answer::Body(bytes.to_vec()),
        _ if breaks_off => Answer::Cut(pieces()),
        _ => Answer::Stream(pieces()),
    }
}
