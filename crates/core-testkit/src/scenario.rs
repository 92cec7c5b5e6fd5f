//! Scenarios: what an agent does and what its client does, in the words of the model. They name no protocol: scripted
//! agents and scripted clients write and read them, each in its own.
//!
//! A scenario is a list of turns. Of each turn it follows what the agent is sent ([`Turn::sent`]) and what the client
//! is shown ([`Turn::shown`]), as [`Item`]s: a kind of content and its value. What two ends of the gateway exchange is
//! compared with these lists.
//!
//! Not here: the list of scenarios ([`scenarios`]), and how a protocol says any of it.

mod acts;
mod list;

pub use acts::{AgentAct, Ask, Call, ClientAct, Ending, Media, Tool};
pub use list::{find, scenarios};

use serde_json::Value;

use interlingua_core::loss::ContentKind;

/// One content as both ends of the gateway describe it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// The kind of the item.
    pub kind: ContentKind,
    /// Its value, in a form that every protocol can give: text as it is, JSON by [`normal`].
    pub value: String,
}

impl Item {
    /// An item.
    #[must_use]
    pub fn new(kind: ContentKind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }

    /// A call of a tool, with its arguments as JSON text.
    #[must_use]
    pub fn call(kind: ContentKind, tool: &str, arguments: &str) -> Self {
        Self::new(kind, format!("{tool} {}", normal(arguments)))
    }

    /// The item for a token usage.
    #[must_use]
    pub fn usage(input: u64, output: u64) -> Self {
        Self::new(ContentKind::Usage, format!("{input} {output}"))
    }
}

/// JSON text with its keys in order and without blanks, so that two of the same value are equal. Other text as it is.
#[must_use]
pub fn normal(text: &str) -> String {
    serde_json::from_str::<Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

/// One turn: one request of the client and the agent's answer.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The contents of the client's request.
    pub client: Vec<ClientAct>,
    /// The agent's acts, in order.
    pub agent: Vec<AgentAct>,
    /// The end of its answer.
    pub ending: Ending,
}

impl Turn {
    /// The items that the agent receives if nothing is lost.
    #[must_use]
    pub fn sent(&self) -> Vec<Item> {
        self.client.iter().flat_map(ClientAct::items).collect()
    }

    /// The items that the client receives if nothing is lost.
    #[must_use]
    pub fn shown(&self) -> Vec<Item> {
        if matches!(self.ending, Ending::Refused(_)) {
            return Vec::new();
        }
        let reason = match self.ending {
            Ending::Incomplete(reason) => Some(Item::new(ContentKind::EndReason, reason)),
            _ => None,
        };
        self.agent.iter().flat_map(AgentAct::items).chain(reason).collect()
    }
}

/// A conversation of a client and an agent.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Lower case, with hyphens.
    pub name: &'static str,
    /// One after the other.
    pub turns: Vec<Turn>,
}

/// The position of a turn among all concurrent plays. Clients' texts and ids of calls and questions contain its text,
/// so that an agent without sessions finds its turn in the bytes of a request: the last mark applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// The number of the play of a scenario.
    pub play: u32,
    /// The number of the turn, from 0.
    pub turn: u32,
}

impl Mark {
    const PREFIX: &'static str = "play-";

    /// The words of a client, with the mark.
    #[must_use]
    pub fn words(self, words: &str) -> String {
        format!("{words} ({self})")
    }

    /// The words without the mark. `None` if they have none.
    #[must_use]
    pub fn without(text: &str) -> Option<&str> {
        text.rsplit_once(" (play-").map(|(words, _)| words)
    }

    /// An id of something that the agent makes in this turn and that the client answers in the next one. Letters,
    /// digits and hyphens.
    #[must_use]
    pub fn id(self, name: &str) -> String {
        format!("{}-{name}", Self { turn: self.turn + 1, ..self })
    }

    /// The last mark in the bytes of a request.
    #[must_use]
    pub fn last_in(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        text.rmatch_indices(Self::PREFIX).find_map(|(at, _)| {
            let mut numbers = text[at + Self::PREFIX.len()..].split(|letter: char| !letter.is_ascii_digit());
            Some(Self { play: numbers.next()?.parse().ok()?, turn: numbers.next()?.parse().ok()? })
        })
    }

    /// Whether the bytes contain a mark of an earlier turn: its messages were stored or sent again.
    #[must_use]
    pub fn earlier_in(self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        text.contains(&format!("({})", Self { turn: 0, ..self }))
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}-{}", Self::PREFIX, self.play, self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mark_of_a_request_counts() {
        let (first, second) = (Mark { play: 7, turn: 0 }, Mark { play: 7, turn: 1 });
        let body = format!(r#"{{"input":["{}","{}"]}}"#, first.words("hello"), second.words("and?"));
        assert_eq!(Mark::last_in(body.as_bytes()), Some(second));
        assert!(second.earlier_in(body.as_bytes()));
        assert_eq!(Mark::without(&first.words("hello")), Some("hello"));

        let answer = format!(r#"{{"call_id":"{}","output":"18 C"}}"#, first.id("a"));
        assert_eq!(Mark::last_in(answer.as_bytes()), Some(second), "an answer belongs to the next turn");
        assert_eq!(Mark::last_in(b"play-x-1 play-"), None);
    }

    #[test]
    fn names_are_unique_and_every_turn_expects_something() {
        let all = scenarios();
        for (index, scenario) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.name != scenario.name), "{} twice", scenario.name);
            assert!(scenario.turns.iter().all(|turn| !turn.sent().is_empty()), "{}", scenario.name);
        }
    }
}
