//! Log lines on their way to standard error: gathered for 10 ms, then written together.
//!
//! A turn has one line at the level INFO, and one system call for each would cost several percent of a short turn. A
//! warning or an error is written at once, after the lines before it. A process that is killed loses the lines of its
//! last 10 ms.

use std::io::{self, Write};
use std::mem::take;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Time that lines are gathered before they are written.
const PAUSE: Duration = Duration::from_millis(10);

/// Gathered lines above this size, in bytes, are written by the thread that adds one: a log that no one reads slows the
/// gateway down instead of filling its memory.
const MAX_GATHERED: usize = 256 << 10;

static LINES: Lines = Lines::new(|lines| io::stderr().write_all(lines));

struct Lines {
    gathered: Mutex<Vec<u8>>,
    /// Held while lines are taken and written, so that they stay in order.
    output: Mutex<()>,
    /// The thread that writes. Without it, each line is written at once.
    writer: OnceLock<Thread>,
    write: fn(&[u8]) -> io::Result<()>,
}

impl Lines {
    const fn new(write: fn(&[u8]) -> io::Result<()>) -> Self {
        Self { gathered: Mutex::new(Vec::new()), output: Mutex::new(()), writer: OnceLock::new(), write }
    }

    fn add(&self, line: &[u8], is_urgent: bool) -> io::Result<()> {
        let mut gathered = lock(&self.gathered);
        let was_empty = gathered.is_empty();
        gathered.extend_from_slice(line);
        let is_full = gathered.len() > MAX_GATHERED;
        drop(gathered);

        match self.writer.get() {
            Some(writer) if !is_urgent && !is_full => {
                if was_empty {
                    writer.unpark();
                }
                Ok(())
            }
            _ => self.flush(),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let _output = lock(&self.output);
        let lines = take(&mut *lock(&self.gathered));
        (self.write)(&lines)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that writes gathered lines. Without it, each line is written at once.
pub(super) fn start() -> io::Result<()> {
    let writer = thread::Builder::new().name("log".to_owned()).spawn(|| {
        loop {
            thread::park();
            thread::sleep(PAUSE);
            // Standard error may be closed: there is nowhere to report it.
            let _ = LINES.flush();
        }
    })?;
    let _ = LINES.writer.set(writer.thread().clone());
    Ok(())
}

/// Writes the gathered lines. Called before the process exits.
pub(super) fn flush() {
    let _ = LINES.flush();
}

/// The writer of the log.
pub(super) struct LogWriter;

/// The writer of one line.
pub(super) struct LineWriter {
    is_urgent: bool,
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { is_urgent: true }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> LineWriter {
        LineWriter { is_urgent: *line.level() <= Level::WARN }
    }
}

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.add(line, self.is_urgent)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn note(lines: &[u8]) -> io::Result<()> {
        lock(&WRITTEN).push(String::from_utf8_lossy(lines).into_owned());
        Ok(())
    }

    #[test]
    fn lines_are_gathered_until_one_is_urgent_or_they_are_many() {
        let written = || take(&mut *lock(&WRITTEN));
        let lines = Lines::new(note);
        lines.add(b"first\n", false).expect("written");
        assert_eq!(written(), ["first\n"], "no thread writes later");

        lines.writer.set(thread::current()).expect("no writer");
        lines.add(b"a\n", false).expect("gathered");
        lines.add(b"b\n", false).expect("gathered");
        assert_eq!(written(), [""; 0]);
        lines.add(b"c\n", true).expect("written");
        assert_eq!(written(), ["a\nb\nc\n"]);

        lines.add(&vec![b'x'; MAX_GATHERED + 1], false).expect("written");
        assert_eq!(written().len(), 1);
        lines.add(b"d\n", false).expect("gathered");
        lines.flush().expect("written");
        assert_eq!(written(), ["d\n"]);
    }
}
