//! Storage of runs, sessions and documents: the [`Store`] trait and its contract.
//!
//! The engine updates runs in memory; the store persists them later. [`RunStore::touch`] reports that a run has new
//! events and costs one atomic flag; [`RunStore::settle`] waits until everything reported so far is durable. The
//! contract tests in `tests/store` run against every implementation. Not here: the meaning of sessions and documents
//! (the engine), the journal format (`interlingua_core::journal`), and the settings (`interlingua_config`).
//!
//! # The contract
//!
//! **Futures.** Work starts when a method is called, not when its future is polled; dropping a future cancels nothing.
//! Writes take effect in call order; a read sees every write that was confirmed before the call, and possibly later
//! ones. No method blocks the calling thread for longer than a memory access. Only [`RunStore::touch`] may be called
//! while a run's lock is held, because a store takes that lock ([`Journal::with`]) itself.
//!
//! **Durability.** *Durable* means: survives `kill -9` of the process if the store outlives it, and otherwise lasts
//! until the process ends. A write whose future succeeded is durable and visible to every later call. A store with
//! several replicas confirms a write once the shared storage has confirmed it.
//!
//! **Publishing.** Clients never see an event that a crash could lose: after each commit the store notifies every run
//! in it how many of its events are durable ([`Journal::committed`]), and the run publishes no more than those. A store
//! that loses everything with its process has nothing to wait for; it reports that once, when a run is opened.
//! **Atomicity.** A run is loaded in a consistent state: complete events and the metadata that belongs to them, never
//! half an event. A document is present in full, in one version, or absent.
//!
//! **Failure.** A store that cannot write reports this to every caller that waits and through [`Store::health`], keeps
//! its data in memory, keeps retrying, and never ends the process. A run whose `open` or `settle` failed stays pending
//! until [`RunStore::remove`]; until then it is loaded from memory.
//!
//! **Several processes.** [`Coordination`] is the same for every store; in a store of one process, that process holds
//! everything. Where several processes may use a store, each one is a *replica*, with an id of its own that ends with it. The replica that opened a run *holds* it until it settles the run's end, or a turn
//! after which the run waits: only the holder writes the run, and the store itself refuses every other writer
//! ([`StoreError::Fenced`]). A replica that the others have not seen for the time of a lease may be *fenced*: from then
//! on it writes nothing, its runs are handed out by [`Coordination::recover`], each to one replica, and it learns of
//! each that it has lost it ([`Journal::lost`]). Until it is fenced it loses nothing, however late it is. Other
//! replicas follow a run ([`Coordination::follow`]) and stop it ([`Coordination::signal`]). The turns of a session are
//! taken in one order on all replicas ([`TurnQueue`]). Order and time are the store's.

mod coordination;
mod documents;
mod error;
pub mod fair;
pub mod local;
pub mod log;
mod memory;
mod owner_bounds;
mod replica;
pub mod retention;
mod rules;
mod runs;
mod store;
mod transfer;

pub use coordination::{Coordination, Signal, TurnQueue};
pub use documents::{
    Conflict, Document, DocumentEntry, DocumentStore, DocumentWrite, Expect, Version, attached_keys, owned_key,
    owner_in, part_key, part_keys,
};
pub use error::{StoreError, StoreFuture};
pub use memory::Memory;
pub use owner_bounds::{OwnerBounds, OwnerBoundsOf};
pub use replica::{Claim, LeaseState, ReplicaStatus, RunUpdate, Ticket};
pub use rules::{Retention, RetentionReport, before};
pub use runs::{
    DirtyFlag, Journal, LoadCost, Query, RunHead, RunPage, RunStore, StoredRun, code_in_head, code_prefixes,
    without_tools,
};
pub use store::{Health, Store, StoreSizes};
pub use transfer::{StoredDocument, StoredItem, TransferTotals};
