//! The script that the upstream plays, and its frames in the Agent API. The script travels in the text of the user
//! message, which the gateway forwards unchanged.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// About twenty tokens, the text of one delta.
const WORDS: &str = "and so the river went on its slow way down to the sea, past the mill and the last lamp, ";

/// One run of the upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Script {
    /// One delta per interval, like a model that generates.
    Paced { deltas: usize, every: Duration },
    /// All deltas as fast as possible, each flushed separately as agent servers do.
    Burst { deltas: usize },
    /// All deltas in blocks of 16 KiB, the best case for a pass-through proxy.
    Flood { deltas: usize },
    /// One delta, then silence until the client disconnects.
    Idle,
    /// One short answer as a JSON body, to a client that does not stream.
    Call,
}

impl Script {
    /// The number of events that the upstream sends.
    pub(crate) fn events(self) -> usize {
        match self {
            // Three before the first delta, three after the last.
            Self::Paced { deltas, .. } | Self::Burst { deltas } | Self::Flood { deltas } => deltas + 6,
            Self::Idle => 4,
            Self::Call => 1,
        }
    }

    /// Finds the script in a request body.
    pub(crate) fn find_in(body: &[u8]) -> Result<Self> {
        let start = memchr::memmem::find(body, b"rig:").context("the request contains no script")?;
        let rest = &body[start + 4..];
        let end = memchr::memchr(b'"', rest).context("the script has no end")?;
        std::str::from_utf8(&rest[..end])?.parse()
    }

    /// The A2A request body that carries the script.
    pub(crate) fn a2a_body(self, session: &str) -> String {
        format!(
            "{{\"message\":{{\"messageId\":\"m\",\"contextId\":\"{session}\",\"role\":\"ROLE_USER\",\
             \"parts\":[{{\"text\":\"rig:{self}\"}}]}}}}"
        )
    }

    /// The Responses request body that carries the script, without streaming.
    pub(crate) fn responses_body(self) -> String {
        format!("{{\"model\":\"rig\",\"stream\":false,\"input\":\"rig:{self}\"}}")
    }

    /// The Agent API request body that carries the script.
    pub(crate) fn agent_api_body(self, session: &str) -> String {
        format!(
            "{{\"input\":[{{\"role\":\"user\",\"type\":\"message\",\"content\":[{{\"type\":\"text\",\"text\":\"rig:{self}\"}}]}}],\
             \"session_id\":\"{session}\",\"user_id\":\"{session}\"}}"
        )
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paced { deltas, every } => write!(f, "paced {deltas} {}", every.as_millis()),
            Self::Burst { deltas } => write!(f, "burst {deltas}"),
            Self::Flood { deltas } => write!(f, "flood {deltas}"),
            Self::Idle => f.write_str("idle"),
            Self::Call => f.write_str("call"),
        }
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Ok(match words.as_slice() {
            ["paced", deltas, every] => {
                Self::Paced { deltas: deltas.parse()?, every: Duration::from_millis(every.parse()?) }
            }
            ["burst", deltas] => Self::Burst { deltas: deltas.parse()? },
            ["flood", deltas] => Self::Flood { deltas: deltas.parse()? },
            ["idle"] => Self::Idle,
            ["call"] => Self::Call,
            _ => bail!("unknown script {text:?}"),
        })
    }
}

/// The frames of one run, numbered as the runtime numbers them (docs/protocols/agent-api.md#example-text).
pub(crate) struct Frames {
    id: u64,
    sequence: u64,
    text_so_far: String,
}

impl Frames {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, sequence: 0, text_so_far: String::new() }
    }

    /// Response `created`, response `in_progress`, message `in_progress`.
    pub(crate) fn begin(&mut self) -> [String; 3] {
        [self.response("created", "null", "null"), self.response("in_progress", "null", "null"), self.message(false)]
    }

    pub(crate) fn delta(&mut self) -> String {
        self.text_so_far.push_str(WORDS);
        self.content(true)
    }

    /// Content, message and response `completed`.
    pub(crate) fn end(&mut self) -> [String; 3] {
        let content = self.content(false);
        let message = self.message(true);
        let completed = message["data: ".len()..].trim_end().to_owned();
        [content, message, self.response("completed", "1795167919", &format!("[{completed}]"))]
    }

    /// The whole run as one JSON body.
    pub(crate) fn whole(&mut self) -> String {
        let _ = (self.begin(), self.delta());
        let [_, _, last] = self.end();
        last["data: ".len()..].trim_end().to_owned()
    }

    fn number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    fn response(&mut self, status: &str, completed_at: &str, output: &str) -> String {
        let (number, id) = (self.number(), self.id);
        format!(
            "data: {{\"sequence_number\":{number},\"object\":\"response\",\"status\":\"{status}\",\"error\":null,\
             \"id\":\"response_{id:032x}\",\"created_at\":1795167918,\"completed_at\":{completed_at},\
             \"output\":{output},\"usage\":null,\"session_id\":\"s-{id}\"}}\n\n"
        )
    }

    fn message(&mut self, completed: bool) -> String {
        let (number, id) = (self.number(), self.id);
        let (status, content) = if completed {
            ("completed", format!("[{}]", self.text(number - 1, false)))
        } else {
            ("in_progress", "null".into())
        };
        format!(
            "data: {{\"sequence_number\":{number},\"object\":\"message\",\"status\":\"{status}\",\"error\":null,\
             \"id\":\"msg_{id:032x}\",\"type\":\"message\",\"role\":\"assistant\",\"content\":{content},\"code\":null,\
             \"message\":null,\"usage\":null,\"metadata\":{{}}}}\n\n"
        )
    }

    fn content(&mut self, delta: bool) -> String {
        let number = self.number();
        format!("data: {}\n\n", self.text(number, delta))
    }

    fn text(&self, number: u64, delta: bool) -> String {
        let id = self.id;
        let (status, delta, text) =
            if delta { ("in_progress", "true", WORDS) } else { ("completed", "null", self.text_so_far.as_str()) };
        format!(
            "{{\"sequence_number\":{number},\"object\":\"content\",\"status\":\"{status}\",\"error\":null,\
             \"type\":\"text\",\"index\":0,\"delta\":{delta},\"msg_id\":\"msg_{id:032x}\",\"text\":\"{text}\"}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_round_trips_through_a_request_body() {
        let scripts = [
            Script::Paced { deltas: 500, every: Duration::from_millis(20) },
            Script::Burst { deltas: 7 },
            Script::Idle,
            Script::Call,
        ];

        for script in scripts {
            assert_eq!(Script::find_in(script.agent_api_body("s-1").as_bytes()).expect("it is in there"), script);
        }
    }

    #[test]
    fn frames_are_numbered_without_gaps() {
        let mut frames = Frames::new(1);
        let mut all: Vec<String> = frames.begin().into();
        all.extend((0..3).map(|_| frames.delta()));
        all.extend(frames.end());
        assert_eq!(all.len(), Script::Burst { deltas: 3 }.events());

        for (number, frame) in all.iter().enumerate() {
            assert!(frame.starts_with(&format!("data: {{\"sequence_number\":{number},")), "{frame}");
            assert!(frame.ends_with("}\n\n"), "{frame}");
        }
    }
}
