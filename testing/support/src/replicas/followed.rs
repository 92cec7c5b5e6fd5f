//! A run that any replica holds, as its committed lines show it. Not here: who follows it.

use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use interlingua::store::{RunUpdate, StoreError, StoredRun};
use interlingua_core::RunId;
use interlingua_core::call::{RunInfo, RunState};
use interlingua_core::journal;

use super::connection::Core;

/// Time that a change may stay undetected which the hub does not report.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

struct FollowedStream {
    core: Core,
    id: RunId,
    next: u64,
    info: Option<RunInfo>,
    /// The changes that it has seen. `None`: it has not looked yet.
    changes: Option<u64>,
    is_over: bool,
}

pub(super) fn follow(core: Core, id: RunId, from: u64) -> BoxStream<'static, Result<RunUpdate, StoreError>> {
    let followed = FollowedStream { core, id, next: from, info: None, changes: None, is_over: false };
    let updates = stream::unfold(followed, |mut followed| async move {
        let update = followed.update().await?;
        followed.is_over |= update.is_err();
        Some((update, followed))
    });
    updates.boxed()
}

impl FollowedStream {
    async fn update(&mut self) -> Option<Result<RunUpdate, StoreError>> {
        let mut commits = self.core.hub.commits.subscribe();
        while !self.is_over {
            if let Err(error) = self.core.node.connected().await {
                return Some(Err(error));
            }

            let changes = self.core.hub.changes(self.id);
            let is_due = self.changes != Some(changes)
                || !matches!(tokio::time::timeout(POLL_INTERVAL, commits.changed()).await, Ok(Ok(())));
            if is_due {
                self.changes = Some(changes);
                match self.core.hub.inner.load(self.id).await {
                    Err(error) => return Some(Err(error)),
                    Ok(None) => return None,
                    Ok(Some(stored)) => {
                        if let Some(update) = self.read(&stored).transpose() {
                            return Some(update);
                        }
                    }
                }
            }
        }
        None
    }

    /// The new part, if there is one.
    fn read(&mut self, stored: &StoredRun) -> Result<Option<RunUpdate>, StoreError> {
        let (length, mut lines) = (stored.record.len(), Vec::new());
        if length < self.next && self.info.is_some() {
            return Err(StoreError::Internal(format!("committed events of run {} were withdrawn", self.id)));
        }

        if length > self.next {
            journal::write(&stored.record, self.next, &mut lines);
            self.next = length;
        }
        self.is_over = matches!(stored.info.state, RunState::Ended(_)) && stored.record.is_finished();
        let is_known = self.info.as_ref() == Some(&stored.info);
        let info = (!is_known).then(|| Box::new(stored.info.clone()));
        self.info = Some(stored.info.clone());
        Ok((info.is_some() || !lines.is_empty()).then(|| RunUpdate { lines: lines.into(), info }))
    }
}
