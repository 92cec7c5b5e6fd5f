//! A whole store: its parts, its health, and the deletion of expired data.
//!
//! Not here: runs ([`super::runs`]), documents ([`super::documents`]), leases and signals ([`super::coordination`]).

use std::time::Instant;

use interlingua_core::event::Millis;

use super::{Coordination, DocumentStore, Retention, RetentionReport, RunStore, StoreError, StoreFuture};

/// The size of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSizes {
    /// Its file in bytes; 0 for memory.
    pub bytes: u64,
    /// Runs that could not be written yet.
    pub owed: usize,
}

/// The ability of a store to write.
#[derive(Clone, Debug, Default)]
pub enum Health {
    /// The store works, according to its last operation.
    #[default]
    Good,
    /// The store cannot write, and keeps retrying.
    Failing {
        /// When the first write failed, or when the stuck write began.
        since: Instant,
        /// The latest failure.
        error: StoreError,
    },
}

/// All parts of a store. The [crate](crate) documentation has the contract.
pub trait Store: RunStore + DocumentStore + Coordination {
    /// Deletes some of the data that has expired: a small batch, so that other operations are not delayed for long.
    /// Runs that have not ended are never deleted.
    fn retain(&self, policy: Retention, now: Millis) -> StoreFuture<RetentionReport>;

    /// Whether the store can write at the moment. Cheap.
    fn health(&self) -> Health {
        Health::Good
    }

    /// The stored amount, and the amount that is not written yet. For metrics: it may read the size of a file.
    fn sizes(&self) -> StoreSizes {
        StoreSizes::default()
    }

    /// Confirms that everything touched so far is durable.
    fn flush(&self) -> StoreFuture<()>;

    /// Flushes, then releases the process's files, threads and locks. Every later call fails with
    /// [`StoreError::Closed`].
    fn close(&self) -> StoreFuture<()>;
}
