//! The script that the upstream plays, and its frames. The script travels in the text of the user message, which the
//! gateway forwards unchanged.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use interlingua_testing_agents::deltas::{Deltas, deltas};

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
    /// The number of events that an upstream of the Agent API sends.
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

/// The frames of one run, as an agent of a protocol writes them.
pub(crate) struct Frames {
    deltas: Deltas,
    run: u64,
    /// The number of deltas so far.
    written: usize,
}

impl Frames {
    /// `protocol`: the agent's, in the words of `gateway.toml`.
    pub(crate) fn new(protocol: &str, run: u64) -> Result<Self> {
        let deltas = deltas(protocol, WORDS).with_context(|| format!("no deltas of {protocol:?} are known"))?;
        Ok(Self { deltas, run, written: 0 })
    }

    /// The number of frames of a run beside its deltas.
    pub(crate) fn others(&self) -> usize {
        self.deltas.others()
    }

    /// The frames before the first delta.
    pub(crate) fn begin(&self) -> Vec<String> {
        self.deltas.begin(self.run)
    }

    pub(crate) fn delta(&mut self) -> String {
        self.written += 1;
        self.deltas.delta(self.run, self.written - 1)
    }

    /// The frames after the last delta.
    pub(crate) fn end(&self) -> Vec<String> {
        self.deltas.end(self.run, self.written)
    }

    /// A run of one delta as one JSON body.
    pub(crate) fn whole(&mut self) -> String {
        let _ = self.delta();
        let last = self.end().pop().unwrap_or_default();
        last["data: ".len()..].trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::CLIENTS;

    #[test]
    fn a_script_round_trips_through_a_request_body() {
        let scripts = [
            Script::Paced { deltas: 500, every: Duration::from_millis(20) },
            Script::Burst { deltas: 7 },
            Script::Idle,
            Script::Call,
        ];

        for script in scripts {
            for client in CLIENTS {
                let body = (client.body)(script, "s-1");
                assert_eq!(Script::find_in(body.as_bytes()).expect("it is in there"), script);
            }
        }
    }

    #[test]
    fn a_run_has_as_many_events_as_its_script_says() {
        let mut frames = Frames::new("agent-api", 1).expect("it is known");
        let mut all = frames.begin();
        all.extend((0..3).map(|_| frames.delta()));
        all.extend(frames.end());
        assert_eq!(all.len(), Script::Burst { deltas: 3 }.events());
        assert_eq!(all.len(), 3 + frames.others());
    }

    #[test]
    fn a_call_is_answered_with_a_response() {
        let body = Frames::new("agent-api", 1).expect("it is known").whole();
        assert!(
            body.starts_with("{\"sequence_number\":")
                && body.contains("\"object\":\"response\",\"status\":\"completed\"")
        );
    }
}
