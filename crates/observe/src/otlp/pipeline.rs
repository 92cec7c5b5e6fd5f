//! One signal on its way: a queue with bounds, batches, and requests that are sent again for a while.
//!
//! What does not fit and what cannot be sent is dropped and counted. Not here: what requests consist of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use crate::metrics::Metrics;
use interlingua_base::ports::{ExportError, Signal, TelemetryClient};

/// Approximate maximum bytes of one queue, including the request in progress. Further items are dropped.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of items of a request.
const MAX_BATCH: usize = 512;
/// Size of the items at which a request is sent: collectors accept four times as much.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Maximum time that an item waits for others.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// Maximum attempts of a request.
const MAX_ATTEMPTS: u32 = 4;
/// The pause before a request is sent again; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

enum Command<T> {
    /// An item with its size in bytes.
    Item(T, usize),
    /// Answers once everything before it is sent, or cannot be.
    Flush(SyncSender<()>),
}

/// The end of a queue that workers have.
pub(super) struct Queue<T> {
    sender: mpsc::Sender<Command<T>>,
    bytes: Arc<AtomicUsize>,
    signal: Signal,
    metrics: Arc<Metrics>,
}

impl<T> Queue<T> {
    pub(super) fn new(signal: Signal, length: usize, metrics: &Arc<Metrics>) -> (Self, Receiver<T>) {
        let (sender, receiver) = mpsc::channel(length);
        let bytes = Arc::new(AtomicUsize::new(0));
        let receiver = Receiver { receiver, bytes: Arc::clone(&bytes) };
        (Self { sender, bytes, signal, metrics: Arc::clone(metrics) }, receiver)
    }

    /// Sends an item later, unless too much waits. `count`: as how many it counts if it is dropped.
    pub(super) fn push(&self, item: T, size: usize, count: u64) {
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        let has_room = before.saturating_add(size) <= MAX_BYTES;
        if !has_room || self.sender.try_send(Command::Item(item, size)).is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            self.metrics.telemetry_dropped(self.signal.as_str(), count);
        }
    }

    /// Asks for a word once everything so far is sent. False: too much waits.
    pub(super) fn flush(&self, done: SyncSender<()>) -> bool {
        self.sender.try_send(Command::Flush(done)).is_ok()
    }
}

/// The other end of a queue.
pub(super) struct Receiver<T> {
    receiver: mpsc::Receiver<Command<T>>,
    bytes: Arc<AtomicUsize>,
}

/// Items that are sent together.
struct Batch<T> {
    items: Vec<T>,
    bytes: usize,
    /// The threads that wait until they are sent.
    waiting: Vec<SyncSender<()>>,
}

impl<T> Batch<T> {
    fn add(&mut self, command: Command<T>) {
        match command {
            Command::Item(item, size) => {
                self.items.push(item);
                self.bytes += size;
            }
            Command::Flush(done) => self.waiting.push(done),
        }
    }

    fn is_due(&self) -> bool {
        self.items.len() >= MAX_BATCH || self.bytes >= MAX_BATCH_BYTES || !self.waiting.is_empty()
    }
}

impl<T: Send> Receiver<T> {
    /// Sends what comes, until the queue is closed. `encode` makes a request and counts what is in it.
    pub(super) async fn run(mut self, mut exporter: Exporter, encode: impl Fn(&[T]) -> (Bytes, u64) + Send) {
        while let Some(batch) = self.next().await {
            if !batch.items.is_empty() {
                let (request, count) = encode(&batch.items);
                drop(batch.items);
                exporter.send(request, count, || self.receiver.is_closed()).await;
            }
            self.bytes.fetch_sub(batch.bytes, Ordering::Relaxed);
            batch.waiting.into_iter().for_each(reply);
        }
    }

    /// Sends a request at intervals and on demand, until the queue is closed.
    pub(super) async fn run_every(
        mut self,
        every: Duration,
        mut exporter: Exporter,
        encode: impl Fn() -> Option<Bytes> + Send,
    ) {
        loop {
            let asked = match timeout_at(Instant::now() + every, self.receiver.recv()).await {
                // The last request was sent before the queue was closed.
                Ok(None) => return,
                Ok(asked) => asked,
                Err(_) => None,
            };
            if let Some(request) = encode() {
                // A later one has everything that this one has: it is not worth waiting for.
                exporter.send(request, 1, || true).await;
            }
            if let Some(Command::Flush(done)) = asked {
                reply(done);
            }
        }
    }

