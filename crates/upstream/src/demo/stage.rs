//! Turns a plan of acts into frames and pauses, one after the other, as the answer is read.
//!
//! A long answer is produced while it is read, never ahead. The builder decides how frames look.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::builder::{ContentBuilder, Frame, MessageBuilder, ResponseBuilder};
use interlingua_core::event::End;
use interlingua_core::model::{Body, Content, MessageType, Role, Status, ToolCall};
use serde_json::{Value, json};
use uuid::Uuid;

/// The plan of the agent's answer.
#[derive(Debug)]
pub(super) struct Plan {
    /// In this order.
    pub(super) acts: VecDeque<Act>,
    /// And then.
    pub(super) ending: Ending,
    /// The text of the question, if the answer reports its token usage.
    pub(super) usage: Option<usize>,
}

/// One thing the agent does.
#[derive(Debug)]
pub(super) enum Act {
    /// A message sent in fragments.
    Say(MessageType, String),
    /// Reasoning in several texts, possibly none, with metadata unless it is `null`.
    Think(Vec<String>, Value),
    /// The beginning of a message that is never ended.
    Begin(String),
    /// Two messages sent at the same time: reasoning and an answer.
    Overlap(String, String),
    /// So many words, each after this pause.
    Count(usize, Duration),
    /// A call: the name first, then the arguments as they are thought of.
    Call(MessageType, ToolCall),
    /// A message whose contents arrive together.
    Show(MessageType, Role, Vec<Content>),
    /// A message of type `error`; the run continues.
    Complain(&'static str, &'static str),
    Heartbeat,
    /// Nothing, for a while.
    Pause(Duration),
}

/// The end of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// This end.
    As(End),
    /// With a reported failure: code and text.
    Failing(&'static str, &'static str),
    /// Not at all: the body is over.
    Breaking,
}

/// Bytes of the answer, and the pause before them.
#[derive(Debug)]
pub(super) struct TimedFrame {
    pub(super) after: Duration,
    pub(super) bytes: String,
}

/// An answer that is being sent.
pub(super) struct Performance {
    plan: Plan,
    response: ResponseBuilder,
    began: u64,
    pace: Duration,
    /// Frames that are ready to be sent.
    ready: VecDeque<TimedFrame>,
    /// Fragments sent so far.
    sent: usize,
    counting: Option<Counting>,
    scene: Scene,
}

/// A long count under way.
struct Counting {
    message: usize,
    sent: usize,
    words: usize,
    every: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scene {
    Opening,
    Acting,
    Over,
}

impl Performance {
    /// Starts an answer with this pause between fragments. `began`: in Unix seconds.
    pub(super) fn new(plan: Plan, response: ResponseBuilder, began: u64, pace: Duration) -> Self {
        let scene = Scene::Opening;
        Self { plan, response, began, pace, ready: VecDeque::new(), sent: 0, counting: None, scene }
    }

    /// The next frame. `None`: the body has ended.
    pub(super) fn next(&mut self) -> Option<TimedFrame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            match self.scene {
                Scene::Opening => {
                    self.scene = Scene::Acting;
                    let frames = [self.response.created(), self.response.in_progress()];
                    frames.into_iter().for_each(|frame| self.at_once(&frame));
                }
                Scene::Acting if self.counting.is_some() => self.count(),
                Scene::Acting => match self.plan.acts.pop_front() {
                    Some(act) => self.act(act),
                    None => {
                        self.scene = Scene::Over;
                        self.finish();
                    }
                },
                Scene::Over => return None,
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Say(kind, text) => {
                let message = self.begin(kind, Role::Assistant);
                self.send_text(message, pieces(&text));
                self.close(message);
            }
            Act::Think(parts, metadata) => self.think(&parts, &metadata),
            Act::Begin(text) => {
                let message = self.begin(MessageType::Message, Role::Assistant);
                self.send_text(message, pieces(&text));
            }
            Act::Overlap(thought, answer) => self.overlap(&thought, &answer),
            Act::Count(words, every) => {
                let message = self.begin(MessageType::Message, Role::Assistant);
                self.counting = Some(Counting { message, sent: 0, words, every });
            }
            Act::Call(kind, call) => self.call(kind, &call),
            Act::Show(kind, role, contents) => {
                let message = self.begin(kind, role);
                for content in contents {
                    self.show(message, content.body);
                }
                self.end(message);
            }
            Act::Complain(code, text) => {
                let frame = self.new_message(MessageType::Error, Role::Assistant).fail(code, text);
                self.paced(&frame);
            }
            Act::Heartbeat => {
                let message = self.begin(MessageType::Heartbeat, Role::Assistant);
                self.end(message);
            }
            // A comment says nothing: what comes next comes after the pause.
            Act::Pause(pause) => self.ready.push_back(TimedFrame { after: pause, bytes: ": awake\n\n".to_owned() }),
        }
    }

    fn think(&mut self, parts: &[String], metadata: &Value) {
        let mut message = self.new_message(MessageType::Reasoning, Role::Assistant);
        if !metadata.is_null() {
            message = message.metadata(metadata);
        }
        let (message, frame) = (message.index(), message.in_progress());
        self.at_once(&frame);
        for (place, part) in parts.iter().enumerate() {
            for piece in pieces(part) {
                let frame = self.text(message, place, piece);
                self.paced(&frame);
            }
            self.close_text(message, place);
        }
        self.end(message);
    }

