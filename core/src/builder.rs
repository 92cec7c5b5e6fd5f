//! Making native answers: a response holds messages, a message holds contents, and each step of making one is a frame
//! (Agent API, section 11).
//!
//! For whoever plays the agent: the demo agent, tests, and agents written in Rust. Behaves as the runtime's builder,
//! nulls, snapshots and merging included. Ids and times are handed in.
//!
//! Not here: repairing what others made ([`crate::normalize`]), and telling runs to clients, which is the native
//! adapter's and stricter than this. The builder lets two messages be open at once, as agents do.
//!
//! ```
//! use interlingua_core::builder::ResponseBuilder;
//!
//! let mut response = ResponseBuilder::new("response_1", 1_795_167_918).session("s-1");
//! let mut stream = String::new();
//! stream += &response.created().sse();
//! stream += &response.in_progress().sse();
//! let mut message = response.assistant();
//! stream += &message.in_progress().sse();
//! let mut content = message.text();
//! for token in ["Hello", ", ", "world"] {
//!     stream += &content.add_text_delta(token).sse();
//! }
//! stream += &content.complete().sse();
//! stream += &message.complete().sse();
//! stream += &response.complete(1_795_167_919).sse();
//!
//! assert_eq!(stream.matches("data: ").count(), 9);
//! assert!(stream.starts_with("data: {\"sequence_number\":0,\"object\":\"response\",\"status\":\"created\""));
//!
//! // The same in one call.
//! let frames = ResponseBuilder::new("response_1", 1_795_167_918)
//!     .session("s-1")
//!     .streamed(["Hello", ", ", "world"], 1_795_167_919);
//! assert_eq!(frames.iter().map(|frame| frame.sse()).collect::<String>(), stream);
//! ```

mod frame;
mod merge;

use serde::Serialize;

pub use frame::Frame;

use crate::json::Json;
use crate::model::{Body, Content, ContentType, File, MessageType, Role, Status};
use crate::run::RunError;
use frame::{ContentFrame, MessageFrame, ResponseFrame};

/// Makes a response.
#[derive(Clone, Debug)]
pub struct ResponseBuilder {
    id: String,
    session_id: Option<String>,
    /// Unix seconds.
    created_at: u64,
    /// The next number. None: frames have none.
    next: Option<u64>,
    messages: Vec<Built>,
    usage: Option<Json>,
}

/// A message being made.
#[derive(Clone, Debug)]
struct Built {
    id: String,
    kind: MessageType,
    role: Role,
    status: Status,
    /// The number of its last frame.
    number: Option<u64>,
    contents: Vec<Making>,
    error: Option<RunError>,
    usage: Option<Json>,
    metadata: Option<Json>,
}

/// A content being made.
#[derive(Clone, Debug)]
struct Making {
    kind: ContentType,
    /// What was set.
    set: Option<Body>,
    /// Fragments of text that came besides.
    text: String,
    /// Fragments of data that came besides, merged.
    data: Option<Json>,
    /// The final value, once complete.
    complete: Option<Content>,
}

impl ResponseBuilder {
    /// A response of this id, made at this time in Unix seconds. Its frames are numbered from 0.
    #[must_use]
    pub fn new(id: impl Into<String>, created_at: u64) -> Self {
        Self { id: id.into(), session_id: None, created_at, next: Some(0), messages: Vec::new(), usage: None }
    }

    /// Names the session.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// Leaves the numbers out, as the runtime's builder does where no runner adds them. `output` is then a list from
    /// the start.
    #[must_use]
    pub fn unnumbered(mut self) -> Self {
        self.next = None;
        self
    }

    /// Frame: the response exists.
    pub fn created(&mut self) -> Frame {
        self.frame(&Status::Created, None, None)
    }

    /// Frame: the response is under way.
    pub fn in_progress(&mut self) -> Frame {
        self.frame(&Status::InProgress, None, None)
    }

