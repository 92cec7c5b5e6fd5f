//! The protocol's types: one model in the shape of A2A 1.0. `v1` encodes it for both bindings of 1.0, `v03` for the two
//! dialects of 0.3; `read` parses requests.
//!
//! All types borrow from the run. Not here: converting runs to these types (`updates`, `task`).

pub(crate) mod base64;
pub(crate) mod read;
pub(crate) mod v03;
pub(crate) mod v1;

use std::borrow::Cow;

use interlingua_core::Json;
use interlingua_core::agent_event::Awaits;
use interlingua_core::event::Millis;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::dialect::WireFormat;

/// JSON that is passed through.
pub(crate) type Raw<'a> = Cow<'a, RawValue>;

/// Borrows a core value as wire JSON.
pub(crate) fn as_raw(json: &Json) -> Raw<'_> {
    Cow::Borrowed(json.raw())
}

/// Serializes a value to wire JSON.
pub(crate) fn to_raw<T: Serialize + ?Sized>(value: &T) -> Raw<'static> {
    Cow::Owned(Json::from_serialize(value).raw().to_owned())
}

/// The state of a task (docs/protocols/a2a.md#tasks-and-contexts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TaskState {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl TaskState {
    pub(crate) const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
    ];

    /// The state of a task whose agent waits for this.
    pub(crate) const fn from_awaits(awaits: Awaits) -> Self {
        match awaits {
            Awaits::Input => Self::InputRequired,
            Awaits::Auth => Self::AuthRequired,
        }
    }

    /// True if the state never changes again.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Name of the state in a wire format (docs/protocols/a2a.md#data-model).
    pub(crate) const fn name(self, form: WireFormat) -> &'static str {
        match form {
            WireFormat::V1 => match self {
                Self::Submitted => "TASK_STATE_SUBMITTED",
                Self::Working => "TASK_STATE_WORKING",
                Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
                Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
                Self::Completed => "TASK_STATE_COMPLETED",
                Self::Failed => "TASK_STATE_FAILED",
                Self::Canceled => "TASK_STATE_CANCELED",
                Self::Rejected => "TASK_STATE_REJECTED",
            },
            WireFormat::V03Rest => match self {
                // In the 0.3 protobuf it has two L.
                Self::Canceled => "TASK_STATE_CANCELLED",
                state => state.name(WireFormat::V1),
            },
            WireFormat::V03 => match self {
                Self::Submitted => "submitted",
                Self::Working => "working",
                Self::InputRequired => "input-required",
                Self::AuthRequired => "auth-required",
                Self::Completed => "completed",
                Self::Failed => "failed",
                Self::Canceled => "canceled",
                Self::Rejected => "rejected",
            },
        }
    }

    /// Parses the name in any wire format, or the protobuf number.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Ok(number) = name.parse::<u8>() {
            return Some(match number {
                1 => Self::Submitted,
                2 => Self::Working,
                3 => Self::Completed,
                4 => Self::Failed,
                5 => Self::Canceled,
                6 => Self::InputRequired,
                7 => Self::Rejected,
                8 => Self::AuthRequired,
                _ => return None,
            });
        }

        [WireFormat::V1, WireFormat::V03, WireFormat::V03Rest]
            .into_iter()
            .find_map(|form| Self::ALL.into_iter().find(|state| state.name(form) == name))
    }
}

/// Author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Agent,
}

