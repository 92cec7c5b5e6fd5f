//! Connects and joins when the process starts. If the first attempt cannot reach the database, the gateway goes on
//! trying, so that gateways and their database may be started in any order. If the database refuses the first attempt,
//! the process ends with the reason; a later refusal is logged, and the gateway tries again. Not here: reaching it
//! again later ([`super::writer`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::inner::Inner;
use super::writer::Writer;
use super::{Job, check, schema};
use interlingua_store::StoreError;

/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the log line that the gateway cannot join, with the reason.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);

/// Connects, brings the schema up to date, and joins the other replicas.
pub(super) async fn begin(inner: &Arc<Inner>, schema: &str) -> Result<Writer, StoreError> {
    inner.connector.find_out_sessions().await?;
    let database = inner.connector.connect().await?;
    check::check_version(&database).await?;
    if let Err(error) = schema::migrate(&database, schema).await {
        // Rights that are missing have a better reason than the message about one of many statements.
        return Err(check::state(&database, schema).await.err().unwrap_or(error));
    }
    Writer::join(Arc::clone(inner)).await
}

/// Tries again until it succeeds. `error`: why the first attempt failed. `None`: the store was closed or dropped
/// meanwhile. Jobs that arrive are dropped.
pub(super) async fn retry(
    inner: &Arc<Inner>,
    schema: &str,
    jobs: &mut UnboundedReceiver<Job>,
    mut error: StoreError,
) -> Option<Writer> {
    let (began, mut reported) = (Instant::now(), None::<Instant>);
    loop {
        inner.health.failed(&error.to_string(), Instant::now());
        if reported.is_none_or(|at| at.elapsed() >= REMINDER_INTERVAL) {
            reported = Some(Instant::now());
            tracing::error!(%error, for_s = began.elapsed().as_secs(), "cannot join the gateways of the database: this gateway refuses requests that need the store, and tries again");
        }
        tokio::select! {
            () = sleep(RETRY_INTERVAL) => {}
            job = jobs.recv() => drop(job?),
            () = inner.queue.closed() => return None,
        }
        match begin(inner, schema).await {
            Ok(mut writer) => {
                if inner.queue.is_closed() {
                    writer.leave().await;
                    return None;
                }
                return Some(writer);
            }
            Err(latest) => error = latest,
        }
    }
}
