//! The state of a run: its turns, messages and contents. Read-only here: only [`Record`](super::Record) changes a run.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::cause::FailureCause;
use super::evicted::{EvictedText, text_hash};
use super::size::json_size;
use crate::agent_event::Awaits;
use crate::event::{End, Millis, Span};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, Body, ContentType, MessageType, Role, Status};

/// One unit of work for an agent: one or more turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The run's id, assigned by the gateway or chosen by the client's protocol.
    pub id: RunId,
    /// The agent's name in the configuration.
    pub agent: String,
    /// The session id, shared by clients and the upstream.
    pub session_id: String,
    /// When the run was accepted.
    pub created_at: Millis,
    /// `None` until [`Event::RunFinished`](crate::event::Event::RunFinished).
    pub finished_at: Option<Millis>,
    /// Exchanges with the upstream; usually one.
    pub turns: Vec<Turn>,
    /// The agent's messages of all turns, in the order they started.
    pub messages: Vec<Message>,
    /// The outcome; `None` while the run can continue.
    pub end: Option<End>,
}

/// One exchange with the upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// The client's new messages in this turn.
    pub input: model::Input,
    /// When the turn began.
    pub started_at: Millis,
    /// Index of its first message in [`Run::messages`].
    pub first_message: usize,
    /// True once the agent has started to work on the turn.
    pub answer_started: bool,
    /// True if the turn ended before it reached the agent. Its input was not delivered, and the run is in the state it
    /// had before the turn: it waits for the same pending items again.
    pub withdrawn: bool,
    /// The run that answered this run's pending items, if it was another one. Such a turn has no input and no messages;
    /// it ends as that run's turn ended, and ends this run.
    pub answered_by: Option<RunId>,
    /// The outcome; `None` while the turn is active.
    pub end: Option<End>,
    /// When the turn ended.
    pub ended_at: Option<Millis>,
    /// The condition that the agent waits for, besides pending items. `None`: it waits for none, or an earlier version
    /// recorded the turn.
    pub awaits: Option<Awaits>,
    /// The error, safe to show to clients.
    pub error: Option<RunError>,
    /// Details of the error, for operators only. `None`: the turn did not fail, or the error has no details.
    pub cause: Option<Box<FailureCause>>,
    /// Token usage as the upstream reports it.
    pub usage: Option<Json>,
    /// The id of the upstream's response.
    pub upstream_id: Option<String>,
    /// Unknown fields of the upstream's response.
    pub extra: Extra,
}

/// An error that is safe to show to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct RunError {
    /// Machine-readable and stable.
    pub code: String,
    /// Human-readable.
    pub message: String,
}

/// A message of an answer, possibly still growing.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Unique in the run; the upstream's id if it gave one.
    pub id: String,
    /// The type at [`Event::MessageStarted`](crate::event::Event::MessageStarted). Never changes.
    pub announced: MessageType,
    /// The final type. Differs from `announced` only if the upstream sent content before the message's type.
    pub kind: MessageType,
    /// The author.
    pub role: Role,
    /// The contents, in order.
    pub slots: Vec<Slot>,
    /// The outcome; `None` while the message is open.
    pub end: Option<End>,
    /// Error code of an `error` message or of a failed one.
    pub code: Option<String>,
    /// Error text of an `error` message or of a failed one.
    pub message: Option<String>,
    /// Token usage as the upstream reports it.
    pub usage: Option<Json>,
    /// Application data at the start of the message. Never changes.
    pub announced_metadata: Option<Json>,
    /// Application data.
    pub metadata: Option<Json>,
    /// Unknown fields.
    pub extra: Extra,
}

/// A content of an answer, possibly still growing.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Fixed when the content begins.
    pub kind: ContentType,
    /// The call whose arguments the text is. Set from the start for the contents of calls.
    pub call: Option<CallHead>,
    /// The final value of anything but a plain text. `None` while the content is open.
    pub value: Option<model::Content>,
    /// True once the content is final.
    pub finished: bool,
    /// Unknown fields of a text content.
    pub extra: Extra,
    /// Successive texts; the last one is current. Empty for contents without text.
    pub(super) versions: Vec<Version>,
}

