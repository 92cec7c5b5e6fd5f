//! The fold of what was told: a run as a tree. Nothing here changes one: only [`Record`] does.

mod record;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use self::record::kept;
pub use self::record::{Announced, MessageEnd, Record};
pub(crate) use self::record::{room_for_one, weight};
use crate::event::{End, Millis, Span};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, Body, ContentType, MessageType, Role, Status};

/// One piece of work an agent was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its id, the gateway's own.
    pub id: RunId,
    /// The agent, as the configuration names it.
    pub agent: String,
    /// The session, as clients and the upstream know it.
    pub session_id: String,
    /// When it was accepted.
    pub created_at: Millis,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// Its turns: one exchange with the upstream each. Nearly always one.
    pub turns: Vec<Turn>,
    /// What the agent told, over all turns, in the order it began.
    pub messages: Vec<Message>,
    /// How it ended.
    pub end: Option<End>,
}

/// One exchange with the upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// What was new in this turn, as the client said it.
    pub input: model::Input,
    /// When it began.
    pub started_at: Millis,
    /// The first of its messages in [`Run::messages`].
    pub first_message: usize,
    /// True once the agent has begun to work on it.
    pub begun: bool,
    /// True for a turn that ended before it reached the agent: the run is where it was before. What was said in it was
    /// not said to anybody, and whatever the run waited for, it waits for again.
    pub withdrawn: bool,
    /// The run whose turn this one stands for: it answered what was asked here. Nothing is said in such a turn; it ends as
    /// that run's did, and ends this run.
    pub answered_by: Option<RunId>,
    /// How it ended.
    pub end: Option<End>,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// What went wrong, fit for clients.
    pub error: Option<RunError>,
    /// What it cost.
    pub usage: Option<Json>,
    /// The id the upstream gave its response.
    pub upstream_id: Option<String>,
    /// Fields of the upstream's response this version has no name for.
    pub extra: Extra,
}

/// What went wrong, fit for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct RunError {
    /// A stable code.
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// A message as it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Unique in the run; the upstream's where it gave one.
    pub id: String,
    /// What it was announced as. Never changes.
    pub announced: MessageType,
    /// What it turned out to be: in the rare case that an upstream sends content before it says of what.
    pub kind: MessageType,
    /// Who speaks.
    pub role: Role,
    /// What it holds.
    pub slots: Vec<Slot>,
    /// How it ended. None while it is open.
    pub end: Option<End>,
    /// Code of an `error` message, or of one that failed.
    pub code: Option<String>,
    /// Text of an `error` message, or of one that failed.
    pub message: Option<String>,
    /// What it cost.
    pub usage: Option<Json>,
    /// Free for applications, as the announcement had it. Never changes.
    pub announced_metadata: Option<Json>,
    /// Free for applications.
    pub metadata: Option<Json>,
    /// Fields this version has no name for.
    pub extra: Extra,
}

/// A content as it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// What it holds.
    pub kind: ContentType,
    /// Which call the text is the arguments of. Set from the start for the contents of calls.
    pub call: Option<CallHead>,
    /// The final value, for all but plain texts. None while it is open.
    pub value: Option<model::Content>,
    /// True once it is final.
    pub finished: bool,
    /// Fields this version has no name for, of a text.
    pub extra: Extra,
    /// Texts told one in the place of the other; the last one holds. Empty for contents that are no text.
    versions: Vec<Version>,
}

/// One text of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Version {
    text: String,
    /// How long it was when it was put in the place of the one before.
    initial: usize,
}

/// What identifies a call, known before its arguments are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallHead {
    /// Joins call and output.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// The MCP server.
    pub server_label: Option<String>,
}

impl Slot {
    /// The text so far: text, refusal or arguments. Empty for other contents.
    #[must_use]
    pub fn text(&self) -> &str {
        self.versions.last().map_or("", |version| version.text.as_str())
    }

    /// A piece of the text.
    #[must_use]
    pub fn span(&self, span: Span) -> &str {
        self.versions
            .get(span.version as usize)
            .and_then(|version| version.text.get(span.start as usize..span.end as usize))
            .unwrap_or("")
    }

    pub(crate) fn replaced(&self, version: u32) -> &str {
        self.versions.get(version as usize).and_then(|version| version.text.get(..version.initial)).unwrap_or("")
    }

    /// The value as the model has it: final once the slot is finished.
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

    /// The output this content is, if its message is one. Only of finished contents.
    #[must_use]
    pub fn output(&self) -> Option<model::ToolOutput> {
        self.value.as_ref()?.as_data()?.decode()
    }

    /// The data this content holds, if it is data. Only of finished contents.
    #[must_use]
    pub fn data(&self) -> Option<&Json> {
        self.value.as_ref()?.as_data()
    }
}

struct Arguments<'a> {
    head: &'a CallHead,
    arguments: &'a str,
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
    /// The message as the model has it: final once it is finished.
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

    /// Roughly the memory it takes besides its id and contents, in bytes.
    fn besides(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let json = kept(self.usage.as_ref()) + kept(self.metadata.as_ref()) + kept(self.announced_metadata.as_ref());
        json + text(&self.code) + text(&self.message) + self.extra.size()
    }

    /// The texts of the message, joined without anything between them.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.slots.iter().filter(|slot| slot.kind == ContentType::Text && slot.call.is_none());
        texts.map(Slot::text).collect()
    }
}

impl Run {
    /// A run that was accepted and has not begun.
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

    /// The turn under way, or the last one.
    #[must_use]
    pub fn turn(&self) -> Option<&Turn> {
        self.turns.last()
    }

    /// What went wrong in the last turn.
    #[must_use]
    pub fn error(&self) -> Option<&RunError> {
        self.turn()?.error.as_ref()
    }

    /// What the last turn cost.
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

    /// Which turn says what the run waits for: the last one that was not withdrawn.
    #[must_use]
    pub fn last_taken(&self) -> Option<usize> {
        self.turns.iter().rposition(|turn| !turn.withdrawn)
    }

    /// How the run ended, and when. Between two turns: how the last one did that reached the agent. None while it works.
    #[must_use]
    pub fn outcome(&self) -> Option<(End, Millis)> {
        if let (Some(end), Some(at)) = (self.end, self.finished_at) {
            return Some((end, at));
        }
        self.turn()?.end?;
        let last = &self.turns[self.last_taken()?];
        Some((last.end?, last.ended_at?))
    }

    /// The run that is answering what this one asked, or has done so.
    #[must_use]
    pub fn answered_by(&self) -> Option<RunId> {
        self.turn().filter(|turn| !turn.withdrawn)?.answered_by
    }

    /// Everything said in this run: the input of each turn, then its answer. What later turns build on.
    pub fn conversation(&self) -> impl Iterator<Item = model::Message> {
        self.turns.iter().enumerate().filter(|(_, turn)| !turn.withdrawn).flat_map(|(index, turn)| {
            turn.input.iter().cloned().chain(self.messages_of(index).iter().map(Message::to_model))
        })
    }
}
