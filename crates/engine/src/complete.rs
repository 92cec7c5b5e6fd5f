//! Completing what was begun, whether or not its client waits for it.

use interlingua_core::Fault;

use crate::faults;

/// Does something to its end in a task of its own: a client that leaves does not leave it half done.
pub(super) async fn complete<T: 'static>(doing: impl Future<Output = Result<T, Fault>> + 'static) -> Result<T, Fault> {
    tokio::task::spawn_local(doing).await.unwrap_or_else(|_| Err(faults::internal()))
}
