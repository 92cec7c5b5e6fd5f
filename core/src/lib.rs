//! The native tongue and the contract.
//!
//! Everything an agent and its client can say to one another, as the native Agent API says it ([`model`]); the same
//! told as it happens ([`event`]) and folded ([`run`]); what a client may want ([`call`]) and what may be in the way
//! ([`fault`]); the two halves every protocol adapter is made of ([`exchange`], [`connector`]).
//!
//! Deliberately absent: sockets, clocks, random numbers, threads, runtimes. Time and fresh ids are handed in. What
//! waits lives in the gateway; what is here can be tested without it.

pub mod agent_api;
pub mod agent_event;
pub mod answer;
pub mod builder;
pub mod call;
pub mod capability;
pub mod connector;
pub mod event;
pub mod exchange;
pub mod fault;
pub mod filter;
pub mod id;
pub mod journal;
pub mod json;
pub mod model;
pub mod normalize;
pub mod out;
pub mod owner;
pub mod pending;
pub mod public_address;
pub mod push;
pub mod read;
pub mod run;
pub mod sequencer;
pub mod size;
pub mod sse;
pub mod well_known;

#[cfg(feature = "testkit")]
pub mod testkit;
pub mod tree;

pub use call::{Call, Delivery, Reply, RunCall, Thread};
pub use event::{End, Event, Step};
pub use exchange::{Endpoint, Exchange, Flow, Method, Mount, Next, ProtocolAdapter, Request};
pub use fault::{Blame, Fault, FaultKind};
pub use id::RunId;
pub use json::{Extra, Json};
pub use out::Out;
pub use owner::Owner;
pub use run::{Record, Run};
