//! What the tests of adapters share: scripts, laws, checkers, recording an upstream's bytes, and printing a record in a
//! readable form.
//!
//! Only with the feature `testkit`. Nothing here is meant for a running gateway, and much of it panics: it is for
//! tests.
//!
//! ```
//! use interlingua_core::testkit::{self, Feature};
//!
//! for script in testkit::scripts() {
//!     let record = script.record();
//!     assert_eq!(record.run().end, Some(script.end), "{}", script.name);
//!     assert_eq!(testkit::grammar(&record), Ok(()));
//!     assert!(!script.carries(Feature::Reasoning) || testkit::tale(&record).contains(" reasoning assistant"));
//! }
//! ```

mod client;
mod grammar;
pub mod laws;
mod recorder;
mod script;
mod shown;
mod tale;
pub mod wild;

pub use client::{ClientRequest, HttpResponse, endpoint, mount};
pub use grammar::grammar;
pub use recorder::{Answer, Driven, Recorder, drive, drive_body, drive_stream, record};
pub use script::{Feature, Script, script, scripts, transcripts};
pub use shown::{Shown, about, state, view};
pub use tale::tale;

use crate::id::RunId;
use crate::model::{Input, Message};
use crate::run::{Record, Run};

/// The id runs have in tests.
pub const RUN: RunId = RunId(uuid::Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));

/// When runs begin in tests: 2026-11-20T10:00:00Z.
pub const NOW: u64 = 1_795_168_800_000;

/// A record that has begun its first turn with a word of the user.
#[must_use]
pub fn begun() -> Record {
    asked(vec![Message::user("hi")])
}

/// A record that has begun its first turn with this input.
#[must_use]
pub fn asked(input: impl Into<Input>) -> Record {
    let mut record = Record::new(Run::new(RUN, "demo", "session-1", NOW));
    record.start_turn(input);
    record
}
