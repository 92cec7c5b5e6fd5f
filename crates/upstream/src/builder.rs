//! Builds canonical responses: a response contains messages, a message contains contents, and every step produces a
//! frame (docs/protocols/agent-api.md#builder).
//!
//! For code that acts as an agent: the demo agent, tests, and agents written in Rust. Behaves like the runtime's
//! builder, including nulls, snapshots and merging. The caller provides ids and times.
//!
//! Not here: repairing an agent's output ([`interlingua_core::normalize`]), and streaming runs to clients (the native
//! adapter, which is stricter). Like agents, the builder allows two open messages at once.
//!
//! ```
//! use interlingua_upstream::builder::ResponseBuilder;
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
//! // The same in one call:
//! let frames = ResponseBuilder::new("response_1", 1_795_167_918)
//!     .session("s-1")
//!     .streamed(["Hello", ", ", "world"], 1_795_167_919);
//! assert_eq!(frames.iter().map(|frame| frame.sse()).collect::<String>(), stream);
//! ```

mod draft;
mod frame;

use serde::Serialize;

pub use frame::Frame;

use draft::{ContentDraft, MessageDraft};
use frame::{ContentFrame, MessageFrame, ResponseFrame};
use interlingua_core::json::Json;
use interlingua_core::model::{Body, Content, ContentType, File, MessageType, Role, Status};
use interlingua_core::run::RunError;

/// Builds the frames of one response, numbered from 0.
#[derive(Clone, Debug)]
pub struct ResponseBuilder {
    id: String,
    session_id: Option<String>,
    /// Unix seconds.
    created_at: u64,
    /// The next sequence number.
    next: u64,
    messages: Vec<MessageDraft>,
    usage: Option<Json>,
}

impl ResponseBuilder {
    /// A response with this id and creation time in Unix seconds. Its frames are numbered from 0.
    #[must_use]
    pub fn new(id: impl Into<String>, created_at: u64) -> Self {
        Self { id: id.into(), session_id: None, created_at, next: 0, messages: Vec::new(), usage: None }
    }

    /// Sets the session id.
    #[must_use]
    pub fn session(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// The frame for a created response.
    pub fn created(&mut self) -> Frame {
        self.frame(&Status::Created, None, None)
    }

    /// The frame for a response in progress.
    pub fn in_progress(&mut self) -> Frame {
        self.frame(&Status::InProgress, None, None)
    }

    /// Adds a message to the output. [`MessageBuilder::in_progress`] makes its first frame.
    pub fn message(&mut self, kind: MessageType, role: Role) -> MessageBuilder<'_> {
        let index = self.messages.len();

        let digits = self.id.strip_prefix("response_").unwrap_or(&self.id);
        self.messages.push(MessageDraft {
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

    /// Adds an assistant message of type `message`.
    pub fn assistant(&mut self) -> MessageBuilder<'_> {
        self.message(MessageType::Message, Role::Assistant)
    }

    /// Continues an open message by its index. `None` if there is no such message.
    pub fn resume(&mut self, index: usize) -> Option<MessageBuilder<'_>> {
        (index < self.messages.len()).then_some(MessageBuilder { response: self, index })
    }

    /// Sets the usage of the response: an object.
    pub fn set_usage<T: Serialize + ?Sized>(&mut self, usage: &T) {
        self.usage = Some(Json::from_serialize(usage));
    }

    /// The frame for a completed response, with the time in Unix seconds.
    pub fn complete(&mut self, completed_at: u64) -> Frame {
        self.frame(&Status::Completed, Some(completed_at), None)
    }

    /// The frame for a failed response.
    pub fn fail(&mut self, code: impl Into<String>, message: impl Into<String>) -> Frame {
        let error = RunError { code: code.into(), message: message.into() };
        self.frame(&Status::Failed, None, Some(&error))
    }

    /// The frame for a response that ends with another status, such as `incomplete` or `rejected`.
    pub fn end(&mut self, status: &Status) -> Frame {
        self.frame(status, None, None)
    }

    /// All frames of an answer with one text, given in tokens.
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

    fn next_number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        Some(number)
    }

    fn frame(&mut self, status: &Status, completed_at: Option<u64>, error: Option<&RunError>) -> Frame {
        let number = self.next_number();
        let begins = matches!(status, Status::Created | Status::InProgress);
        let output: Vec<_> = self.messages.iter().map(MessageFrame::complete).collect();
        Frame::from_object(&ResponseFrame {
            sequence_number: number,
            object: "response",
            status,
            error,
            id: &self.id,
            created_at: self.created_at,
            completed_at,

            // A runner omits the output before the end; the builder without a runner sends an empty list.
            output: (!begins || number.is_none()).then_some(output),
            usage: self.usage.as_ref(),
            session_id: self.session_id.as_deref(),
        })
    }
}

/// Builds a message. To leave it open and continue with another one, drop it; see [`ResponseBuilder::resume`].
#[derive(Debug)]
pub struct MessageBuilder<'a> {
    response: &'a mut ResponseBuilder,
    index: usize,
}