/// One text version of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    /// The text after the evicted part.
    pub(super) text: String,
    /// Length in bytes when it replaced the version before it. 0 for the first version.
    pub(super) initial: usize,
    /// The beginning of the text that is not in memory. `None`: all of it is.
    pub(super) evicted: Option<Box<EvictedText>>,
}

impl Version {
    /// The position of [`Version::text`] in the whole text, in bytes.
    pub(super) fn start(&self) -> usize {
        self.evicted.as_ref().map_or(0, |evicted| evicted.len)
    }

    /// The length of the whole text in bytes.
    pub(super) fn len(&self) -> usize {
        self.start() + self.text.len()
    }
}

/// Identifies a call before its arguments are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallHead {
    /// Correlates a call with its output.
    pub call_id: String,
    /// Tool name.
    pub name: String,
    /// The MCP server that has the tool.
    pub server_label: Option<String>,
}

impl Slot {
    /// The current text: text, refusal or arguments. Empty for other contents. Excludes the evicted part, unless the
    /// record is whole ([`Record::is_whole`](super::Record::is_whole)).
    #[must_use]
    pub fn text(&self) -> &str {
        self.versions.last().map_or("", |version| version.text.as_str())
    }

    /// The length of the current text in bytes, the evicted part included.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.versions.last().map_or(0, Version::len)
    }

    /// The part of `text` after the current text, if `text` begins with that. The evicted part is compared by its hash.
    pub(crate) fn rest_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        let Some(version) = self.versions.last() else { return Some(text) };
        let text = match &version.evicted {
            Some(evicted) => evicted.rest_of(text)?,
            None => text,
        };
        text.strip_prefix(version.text.as_str())
    }

    /// The hash of the current text, the evicted part included; equal to [`text_hash`] of it.
    pub(crate) fn text_hash(&self) -> u64 {
        match self.versions.last() {
            Some(Version { text, evicted: Some(evicted), .. }) => evicted.hash_with(text),
            _ => text_hash(self.text()),
        }
    }

    /// A range of the text. Empty if the range does not exist or is evicted.
    #[must_use]
    pub fn span(&self, span: Span) -> &str {
        self.versions
            .get(span.version as usize)
            .and_then(|version| {
                let start = version.start();
                version.text.get((span.start as usize).checked_sub(start)?..(span.end as usize).checked_sub(start)?)
            })
            .unwrap_or("")
    }

    /// The text that a version began with. Empty if it is evicted.
    pub(crate) fn replaced(&self, version: u32) -> &str {
        self.versions
            .get(version as usize)
            .and_then(|version| version.text.get(..version.initial.checked_sub(version.start())?))
            .unwrap_or("")
    }

    /// The content in the canonical model: final once the slot is finished.
    #[must_use]
    pub fn content(&self) -> model::Content {
        if let Some(value) = &self.value {
            return value.clone();
        }

        let body = match (&self.kind, &self.call) {
            (_, Some(head)) => Body::Data(Json::from_serialize(&Arguments { head, arguments: self.text() })),
            (ContentType::Refusal, None) => Body::Refusal(self.text().to_owned()),
            (ContentType::Text, None) => Body::Text(self.text().to_owned()),
            (ContentType::Image, None) => Body::Image(None),
            (ContentType::Video, None) => Body::Video(None),
            (ContentType::Audio, None) => Body::Audio { data: None, format: None },
            (ContentType::File, None) => Body::File(model::File::default()),
            (ContentType::Data, None) => Body::Data(Json::null()),
            (ContentType::Other(word), None) => Body::Other(word.clone()),
        };

        model::Content { body, extra: self.extra.clone() }
    }

    /// The tool output in this content. `None`: the content is not finished, or its data is no output.
    #[must_use]
    pub fn output(&self) -> Option<model::ToolOutput> {
        self.value.as_ref()?.as_data()?.decode()
    }

    /// The data in this content. `None`: the content is not finished, or has no data.
    #[must_use]
    pub fn data(&self) -> Option<&Json> {
        self.value.as_ref()?.as_data()
    }
}

