//! Operations that complete even if the client disconnects.

use interlingua_core::Fault;

use crate::faults;

/// Runs an operation in a task of its own, so that it completes even if the caller is dropped. A panic becomes a fault.
pub(super) async fn complete<T: 'static>(
    operation: impl Future<Output = Result<T, Fault>> + 'static,
) -> Result<T, Fault> {
    tokio::task::spawn_local(operation).await.unwrap_or_else(|_| Err(faults::internal()))
}
