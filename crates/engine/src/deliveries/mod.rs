//! Deliveries: the events of runs, sent to receivers that their owners have configured.
//!
//! Imports [`crate::runs`] and modules below it. Not here: the requests that configure receivers
//! ([`crate::operator`]).

mod delivery;
mod gate;
mod left;
mod sole_sender;
mod table;
mod undelivered;

pub use self::sole_sender::COLLECTION as PUSHED;

pub(crate) use self::left::LeftDeliveries;
pub(crate) use self::table::{Deliveries, ReceiverDocument, StartReason, names_receiver};
