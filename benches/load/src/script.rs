//! What the upstream is asked to say, and the native frames it says it in. The wish travels in the question's text,
//! since a gateway passes that on as it is.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// RunInfo twenty tokens, as a model says between two breaths.
const WORDS: &str = "and so the river went on its slow way down to the sea, past the mill and the last lamp, ";

/// One run of the upstream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Script {
    /// A delta each so many milliseconds: a model at work.
    Paced { deltas: usize, every: Duration },
    /// All deltas as fast as they can be sent, each by itself, as agent servers flush every event.
    Burst { deltas: usize },
    /// The same, sixteen KiB at a time: the most a pass-through can gain from not looking.
    Flood { deltas: usize },
    /// A first delta, and then silence until somebody hangs up.
    Idle,
}

impl Script {
    /// How many events the upstream sends for it.
    pub(crate) fn events(self) -> usize {
        match self {
            // Three before the first delta, three after the last.
            Self::Paced { deltas, .. } | Self::Burst { deltas } | Self::Flood { deltas } => deltas + 6,
            Self::Idle => 4,
        }
    }

    /// Finds the wish in a request's body.
    pub(crate) fn within(body: &[u8]) -> Result<Self> {
        let start = memchr::memmem::find(body, b"rig:").context("the question holds no script")?;
        let rest = &body[start + 4..];
        let end = memchr::memchr(b'"', rest).context("the script has no end")?;
        std::str::from_utf8(&rest[..end])?.parse()
    }

    /// The request that asks for it, in A2A.
    pub(crate) fn message(self, session: &str) -> String {
        format!(
            "{{\"message\":{{\"messageId\":\"m\",\"contextId\":\"{session}\",\"role\":\"ROLE_USER\",\
             \"parts\":[{{\"text\":\"rig:{self}\"}}]}}}}"
        )
    }

    /// The request that asks for it.
    pub(crate) fn question(self, session: &str) -> String {
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
            _ => bail!("unknown script {text:?}"),
        })
    }
}

/// The frames of one run, numbered as the runtime numbers them (section 14.1 of the protocol page).
pub(crate) struct Frames {
    id: u64,
    sequence: u64,
    said: String,
}

impl Frames {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, sequence: 0, said: String::new() }
    }

    /// Response `created`, response `in_progress`, message `in_progress`.
    pub(crate) fn begin(&mut self) -> [String; 3] {
        [self.response("created", "null", "null"), self.response("in_progress", "null", "null"), self.message(false)]
    }

    pub(crate) fn delta(&mut self) -> String {
        self.said.push_str(WORDS);
        self.content(true)
    }

    /// Content, message and response `completed`.
    pub(crate) fn end(&mut self) -> [String; 3] {
        let content = self.content(false);
        let message = self.message(true);
        let whole = message["data: ".len()..].trim_end().to_owned();
        [content, message, self.response("completed", "1795167919", &format!("[{whole}]"))]
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

    fn message(&mut self, whole: bool) -> String {
        let (number, id) = (self.number(), self.id);
        let (status, content) = if whole {
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
            if delta { ("in_progress", "true", WORDS) } else { ("completed", "null", self.said.as_str()) };
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
    fn a_script_survives_the_way_through_a_question() {
        let scripts = [
            Script::Paced { deltas: 500, every: Duration::from_millis(20) },
            Script::Burst { deltas: 7 },
            Script::Idle,
        ];
        for script in scripts {
            assert_eq!(Script::within(script.question("s-1").as_bytes()).expect("it is in there"), script);
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
