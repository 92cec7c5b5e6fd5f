//! Requests over plain blocking sockets, and answers that may be truncated anywhere: numbered frames of event streams,
//! as far as they arrived. Frames are classified by substrings instead of parsing the JSON.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// A numbered frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub number: u64,
    pub data: String,
}

impl Frame {
    /// An event with a number in its data, or else in a line of its own. `None`: it has none.
    pub fn parse(event: &str) -> Option<Self> {
        let data = field(event, "data: ")?;
        let number = number(data).or_else(|| field(event, "id: ")?.parse().ok())?;
        Some(Self { number, data: data.to_owned() })
    }

    /// The data as JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {}", self.data))
    }

    /// True for the frame that ends a run, in the Agent API and in Responses.
    pub fn is_end(&self) -> bool {
        let native = self.data.contains("\"object\":\"response\"")
            && !self.data.contains("\"type\":\"response.")
            && !["created", "queued", "in_progress"].iter().any(|state| self.has_status(state));
        let ends = ["completed", "failed", "incomplete"];
        let ag_ui = ["RUN_FINISHED", "RUN_ERROR"].iter().any(|end| self.is_ag_ui(end));
        native || ag_ui || ends.iter().any(|end| self.data.starts_with(&format!("{{\"type\":\"response.{end}\"")))
    }

    /// True for the end of a run that has completed.
    pub fn is_completed(&self) -> bool {
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
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// The body, as far as it came.
    pub text: String,
    /// True if the whole body arrived.
    pub is_complete: bool,
}

impl Answer {
    /// The whole body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {:?}", self.text))
    }

    /// The complete frames that have a number.
    pub fn frames(&self) -> Vec<Frame> {
        events(&self.text).filter_map(Frame::parse).collect()
    }

    /// The data of all complete events.
    pub fn data(&self) -> impl Iterator<Item = &str> {
        events(&self.text).filter_map(|event| field(event, "data: "))
    }
}

/// Encodes a request. The connection closes after the answer.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
    }

    request.push_str("\r\n");
    request.push_str(body);
    request.into_bytes()
}

/// Sends a request and reads the answer until the connection ends in any way.
pub fn send(address: SocketAddr, request: &[u8]) -> Result<Answer> {
    read_while_active(address, request, Duration::from_secs(30))
}

/// Sends a request and reads until the connection ends, or no event arrived for this time. Heartbeats do not count.
pub fn read_while_active(address: SocketAddr, request: &[u8], silence: Duration) -> Result<Answer> {
    read_observed(address, request, silence, |_| {})
}

/// The same, with a function that is called with everything received so far.
pub fn read_observed(
    address: SocketAddr,
    request: &[u8],
    silence: Duration,
    mut on_read: impl FnMut(&[u8]),
) -> Result<Answer> {
    let mut connection = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
    connection.set_read_timeout(Some(silence))?;
    connection.write_all(request)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 64 * 1024]);
    let mut active = Instant::now();
    while let Ok(count @ 1..) = connection.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
        on_read(&bytes);
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
///
/// # Panics
/// If it contains bytes that are not UTF-8.
pub fn parse(bytes: &[u8]) -> Result<Answer> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").context("no head")?;
    let (head, rest) = (String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase(), &bytes[head + 4..]);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
    let (text, is_complete) =
        if head.contains("chunked") { body(rest) } else { (rest.to_vec(), length == Some(rest.len())) };
    let is_utf8 = std::str::from_utf8(&text).map_or_else(|error| error.error_len().is_none(), |_| true);
    assert!(is_utf8, "the gateway writes UTF-8: {:?}", String::from_utf8_lossy(&text));
    Ok(Answer { status, text: String::from_utf8_lossy(&text).into_owned(), is_complete })
}

/// Decodes a chunked body that may be truncated anywhere. True if it has its last chunk.
fn body(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size else { break };
        let chunk = &rest[line + 2..];
        body.extend_from_slice(&chunk[..chunk.len().min(size)]);
        match chunk.get(size + 2..) {
            Some(_) if size == 0 => return (body, true),
            Some(next) => rest = next,
            None => break,
        }
    }
    (body, false)
}

/// The complete events.
fn events(text: &str) -> impl Iterator<Item = &str> {
    let complete = text.rfind("\n\n").map_or(0, |end| end + 2);
    text[..complete].split("\n\n")
}

fn field<'a>(event: &'a str, name: &str) -> Option<&'a str> {
    event.lines().find_map(|line| line.strip_prefix(name))
}

fn number(data: &str) -> Option<u64> {
    let digits = data.split("\"sequence_number\":").nth(1)?;
    digits.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// The first id with this prefix.
pub fn id(data: &str, prefix: &str) -> Option<String> {
    let rest = data.split(&format!("\"id\":\"{prefix}")).nth(1)?;
    Some(format!("{prefix}{}", rest.split('"').next()?))
}
