//! Lines that a thread of their own writes, to standard output or a file.
//!
//! A worker only puts a value into a queue: it is formatted on the thread, which masks the values. If that is stuck,
//! because no one reads the other end of a pipe, lines are dropped and counted. Not here: what a line says.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use crate::metrics::Metrics;

/// Lines that wait to be written. More are dropped.
const MAX_WAITING: usize = 8192;
/// Maximum bytes of lines that are written together.
const MAX_BATCH_BYTES: usize = 64 * 1024;
/// Interval at which a waiting writer retries a full queue.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// The end of a file. It is created for its owner alone.
    File(PathBuf),
}

/// Appends a line, with its end.
type Format = Box<dyn FnOnce(&mut String) + Send>;

enum Command {
    Line(Format),
    /// Answers once everything before it is written.
    Flush(SyncSender<()>),
}

/// Writes lines. Its thread ends once it is dropped and everything is written.
pub(super) struct LineWriter {
    name: &'static str,
    sender: SyncSender<Command>,
    metrics: Arc<Metrics>,
}

impl LineWriter {
    /// Opens the target and starts the thread. `name` is how metrics call the log. After each write, the thread lets
    /// lines gather for the time of `pause`: to wake it for every line costs the workers as much as a small request.
    pub(super) fn open(
        name: &'static str,
        target: &LogTarget,
        pause: Duration,
        metrics: Arc<Metrics>,
    ) -> io::Result<Self> {
        let output: Box<dyn Write + Send> = match target {
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::File(path) => {
                let mut options = OpenOptions::new();
                options.create(true).append(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                Box::new(options.open(path)?)
            }
        };

        let (sender, receiver) = sync_channel(MAX_WAITING);
        let dropped = Arc::clone(&metrics);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || write(&receiver, output, name, pause, &dropped))?;
        Ok(Self { name, sender, metrics })
    }

    /// Writes a line later. False: the queue is full, and the line is dropped.
    pub(super) fn write(&self, format: impl FnOnce(&mut String) + Send + 'static) -> bool {
        let taken = self.sender.try_send(Command::Line(Box::new(format))).is_ok();
        if !taken {
            self.metrics.line_dropped(self.name);
        }
        taken
    }

    /// Waits until everything so far is written, at most for this time.
    pub(super) fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let (done, is_done) = sync_channel(1);
        let mut command = Command::Flush(done);
        loop {
            match self.sender.try_send(command) {
                Ok(()) => break,
                Err(TrySendError::Full(returned)) if Instant::now() < deadline => command = returned,
                Err(_) => return,
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

/// Writes until the last sender is gone.
fn write(
    receiver: &Receiver<Command>,
    mut output: Box<dyn Write + Send>,
    name: &'static str,
    pause: Duration,
    metrics: &Metrics,
) {
    let (mut batch, mut line) = (String::new(), String::new());
    while let Ok(command) = receiver.recv() {
        let mut next = Some(command);
        let mut flushed = Vec::new();
        while let Some(command) = next.take() {
            match command {
                Command::Line(format) => {
                    line.clear();
                    format(&mut line);
                    batch.push_str(line.trim_end_matches('\n'));
                    batch.push('\n');
                }
                Command::Flush(done) => flushed.push(done),
            }
            if batch.len() < MAX_BATCH_BYTES {
                next = receiver.try_recv().ok();
            }
        }

        let written = output.write_all(batch.as_bytes()).and_then(|()| output.flush());
        if written.is_err() {
            // A full disk: what comes next may have room again.
            batch.lines().for_each(|_| metrics.line_dropped(name));
        }
        batch.clear();
        for done in flushed {
            let _ = done.send(());
        }
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        std::fs::write(&path, "before\n").expect("a file");

        let metrics = Metrics::new();
        let pause = Duration::from_millis(1);
        let lines = LineWriter::open("test", &LogTarget::File(path.clone()), pause, metrics).expect("a writer");
        for number in 0..1000 {
            assert!(lines.write(move |line| line.push_str(&format!("{number} line\n"))));
        }
        lines.flush(Duration::from_secs(10));

        let text = std::fs::read_to_string(path).expect("the file");
        let expected: Vec<String> =
            std::iter::once("before".to_owned()).chain((0..1000).map(|number| format!("{number} line"))).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_writer_that_is_stuck_drops_lines_and_counts_them() {
        let metrics = Metrics::new();
        let (sender, receiver) = sync_channel(1);
        let lines = LineWriter { name: "test", sender, metrics: Arc::clone(&metrics) };
        assert!(lines.write(|line| line.push('a')));
        assert!(!lines.write(|line| line.push('b')) && !lines.write(|line| line.push('c')));
        lines.flush(Duration::from_millis(20));

        let text = metrics.encode(crate::metrics::Format::OpenMetrics, &crate::metrics::Levels::default());
        assert!(text.contains("interlingua_log_lines_dropped_total{log=\"test\"} 2\n"), "{text}");
        drop(receiver);
    }
}
