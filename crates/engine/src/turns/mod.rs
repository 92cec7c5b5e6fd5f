//! Turns: the preparation of a request, its exchange with the agent, and the writing of its result.
//!
//! [`FirstTurns`] and [`LaterTurns`] start turns, a [`Driver`] takes them, a [`Concluder`] writes their results, and a
//! [`Canceller`] stops them. Imports [`crate::pending`] and modules below it. Not here: exchanges with agents
//! ([`interlingua_upstream`]).

mod calling;
mod canceller;
mod claims;
mod coalescer;
mod conclude;
mod context;
mod driver;
mod first_turns;
mod later_turns;
mod listen;
mod log;
mod respond;
mod session_choice;
mod spent;
mod trace;
mod transcripts;
mod turn_driver;
mod unreached;

pub(crate) use self::canceller::Canceller;
pub(crate) use self::conclude::Concluder;
pub(crate) use self::context::ContextBuilder;
pub(crate) use self::driver::Driver;
pub(crate) use self::first_turns::FirstTurns;
pub(crate) use self::later_turns::LaterTurns;
pub(crate) use self::session_choice::SessionChooser;
pub(crate) use self::transcripts::Transcripts;
pub(crate) use self::turn_driver::TurnServices;
