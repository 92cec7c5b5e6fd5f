//! Operations that complete even if the client disconnects.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use interlingua_core::Fault;

/// Runs an operation that completes even if the caller is dropped: in a task of its own, unless it is done at once. A
/// panic becomes a fault.
pub(super) async fn complete<T: 'static>(
    operation: impl Future<Output = Result<T, Fault>> + 'static,
) -> Result<T, Fault> {
    let mut operation = Box::pin(AssertUnwindSafe(operation).catch_unwind());
    let completed = match (&mut operation).now_or_never() {
        Some(completed) => completed.ok(),
        None => tokio::task::spawn_local(operation).await.ok().and_then(Result::ok),
    };
    completed.unwrap_or_else(|| Err(Fault::internal()))
}
