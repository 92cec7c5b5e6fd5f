//! The serialized form of a record: one JSON array per event. Replaying the arrays restores the record.
//!
//! ```text
//! ["interlingua",1,"0198…","friday","session-1",1700000000000]       the run, and with it `RunStarted`
//! ["turn",0,[[null,"message","user",null,[["text","hi",{}]],…]]]
//! ["answer",11]
//! ["message",12,"msg_1","message","assistant",null,null,{}]
//! ["content",12,0,"text",null]
//! ["d",13,0,0,"Hel"]
//! ```
//!
//! The second item of every line is a time in milliseconds since the run was accepted, except in the first line and in
//! the lines without an event (`note`, `input`). A line contains the complete data of its event, so lines can be
//! appended as events arrive, and read without any other source. Each value is followed by a newline. Opaque JSON may
//! contain newlines too, so a reader counts values and not lines.
//!
//! Invariants: reading written lines gives an equal record. Lines written in several calls equal the lines written in
//! one, except for notes (`["note",…]`: the upstream's data about a turn that is still active) and for input that was
//! replaced after its turn was written (`["input",[…]]`).
//!
//! Not here: metadata of a run, which [`SerializedValue`] serializes separately, and the storage of lines.

mod about;
mod message;
mod read;
mod write;

pub use message::SerializedValue;
pub use read::{end_of, extend, read};
pub use write::write;

/// Version of the format. A reader rejects every other version.
pub const VERSION: u32 = 1;

/// First item of the first line.
const NAME: &str = "interlingua";

/// The reason why lines are not a valid record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The first line is missing or incomplete.
    #[error("the journal has no first line")]
    Empty,
    /// Written by another version.
    #[error("unsupported journal version {0}: this gateway reads version {VERSION}")]
    Version(u32),
    /// A line that no version writes.
    #[error("line {line} of the journal is invalid: {why}")]
    Malformed {
        /// Index of the line in the input, counted from 0.
        line: usize,
        /// The error in the record.
        why: String,
    },
}
