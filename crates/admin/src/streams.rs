//! Long responses of the admin listener: streams of changes and exported files. Limits their number, sends their chunks
//! and ends them.
//!
//! One thread encodes runs, so that the only worker of the listener stays responsive. A long event is sent in pieces:
//! only the frames of one protocol are in memory at a time, within one budget for all responses. Not here: the contents
//! of streams ([`super::feed`]) and files ([`super::export`]).

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use actix_web::web::Bytes;
use futures_util::future::Shared;
use futures_util::{FutureExt as _, Stream, stream};
use interlingua_core::{Fault, FaultKind};
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{LocalSet, spawn_local};

use super::AdminState;
use super::guard::{OperatorIdentity, is_valid};

/// Maximum number of streams and exports of all people together.
pub(super) const MAX_STREAMS: usize = 64;
/// Maximum number of streams and exports of one person.
pub(super) const MAX_PER_PERSON: usize = 16;
/// Maximum number of chunks that wait for the client to read.
const MAX_WAITING: usize = 16;
/// The size of a chunk in bytes. Short events are sent together up to this size.
pub(super) const MAX_CHUNK: usize = 64 << 10;
/// Memory budget for the encoded frames of long runs, in bytes. A run that needs more waits for the whole budget.
const MAX_ENCODED: usize = 256 << 20;
/// Runs up to this size in bytes are not counted in the budget.
const SMALL_RUN: usize = 256 << 10;
/// The reservation for a run, as a multiple of its size: a protocol may repeat the whole run in one event, escaped, and
/// the buffer grows by doubling.
const SHARE: usize = 4;
/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// Open streams and exports by person.
#[derive(Default)]
pub(super) struct StreamCounts(Mutex<HashMap<Arc<str>, usize>>);

/// Counts a stream or an export until it is dropped.
pub(super) struct StreamPermit {
    state: Arc<AdminState>,
    person: Arc<str>,
}

impl StreamCounts {
    /// Counts one more stream of a person.
    ///
    /// # Errors
    /// [`FaultKind::Overloaded`] if the person, or all people together, have too many.
    pub(super) fn begin(state: &Arc<AdminState>, who: &OperatorIdentity) -> Result<StreamPermit, Fault> {
        let person = who.person();
        let mut open = state.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(&person).copied().unwrap_or(0);
        let message = if own >= MAX_PER_PERSON {
            format!("you have {MAX_PER_PERSON} pages of the console open: close some")
        } else if open.values().sum::<usize>() >= MAX_STREAMS {
            format!("{MAX_STREAMS} pages of the console are open: close some")
        } else {
            open.insert(Arc::clone(&person), own + 1);
            return Ok(StreamPermit { state: Arc::clone(state), person });
        };
        Err(Fault::new(FaultKind::Overloaded, message))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.state.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.person) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.person);
            }
        }
    }
}

/// The thread that encodes runs, and its memory budget. The thread ends when this is dropped.
pub(super) struct Encoders {
    tasks: UnboundedSender<Begin>,
    budget: Arc<Semaphore>,
}

/// Starts a task on the thread.
type Begin = Box<dyn FnOnce() + Send>;

impl Encoders {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (tasks, mut begun) = mpsc::unbounded_channel::<Begin>();
        std::thread::Builder::new().name("admin-encoder".to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                while let Some(begin) = begun.recv().await {
                    begin();
                }
            });
        })?;
        Ok(Self { tasks, budget: Arc::new(Semaphore::new(MAX_ENCODED / UNIT)) })
    }

    /// Runs a task on the thread.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(&self, task: impl FnOnce() -> F + Send + 'static) {
        // Never an error: the thread ends only after `self` is dropped.
        let _ = self.tasks.send(Box::new(move || drop(spawn_local(task()))));
    }

    /// Waits for memory to encode any event of a run in one protocol. `size`: of the run, in bytes. `None`: small runs
    /// need no reservation.
    pub(super) async fn reserve(&self, size: usize) -> Option<OwnedSemaphorePermit> {
        if size <= SMALL_RUN {
            return None;
        }
        let units = (size.saturating_mul(SHARE) / UNIT).min(MAX_ENCODED / UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // Never an error: the semaphore is not closed.
        Arc::clone(&self.budget).acquire_many_owned(units).await.ok()
    }

    /// True if a run of this size is encoded one protocol after the other, within the budget.
    pub(super) const fn is_long_run(size: usize) -> bool {
        size > SMALL_RUN
    }
}

/// The credentials of a stream, and the rights at its start.
pub(super) struct Access {
    state: Arc<AdminState>,
    who: OperatorIdentity,
    /// Whether texts are shown.
    pub(super) texts: bool,
}

impl Access {
    pub(super) fn new(state: &Arc<AdminState>, who: OperatorIdentity) -> Self {
        let texts = who.reads(state.admin.access.load().texts);
        Self { state: Arc::clone(state), who, texts }
    }