    /// A new message. It joins the output at once, and is told by [`MessageBuilder::in_progress`].
    pub fn message(&mut self, kind: MessageType, role: Role) -> MessageBuilder<'_> {
        let index = self.messages.len();
        let digits = self.id.strip_prefix("response_").unwrap_or(&self.id);
        self.messages.push(Built {
            id: format!("msg_{digits}_{index}"),
            kind,
            role,
            status: Status::InProgress,
            number: None,
            contents: Vec::new(),
            error: None,
            usage: None,
            metadata: None,
        });
        MessageBuilder { response: self, index }
    }

    /// A new message in which the agent says something.
    pub fn assistant(&mut self) -> MessageBuilder<'_> {
        self.message(MessageType::Message, Role::Assistant)
    }

    /// Goes on with a message that was left open, by its place. None if there is none there.
    pub fn resume(&mut self, index: usize) -> Option<MessageBuilder<'_>> {
        (index < self.messages.len()).then_some(MessageBuilder { response: self, index })
    }

    /// Says what the response cost: an object.
    pub fn set_usage<T: Serialize + ?Sized>(&mut self, usage: &T) {
        self.usage = Some(Json::from_serialize(usage));
    }

    /// Frame: the response is complete, at this time in Unix seconds.
    pub fn complete(&mut self, completed_at: u64) -> Frame {
        self.frame(&Status::Completed, Some(completed_at), None)
    }

    /// Frame: the response has failed.
    pub fn fail(&mut self, code: impl Into<String>, message: impl Into<String>) -> Frame {
        let error = RunError { code: code.into(), message: message.into() };
        self.frame(&Status::Failed, None, Some(&error))
    }

    /// Frame: the response ends with another status, such as `incomplete` or `rejected`.
    pub fn end(&mut self, status: &Status) -> Frame {
        self.frame(status, None, None)
    }

    /// All frames of an answer that is one text, given in tokens.
    #[must_use]
    pub fn streamed<'t>(mut self, tokens: impl IntoIterator<Item = &'t str>, completed_at: u64) -> Vec<Frame> {
        let mut frames = vec![self.created(), self.in_progress()];
        let mut message = self.assistant();
        frames.push(message.in_progress());
        let mut content = message.text();
        for token in tokens {
            frames.push(content.add_text_delta(token));
        }
        frames.push(content.complete());
        frames.push(message.complete());
        frames.push(self.complete(completed_at));
        frames
    }

    fn number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next = number.map(|number| number + 1);
        number
    }

    fn frame(&mut self, status: &Status, completed_at: Option<u64>, error: Option<&RunError>) -> Frame {
        let number = self.number();
        let begins = matches!(status, Status::Created | Status::InProgress);
        let output: Vec<_> = self.messages.iter().map(MessageFrame::whole).collect();
        Frame::of(&ResponseFrame {
            sequence_number: number,
            object: "response",
            status,
            error,
            id: &self.id,
            created_at: self.created_at,
            completed_at,
            // The runner says nothing of the output before the end; the builder alone has an empty list there.
            output: (!begins || number.is_none()).then_some(output),
            usage: self.usage.as_ref(),
            session_id: self.session_id.as_deref(),
        })
    }
}

/// Makes a message of a response. To leave it open and go on with another, drop it; see [`ResponseBuilder::resume`].
#[derive(Debug)]
pub struct MessageBuilder<'a> {
    response: &'a mut ResponseBuilder,
    index: usize,
}

impl MessageBuilder<'_> {
    /// Gives it another id than the one derived from the response's.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.built().id = id.into();
        self
    }

    /// Adds what is free for applications: an object.
    #[must_use]
    pub fn metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Self {
        self.built().metadata = Some(Json::from_serialize(metadata));
        self
    }

    /// Says what the message cost: an object. The response then says the same, as with the runtime.
    pub fn set_usage<T: Serialize + ?Sized>(&mut self, usage: &T) {
        let usage = Json::from_serialize(usage);
        self.built().usage = Some(usage.clone());
        self.response.usage = Some(usage);
    }

    /// Its place in the response, for [`ResponseBuilder::resume`].
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Frame: the message begins.
    pub fn in_progress(&mut self) -> Frame {
        let number = self.response.number();
        let built = self.built();
        built.number = number;
        Frame::of(&MessageFrame::begun(built))
    }

    /// A new content. It has no frame of its own before something is set or added.
    pub fn content(&mut self, kind: ContentType) -> ContentBuilder<'_> {
        let message = self.index;
        let contents = &mut self.built().contents;
        let index = contents.len();
        contents.push(Making { kind, set: None, text: String::new(), data: None, complete: None });
        ContentBuilder { response: self.response, message, index }
    }

    /// A new text.
    pub fn text(&mut self) -> ContentBuilder<'_> {
        self.content(ContentType::Text)
    }

    /// A new data content.
    pub fn data(&mut self) -> ContentBuilder<'_> {
        self.content(ContentType::Data)
    }

    /// Goes on with a content that was left open, by its place. None if there is none there.
    pub fn resume(&mut self, index: usize) -> Option<ContentBuilder<'_>> {
        let message = self.index;
        (index < self.built().contents.len()).then_some(ContentBuilder { response: self.response, message, index })
    }

    /// Frame: the message is complete.
    pub fn complete(self) -> Frame {
        self.end(Status::Completed)
    }

    /// Frame: the message has failed; for messages of type `error` too.
    pub fn fail(mut self, code: impl Into<String>, message: impl Into<String>) -> Frame {
        self.built().error = Some(RunError { code: code.into(), message: message.into() });
        self.end(Status::Failed)
    }

    /// Frame: the message ends with this status.
    pub fn end(mut self, status: Status) -> Frame {
        let number = self.response.number();
        let built = self.built();
        built.number = number;
        built.status = status;
        Frame::of(&MessageFrame::whole(built))
    }

    fn built(&mut self) -> &mut Built {
        &mut self.response.messages[self.index]
    }
}

