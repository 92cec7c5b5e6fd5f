//! Signals to this replica, and the connection on which others notify it. Not here: sending either ([`super::flush`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::flush::signal_name;
use super::inner::Inner;
use crate::store::{Signal, StoreError};

/// How often is looked for signals that no one has notified.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same where none can notify.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two attempts to listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

const SIGNALS: [Signal; 2] = [Signal::Cancel, Signal::ReceiversChanged];

/// Passes signals on, until the store is closed.
pub(super) async fn receive(inner: Arc<Inner>) {
    let interval = if inner.connector.is_pooled() { POLL_INTERVAL } else { INTERVAL };
    loop {
        tokio::select! {
            () = inner.notices.signals.notified() => inner.notice_follow(),
            () = sleep(interval) => {}
        }
        if let Err(error) = pass_on(&inner).await {
            tracing::debug!(%error, "signals cannot be read now");
        }
    }
}

async fn pass_on(inner: &Inner) -> Result<(), StoreError> {
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

/// Keeps a connection that listens, until the store is closed.
pub(super) async fn listen(inner: Arc<Inner>) {
    if inner.connector.is_pooled() {
        return std::future::pending().await;
    }
    let sql = format!("LISTEN \"{}\"", inner.channel.replace('"', "\"\""));
    loop {
        let connected = inner.connector.connect_noticing(Some(Arc::clone(&inner.notices))).await;
        if let Ok(database) = connected
            && database.batch(&sql).await.is_ok()
        {
            // Something may have been missed.
            inner.notices.signals.notify_one();
            inner.notices.runs.notify_one();
            inner.notices.turns.notify_waiters();
            inner.notices.lost.notified().await;
        }
        sleep(RETRY_INTERVAL).await;
    }
}
