//! Connecting and joining when the process begins. A database that cannot be reached is waited for, so that gateways
//! and their database may be started in any order; one that refuses this gateway is an error at once. Not here:
//! reaching it again later ([`super::writer`]).

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
/// Interval of the log line that the database is unreachable, with the reason.
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

/// Goes on trying, since the first attempt met `error`. `None`: the store was closed or dropped meanwhile. There are no
/// jobs before the replica has joined.
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
            tracing::error!(%error, for_s = began.elapsed().as_secs(), "the database is unreachable: this gateway waits for it");
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
