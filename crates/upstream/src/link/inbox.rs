//! Inboxes of a link: the messages of each topic, for the turn that reads it now or next.
//!
//! Not here: the connection ([`super::driver`]).

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::stream::Stream;
use interlingua_core::{Fault, FaultKind};

use super::wire::LinkLimits;

/// The inboxes of a link.
pub(super) struct Inboxes {
    state: Mutex<State>,
    limits: LinkLimits,
}

#[derive(Default)]
struct State {
    topics: HashMap<String, Inbox>,
    /// Why the link has ended.
    fault: Option<Fault>,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<Bytes>,
    bytes: usize,
    is_read: bool,
    reader: Option<Waker>,
    /// The end of the inbox, after its messages.
    fault: Option<Fault>,
}

impl Inboxes {
    pub(super) fn new(limits: LinkLimits) -> Self {
        Self { state: Mutex::default(), limits }
    }

    /// Begins to read a topic.
    ///
    /// # Errors
    /// Another turn reads it, or the link has ended.
    pub(super) fn read(this: &Arc<Self>, topic: &str) -> Result<TopicReader, Fault> {
        let mut state = this.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let inbox = state.topics.entry(topic.to_owned()).or_default();
        if inbox.is_read {
            return Err(Fault::new(FaultKind::Busy, "another turn of the session uses the connection to the agent"));
        }
        inbox.is_read = true;
        Ok(TopicReader { inboxes: Arc::clone(this), topic: topic.to_owned() })
    }

    /// Adds a message to a topic. Past its limits, the inbox ends with a fault instead.
    pub(super) fn deliver(&self, topic: String, message: Bytes) {
        let mut state = self.lock();
        if !state.topics.contains_key(&topic) {
            let sessions = state.topics.values().filter(|inbox| !inbox.is_read).count();
            if sessions >= self.limits.max_topics {
                tracing::warn!(
                    sessions,
                    "too many sessions have unread messages of the agent: a message for another session is dropped"
                );
                return;
            }
        }

        let inbox = state.topics.entry(topic).or_default();
        let limit = if inbox.is_read { self.limits.max_message } else { self.limits.max_kept };
        if inbox.fault.is_none() && !inbox.messages.is_empty() && inbox.bytes + message.len() > limit {
            let message = format!("the agent sent more than {limit} bytes that were not read");
            inbox.fault = Some(Fault::new(FaultKind::UpstreamTooLarge, message));
        }
        if inbox.fault.is_none() {
            inbox.bytes += message.len();
            inbox.messages.push_back(message);
        }
        inbox.wake();
    }

    /// Ends all topics: their readers get the messages that have arrived, then the fault.
    pub(super) fn end(&self, fault: &Fault) {
        let mut state = self.lock();
        state.fault.get_or_insert_with(|| fault.clone());
        state.topics.retain(|_, inbox| inbox.is_read);
        for inbox in state.topics.values_mut() {
            inbox.fault.get_or_insert_with(|| fault.clone());
            inbox.wake();
        }
    }

    /// Why the link has ended. `None`: it has not.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// True if a turn reads a topic, or messages wait for one.
    pub(super) fn is_used(&self) -> bool {
        !self.lock().topics.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The messages of one topic, for one turn. Messages that it has not read when it is dropped are kept for the next
/// turn.
pub(crate) struct TopicReader {
    inboxes: Arc<Inboxes>,
    topic: String,
}

impl Stream for TopicReader {
    type Item = Result<Bytes, Fault>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.inboxes.lock();
        let Some(inbox) = state.topics.get_mut(&self.topic) else { return Poll::Ready(None) };
        if let Some(message) = inbox.messages.pop_front() {
            inbox.bytes -= message.len();
            return Poll::Ready(Some(Ok(message)));
        }
        if let Some(fault) = &inbox.fault {
            return Poll::Ready(Some(Err(fault.clone())));
        }
        inbox.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for TopicReader {
    fn drop(&mut self) {
        let mut state = self.inboxes.lock();
        let Some(inbox) = state.topics.get_mut(&self.topic) else { return };
        (inbox.is_read, inbox.reader) = (false, None);
        if inbox.messages.is_empty() || inbox.fault.is_some() {
            state.topics.remove(&self.topic);
        }
    }
}
