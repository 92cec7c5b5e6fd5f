//! The laws of every adapter, as functions for its tests: a replay equals the live stream, any split of the upstream's
//! bytes gives the same result, and a stream has exactly one end, with nothing after it.
//!
//! Each panics with the difference. None depends on a protocol: the test passes an exchange that has decoded its
//! request, or a turn from its connector.
//!
//! ```
//! use interlingua_core_testkit::laws;
//!
//! laws::ends_once("data: Hello\n\ndata: [DONE]\n\n", |frame| frame.data == "[DONE]");
//! laws::cut_anywhere(b"data: Hello\n\n", |pieces| String::from_utf8_lossy(&pieces.concat()).into_owned());
//! ```
//!
//! [`replay_equals_live`] needs an exchange: see the tests of `examples/custom-adapter`.

use super::{Recorder, Script, SentRequest, TestRun};
use interlingua_core::call::{RunInfo, RunView};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::out::Out;
use interlingua_core::run::Record;
use interlingua_core::sse::Decoder;
use interlingua_core::step::Step;

/// Streams with more bytes than this are split at this many positions instead of at every byte.
const MAX_SPLITS: usize = 1_500;
/// Number of times that a stream is split into pieces of random sizes.
const RANDOM_SPLITS: u64 = 24;

/// The complete stream of a run, as an exchange with a decoded request replays it.
///
/// # Panics
/// If the run has ended and the exchange returns [`Flow::More`], or if its output is not UTF-8.
pub fn encode(exchange: &mut dyn Exchange, run: RunView<'_>) -> String {
    let mut encoder = StreamEncoder::new(exchange);
    encoder.begin(run);
    run.record.steps(0).for_each(|step| encoder.step(step));

    assert!(encoder.closed || !run.record.is_finished(), "the run has ended, but the stream is still open");
    encoder.text()
}

/// Encodes a stream step by step, as the server drives an exchange: it is not called again once it returned anything
/// but [`Flow::More`].
pub struct StreamEncoder<'e> {
    exchange: &'e mut dyn Exchange,
    out: Out,
    closed: bool,
}

impl<'e> StreamEncoder<'e> {
    /// A stream that has not started.
    pub fn new(exchange: &'e mut dyn Exchange) -> Self {
        Self { exchange, out: Out::new(), closed: false }
    }

    /// Starts the stream with the current state of the run.
    pub fn begin(&mut self, run: RunView<'_>) {
        self.exchange.begin(run, &mut self.out);
    }

    /// Encodes one step, unless the stream is closed.
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

    /// The output so far.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.out.body.to_vec()).expect("answers are UTF-8")
    }
}

/// Checks that a live stream has the same bytes as a later replay: an encoder uses only what
/// [`interlingua_core::event`] calls stable. `open` opens an exchange and lets it decode its request.
///
/// # Panics
/// If the streams differ.
pub fn replay_equals_live(open: impl Fn() -> Box<dyn Exchange>, script: &Script) {
    replay_equals_live_as(open, script, super::run_info);
}

/// The same for exchanges that need more facts about the run: labels, a protocol, a request.
///
/// # Panics
/// If the streams differ.
pub fn replay_equals_live_as(
    open: impl Fn() -> Box<dyn Exchange>,
    script: &Script,
    run_info: impl Fn(&Record) -> RunInfo,
) {
    let record = record_slowly(script, &mut |_| {});
    let replayed = encode(open().as_mut(), TestRun::with_info(&record, run_info(&record)).view());

    // Each step at once, then in groups: in a group, the run is already further than the step that is encoded.
    for every in [1, 2, 5] {
        let mut exchange = open();
        let mut encoder = StreamEncoder::new(exchange.as_mut());
        let (mut seen, mut frames) = (0, 0);
        let mut observe = |record: &Record| {
            frames += 1;
            if frames == 1 {
                encoder.begin(TestRun::with_info(record, run_info(record)).view());
            }
            if frames % every == 0 || record.is_finished() {
                record.steps(seen).for_each(|step| encoder.step(step));
                seen = record.len();
            }
        };
        let record = record_slowly(script, &mut observe);
        observe(&record);

        let what = format!("{}: encoded every {every} frames, and replayed", script.name);
        assert_same(&encoder.text(), &replayed, &what);
    }
}

