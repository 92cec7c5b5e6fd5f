//! Signals to this replica, and the connection on which others notify it. Not here: sending either ([`super::flush`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::flush::signal_name;
use super::inner::Inner;
use interlingua_store::{Signal, StoreError};

/// Interval of the search for signals without a notification.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same where none can notify.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two attempts to listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

const SIGNALS: [Signal; 2] = [Signal::Cancel, Signal::ReceiversChanged];

/// Passes signals on, until the store is closed.
pub(super) async fn receive(inner: Arc<Inner>) {
    loop {
        let interval = if inner.connector.is_pooled() { POLL_INTERVAL } else { INTERVAL };
        tokio::select! {
            () = inner.notices.signals.notified() => inner.notice_follow(),
            () = sleep(interval) => {}
        }
        if let Err(error) = pass_on(&inner).await {
            tracing::debug!(%error, "cannot read signals");
        }
    }
}

async fn pass_on(inner: &Inner) -> Result<(), StoreError> {
    // Signals without a receiver stay.
    if !inner.signals.has_listeners() {
        return Ok(());
    }

    let replica = inner.replica();
    let sql = "SELECT id, run, kind FROM il.signals WHERE replica = $1 ORDER BY sent_at LIMIT 1000";
    let rows = inner.reads.read(async |database| Ok(database.rows(sql, &[(&replica, Type::UUID)]).await?)).await?;
    if rows.is_empty() {
        return Ok(());
    }

    let mut passed: Vec<Uuid> = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, run, kind): (Uuid, Uuid, String) = (row.get(0), row.get(1), row.get(2));
        // One of a later version is dropped.
        if let Some(signal) = SIGNALS.into_iter().find(|signal| signal_name(*signal) == kind) {
            inner.signals.send(interlingua_core::RunId(run), signal);
        }
        passed.push(id);
    }
    let sql = "DELETE FROM il.signals WHERE id = ANY ($1)";
    inner.reads.read(async |database| Ok(database.rows(sql, &[(&passed, Type::UUID_ARRAY)]).await?)).await?;
    Ok(())
}

/// Interval at which replicas are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Counts the replicas that were seen within a lease, for operators, until the store is closed.
pub(super) async fn count_replicas(inner: Arc<Inner>) {
    let sql = "SELECT count(*) FROM il.replicas
               WHERE state = 'active' AND renewed_at > clock_timestamp() - $1::float8 * interval '1 second'";
    let lease = inner.lease.as_secs_f64();
    loop {
        let counted = inner.reads.read(async |database| Ok(database.row(sql, &[(&lease, Type::FLOAT8)]).await?)).await;
        if let Ok(Some(row)) = counted {
            inner.standing.saw(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0));
        }
        sleep(COUNT_INTERVAL).await;
    }
}

/// Interval of the NOTIFY self-test, which detects poolers.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Time after which a notification counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps a connection that listens on the channel of all replicas, until the store is closed. Where a pooler passes no
/// notifications on, only tests from time to time whether they arrive again.
pub(super) async fn listen(inner: Arc<Inner>) {
    let sql = format!("LISTEN \"{}\"", inner.channel.replace('"', "\"\""));
    loop {
        if inner.connector.is_pooled() {
            sleep(PROBE_INTERVAL).await;
            // An error is one of the database, which others report.
            let _ = inner.connector.find_out_sessions().await;
            continue;
        }
        let connected = inner.connector.connect_noticing(Some(Arc::clone(&inner.notices))).await;
        if let Ok(database) = connected
            && database.batch_verbatim(&sql).await.is_ok()
        {
            // Something may have been missed.
            inner.notices.signals.notify_one();
            inner.notices.runs.notify_one();
            inner.notices.turns.notify_one();
            tokio::select! {
                () = inner.notices.lost.notified() => {}
                () = until_unnoticed(&inner) => inner.connector.set_pooled(true),
            }
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Returns once notifications are sent but do not arrive.
async fn until_unnoticed(inner: &Inner) {
    loop {
        // One that came before is no sign.
        let _ = timeout(Duration::ZERO, inner.notices.probes.notified()).await;
        let notice = "SELECT pg_notify($1, 'p')";
        let sent =
            inner.reads.read(async |database| Ok(database.rows(notice, &[(&inner.channel, Type::TEXT)]).await?));
        if sent.await.is_ok() && timeout(PROBE_TIMEOUT, inner.notices.probes.notified()).await.is_err() {
            return;
        }
        sleep(PROBE_INTERVAL).await;
    }
}
