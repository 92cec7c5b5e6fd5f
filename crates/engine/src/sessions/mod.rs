//! Sessions: the document of each one, the queue of its turns, and the merge of what several gateways write to it.
//!
//! Imports none of the other modules. Not here: the runs of a session ([`crate::runs`]), and the requests that read or
//! change sessions ([`crate::operator`]).

mod basis;
mod document;
mod entries;
mod entry;
mod merge;
mod message_ids;
mod open_items;
mod page;
mod resource;
mod session;
pub(crate) mod sizes;
mod table;
mod turns;
mod unknown_fields;
mod upstream_ids;

pub use self::open_items::{COLLECTION as OPEN_ITEMS, OpenItem, OpenItems};

pub(crate) use self::basis::Basis;
#[cfg(test)]
pub(crate) use self::document::SessionDoc;
pub(crate) use self::entry::{Entry, EntryList, KnownEntries, Replacement};
pub(crate) use self::message_ids::MessageOrigin;
pub(crate) use self::page::PageSelection;
pub(crate) use self::session::{Lifetime, Queued, Session, TurnGuard};
pub(crate) use self::table::SessionTable;
pub(crate) use self::turns::{Admission, AgentMemory, SessionSnapshot, TurnNote, TurnSuccess};
