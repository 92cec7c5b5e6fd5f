//! Acts of clients and agents in scenarios, and the items of each act.

use super::{Item, normal};
use interlingua_core::loss::ContentKind;
use interlingua_core::pending::Decision;

/// Something a client puts into its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAct {
    /// Words of the user.
    Say(&'static str),
    /// A picture or the like beside the words.
    Attach(Media),
    /// A tool that the client runs.
    Declare(Tool),
    /// The output of a call that the client ran: of which open call, in order, and what.
    Output(usize, &'static str),
    /// Such an output with a picture beside its text, by its URL.
    Picture(usize, &'static str, &'static str),
    /// The failure of such a call, in words.
    Fail(usize, &'static str),
    /// A decision about an approval: about which open item, in order.
    Decide(usize, Decision),
    /// Arguments for the call instead of the agent's: JSON text.
    Edit(usize, &'static str),
    /// A text instead of the call's result.
    Respond(usize, &'static str),
    /// The answer to a question: JSON text, or words.
    Answer(usize, &'static str),
    /// Confirms a login.
    LoggedIn(usize),
    /// Instructions of the client for the agent.
    Instruct(&'static str),
    /// A temperature of one half.
    Temperature,
    /// Another message of the user: the agent must know the history.
    Remember,
}

impl ClientAct {
    /// The items that the agent receives.
    pub(super) fn items(&self) -> Vec<Item> {
        use ContentKind as K;
        let item = match self {
            Self::Picture(_, text, url) => {
                return vec![Item::new(K::ClientOutput, *text), Item::new(K::ImageIn, *url)];
            }
            Self::Fail(_, text) => {
                return vec![Item::new(K::ClientOutput, *text), Item::new(K::ToolFailure, "failed")];
            }
            Self::Say(words) => Item::new(K::Text, *words),
            Self::Attach(media) => Item::new(media.kind_in(), media.value()),
            Self::Declare(tool) => Item::new(K::ToolDeclaration, tool.name),
            Self::Output(_, text) => Item::new(K::ClientOutput, *text),
            Self::Decide(_, decision) => Item::new(K::Approval, decision.as_str()),
            Self::Edit(_, arguments) => Item::new(K::ApprovalEdit, normal(arguments)),
            Self::Respond(_, text) => Item::new(K::ApprovalReason, *text),
            Self::Answer(_, value) => Item::new(K::Question, normal(value)),
            Self::LoggedIn(_) => Item::new(K::Login, "done"),
            Self::Instruct(words) => Item::new(K::Instructions, *words),
            Self::Temperature => Item::new(K::Sampling, "temperature 0.5"),
            Self::Remember => Item::new(K::History, "remembered"),
        };
        vec![item]
    }

    /// The open item that it answers, counted from 0.
    #[must_use]
    pub const fn answers(&self) -> Option<usize> {
        match self {
            Self::Output(item, _)
            | Self::Fail(item, _)
            | Self::Picture(item, ..)
            | Self::Decide(item, _)
            | Self::Edit(item, _)
            | Self::Respond(item, _)
            | Self::Answer(item, _)
            | Self::LoggedIn(item) => Some(*item),
            _ => None,
        }
    }
}

impl ClientAct {
    /// The same answer to the open item with this number.
    #[must_use]
    pub const fn to(self, item: usize) -> Self {
        match self {
            Self::Output(_, text) => Self::Output(item, text),
            Self::Fail(_, text) => Self::Fail(item, text),
            Self::Picture(_, text, url) => Self::Picture(item, text, url),
            Self::Decide(_, decision) => Self::Decide(item, decision),
            Self::Edit(_, arguments) => Self::Edit(item, arguments),
            Self::Respond(_, text) => Self::Respond(item, text),
            Self::Answer(_, value) => Self::Answer(item, value),
            Self::LoggedIn(_) => Self::LoggedIn(item),
            other => other,
        }
    }
}

/// A tool of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// For the model.
    pub description: &'static str,
    /// JSON Schema of its arguments.
    pub parameters: &'static str,
}

/// A picture, a sound, a video, a file or data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// An image by its URL.
    Image(&'static str),
    /// A short sound: base64 of a WAV file.
    Audio(&'static str),
    /// A video by its URL.
    Video(&'static str),
    /// A file by its URL, and its name.
    File(&'static str, &'static str),
    /// A JSON object.
    Data(&'static str),
}

impl Media {
    /// Its kind on the way to the agent.
    #[must_use]
    pub const fn kind_in(self) -> ContentKind {
        match self {
            Self::Image(_) => ContentKind::ImageIn,
            Self::Audio(_) => ContentKind::AudioIn,
            Self::Video(_) => ContentKind::VideoIn,
            Self::File(..) => ContentKind::FileIn,
            Self::Data(_) => ContentKind::DataIn,
        }
    }

    /// Its kind on the way to the client.
    #[must_use]
    pub const fn kind_out(self) -> ContentKind {
        match self {
            Self::Image(_) => ContentKind::ImageOut,
            Self::Audio(_) => ContentKind::AudioOut,
            Self::Video(_) => ContentKind::VideoOut,
            Self::File(..) => ContentKind::FileOut,
            Self::Data(_) => ContentKind::DataOut,
        }
    }

    /// The value of its item: the URL, the base64 text, or the data by [`normal`].
    #[must_use]
    pub fn value(self) -> String {
        match self {
            Self::Image(url) | Self::Video(url) | Self::File(url, _) => url.to_owned(),
            Self::Audio(base64) => base64.to_owned(),
            Self::Data(json) => normal(json),
        }
    }
}

/// Something an agent does in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentAct {
    /// A message, in these pieces.
    Text(&'static [&'static str]),
    /// Thoughts before or between, in these pieces.
    Reasoning(&'static [&'static str]),
    /// Declines, in these pieces.
    Refusal(&'static [&'static str]),
    /// Calls a tool of its own.
    Call(Call),
    /// The output of such a call, by its name; and whether the tool failed.
    Result(&'static str, &'static str, bool),
    /// Calls a tool of the client.
    ClientCall(Call),
    /// Shows something.
    Show(Media),
    /// A source of the text before it: a URL and its title.
    Cite(&'static str, &'static str),
    /// Asks and waits.
    Ask(Ask),
    /// The token usage of the answer: tokens of the request and of the answer.
    Usage(u64, u64),
    /// Sends the state of its front end: JSON.
    State(&'static str),
    /// Something this version of the protocol does not define, which must do no harm.
    Unknown,
    /// Waits until the test continues it.
    Wait,
    /// Works without output until the client goes or the turn is canceled.
    Hang,
}

/// A call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name in the scenario. The id on the wire is made of it.
    pub name: &'static str,
    /// The tool.
    pub tool: &'static str,
    /// JSON text, in pieces.
    pub arguments: &'static [&'static str],
}

impl Call {
    /// The arguments as a whole.
    #[must_use]
    pub fn whole(&self) -> String {
        self.arguments.concat()
    }
}

/// A question of the agent. The first field is its name in the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// May it run this call?
    Approval(Call),
    /// A question to the person, with a JSON Schema of the answer.
    Question(&'static str, &'static str, Option<&'static str>),
    /// A login, at this URL.
    Login(&'static str, &'static str),
}

impl AgentAct {
    /// The items that the client receives.
    pub(super) fn items(&self) -> Vec<Item> {
        use ContentKind as K;
        let item = match self {
            Self::Text(pieces) => Item::new(K::Text, pieces.concat()),
            Self::Reasoning(pieces) => Item::new(K::Reasoning, pieces.concat()),
            Self::Refusal(pieces) => Item::new(K::Refusal, pieces.concat()),
            Self::Call(call) => Item::call(K::AgentCall, call.tool, &call.whole()),
            Self::Result(_, output, _) => Item::new(K::AgentOutput, *output),
            Self::ClientCall(call) => Item::call(K::ClientCall, call.tool, &call.whole()),
            Self::Show(media) => Item::new(media.kind_out(), media.value()),
            Self::Cite(url, _) => Item::new(K::Annotation, *url),
            Self::Ask(Ask::Approval(call)) => Item::call(K::Approval, call.tool, &call.whole()),
            Self::Ask(Ask::Question(_, words, schema)) => {
                let schema = schema.map(|schema| Item::new(K::Schema, normal(schema)));
                return std::iter::once(Item::new(K::Question, *words)).chain(schema).collect();
            }
            Self::Ask(Ask::Login(_, url)) => Item::new(K::Login, *url),
            Self::Usage(input, output) => Item::usage(*input, *output),
            Self::State(json) => Item::new(K::ProtocolEvent, normal(json)),
            Self::Unknown | Self::Wait | Self::Hang => return Vec::new(),
        };
        vec![item]
    }
}

/// The end of an agent's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Completed,
    /// Before it was whole: `max_output_tokens` or `content_filter`.
    Incomplete(&'static str),
    /// With an error of the agent, after what it did.
    Failed(&'static str),
    /// With this status instead of an answer.
    Refused(u16),
    /// The connection ends without the protocol's end.
    BrokenOff,
}
