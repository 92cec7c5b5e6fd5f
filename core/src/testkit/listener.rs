//! Progress an upstream as the gateway does, without waiting for anything: bytes through the decoder, a reader and the
//! normalizer into a record.

use crate::connector::{Ear, Reader};
use crate::fault::{Fault, FaultKind};
use crate::heard::Heard;
use crate::model::Input;
use crate::normalize::{Normalizer, Progress};
use crate::run::Record;
use crate::sse::Decoder;

/// The most memory a record takes in tests, unless they say otherwise.
const LIMIT: usize = 64 << 20;
/// The largest frame.
const FRAME_LIMIT: usize = 8 << 20;

/// A record with a normalizer that makes it grow.
#[derive(Debug)]
pub struct Listener {
    record: Record,
    normalizer: Normalizer,
    tick: u64,
}

impl Listener {
    /// Listens to the first turn of a run that was asked this.
    #[must_use]
    pub fn new(input: impl Into<Input>) -> Self {
        Self::of(super::asked(input), LIMIT)
    }

    /// Listens to the turn a record has under way. It may grow to so many bytes.
    #[must_use]
    pub fn of(record: Record, limit: usize) -> Self {
        Self { record, normalizer: Normalizer::new(limit), tick: 0 }
    }

    /// Lets so many milliseconds pass before each frame.
    #[must_use]
    pub const fn ticking(mut self, milliseconds: u64) -> Self {
        self.tick = milliseconds;
        self
    }

    /// The record so far.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// How many frames said nothing that could be told.
    #[must_use]
    pub const fn ignored(&self) -> u64 {
        self.normalizer.ignored()
    }

    /// Hears a frame. What comes after the end is not heard.
    ///
    /// # Panics
    /// If the record grows beyond its limit.
    pub fn hear(&mut self, heard: &Heard<'_>) -> Progress {
        self.try_hear(heard).expect("within the limit")
    }

    /// Hears a frame; a record that grows beyond its limit ends as failed, as in the gateway.
    ///
    /// # Errors
    /// If it does.
    pub fn try_hear(&mut self, heard: &Heard<'_>) -> Result<Progress, Fault> {
        self.record.set_time(self.record.now() + self.tick);
        let hearing = self.normalizer.hear(&mut self.record, heard);
        if let Err(fault) = &hearing {
            self.normalizer.fail(&mut self.record, fault);
        }
        hearing
    }

    /// Something went wrong on the way.
    pub fn fail(&mut self, fault: &Fault) {
        self.normalizer.fail(&mut self.record, fault);
    }

    /// The body ended: the turn ends, and the run with it.
    ///
    /// # Panics
    /// If the turn does not end, which would be a mistake of the normalizer.
    #[must_use]
    pub fn finish(mut self) -> Record {
        self.normalizer.end_of_body(&mut self.record);
        let end = self.record.run().turns.last().and_then(|turn| turn.end).expect("the turn has ended");
        self.record.finish_run(end);
        self.record
    }
}

impl Ear for Listener {
    fn hear(&mut self, heard: &Heard<'_>) -> Result<(), Fault> {
        self.try_hear(heard).map(|_| ())
    }
}

/// Hears a native event stream that comes in these pieces, and ends the run when it ends.
///
/// # Panics
/// If a frame or the record is larger than tests allow.
pub fn hear<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    let mut listener = Listener::of(super::begun(), LIMIT);
    let mut decoder = Decoder::new(FRAME_LIMIT);
    for mut piece in pieces {
        while let Some(frame) = decoder.decode(&mut piece).expect("within the limit") {
            if let Some(heard) = Heard::read(frame.data) {
                listener.hear(&heard);
            }
        }
    }
    if let Some(heard) = decoder.finish().frame().and_then(|frame| Heard::read(frame.data)) {
        listener.hear(&heard);
    }
    listener.finish()
}

/// Hears an event stream through the reader of another protocol; a fault ends the run, as in the gateway.
pub fn hear_through<'a>(reader: &mut dyn Reader, pieces: impl IntoIterator<Item = &'a [u8]>) -> Record {
    let mut listener = Listener::of(super::begun(), LIMIT);
    if let Err(fault) = read_all(reader, pieces, &mut listener) {
        listener.fail(&fault);
    }
    listener.finish()
}

fn read_all<'a>(
    reader: &mut dyn Reader,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    listener: &mut Listener,
) -> Result<(), Fault> {
    let too_large =
        |error| Fault::new(FaultKind::UpstreamTooLarge, "a frame of the agent is too large").with_detail(error);
    let mut decoder = Decoder::new(FRAME_LIMIT);
    for mut piece in pieces {
        while let Some(frame) = decoder.decode(&mut piece).map_err(too_large)? {
            reader.read(frame, listener)?;
        }
    }
    if let Some(frame) = decoder.finish().frame() {
        reader.read(frame, listener)?;
    }
    reader.end(listener)
}

/// Hears an answer that came whole, as plain JSON, through a reader.
pub fn hear_whole(reader: &mut dyn Reader, body: &[u8]) -> Record {
    let mut listener = Listener::of(super::begun(), LIMIT);
    let read = reader.read_body(body, &mut listener).and_then(|()| reader.end(&mut listener));
    if let Err(fault) = read {
        listener.fail(&fault);
    }
    listener.finish()
}
