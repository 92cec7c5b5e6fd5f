//! What every adapter has to keep, as functions for its tests: replay equals live, any cut of the upstream's bytes gives
//! the same, exactly one ending and nothing after it.
//!
//! Each fails by panicking with what differs. They know nothing of any protocol: an exchange is handed in with its
//! request decoded, a reader as it comes from its connector.

use super::{Recorder, Script, Shown};
use crate::call::{RunInfo, RunView};
use crate::event::Step;
use crate::exchange::{Exchange, Flow};
use crate::out::Out;
use crate::run::Record;
use crate::sse::Decoder;

/// Streams with more bytes than this are not cut at every byte, but at this many.
const MAX_CUTS: usize = 1_500;
/// How often a stream is cut into pieces of random sizes.
const RANDOM_CUTS: u64 = 24;

/// The whole stream of a run, as an exchange whose request is decoded tells it to one who comes late.
///
/// # Panics
/// If the run has ended and the exchange says [`Flow::More`], or if what it wrote is no UTF-8.
pub fn encode(exchange: &mut dyn Exchange, run: RunView<'_>) -> String {
    let mut telling = Telling::new(exchange);
    telling.begin(run);
    run.record.steps(0).for_each(|step| telling.step(step));
    assert!(telling.closed || !run.record.is_finished(), "the run has ended, and the stream goes on");
    telling.text()
}

/// An exchange telling a stream, step by step, as the server drives it: nothing is asked of it once it said
/// anything but [`Flow::More`].
pub struct Telling<'e> {
    exchange: &'e mut dyn Exchange,
    out: Out,
    closed: bool,
}

impl<'e> Telling<'e> {
    /// A stream that has not begun.
    pub fn new(exchange: &'e mut dyn Exchange) -> Self {
        Self { exchange, out: Out::new(), closed: false }
    }

    /// Begins, with the run as it is now.
    pub fn begin(&mut self, run: RunView<'_>) {
        self.exchange.begin(run, &mut self.out);
    }

    /// One step, unless the stream is closed.
    pub fn step(&mut self, step: Step<'_>) {
        if !self.closed {
            self.closed = self.exchange.encode(step, &mut self.out) != Flow::More;
        }
    }

    /// True once the exchange has closed the stream.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// What was written so far.
    ///
    /// # Panics
    /// If it is no UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.out.body.to_vec()).expect("answers are UTF-8")
    }
}

/// Whoever listens while a script is told gets the bytes that one who comes afterwards gets: an encoder uses of a run
/// what [`crate::event`] calls stable, and nothing else. `open` opens an exchange and lets it decode its request.
///
/// # Panics
/// If the streams differ.
pub fn replay_equals_live(open: impl Fn() -> Box<dyn Exchange>, script: &Script) {
    replay_equals_live_as(open, script, super::about);
}

/// The same for exchanges that need to know more of the run: labels, a protocol, a request.
///
/// # Panics
/// If the streams differ.
pub fn replay_equals_live_as(
    open: impl Fn() -> Box<dyn Exchange>,
    script: &Script,
    about: impl Fn(&Record) -> RunInfo,
) {
    let record = recorded_slowly(script, &mut |_| {});
    let replayed = encode(open().as_mut(), Shown::known(&record, about(&record)).view());
    // Told at once, and in lumps: the run is the further along the rarer somebody looks.
    for every in [1, 2, 5] {
        let mut exchange = open();
        let mut telling = Telling::new(exchange.as_mut());
        let (mut seen, mut frames) = (0, 0);
        let mut look = |record: &Record| {
            frames += 1;
            if frames == 1 {
                telling.begin(Shown::known(record, about(record)).view());
            }
            if frames % every == 0 || record.is_finished() {
                record.steps(seen).for_each(|step| telling.step(step));
                seen = record.len();
            }
        };
        let record = recorded_slowly(script, &mut look);
        look(&record);
        same(&telling.text(), &replayed, &format!("{}: told every {every} frames, and replayed", script.name));
    }
}

/// Hears a script frame by frame, 700 ms apart, showing the record after each.
fn recorded_slowly(script: &Script, look: &mut dyn FnMut(&Record)) -> Record {
    let mut recorder = Recorder::new(script.input.clone()).ticking(700);
    look(recorder.record());
    for frame in &script.frames {
        recorder.emit(&script.event(frame));
        look(recorder.record());
    }
    recorder.finish()
}

/// However an upstream's bytes are cut on their way, what becomes of them is the same: at once, byte by byte, in two
/// pieces cut at every place, and in pieces of random sizes. `read` tells what became of the pieces.
///
/// Streams of more than 1,500 bytes are cut in two at 1,500 places, evenly spread.
///
/// # Panics
/// If a cut makes a difference.
pub fn cut_anywhere(bytes: &[u8], read: impl Fn(&[&[u8]]) -> String) {
    let whole = read(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    same(&read(&single), &whole, "cut into single bytes");
    let stride = bytes.len().div_ceil(MAX_CUTS).max(1);
    for at in (0..=bytes.len()).step_by(stride) {
        let (head, tail) = bytes.split_at(at);
        same(&read(&[head, tail]), &whole, &format!("cut at byte {at}"));
    }
    for seed in 1..=RANDOM_CUTS {
        same(&read(&randomly(bytes, seed)), &whole, &format!("cut at random, seed {seed}"));
    }
}

/// Pieces of random sizes, the same for the same seed; some are empty.
#[must_use]
pub fn randomly(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let largest = 2 + seed % 97;
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        // Xorshift: chance enough for cutting, and the same everywhere.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let size = usize::try_from(state % largest).unwrap_or(0).min(rest.len());
        let (piece, tail) = rest.split_at(size);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// A frame of an event stream that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The `event:` line.
    pub event: Option<String>,
    /// The `id:` line.
    pub id: Option<String>,
    /// The data.
    pub data: String,
}

/// The frames of an event stream that was written; comments are passed over.
///
/// # Panics
/// If it does not end with a whole frame.
#[must_use]
pub fn frames(output: &str) -> Vec<Written> {
    let mut decoder = Decoder::new(usize::MAX / 4);
    let mut rest = output.as_bytes();
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(&mut rest).expect("there is no limit") {
        frames.push(Written {
            event: frame.event.map(str::to_owned),
            id: frame.id.map(str::to_owned),
            data: String::from_utf8(frame.data.to_vec()).expect("answers are UTF-8"),
        });
    }
    let whole = output.is_empty() || output.ends_with("\n\n");
    assert!(whole, "the stream ends within a frame: {:?}", output.get(output.len().saturating_sub(80)..));
    frames
}

/// A stream has exactly one terminal frame, and it is the last one.
///
/// # Panics
/// If it has none, several, or goes on after it.
pub fn ends_once(output: &str, is_terminal: impl Fn(&Written) -> bool) {
    let frames = frames(output);
    let terminal: Vec<usize> =
        frames.iter().enumerate().filter(|(_, frame)| is_terminal(frame)).map(|(place, _)| place).collect();
    let last = frames.len().checked_sub(1).expect("a stream has frames");
    assert_eq!(terminal, [last], "one terminal frame, the last one, in\n{output}");
}

/// Fails with the place where two texts begin to differ.
///
/// # Panics
/// If they do.
#[track_caller]
pub fn same(one: &str, other: &str, what: &str) {
    if one == other {
        return;
    }
    let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let around = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(160).min(text.len())..(at + 160).min(text.len())];
        String::from_utf8_lossy(bytes).into_owned()
    };
    panic!("{what}: differs from byte {at} on\n one:   …{}…\n other: …{}…", around(one), around(other));
}
