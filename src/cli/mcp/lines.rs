//! Lines of the standard streams. A thread reads them and another one writes them, because both may block.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::mem::take;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::filter::truncated;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use interlingua_base::secrets;

/// The longest line, in bytes.
pub(super) const MAX_LINE: usize = 64 << 20;
/// The number of lines about problems that wait to be written. Further ones are dropped.
const MAX_PROBLEMS: usize = 64;
/// The longest problem that is written, in bytes.
const MAX_PROBLEM: usize = 4 << 10;
/// The time in which the reader of standard output has to take what is left at the end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A line of the host, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    Message(Bytes),
    /// Longer than [`MAX_LINE`]. It was skipped.
    TooLong,
}

/// Reads lines on a thread of its own until the end of the input. Empty lines are skipped.
pub(super) fn read(input: impl Read + Send + 'static) -> io::Result<mpsc::Receiver<InputLine>> {
    let (sender, lines) = mpsc::channel(1);
    thread::Builder::new().name("input".to_owned()).spawn(move || {
        // An error ends the input just as its end does.
        let _ = split(input, MAX_LINE, |line| sender.blocking_send(line).is_ok());
    })?;
    Ok(lines)
}

/// Passes the lines of an input to `take_line` until that returns false.
fn split(input: impl Read, max_line: usize, mut take_line: impl FnMut(InputLine) -> bool) -> io::Result<()> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let is_end = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > max_line {
            is_too_long = true;
            line = Vec::new();
        }
        if !is_too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);

        if end.is_some() || is_end {
            let read = Bytes::from(take(&mut line));
            let message = read.slice_ref(read.trim_ascii());
            let line = if take(&mut is_too_long) { InputLine::TooLong } else { InputLine::Message(message) };
            if line != InputLine::Message(Bytes::new()) && !take_line(line) {
                return Ok(());
            }
        }
        if is_end {
            return Ok(());
        }
    }
}

/// The output of the bridge: messages on standard output, problems on standard error. Clones are the same output.
#[derive(Clone, Debug)]
pub(super) struct Output {
    messages: mpsc::Sender<Vec<u8>>,
    problems: mpsc::Sender<Vec<u8>>,
}

/// The threads that write the output.
pub(super) struct Writers([oneshot::Receiver<()>; 2]);

impl Output {
    pub(super) fn start(
        out: impl Write + Send + 'static,
        problems: impl Write + Send + 'static,
    ) -> io::Result<(Self, Writers)> {
        let (messages, messages_written) = write("output", out, 1)?;
        let (problems, problems_written) = write("problems", problems, MAX_PROBLEMS)?;
        Ok((Self { messages, problems }, Writers([messages_written, problems_written])))
    }

    /// Writes a message when the reader of the output has taken the ones before it. A reader that is gone does not
    /// matter: see [`Self::closed`].
    pub(super) async fn message(&self, mut line: Vec<u8>) {
        line.push(b'\n');
        let _ = self.messages.send(line).await;
    }

    /// Writes a problem as one line. It is dropped if no one reads standard error.
    pub(super) fn problem(&self, text: &str) {
        let line = text.split(['\n', '\r']).collect::<Vec<_>>().join(" ");
        let _ = self
            .problems
            .try_send(format!("interlingua: {}\n", secrets::mask(truncated(&line, MAX_PROBLEM))).into_bytes());
    }

    /// Resolves when standard output cannot be written any more.
    pub(super) async fn closed(&self) {
        self.messages.closed().await;
    }
}

impl Writers {
    /// Waits a limited time until everything is written. Without effect while an [`Output`] exists.
    pub(super) async fn flush(self) {
        for written in self.0 {
            let _ = timeout(FLUSH_TIMEOUT, written).await;
        }
    }
}

/// Writes lines on a thread of its own until the senders are gone or a write fails. The second result resolves then.
fn write(
    name: &str,
    mut out: impl Write + Send + 'static,
    capacity: usize,
) -> io::Result<(mpsc::Sender<Vec<u8>>, oneshot::Receiver<()>)> {
    let (sender, mut lines) = mpsc::channel::<Vec<u8>>(capacity);
    let (done, is_written) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        while let Some(line) = lines.blocking_recv() {
            if out.write_all(&line).and_then(|()| out.flush()).is_err() {
                break;
            }
        }
        let _ = done.send(());
    })?;
    Ok((sender, is_written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], max_line: usize) -> Vec<InputLine> {
        let mut found = Vec::new();
        split(input, max_line, |line| {
            found.push(line);
            true
        })
        .expect("a slice can be read");
        found
    }

    #[test]
    fn lines_are_split_and_long_ones_are_skipped() {
        let message = |text: &'static str| InputLine::Message(Bytes::from_static(text.as_bytes()));
        assert_eq!(lines(b"a\r\n\n  \nb c\nd", 10), [message("a"), message("b c"), message("d")]);
        assert_eq!(lines(b"12345\n123456\nx\n", 5), [message("12345"), InputLine::TooLong, message("x")]);
        let long = [vec![b'a'; 200 << 10], b"\nb".to_vec()].concat();
        assert_eq!(lines(&long, 100 << 10), [InputLine::TooLong, message("b")]);
        assert_eq!(lines(b"", 5), []);
    }
}
