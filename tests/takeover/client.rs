//! A client whose answer may break off, stall or end, at any moment. Not here: the expected answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::support::http::{Exchange, data};

/// Time after which an answer counts as one that never ends. 4 MB need up to 16 s on a busy machine after an outage.
const END_LIMIT: Duration = Duration::from_secs(60);

/// Reads an answer in the background.
pub(crate) struct Client {
    received: Arc<Mutex<ReceivedAnswer>>,
    task: JoinHandle<()>,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct ReceivedAnswer {
    /// `None`: the answer has not begun.
    pub(crate) status: Option<u16>,
    /// The frames of a stream, or the one body.
    pub(crate) frames: Vec<Value>,
    /// True: the answer has ended as answers do.
    pub(crate) is_complete: bool,
}

impl Client {
    pub(crate) fn new(mut exchange: Exchange) -> Self {
        let received: Arc<Mutex<ReceivedAnswer>> = Arc::default();
        let shared = Arc::clone(&received);
        // It panics when an answer breaks off, which ends the task.
        let task = tokio::spawn(async move {
            let change = |change: &mut dyn FnMut(&mut ReceivedAnswer)| change(&mut shared.lock().expect("no panic"));
            let status = exchange.status().await;
            change(&mut |received| received.status = Some(status));
            let kind = exchange.header("content-type").await.unwrap_or_default();
            if kind.starts_with("text/event-stream") {
                while let Some(event) = exchange.event().await {
                    // Some protocols end their streams with a word.
                    let frame: Option<Value> = data(&event).and_then(|data| serde_json::from_str(data).ok());
                    change(&mut |received| received.frames.extend(frame.clone()));
                }
            } else {
                let body = exchange.response().await.json();
                change(&mut |received| received.frames.push(body.clone()));
            }
            change(&mut |received| received.is_complete = true);
        });
        Self { received, task }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// The bytes received so far.
    pub(crate) fn received(&self) -> ReceivedAnswer {
        self.received.lock().expect("no panic").clone()
    }

    /// Waits for the end of the answer, whichever it is.
    pub(crate) async fn end(self) -> ReceivedAnswer {
        let Self { received, mut task } = self;
        let ended = tokio::time::timeout(END_LIMIT, &mut task).await;
        let received = received.lock().expect("no panic").clone();
        assert!(ended.is_ok(), "the answer does not end: {received:?}");
        received
    }

    /// The client leaves.
    pub(crate) async fn leave(self) -> ReceivedAnswer {
        self.task.abort();
        let _ = self.task.await;
        self.received.lock().expect("no panic").clone()
    }
}
