//! Errors of store operations. Not here: the faults that clients receive (the engine).

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// The result of a store method; see "Futures" in the [crate](crate) documentation.
pub type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// The reason why a store operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store was closed, or its threads have ended.
    #[error("the store is closed")]
    Closed,
    /// Another process has the file open.
    #[error("another process uses the database '{path}'")]
    InUse {
        /// Path of the file.
        path: String,
    },
    /// The stored data was written by a later version of the gateway.
    #[error(
        "the stored data in '{path}' has schema version {found}, this gateway supports versions up to {known}: start the \
         newer version again, or see docs/operations/upgrade.md#rollback"
    )]
    NewerSchema {
        /// Path of the file, or name of the schema.
        path: String,
        /// Schema version of the data.
        found: i64,
        /// Latest schema version that this build supports.
        known: i64,
    },
    /// The file or its directory cannot be created, opened, read or written.
    #[error("cannot {action} '{path}': {reason}")]
    File {
        /// The attempted action, as a verb phrase.
        action: &'static str,
        /// Path of the file or directory.
        path: String,
        /// The error of the system or of the database.
        #[source]
        reason: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The store did not respond in time: it is stuck or overloaded.
    #[error("the store did not respond within {} s", after.as_secs())]
    Timeout {
        /// The waiting time of the caller.
        after: Duration,
    },
    /// Too many operations are queued.
    #[error("too many store operations at once")]
    Overloaded,
    /// The shared storage of the replicas is unreachable. The store keeps retrying.
    #[error("the store cannot be reached: {reason}")]
    Unavailable {
        /// The failure of the latest attempt.
        reason: String,
    },
    /// The shared storage of the replicas refuses this process, or lacks a feature that it needs, until an operator
    /// changes that.
    #[error("the store cannot be used: {reason}")]
    Unusable {
        /// The refusal, or the missing feature.
        reason: String,
    },
    /// Another replica has taken over what this one wanted to write, or this one was fenced.
    #[error("another replica has taken this over")]
    Fenced,
    /// A name or a key exceeds the store's maximum length.
    #[error("the {what} has more than {max} bytes")]
    TooLong {
        /// The kind of the name, as a noun.
        what: &'static str,
        /// The greatest length in bytes.
        max: usize,
    },
    /// A bug in the store's own code.
    #[error("internal error in the store: {0}")]
    Internal(String),
    /// Stored data cannot be parsed.
    #[error("the stored {what} cannot be parsed: {reason}")]
    Corrupt {
        /// The kind of data.
        what: String,
        /// The parser's error.
        #[source]
        reason: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// Stored data that cannot be parsed.
    pub fn corrupt(what: impl std::fmt::Display, reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Corrupt { what: what.to_string(), reason: Arc::from(reason.into()) }
    }
}
