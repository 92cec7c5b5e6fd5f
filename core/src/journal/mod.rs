//! The written form of a record: one JSON array an event, from which the record is made again by replay.
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
//! The second item of every line but the first is the time, in milliseconds after the run was accepted. A line tells
//! everything its event tells, so lines can be appended as events come and read without any other source. Each value
//! is followed by a newline; newlines also stand inside kept JSON, so a reader counts values and not lines.
//!
//! Laws: reading what was written gives an equal record; lines written piece by piece are the lines written at once,
//! but for notes (`["note",…]`: what the upstream said of a turn that is still under way). Not here: what is known of a
//! run besides what was told is written by [`Written`], not into the journal; where lines are kept is a store's matter.

mod about;
mod message;
mod read;
mod write;

pub use message::Written;
pub use read::{extend, read};
pub use write::write;

/// The version of the written form. A reader refuses any other; one that reads several says so here.
pub const VERSION: u32 = 1;

/// First item of the first line.
const NAME: &str = "interlingua";

/// Why lines are no record.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// There is no first line, or not all of it.
    #[error("the journal has no beginning")]
    Empty,
    /// It was written by a later version.
    #[error("the journal is written in version {0}, known is version {VERSION}")]
    Version(u32),
    /// Something stands there that was never written so.
    #[error("line {line} of the journal cannot be read: {why}")]
    Malformed {
        /// Which, counted from 0 in what was given.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}