/// The same for every script, with the labels of the call that a request starts its run with. `send`: sends the
/// request.
///
/// # Panics
/// If the streams differ, or the request starts no run.
pub fn replays_equal_live(send: impl Fn() -> SentRequest) {
    let labels = send().run_call().labels.clone();
    for script in super::scripts() {
        let info = |record: &Record| RunInfo { labels: labels.clone(), ..super::run_info(record) };
        replay_equals_live_as(|| send().exchange, &script, info);
    }
}

/// Records a script frame by frame, 700 ms apart, and passes the record to `observe` after each.
fn record_slowly(script: &Script, observe: &mut dyn FnMut(&Record)) -> Record {
    let mut recorder = Recorder::new(script.input.clone()).ticking(700);
    observe(recorder.record());
    for frame in &script.frames {
        recorder.emit(&script.event(frame));
        observe(recorder.record());
    }

    recorder.finish()
}

/// Checks that the result does not depend on how an upstream's bytes are split: at once, byte by byte, in two pieces
/// split at every position, and in pieces of random sizes. `read` returns the result as text.
///
/// Streams of more than 1,500 bytes are split in two at 1,500 evenly spaced positions.
///
/// # Panics
/// If a split changes the result.
pub fn cut_anywhere(bytes: &[u8], read: impl Fn(&[&[u8]]) -> String) {
    let expected = read(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_same(&read(&single), &expected, "split into single bytes");

    let stride = bytes.len().div_ceil(MAX_SPLITS).max(1);
    for at in (0..=bytes.len()).step_by(stride) {
        let (head, tail) = bytes.split_at(at);
        assert_same(&read(&[head, tail]), &expected, &format!("split at byte {at}"));
    }

    for seed in 1..=RANDOM_SPLITS {
        assert_same(&read(&random_pieces(bytes, seed)), &expected, &format!("split at random, seed {seed}"));
    }
}

/// Pieces of random sizes, the same for the same seed; some are empty.
#[must_use]
pub fn random_pieces(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let largest = 2 + seed % 97;
    let mut rest = bytes;
    let mut pieces = Vec::new();

    while !rest.is_empty() {
        // Xorshift: random enough for splitting, and the same on every machine.
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

/// A frame of an encoded event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFrame {
    /// The `event:` line.
    pub event: Option<String>,
    /// The `id:` line.
    pub id: Option<String>,
    /// The joined `data:` lines.
    pub data: String,
}

/// The frames of an encoded event stream, without comments.
///
/// # Panics
/// If it does not end with a complete frame.
#[must_use]
pub fn frames(output: &str) -> Vec<StreamFrame> {
    let mut decoder = Decoder::new(usize::MAX / 4);
    let mut rest = output.as_bytes();
    let mut frames = Vec::new();

    while let Some(frame) = decoder.decode(&mut rest).expect("there is no limit") {
        frames.push(StreamFrame {
            event: frame.event.map(str::to_owned),
            id: frame.id.map(str::to_owned),
            data: String::from_utf8(frame.data.to_vec()).expect("answers are UTF-8"),
        });
    }

    let is_complete = output.is_empty() || output.ends_with("\n\n");
    assert!(is_complete, "the stream ends within a frame: {:?}", output.get(output.len().saturating_sub(80)..));
    frames
}

/// Checks that a stream has exactly one terminal frame, and that it is the last one.
///
/// # Panics
/// If it has none or several, or if frames follow it.
pub fn ends_once(output: &str, is_terminal: impl Fn(&StreamFrame) -> bool) {
    let frames = frames(output);
    let terminal: Vec<usize> =
        frames.iter().enumerate().filter(|(_, frame)| is_terminal(frame)).map(|(index, _)| index).collect();
    let last = frames.len().checked_sub(1).expect("a stream has frames");

    assert_eq!(terminal, [last], "expected one terminal frame, the last one, in\n{output}");
}

/// Panics with the position where two texts start to differ.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn assert_same(one: &str, other: &str, what: &str) {
    if one == other {
        return;
    }

    let at = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    let around = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(160).min(text.len())..(at + 160).min(text.len())];
        String::from_utf8_lossy(bytes).into_owned()
    };
    panic!("{what}: different from byte {at} on\n one:   …{}…\n other: …{}…", around(one), around(other));
}
