//! Shared parts of adapters' tests: scripts, laws, a grammar checker, recording an upstream's bytes, and printing a
//! record in a readable form.
//!
//! Everything here is for tests only: many functions panic.
//!
//! ```
//! use interlingua_core_testkit::{self as testkit, Feature};
//!
//! for script in testkit::scripts() {
//!     let record = script.record();
//!     assert_eq!(record.run().end, Some(script.end), "{}", script.name);
//!     assert_eq!(testkit::grammar(&record), Ok(()));
//!     assert!(!script.carries(Feature::Reasoning) || testkit::render(&record).contains(" reasoning assistant"));
//! }
//! ```

mod client;
mod delta_run;
mod event_texts;
mod exchange;
mod faults;
mod grammar;
mod hostile;
pub mod laws;
mod options;
mod recorder;
mod render;
mod route;
mod run_builder;
pub mod scenario;
mod script;
mod test_run;
pub mod wild;

pub use client::{ClientRequest, HttpResponse, endpoint, mount};
pub use delta_run::{DELTA_TEXTS, DeltaRun};
pub use event_texts::EventTexts;
pub use exchange::{RecordedExchange, recorded_exchanges};
pub use faults::fault_table;
pub use grammar::{ended, grammar};
pub use hostile::Hostile;
pub use options::check_options;
pub use recorder::{Answer, DrivenTurn, Recorder, drive, drive_body, drive_stream, record};
pub use render::render;
pub use route::{SentRequest, TestRoute};
pub use run_builder::RunBuilder;
pub use script::{Feature, Script, script, scripts, transcripts};
pub use test_run::{TestRun, run_info, run_state, view};

use interlingua_core::id::RunId;
use interlingua_core::model::{Input, Message};
use interlingua_core::run::{Record, Run};

/// The id of runs in tests.
pub const RUN: RunId = RunId(uuid::Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));

/// When runs start in tests: 2026-11-20T10:00:00Z, in Unix milliseconds.
pub const NOW: u64 = 1_795_168_800_000;

/// A record whose first turn has started, with the user's message `hi`.
#[must_use]
pub fn started() -> Record {
    started_with(vec![Message::user("hi")])
}

/// A record whose first turn has started, with this input.
#[must_use]
pub fn started_with(input: impl Into<Input>) -> Record {
    let mut record = Record::new(Run::new(RUN, "demo", "session-1", NOW));
    record.start_turn(input);
    record
}
