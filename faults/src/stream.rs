//! Event streams for scenarios: numbered frames, as far as they arrived. Frames are classified by substrings instead of
//! parsing the JSON.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A numbered frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) number: u64,
    pub(crate) data: String,
}

impl Frame {
    /// True for the frame that ends a run, in the Agent API and in Responses.
    pub(crate) fn is_end(&self) -> bool {
        let native = self.data.contains("\"object\":\"response\"")
            && !self.data.contains("\"type\":\"response.")
            && !["created", "queued", "in_progress"].iter().any(|state| self.has_status(state));
        let ends = ["completed", "failed", "incomplete"];
        let ag_ui = ["RUN_FINISHED", "RUN_ERROR"].iter().any(|end| self.is_ag_ui(end));
        native || ag_ui || ends.iter().any(|end| self.data.starts_with(&format!("{{\"type\":\"response.{end}\"")))
    }

    /// True for the end of a run that has completed.
    pub(crate) fn is_completed(&self) -> bool {
        self.is_ag_ui("RUN_FINISHED")
            || self.is_end()
                && (self.data.starts_with("{\"type\":\"response.completed\"") || self.has_status("completed"))
    }

    fn is_ag_ui(&self, event: &str) -> bool {
        self.data.starts_with(&format!("{{\"type\":\"{event}\""))
    }

    fn has_status(&self, state: &str) -> bool {
        // The status of the response itself comes first.
        let first = self.data.split("\"status\":\"").nth(1);
        first.is_some_and(|rest| rest.starts_with(&format!("{state}\"")))
    }
}

/// The received part of an answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The body, as far as it came.
    pub(crate) text: String,
}

impl Answer {
    /// The complete frames that have a number.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        events(&self.text).filter_map(frame).collect()
    }

    /// The data of all complete events.
    pub(crate) fn data(&self) -> impl Iterator<Item = &str> {
        events(&self.text).filter_map(|event| field(event, "data: "))
    }
}

/// Sends a request and reads until the connection ends in any way. Returns the status and the complete frames.
pub(crate) fn read(address: SocketAddr, request: &[u8]) -> Result<(u16, Vec<Frame>)> {
    let answer = read_while_active(address, request, Duration::from_secs(30))?;
    Ok((answer.status, answer.frames()))
}

/// Sends a request and reads until the connection ends, or no event arrived for this time. Heartbeats do not count.
pub(crate) fn read_while_active(address: SocketAddr, request: &[u8], silence: Duration) -> Result<Answer> {
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    connection.set_read_timeout(Some(silence))?;
    connection.write_all(request)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    let mut active = Instant::now();
    while let Ok(count @ 1..) = connection.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
        if buffer[..count].windows(5).any(|window| window == b"data:") {
            active = Instant::now();
        }
        if active.elapsed() > silence {
            break;
        }
    }

    parse(&bytes)
}

/// An answer that may be truncated anywhere after its head.
pub(crate) fn parse(bytes: &[u8]) -> Result<Answer> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").context("no head")?;
    let status = String::from_utf8_lossy(&bytes[..head]);
    let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let is_chunked = bytes[..head].windows(7).any(|window| window == b"chunked");
    let rest = &bytes[head + 4..];
    let text = if is_chunked { body(rest) } else { rest.to_vec() };
    Ok(Answer { status, text: String::from_utf8_lossy(&text).into_owned() })
}

/// Decodes a chunked body that may be truncated anywhere.
fn body(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size else { break };
        let chunk = &rest[line + 2..];
        body.extend_from_slice(&chunk[..chunk.len().min(size)]);
        match chunk.get(size + 2..) {
            Some(next) => rest = next,
            None => break,
        }
    }
    body
}

/// The complete events.
fn events(text: &str) -> impl Iterator<Item = &str> {
    let complete = text.rfind("\n\n").map_or(0, |end| end + 2);
    text[..complete].split("\n\n")
}

fn field<'a>(event: &'a str, name: &str) -> Option<&'a str> {
    event.lines().find_map(|line| line.strip_prefix(name))
}

/// The number is in the data, or else in a line of its own.
fn frame(event: &str) -> Option<Frame> {
    let data = field(event, "data: ")?;
    let number = number(data).or_else(|| field(event, "id: ")?.parse().ok())?;
    Some(Frame { number, data: data.to_owned() })
}

fn number(data: &str) -> Option<u64> {
    let digits = data.split("\"sequence_number\":").nth(1)?;
    digits.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// The first id with this prefix.
pub(crate) fn id(data: &str, prefix: &str) -> Option<String> {
    let rest = data.split(&format!("\"id\":\"{prefix}")).nth(1)?;
    Some(format!("{prefix}{}", rest.split('"').next()?))
}