/// Content of a part.
#[derive(Clone, Debug)]
pub(crate) enum Content<'a> {
    Text(Cow<'a, str>),
    /// Standard base64 with padding.
    Bytes(Cow<'a, str>),
    Url(Cow<'a, str>),
    Data(Raw<'a>),
}

/// A part of a message or an artifact.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) content: Content<'a>,
    pub(crate) filename: Option<Cow<'a, str>>,
    pub(crate) media_type: Option<Cow<'a, str>>,
    pub(crate) metadata: Option<Raw<'a>>,
}

impl<'a> Part<'a> {
    pub(crate) const fn new(content: Content<'a>) -> Self {
        Self { content, filename: None, media_type: None, metadata: None }
    }

    pub(crate) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    pub(crate) const fn data(data: Raw<'a>) -> Self {
        Self::new(Content::Data(data))
    }

    pub(crate) fn with_metadata(mut self, metadata: Raw<'a>) -> Self {
        self.metadata = Some(metadata);
        self
    }
}

/// A message of client or agent.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) context: Option<Cow<'a, str>>,
    pub(crate) task: Option<Cow<'a, str>>,
    pub(crate) role: Role,
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) metadata: Option<Raw<'a>>,
    pub(crate) extensions: Vec<Cow<'a, str>>,
    pub(crate) references: Vec<Cow<'a, str>>,
}

impl<'a> Message<'a> {
    /// A message of the agent.
    pub(crate) fn agent(id: impl Into<Cow<'a, str>>, parts: Vec<Part<'a>>) -> Self {
        Self {
            id: id.into(),
            context: None,
            task: None,
            role: Role::Agent,
            parts,
            metadata: None,
            extensions: Vec::new(),
            references: Vec::new(),
        }
    }

    /// Sets task and context.
    pub(crate) fn in_task(mut self, task: impl Into<Cow<'a, str>>, context: impl Into<Cow<'a, str>>) -> Self {
        self.task = Some(task.into());
        self.context = Some(context.into());
        self
    }
}

/// Status of a task.
#[derive(Clone, Debug)]
pub(crate) struct Status<'a> {
    pub(crate) state: TaskState,
    pub(crate) message: Option<Message<'a>>,
    pub(crate) at: Millis,
}

/// An artifact of a task.
#[derive(Clone, Debug)]
pub(crate) struct Artifact<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: Option<Cow<'a, str>>,
    pub(crate) parts: Vec<Part<'a>>,
    pub(crate) metadata: Option<Raw<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) context: Cow<'a, str>,
    pub(crate) status: Status<'a>,
    /// `None`: the member is omitted. An empty list is written.
    pub(crate) artifacts: Option<Vec<Artifact<'a>>>,
    /// `None`: the member is omitted.
    pub(crate) history: Option<Vec<Message<'a>>>,
    pub(crate) metadata: Option<Raw<'a>>,
}

/// A status change.
#[derive(Clone, Debug)]
pub(crate) struct StatusUpdate<'a> {
    pub(crate) task: Cow<'a, str>,
    pub(crate) context: Cow<'a, str>,
    pub(crate) status: Status<'a>,
    pub(crate) metadata: Option<Raw<'a>>,
    /// True if the stream ends with this event: `final` in 0.3.
    pub(crate) closes: bool,
}

/// A chunk of an artifact.
#[derive(Clone, Debug)]
pub(crate) struct ArtifactUpdate<'a> {
    pub(crate) task: Cow<'a, str>,
    pub(crate) context: Cow<'a, str>,
    pub(crate) artifact: Artifact<'a>,
    pub(crate) append: bool,
    pub(crate) last_chunk: bool,
}

/// An item of a stream, or the result of a send.
#[derive(Clone, Debug)]
pub(crate) enum Item<'a> {
    Task(Task<'a>),
    Message(Message<'a>),
    Status(StatusUpdate<'a>),
    Artifact(ArtifactUpdate<'a>),
}

/// Serializes a value in a wire format.
pub(crate) struct EncodedValue<'a, T>(pub(crate) &'a T, pub(crate) WireFormat);

macro_rules! impl_encoded {
    ($($type:ident),+) => {$(
        impl Serialize for EncodedValue<'_, $type<'_>> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.1 {
                    WireFormat::V1 => self.0.serialize(serializer),
                    form => v03::V03(self.0, form).serialize(serializer),
                }
            }
        }
    )+};
}
impl_encoded!(Item, Task, Message);

#[cfg(test)]
mod tests;