    async fn next(&mut self) -> Option<Batch<T>> {
        let first = self.receiver.recv().await?;
        let mut batch = Batch { items: Vec::new(), bytes: 0, waiting: Vec::new() };
        batch.add(first);
        let deadline = Instant::now() + MAX_DELAY;
        while !batch.is_due() {
            match timeout_at(deadline, self.receiver.recv()).await {
                Ok(Some(command)) => batch.add(command),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }
}

fn reply(done: SyncSender<()>) {
    // Who waited may have given up.
    let _ = done.try_send(());
}

/// Sends the requests of one signal.
pub(super) struct Exporter {
    client: Arc<dyn TelemetryClient>,
    signal: Signal,
    metrics: Arc<Metrics>,
    /// True once it was logged that the collector does not take them.
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(client: Arc<dyn TelemetryClient>, signal: Signal, metrics: &Arc<Metrics>) -> Self {
        Self { client, signal, metrics: Arc::clone(metrics), is_failing: false }
    }

    /// Sends a request, again if that may help and this is not `the last` of it. `count`: how much is lost with it.
    async fn send(&mut self, request: Bytes, count: u64, is_last: impl Fn() -> bool) {
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=MAX_ATTEMPTS {
            let error = match self.client.export(self.signal, request.clone()).await {
                Ok(response) => return self.succeeded(&response),
                Err(error) => error,
            };
            self.failed(&error);
            if !error.retryable || attempt == MAX_ATTEMPTS || is_last() {
                break;
            }
            sleep(error.retry_after.unwrap_or(pause)).await;
            pause *= 2;
        }
        self.metrics.telemetry_dropped(self.signal.as_str(), count);
    }

    fn succeeded(&mut self, response: &[u8]) {
        let signal = self.signal.as_str();
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(signal, "the telemetry collector works again");
        }
        let rejected = super::value::rejected(response);
        if rejected > 0 {
            self.metrics.telemetry_dropped(signal, rejected);
        }
    }

    fn failed(&mut self, error: &ExportError) {
        let (signal, reason) = (self.signal.as_str(), &error.reason);
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!(signal, reason, "the telemetry collector still fails");
        } else {
            tracing::warn!(
                signal,
                reason,
                "the telemetry collector fails: items that cannot be sent to it are dropped"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};

    use super::*;

    /// Answers as these say, the last first, and then never.
    struct ScriptedTransport(Mutex<Vec<Result<Bytes, ExportError>>>);

    impl TelemetryClient for ScriptedTransport {
        fn export(&self, _: Signal, _: Bytes) -> BoxFuture<'static, Result<Bytes, ExportError>> {
            let next = self.0.lock().expect("no test panics with it").pop();
            next.map_or_else(|| pending().boxed(), |answer| ready(answer).boxed())
        }
    }

    fn dropped(metrics: &Metrics) -> u64 {
        let text = metrics.encode(crate::metrics::Format::OpenMetrics, &crate::metrics::Levels::default());
        let line = "interlingua_otlp_dropped_total{signal=\"traces\"} ";
        text.lines().find_map(|found| found.strip_prefix(line)?.parse().ok()).expect("the counter")
    }

    fn exporter(answers: Vec<Result<Bytes, ExportError>>, metrics: &Arc<Metrics>) -> Exporter {
        Exporter::new(Arc::new(ScriptedTransport(Mutex::new(answers))), Signal::Traces, metrics)
    }

    #[tokio::test]
    async fn the_queue_is_limited_in_number_and_bytes() {
        let metrics = Metrics::new();
        let (queue, receiver) = Queue::new(Signal::Traces, 100, &metrics);
        for number in 0..150 {
            queue.push(number, 10, 3);
        }
        assert_eq!(dropped(&metrics), 50 * 3);
        drop(receiver);
        queue.push(0, 10, 3);
        assert_eq!(dropped(&metrics), 51 * 3, "its thread is gone");

        let metrics = Metrics::new();
        let (queue, receiver) = Queue::new(Signal::Traces, 100, &metrics);
        for number in 0..5 {
            queue.push(number, MAX_BYTES / 4, 1);
        }
        assert_eq!(dropped(&metrics), 1);

        // The collector never answers: the request in progress counts too.
        let sending =
            tokio::spawn(receiver.run(exporter(Vec::new(), &metrics), |batch| (Bytes::new(), batch.len() as u64)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        queue.push(9, 1, 1);
        assert_eq!(dropped(&metrics), 2);
        sending.abort();
    }

    #[tokio::test]
    async fn refusals_for_good_are_counted_and_others_tried_again() {
        let error = |retryable| {
            let retry_after = Some(Duration::from_millis(1));
            Err(ExportError { retryable, retry_after, reason: "no".to_owned() })
        };
        for (mut answers, lost) in [
            (vec![Ok(Bytes::new())], 0),
            (vec![error(true), error(true), error(true), Ok(Bytes::new())], 0),
            (vec![error(true), error(true), error(true), error(true), Ok(Bytes::new())], 7),
            (vec![error(false), Ok(Bytes::new())], 7),
            // Of seven, two were rejected.
            (vec![Ok(Bytes::from_static(b"\x0a\x02\x08\x02"))], 2),
            (vec![Ok(Bytes::from_static(b"nonsense"))], 0),
        ] {
            answers.reverse();
            let metrics = Metrics::new();
            exporter(answers, &metrics).send(Bytes::new(), 7, || false).await;
            assert_eq!(dropped(&metrics), lost);
        }

        let metrics = Metrics::new();
        exporter(vec![Ok(Bytes::new()), error(true)], &metrics).send(Bytes::new(), 7, || true).await;
        assert_eq!(dropped(&metrics), 7, "nothing waits for it any more");
    }

    #[tokio::test]
    async fn batches_are_bounded_and_sent_when_someone_waits() {
        let metrics = Metrics::new();
        let (queue, receiver) = Queue::new(Signal::Traces, 4096, &metrics);
        for number in 0..1000 {
            queue.push(number, 1, 1);
        }
        let (done, is_done) = std::sync::mpsc::sync_channel(1);
        assert!(queue.flush(done));
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sizes);
        let answers = vec![Ok(Bytes::new()); 2];
        let began = Instant::now();
        let sending = tokio::spawn(receiver.run(exporter(answers, &metrics), move |batch: &[i32]| {
            seen.lock().expect("no test panics with it").push(batch.len());
            (Bytes::new(), batch.len() as u64)
        }));
        drop(queue);
        sending.await.expect("it ends with its queue");
        assert!(began.elapsed() < MAX_DELAY, "it waited for more, though someone waited for it");
        assert_eq!((*sizes.lock().expect("no test panics with it")).clone(), [MAX_BATCH, 1000 - MAX_BATCH]);
        assert_eq!((is_done.try_recv(), dropped(&metrics)), (Ok(()), 0));
    }
}
