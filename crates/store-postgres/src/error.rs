//! Errors of the database as errors of a store. Not here: the reaction to them.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use interlingua_store::StoreError;

/// The meaning of a failed statement for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The replica was fenced, or the database does not know it.
    Fenced,
    /// The flush was applied before.
    Applied,
    /// The connection is lost: it is not known whether the statement took effect.
    Disconnected,
    /// The same may succeed later: the database is full, read-only, busy or shutting down.
    Later,
    /// There is no room for all of it at once, in memory or among the locks: less of it may succeed.
    TooLarge,
    /// The statement is wrong, or the data it meets.
    Wrong,
}

impl Failure {
    pub(super) fn from_error(error: &Error) -> Self {
        let Some(state) = error.code() else { return Self::Disconnected };
        match state.code() {
            "IL001" | "IL003" => return Self::Fenced,
            "IL002" => return Self::Applied,
            _ => {}
        }
        // Classes: 08 connection, 0A and 26 changes by a pooler or a migration, 25 transaction state (read-only), 3F
        // and 42 schema and rights, which an operator can correct, 40 rollback, 53 resources, 55 not now, 57 operator,
        // 58 system.
        let class = state.code().get(..2).unwrap_or("");
        match class {
            _ if *state == SqlState::OUT_OF_MEMORY => Self::TooLarge,
            "08" => Self::Disconnected,
            _ if *state == SqlState::ADMIN_SHUTDOWN || *state == SqlState::CRASH_SHUTDOWN => Self::Disconnected,
            _ if *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Self::Disconnected,
            "0A" | "25" | "26" | "3F" | "40" | "42" | "53" | "55" | "57" | "58" => Self::Later,
            _ => Self::Wrong,
        }
    }
}

/// An error of the database, without anything that was sent to it.
pub(super) fn store_error(error: &Error) -> StoreError {
    match Failure::from_error(error) {
        Failure::Fenced => StoreError::Fenced,
        Failure::Disconnected | Failure::Later | Failure::TooLarge => {
            StoreError::Unavailable { reason: describe(error) }
        }
        Failure::Applied | Failure::Wrong => StoreError::Internal(describe(error)),
    }
}

/// Why there is no connection, or no schema: distinguishes what passes by itself from what someone has to change.
pub(super) fn connect_error(error: &Error) -> StoreError {
    let reason = describe(error);
    let passes = match error.code() {
        // A database that starts, stops, is full, or is a standby at the moment.
        Some(state) => matches!(state.code().get(..2), Some("08" | "25" | "40" | "53" | "55" | "57" | "58")),
        None => !is_about_certificates(error),
    };
    if passes { StoreError::Unavailable { reason } } else { StoreError::Unusable { reason } }
}

/// True if one end did not accept what the other one showed.
fn is_about_certificates(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let failed = source.and_then(|source| source.downcast_ref::<std::io::Error>()).and_then(std::io::Error::get_ref);
    failed.is_some_and(|failed| failed.is::<rustls::Error>())
}

/// The message of the database with its code, or why there is no connection.
pub(super) fn describe(error: &Error) -> String {
    if let Some(reported) = error.as_db_error() {
        return format!("{} ({})", reported.message(), reported.code().code());
    }
    let mut description = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        description = format!("{description}: {cause}");
        source = cause.source();
    }
    description
}