    /// Gives up the right to texts.
    pub(super) fn without_texts(self) -> Self {
        Self { texts: false, ..self }
    }

    /// True if the credentials are valid and have the same rights as at the start. Counts as a use of the sign-in.
    pub(super) fn holds(&self) -> bool {
        let may_read = self.who.reads(self.state.admin.access.load().texts);
        is_valid(&self.state, &self.who) && (may_read || !self.texts)
    }
}

/// The client has disconnected, or may no longer read.
pub(super) struct StreamClosed;

/// The writer of a response.
pub(super) struct Pieces {
    sender: Sender<Bytes>,
    text: String,
    /// Resolves once the body is dropped.
    left: Shared<oneshot::Receiver<()>>,
}

impl Pieces {
    /// Creates a writer and the body of its response. When `end` is sent or dropped, the body ends at once and discards
    /// waiting chunks.
    pub(super) fn new(end: oneshot::Receiver<()>) -> (Self, impl Stream<Item = Result<Bytes, io::Error>> + 'static) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let (reader, left) = oneshot::channel();
        (Self { sender, text: String::new(), left: left.shared() }, body(receiver, end, reader))
    }

    /// Waits until the body is dropped: the client has disconnected, or has read everything.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + Clone + Unpin + use<> {
        let left = self.left.clone();
        left.map(drop as fn(Result<(), oneshot::error::RecvError>)).shared()
    }

    /// True if a chunk can be sent without waiting.
    pub(super) fn has_room(&self) -> bool {
        self.sender.capacity() > 0
    }

    /// Appends a text, and sends full chunks.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub(super) async fn push(&mut self, text: &str) -> Result<(), StreamClosed> {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, next) = split_piece(rest);
            self.text.push_str(piece);
            rest = next;
            if self.text.len() >= MAX_CHUNK {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Appends a text as the content of a JSON string, without the quotes.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub(super) async fn push_escaped(&mut self, text: &str) -> Result<(), StreamClosed> {
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, next) = split_piece(rest);
            let escaped = serde_json::to_string(piece).unwrap_or_default();
            self.push(escaped.get(1..escaped.len().saturating_sub(1)).unwrap_or_default()).await?;
            rest = next;
        }
        Ok(())
    }

    /// Sends the appended text.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub(super) async fn flush(&mut self) -> Result<(), StreamClosed> {
        if self.text.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.text));
        self.sender.send(chunk).await.map_err(|_| StreamClosed)
    }
}

/// Splits a text after at most [`MAX_CHUNK`] bytes, at the boundary of a character.
fn split_piece(text: &str) -> (&str, &str) {
    let most = MAX_CHUNK.min(text.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    text.split_at(end.unwrap_or(most))
}

/// `reader`: dropped with the body, which resolves [`Pieces::closed`].
fn body(
    mut receiver: Receiver<Bytes>,
    mut end: oneshot::Receiver<()>,
    reader: oneshot::Sender<()>,
) -> impl Stream<Item = Result<Bytes, io::Error>> + 'static {
    let mut is_over = false;
    stream::poll_fn(move |context| {
        let _reader = &reader;
        is_over = is_over || end.poll_unpin(context).is_ready();
        if is_over {
            return Poll::Ready(None);
        }
        receiver.poll_recv(context).map(|chunk| chunk.map(Ok))
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_long_text_leaves_in_pieces_and_escaped_as_a_whole() {
        let (_end, ended) = oneshot::channel();
        let (mut pieces, body) = Pieces::new(ended);
        let text = "a \"quoted\" ü\n".repeat(40_000);
        let sent = text.clone();
        let writing = async move {
            pieces.push("\"").await.map_err(|_| "gone")?;
            pieces.push_escaped(&sent).await.map_err(|_| "gone")?;
            pieces.push("\"").await.map_err(|_| "gone")?;
            pieces.flush().await.map_err(|_| "gone")
        };
        let (written, chunks) = tokio::join!(writing, body.collect::<Vec<_>>());
        written.expect("it is read");
        let chunks: Vec<Bytes> = chunks.into_iter().map(|chunk| chunk.expect("a chunk")).collect();
        assert!(chunks.iter().all(|chunk| chunk.len() <= 2 * MAX_CHUNK), "no chunk is long");
        assert_eq!(serde_json::from_slice::<String>(&chunks.concat()).expect("a string"), text);
    }

    #[tokio::test]
    async fn a_body_ends_at_once_with_the_right_to_read_it() {
        let (end, ended) = oneshot::channel::<()>();
        let (mut pieces, mut body) = Pieces::new(ended);
        for text in ["one", "two"] {
            assert!(pieces.push(text).await.is_ok() && pieces.flush().await.is_ok());
        }
        assert!(body.next().await.is_some());
        drop(end);
        assert!(body.next().await.is_none(), "what waits is not sent");
        let closed = pieces.closed();
        drop(body);
        closed.await;
    }
}