impl MessageBuilder<'_> {
    /// Replaces the id that is derived from the response's.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.draft().id = id.into();
        self
    }

    /// Sets the application data: an object.
    #[must_use]
    pub fn metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Self {
        self.draft().metadata = Some(Json::from_serialize(metadata));
        self
    }

    /// Sets the usage of the message: an object. It also becomes the response's usage, as in the runtime.
    pub fn set_usage<T: Serialize + ?Sized>(&mut self, usage: &T) {
        let usage = Json::from_serialize(usage);
        self.draft().usage = Some(usage.clone());
        self.response.usage = Some(usage);
    }

    /// Index in the response, for [`ResponseBuilder::resume`].
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The frame for a message in progress.
    pub fn in_progress(&mut self) -> Frame {
        let number = self.response.next_number();
        let draft = self.draft();
        draft.number = number;
        Frame::from_object(&MessageFrame::without_content(draft))
    }

    /// Adds a content. Its first frame comes with the first value or delta.
    pub fn content(&mut self, kind: ContentType) -> ContentBuilder<'_> {
        let message = self.index;
        let contents = &mut self.draft().contents;
        let index = contents.len();
        contents.push(ContentDraft { kind, set: None, text: String::new(), complete: None });
        ContentBuilder { response: self.response, message, index }
    }

    /// Adds a text content.
    pub fn text(&mut self) -> ContentBuilder<'_> {
        self.content(ContentType::Text)
    }

    /// Adds a data content.
    pub fn data(&mut self) -> ContentBuilder<'_> {
        self.content(ContentType::Data)
    }

    /// Continues an open content by its index. `None` if there is no such content.
    pub fn resume(&mut self, index: usize) -> Option<ContentBuilder<'_>> {
        let message = self.index;
        (index < self.draft().contents.len()).then_some(ContentBuilder { response: self.response, message, index })
    }

    /// The frame for a completed message.
    pub fn complete(self) -> Frame {
        self.end(Status::Completed)
    }

    /// The frame for a failed message, including messages of type `error`.
    pub fn fail(mut self, code: impl Into<String>, message: impl Into<String>) -> Frame {
        self.draft().error = Some(RunError { code: code.into(), message: message.into() });
        self.end(Status::Failed)
    }

    /// The frame for a message that ends with this status.
    pub fn end(mut self, status: Status) -> Frame {
        let number = self.response.next_number();
        let draft = self.draft();
        draft.number = number;
        draft.status = status;
        Frame::from_object(&MessageFrame::complete(draft))
    }

    fn draft(&mut self) -> &mut MessageDraft {
        &mut self.response.messages[self.index]
    }
}

/// Builds a content. To leave it open, drop it; see [`MessageBuilder::resume`].
#[derive(Debug)]
pub struct ContentBuilder<'a> {
    response: &'a mut ResponseBuilder,
    message: usize,
    index: usize,
}

impl ContentBuilder<'_> {
    /// Index in the message.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The frame for a text delta. `None` counts as an empty token.
    pub fn add_text_delta<'t>(&mut self, token: impl Into<Option<&'t str>>) -> Frame {
        let token = token.into().unwrap_or("");
        self.draft().text.push_str(token);
        self.frame("in_progress", true, &Content::text(token))
    }

    /// The frame for the text so far. All text deltas are appended to it.
    pub fn set_text(&mut self, text: impl Into<String>) -> Frame {
        self.set(Body::Text(text.into()))
    }

    /// The frame for the data so far.
    pub fn set_data<T: Serialize + ?Sized>(&mut self, data: &T) -> Frame {
        self.set(Body::Data(Json::from_serialize(data)))
    }

    /// The frame for an image, as a URL or data URL.
    pub fn set_image(&mut self, url: impl Into<String>) -> Frame {
        self.set(Body::Image(Some(url.into())))
    }

    /// The frame for a refusal.
    pub fn set_refusal(&mut self, refusal: impl Into<String>) -> Frame {
        self.set(Body::Refusal(refusal.into()))
    }

    /// The frame for audio: a URL, data URL or base64, and its media type or file extension.
    pub fn set_audio(&mut self, data: impl Into<String>, format: Option<&str>) -> Frame {
        self.set(Body::Audio { data: Some(data.into()), format: format.map(str::to_owned) })
    }

    /// The frame for video, as a URL or data URL. The runtime's builder lacks it, but its model has it.
    pub fn set_video(&mut self, url: impl Into<String>) -> Frame {
        self.set(Body::Video(Some(url.into())))
    }

    /// The frame for a file.
    pub fn set_file(&mut self, file: File) -> Frame {
        self.set(Body::File(file))
    }

    /// The frame for a completed content, with all values and deltas.
    pub fn complete(mut self) -> Frame {
        let content = Content::new(self.draft().complete_body());
        self.draft().complete = Some(content.clone());
        self.frame("completed", false, &content)
    }

    fn set(&mut self, body: Body) -> Frame {
        let content = Content::new(body.clone());
        self.draft().set = Some(body);
        self.frame("in_progress", false, &content)
    }

    fn frame(&mut self, status: &str, delta: bool, content: &Content) -> Frame {
        let number = self.response.next_number();
        let msg_id = &self.response.messages[self.message].id;
        Frame::from_object(&ContentFrame { number, status, index: self.index, delta, msg_id, content })
    }

    fn draft(&mut self) -> &mut ContentDraft {
        &mut self.response.messages[self.message].contents[self.index]
    }
}

impl ContentDraft {
    fn complete_body(&self) -> Body {
        match &self.set {
            Some(Body::Text(set)) => Body::Text(format!("{set}{}", self.text)),
            Some(set) => set.clone(),
            None => match self.kind {
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