/// Makes a content of a message. To leave it open, drop it; see [`MessageBuilder::resume`].
#[derive(Debug)]
pub struct ContentBuilder<'a> {
    response: &'a mut ResponseBuilder,
    message: usize,
    index: usize,
}

impl ContentBuilder<'_> {
    /// Its place in the message.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Frame: a fragment of text. A token that is none counts as empty.
    pub fn add_text_delta<'t>(&mut self, token: impl Into<Option<&'t str>>) -> Frame {
        let token = token.into().unwrap_or("");
        self.making().text.push_str(token);
        self.frame("in_progress", true, &Content::text(token))
    }

    /// Frame: a fragment of data, merged into what is there: texts and lists grow, numbers are added, objects merged,
    /// all else is replaced (Agent API, section 6).
    pub fn add_data_delta<T: Serialize + ?Sized>(&mut self, fragment: &T) -> Frame {
        let fragment = Json::from_serialize(fragment);
        let making = self.making();
        making.data = Some(match &making.data {
            Some(data) => merge::merged(data, &fragment),
            None => fragment.clone(),
        });
        self.frame("in_progress", true, &Content::new(Body::Data(fragment)))
    }

    /// Frame: the text so far. Fragments added before or after come behind it.
    pub fn set_text(&mut self, text: impl Into<String>) -> Frame {
        self.set(Body::Text(text.into()))
    }

    /// Frame: the data so far. Fragments are merged into it.
    pub fn set_data<T: Serialize + ?Sized>(&mut self, data: &T) -> Frame {
        self.set(Body::Data(Json::from_serialize(data)))
    }

    /// Frame: a picture, as a link or data URL.
    pub fn set_image(&mut self, url: impl Into<String>) -> Frame {
        self.set(Body::Image(Some(url.into())))
    }

    /// Frame: why the agent declines.
    pub fn set_refusal(&mut self, refusal: impl Into<String>) -> Frame {
        self.set(Body::Refusal(refusal.into()))
    }

    /// Frame: sound, as a link, data URL or base64, and its media type or file suffix.
    pub fn set_audio(&mut self, data: impl Into<String>, format: Option<&str>) -> Frame {
        self.set(Body::Audio { data: Some(data.into()), format: format.map(str::to_owned) })
    }

    /// Frame: a film, as a link or data URL. The runtime's builder has none; its model does.
    pub fn set_video(&mut self, url: impl Into<String>) -> Frame {
        self.set(Body::Video(Some(url.into())))
    }

    /// Frame: a file.
    pub fn set_file(&mut self, file: File) -> Frame {
        self.set(Body::File(file))
    }

    /// Frame: the content is complete, with all that was set and added.
    pub fn complete(mut self) -> Frame {
        let whole = Content::new(self.making().whole());
        self.making().complete = Some(whole.clone());
        self.frame("completed", false, &whole)
    }

    fn set(&mut self, body: Body) -> Frame {
        let content = Content::new(body.clone());
        self.making().set = Some(body);
        self.frame("in_progress", false, &content)
    }

    fn frame(&mut self, status: &str, delta: bool, content: &Content) -> Frame {
        let number = self.response.number();
        let msg_id = &self.response.messages[self.message].id;
        Frame::of(&ContentFrame { number, status, index: self.index, delta, msg_id, content })
    }

    fn making(&mut self) -> &mut Making {
        &mut self.response.messages[self.message].contents[self.index]
    }
}

impl Making {
    fn whole(&self) -> Body {
        match (&self.set, &self.data) {
            (Some(Body::Text(set)), _) => Body::Text(format!("{set}{}", self.text)),
            (Some(Body::Data(set)), Some(added)) => Body::Data(merge::merged(set, added)),
            (Some(set), _) => set.clone(),
            (None, Some(added)) => Body::Data(added.clone()),
            (None, None) => match self.kind {
                ContentType::Data => Body::Data(Json::from_serialize(&serde_json::Map::new())),
                ContentType::Refusal => Body::Refusal(String::new()),
                ContentType::Image => Body::Image(None),
                ContentType::Video => Body::Video(None),
                ContentType::Audio => Body::Audio { data: None, format: None },
                ContentType::File => Body::File(File::default()),
                ContentType::Text => Body::Text(self.text.clone()),
                ContentType::Other(ref word) => Body::Other(word.clone()),
            },
        }
    }
}