    fn overlap(&mut self, thought: &str, answer: &str) {
        let (mut thoughts, mut words) = (pieces(thought), pieces(answer));
        let thinking = self.begin(MessageType::Reasoning, Role::Assistant);
        self.send_text(thinking, thoughts.next());
        let answering = self.begin(MessageType::Message, Role::Assistant);
        loop {
            let (word, thought) = (words.next(), thoughts.next());
            if word.is_none() && thought.is_none() {
                break;
            }
            self.send_text(answering, word);
            self.send_text(thinking, thought);
        }
        self.close(thinking);
        self.close(answering);
    }

    /// Arguments are sent as growing snapshots, as some agents do.
    fn call(&mut self, kind: MessageType, call: &ToolCall) {
        let message = self.begin(kind, Role::Assistant);
        let mut so_far = ToolCall { arguments: String::new(), ..call.clone() };
        let mut frames = Vec::new();
        let mut open = self.message(message);
        let mut content = open.data();
        frames.push(content.set_data(&so_far));
        for piece in pieces(&call.arguments) {
            so_far.arguments.push_str(piece);
            frames.push(content.set_data(&so_far));
        }
        let complete = content.complete();
        frames.iter().for_each(|frame| self.paced(frame));
        self.at_once(&complete);
        self.end(message);
    }

    fn count(&mut self) {
        let Some(mut counting) = self.counting.take() else { return };
        if counting.sent == counting.words {
            self.close(counting.message);
            return;
        }
        counting.sent += 1;
        let bytes = self.text(counting.message, 0, &format!("{} ", counting.sent)).sse();
        self.sent += 1;
        self.ready.push_back(TimedFrame { after: counting.every, bytes });
        self.counting = Some(counting);
    }

    fn finish(&mut self) {
        if let Some(asked) = self.plan.usage {
            let sent = self.sent;
            let usage = json!({ "input_tokens": asked, "output_tokens": sent, "total_tokens": asked + sent });
            self.response.set_usage(&usage);
        }
        let frame = match self.plan.ending {
            Ending::As(End::Completed) => self.response.complete(now().max(self.began)),
            Ending::As(end) => self.response.end(&Status::from(end.as_str())),
            Ending::Failing(code, text) => self.response.fail(code, text),
            Ending::Breaking => return,
        };
        self.at_once(&frame);
    }

    /// A new message. Its id differs from those of other turns of the same run.
    fn new_message(&mut self, kind: MessageType, role: Role) -> MessageBuilder<'_> {
        self.response.message(kind, role).id(format!("msg_{}", Uuid::now_v7().simple()))
    }

    fn begin(&mut self, kind: MessageType, role: Role) -> usize {
        let mut message = self.new_message(kind, role);
        let (index, frame) = (message.index(), message.in_progress());
        self.at_once(&frame);
        index
    }

    fn message(&mut self, index: usize) -> MessageBuilder<'_> {
        self.response.resume(index).expect("the message was begun above")
    }

    /// One more piece of a text of a message, by its place among them.
    fn text(&mut self, message: usize, place: usize, piece: &str) -> Frame {
        let mut message = self.message(message);
        if let Some(mut content) = message.resume(place) {
            return content.add_text_delta(piece);
        }
        message.text().add_text_delta(piece)
    }

    fn send_text<'t>(&mut self, message: usize, pieces: impl IntoIterator<Item = &'t str>) {
        for piece in pieces {
            let frame = self.text(message, 0, piece);
            self.paced(&frame);
        }
    }

    fn show(&mut self, message: usize, body: Body) {
        let mut open = self.message(message);
        let mut content = open.content(body.kind());
        let set = set(&mut content, body);
        let complete = content.complete();
        self.paced(&set);
        self.at_once(&complete);
    }

    /// Ends a message that is one text sent in fragments.
    fn close(&mut self, message: usize) {
        self.close_text(message, 0);
        self.end(message);
    }

    fn close_text(&mut self, message: usize, place: usize) {
        let frame = self.message(message).resume(place).map(ContentBuilder::complete);
        frame.iter().for_each(|frame| self.at_once(frame));
    }

    fn end(&mut self, message: usize) {
        let frame = self.message(message).complete();
        self.at_once(&frame);
    }

    fn at_once(&mut self, frame: &Frame) {
        self.ready.push_back(TimedFrame { after: Duration::ZERO, bytes: frame.sse() });
    }

    fn paced(&mut self, frame: &Frame) {
        self.sent += 1;
        self.ready.push_back(TimedFrame { after: self.pace, bytes: frame.sse() });
    }
}

fn set(content: &mut ContentBuilder<'_>, body: Body) -> Frame {
    match body {
        Body::Text(text) => content.set_text(text),
        Body::Refusal(text) => content.set_refusal(text),
        Body::Image(url) => content.set_image(url.unwrap_or_default()),
        Body::Video(url) => content.set_video(url.unwrap_or_default()),
        Body::Audio { data, format } => content.set_audio(data.unwrap_or_default(), format.as_deref()),
        Body::File(file) => content.set_file(file),
        Body::Data(data) => content.set_data(&data),
        Body::Other(word) => content.set_text(word),
    }
}

/// A text in fragments as models produce them: a word each, with the space after it.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', '\n'])
}

/// Unix seconds.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