struct Arguments<'a> {
    pub(super) head: &'a CallHead,
    pub(super) arguments: &'a str,
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("call_id", &self.head.call_id)?;
        map.serialize_entry("name", &self.head.name)?;
        map.serialize_entry("arguments", self.arguments)?;
        if let Some(label) = &self.head.server_label {
            map.serialize_entry("server_label", label)?;
        }
        map.end()
    }
}

impl Message {
    /// The message in the canonical model: final once the message is finished.
    #[must_use]
    pub fn to_model(&self) -> model::Message {
        model::Message {
            id: Some(self.id.clone()),
            kind: self.kind.clone(),
            role: Some(self.role.clone()),
            status: Some(self.end.map_or(Status::InProgress, |end| Status::from(end.as_str()))),
            content: self.slots.iter().map(Slot::content).collect(),
            code: self.code.clone(),
            message: self.message.clone(),
            usage: self.usage.clone(),
            metadata: self.metadata.clone(),
            extra: self.extra.clone(),
        }
    }

    /// Approximate memory of the message without its id and contents, in bytes.
    pub(super) fn metadata_size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let json = [&self.usage, &self.metadata, &self.announced_metadata].map(|json| json_size(json.as_ref()));
        json.iter().sum::<usize>() + text(&self.code) + text(&self.message) + self.extra.size()
    }

    /// The texts of the message, concatenated without a separator.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.slots.iter().filter(|slot| slot.kind == ContentType::Text && slot.call.is_none());
        texts.map(Slot::text).collect()
    }
}

impl Run {
    /// A run without turns.
    #[must_use]
    pub fn new(id: RunId, agent: impl Into<String>, session_id: impl Into<String>, created_at: Millis) -> Self {
        Self {
            id,
            agent: agent.into(),
            session_id: session_id.into(),
            created_at,
            finished_at: None,
            turns: Vec::new(),
            messages: Vec::new(),
            end: None,
        }
    }

    /// The active turn, or the last one. `None`: no turn has begun.
    #[must_use]
    pub fn turn(&self) -> Option<&Turn> {
        self.turns.last()
    }

    /// The error of the last turn. `None`: it has none, or there is no turn.
    #[must_use]
    pub fn error(&self) -> Option<&RunError> {
        self.turn()?.error.as_ref()
    }

    /// The token usage of the last turn. `None`: the agent reported none, or there is no turn.
    #[must_use]
    pub fn usage(&self) -> Option<&Json> {
        self.turn()?.usage.as_ref()
    }

    /// The messages of one turn.
    #[must_use]
    pub fn messages_of(&self, turn: usize) -> &[Message] {
        let Some(from) = self.turns.get(turn).map(|turn| turn.first_message) else { return &[] };
        let to = self.turns.get(turn + 1).map_or(self.messages.len(), |next| next.first_message);
        &self.messages[from..to]
    }

    /// Index of the last turn that was not withdrawn: the one that determines what the run waits for.
    #[must_use]
    pub fn last_effective_turn(&self) -> Option<usize> {
        self.turns.iter().rposition(|turn| !turn.withdrawn)
    }

    /// Outcome and end time of the run. Between two turns: those of the last turn that reached the agent. `None`: the
    /// agent is working, or no turn has reached it.
    #[must_use]
    pub fn outcome(&self) -> Option<(End, Millis)> {
        if let (Some(end), Some(at)) = (self.end, self.finished_at) {
            return Some((end, at));
        }
        self.turn()?.end?;
        let last = &self.turns[self.last_effective_turn()?];
        Some((last.end?, last.ended_at?))
    }

    /// The run that answers, or has answered, this run's pending items. `None`: no other run does.
    #[must_use]
    pub fn answered_by(&self) -> Option<RunId> {
        self.turn().filter(|turn| !turn.withdrawn)?.answered_by
    }

    /// The conversation of this run: the input of each turn, then its answer. Later runs build on it.
    pub fn conversation(&self) -> impl Iterator<Item = model::Message> {
        self.turns.iter().enumerate().filter(|(_, turn)| !turn.withdrawn).flat_map(|(index, turn)| {
            turn.input.iter().cloned().chain(self.messages_of(index).iter().map(Message::to_model))
        })
    }
}
