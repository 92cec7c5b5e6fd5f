//! Traces, metrics and logs for collectors (OTLP): queues that never block, and the thread that empties them.
//!
//! A worker only puts a value into a queue that has bounds in number and in bytes. The thread has a runtime of its own:
//! what a collector does, or does not do, concerns no stream. Not here: connections to collectors
//! ([`TelemetryClient`]).

mod gen_ai;
mod logs;
mod pipeline;
mod spans;
mod value;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt as _, join_all};

use self::logs::LogItem;
use self::pipeline::{Exporter, Queue};
use super::parts::RequestParts;
use super::quiet::silence_this_thread;
use crate::metrics::Metrics;
use interlingua_base::ports::{Signal, TelemetryClient};

pub(super) use self::logs::LogEvent;

/// Items of one signal that wait to be sent. More are dropped.
const MAX_WAITING: usize = 4096;
/// The space of a log record in the queue, about, in bytes.
const LOG_SIZE: usize = 1024;

/// The telemetry to send, and its collectors.
pub struct OtlpSettings {
    /// The name of this gateway.
    pub service_name: String,
    /// Sends spans. `None`: requests are not traced.
    pub traces: Option<Arc<dyn TelemetryClient>>,
    /// The share of new traces that are sent.
    pub sample: f64,
    /// Whether spans contain messages.
    pub content: bool,
    /// Sends metrics, so often.
    pub metrics: Option<(Arc<dyn TelemetryClient>, Duration)>,
    /// Sends log records.
    pub logs: Option<Arc<dyn TelemetryClient>>,
}

/// Sends traces, metrics and logs. Its thread ends once it is dropped and everything is sent, or cannot be.
pub struct Otlp {
    sample: f64,
    content: bool,
    spans: Option<Queue<Arc<RequestParts>>>,
    logs: Option<Queue<LogItem>>,
    /// Requests a report: the values are in [`Metrics`].
    metrics: Option<Queue<()>>,
    /// True: another one reports the metrics now.
    is_retired: Arc<AtomicBool>,
}

impl Otlp {
    /// Starts the thread. Nothing is connected yet.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(settings: OtlpSettings, metrics: &Arc<Metrics>) -> io::Result<Self> {
        let OtlpSettings { service_name, traces, sample, content, metrics: measures, logs } = settings;
        let origin = Arc::new(value::Origin::new(service_name));
        let is_retired = Arc::new(AtomicBool::new(false));
        let mut tasks: Vec<BoxFuture<'static, ()>> = Vec::new();

        let spans = traces.map(|client| {
            let (queue, receiver) = Queue::new(Signal::Traces, MAX_WAITING, metrics);
            let (exporter, origin) = (Exporter::new(client, Signal::Traces, metrics), Arc::clone(&origin));
            tasks.push(receiver.run(exporter, move |batch| spans::encode(&origin, batch)).boxed());
            queue
        });
        let logs = logs.map(|client| {
            let (queue, receiver) = Queue::new(Signal::Logs, MAX_WAITING, metrics);
            let (exporter, origin) = (Exporter::new(client, Signal::Logs, metrics), Arc::clone(&origin));
            tasks.push(receiver.run(exporter, move |batch| logs::encode(&origin, batch)).boxed());
            queue
        });
        let metrics_queue = measures.map(|(client, every)| {
            let (queue, receiver) = Queue::new(Signal::Metrics, 1, metrics);
            let exporter = Exporter::new(client, Signal::Metrics, metrics);
            let (metrics, origin, is_retired) = (Arc::clone(metrics), Arc::clone(&origin), Arc::clone(&is_retired));
            let encode = move || {
                if is_retired.load(Ordering::Relaxed) { None } else { gen_ai::encode(&origin, metrics.gen_ai()) }
            };
            tasks.push(receiver.run_every(every, exporter, encode).boxed());
            queue
        });

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("otlp".to_owned()).spawn(move || {
            // Log lines of the sending thread are not sent: each would cause another.
            silence_this_thread();
            runtime.block_on(join_all(tasks));
        })?;
        Ok(Self { sample, content, spans, logs, metrics: metrics_queue, is_retired })
    }

    /// The share of new traces that are sent. `None`: requests are not traced.
    pub(super) fn sample(&self) -> Option<f64> {
        self.spans.as_ref().map(|_| self.sample)
    }

    /// Whether spans contain messages.
    pub(super) const fn wants_content(&self) -> bool {
        self.content
    }

    /// True if log records are sent.
    pub(super) const fn sends_logs(&self) -> bool {
        self.logs.is_some()
    }

    /// Whether turns are counted.
    pub(super) const fn sends_metrics(&self) -> bool {
        self.metrics.is_some()
    }

    /// A request that made a run has ended, and the run's turn.
    pub(super) fn trace(&self, parts: &Arc<RequestParts>) {
        let is_sampled = parts.span.is_some_and(|span| span.sampled) && parts.turn.is_some();
        if let Some(spans) = self.spans.as_ref().filter(|_| is_sampled) {
            spans.push(Arc::clone(parts), parts.size(), parts.spans());
        }
    }

    /// A request has ended: its line of the access log is sent.
    pub(super) fn log_access(&self, parts: &Arc<RequestParts>) {
        if let Some(logs) = &self.logs {
            logs.push(LogItem::Access(Arc::clone(parts)), LOG_SIZE, 1);
        }
    }

    /// Sends a line of the log.
    pub(super) fn log(&self, event: LogEvent) {
        if let Some(logs) = &self.logs {
            let size = LOG_SIZE + event.size();
            logs.push(LogItem::Event(event), size, 1);
        }
    }

    /// Reports no metrics any more: another one does.
    pub fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Waits until everything so far is sent, at most for this time.
    pub(super) fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let (done, is_done) = sync_channel(3);
        let asked = [
            self.spans.as_ref().is_some_and(|queue| queue.flush(done.clone())),
            self.logs.as_ref().is_some_and(|queue| queue.flush(done.clone())),
            self.metrics.as_ref().is_some_and(|queue| queue.flush(done.clone())),
        ];
        drop(done);
        for _ in asked.into_iter().filter(|asked| *asked) {
            if is_done.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err() {
                return;
            }
        }
    }
}
