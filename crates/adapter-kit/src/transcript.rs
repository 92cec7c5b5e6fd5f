//! A conversation in the form of servers without a memory: the role of each message, and the call of each output.
//!
//! Such servers refuse a call without an output after it, an output without its call, and further text of the assistant
//! before the outputs. Clients and agents of other protocols send all of these. [`Transcript::read`] iterates over the
//! input once, gathers each uninterrupted turn of the assistant into one [`TranscriptPart`], pairs calls with outputs,
//! and leaves out and counts the halves of pairs.
//!
//! Not here: the messages of any protocol (the connectors), and the selection of earlier turns (the engine).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Deref;

use crate::data_url::{DataUrl, base64, is_data_url, media_type};
use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::json::Json;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Body, Content, Message, MessageType, Role, ToolCall, ToolOutput};
use interlingua_core::pending::{Decision, Pending};
use serde_json::{Value, json};

/// A conversation, in order.
///
/// ```
/// use interlingua_core::model::{Content, Message, MessageType, ToolCall, ToolOutput};
/// use interlingua_adapter_kit::transcript::{OpenCalls, Transcript, TranscriptPart};
///
/// let call = |id: &str| Content::data(&ToolCall { call_id: id.into(), ..ToolCall::default() });
/// let output = Content::data(&ToolOutput { call_id: "b".into(), ..ToolOutput::default() });
/// let input = [
///     Message::user("look"),
///     Message::new(MessageType::FunctionCall, None, vec![call("a"), call("b")]),
///     Message::user("hurry"),
///     Message::new(MessageType::FunctionCallOutput, None, vec![output]),
/// ];
///
/// let transcript = Transcript::read(&input, &[], OpenCalls::LeftOut);
/// use TranscriptPart::{Assistant, User};
/// let [User(_), Assistant(turn), User(_)] = transcript.passages.as_slice() else {
///     panic!("three passages")
/// };
/// assert!(turn.calls().all(|call| call.call.call_id == "b"));
/// assert_eq!((transcript.open_calls, transcript.unmatched_outputs), (1, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Transcript<'a> {
    /// The messages, in order. Every [`AssistantTurn`] in it has entries.
    pub passages: Vec<TranscriptPart<'a>>,
    /// The number of calls that were left out because they have no output.
    pub open_calls: u32,
    /// The number of outputs that were left out because no call before them waits for them.
    pub unmatched_outputs: u32,
    /// The subjects of approvals, by the id of the request.
    asked: HashMap<String, String>,
}

/// An uninterrupted part of one side.
#[derive(Clone, Debug)]
pub enum TranscriptPart<'a> {
    /// Instructions.
    System(Entry<'a>),
    /// Words of the user, or of anyone else who is neither the assistant nor the system.
    User(Entry<'a>),
    /// The assistant's texts and calls until another role speaks, or until its calls were answered. The outputs follow
    /// it directly, whatever was between them and their calls.
    Assistant(AssistantTurn<'a>),
    /// Decisions about what the agent asked approval for: `mcp_approval_response`.
    Decision(Entry<'a>),
}

/// A message, and its place in the input.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Counts from 0.
    pub place: usize,
    /// The message.
    pub message: &'a Message,
}

impl Deref for Entry<'_> {
    type Target = Message;
    fn deref(&self) -> &Message {
        self.message
    }
}

/// One uninterrupted turn of the assistant, in order.
#[derive(Clone, Debug, Default)]
pub struct AssistantTurn<'a> {
    /// Not empty.
    pub parts: Vec<Part<'a>>,
}

/// A part of a [`AssistantTurn`].
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// A message of type `reasoning`.
    Reasoning(Entry<'a>),
    /// Words, or anything else that is no call.
    Said(Entry<'a>),
    /// A question for approval: `mcp_approval_request`.
    Asked(Entry<'a>),
    /// A call, with its output. Each call of a message that holds several is a part of its own.
    Call(PairedCall<'a>),
}

/// A call and its output.
#[derive(Clone, Debug)]
pub struct PairedCall<'a> {
    /// The message with the call.
    pub entry: Entry<'a>,
    /// The call.
    pub call: ToolCall,
    /// The message with the output, and the output. None: only for a call that [`OpenCalls`] keeps.
    pub output: Option<(Entry<'a>, ToolOutput)>,
}

/// Handling of calls without an output.
#[derive(Clone, Copy)]
pub enum OpenCalls<'p> {
    /// They are left out.
    LeftOut,
    /// Calls stay if this turn answers an item about them: the agent runs them now.
    KeptIfAsked,
    /// Calls stay if this is true for their message.
    KeptIf(&'p dyn Fn(&Message) -> bool),
}

impl<'a> AssistantTurn<'a> {
    /// The messages of type `reasoning`.
    pub fn reasoning(&self) -> impl Iterator<Item = Entry<'a>> {
        self.parts.iter().filter_map(|part| if let Part::Reasoning(entry) = part { Some(*entry) } else { None })
    }

    /// The calls. Their outputs belong behind the turn, in this order.
    pub fn calls(&self) -> impl Iterator<Item = &PairedCall<'a>> {
        self.parts.iter().filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None })
    }
}

impl<'a> Transcript<'a> {
    /// Notes which halves of pairs were left out.
    pub fn note_losses(&self, losses: &mut Losses) {
        for _ in 0..self.open_calls {
            losses.lost(ContentKind::ClientCall, "a call without an output is not sent: the agent would refuse it");
        }
        for _ in 0..self.unmatched_outputs {
            losses.lost(ContentKind::ClientOutput, "an output without its call is not sent: the agent would refuse it");
        }
    }

    /// Reads an input. `answered`: the items that it answers, with the subjects of approvals.
    #[must_use]
    pub fn read(input: &'a [Message], answered: &[Pending], open_calls: OpenCalls<'_>) -> Self {
        let mut reader = Reader::default();
        reader.transcript.asked.extend(answered.iter().map(|item| (item.id.clone(), item.name.clone())));
        for (place, message) in input.iter().enumerate() {
            reader.message(Entry { place, message });
        }

        match open_calls {
            OpenCalls::LeftOut => reader.finish(|_| false),
            OpenCalls::KeptIf(keeps) => reader.finish(|call| keeps(&call.entry)),
            OpenCalls::KeptIfAsked => {
                let asked: HashSet<&str> = answered.iter().filter_map(|item| item.call_id.as_deref()).collect();
                reader.finish(|call| asked.contains(call.call.call_id.as_str()))
            }
        }
    }

    /// A question or a decision in words, for protocols that have no approvals. One text for each item.
    #[must_use]
    pub fn in_words(&self, entry: Entry<'_>) -> Vec<String> {
        match entry.kind {
            MessageType::McpApprovalRequest => entry.approval_items().map(|item| question(&item)).collect(),
            _ => answer::native(entry.message)
                .into_iter()
                .filter_map(|answer| {
                    decision(self.asked.get(&answer.id).map_or(answer.id.as_str(), String::as_str), answer.given)
                })
                .collect(),
        }
    }
}

impl Entry<'_> {
    /// The items of a question for approval.
    fn approval_items(&self) -> impl Iterator<Item = Pending> {
        self.content.iter().filter_map(Content::as_data).filter_map(Pending::parse)
    }
}

fn question(item: &Pending) -> String {
    let said = item.message.as_ref().map(|text| format!("{text}\n")).unwrap_or_default();
    format!("{said}I ask for approval of {} with {}.", item.name, item.arguments)
}

fn decision(name: &str, given: AnswerBody) -> Option<String> {
    let AnswerBody::Decided { decision, arguments, text, .. } = given else { return None };
    let decided = match decision {
        Decision::Accept => format!("I approve {name}."),
        Decision::Edit => format!("I approve {name} with {}.", arguments.unwrap_or_default()),
        Decision::Respond => format!("I answer {name}."),
        Decision::Reject | Decision::Cancel => format!("I do not approve {name}."),
    };
    Some(text.map_or(decided.clone(), |text| format!("{decided} {text}")))
}

/// A content as text, for servers that do not accept its kind: unchanged, or as a note with its location. The loss is
/// recorded.
pub fn sent_as_text(content: &Content, losses: &mut Losses) -> String {
    note_as_text(content, losses);
    as_text(content)
}

/// The same as a part of a message, with this `type`. `None`: it is empty.
pub fn text_part(content: &Content, kind: &str, losses: &mut Losses) -> Option<Value> {
    let text = sent_as_text(content, losses);
    (!text.is_empty()).then(|| json!({ "type": kind, "text": text }))
}

/// The texts of a message that can hold nothing else, joined with a blank line.
pub fn joined_text(contents: &[Content], losses: &mut Losses) -> String {
    let texts = contents.iter().map(|content| sent_as_text(content, losses)).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

fn as_text(content: &Content) -> String {
    // Megabytes of base64 are no help to a model that cannot look at them.
    let note = |kind: &str, known: Option<&str>| match known.filter(|known| !is_data_url(known)) {
        Some(known) if !known.is_empty() => format!("[{kind}: {known}]"),
        _ => format!("[{kind}]"),
    };

    match &content.body {
        Body::Text(text) | Body::Refusal(text) => text.clone(),
        Body::Data(data) if data.is_null() => String::new(),
        Body::Data(data) => data.text().to_owned(),
        Body::Image(url) => note("image", url.as_deref()),
        Body::Video(url) => note("video", url.as_deref()),
        Body::Audio { data, .. } => note("audio", data.as_deref().filter(|data| data.contains("://"))),
        Body::File(file) => note("file", file.url.as_deref().or(file.name.as_deref()).or(file.id.as_deref())),
        Body::Other(_) => Json::from_serialize(content).text().to_owned(),
    }
}

fn note_as_text(content: &Content, losses: &mut Losses) {
    let kind = match &content.body {
        Body::Text(_) | Body::Refusal(_) => return,
        Body::Data(_) | Body::Other(_) => {
            return losses.changed(ContentKind::DataIn, "sent as text");
        }
        Body::Image(_) => ContentKind::ImageIn,
        Body::Video(_) => ContentKind::VideoIn,
        Body::Audio { .. } => ContentKind::AudioIn,
        Body::File(_) => ContentKind::FileIn,
    };
    losses.lost(kind, "not taken by this agent: a line of text names it");
}

/// Audio as base64, and the name of its format as servers of models know it (`wav`, `mp3`, …). None: it is a
/// link, which they do not take.
///
/// ```
/// use interlingua_adapter_kit::transcript::inline_sound;
///
/// let sound = |data, format| inline_sound(data, format).map(|(data, format)| (data.into_owned(), format));
/// assert_eq!(sound("data:audio/mpeg;base64,AQID", None), Some(("AQID".into(), "mp3".into())));
/// assert_eq!(sound("AQID", Some("audio/x-wav")), Some(("AQID".into(), "wav".into())));
/// assert_eq!(sound("https://host/a.mp3", Some("mp3")), None);
/// ```
#[must_use]
pub fn inline_sound<'a>(data: &'a str, format: Option<&str>) -> Option<(Cow<'a, str>, String)> {
    let (named, data) = match DataUrl::parse(data) {
        Some(url) => (Some(url.media_type().to_owned()).filter(|name| !name.is_empty()), url.data),
        None if is_data_url(data) || data.contains("://") => return None,
        None => (None, base64(data)),
    };

    let named = named.or_else(|| format.map(|format| media_type(format).into_owned()));
    let named = named.unwrap_or_else(|| "wav".to_owned());
    let subtype = named.rsplit('/').next().unwrap_or(&named);
    let format = match subtype.split(';').next().unwrap_or(subtype) {
        "mpeg" | "mp3" => "mp3",
        "x-wav" | "wave" | "vnd.wave" | "wav" => "wav",
        other => other,
    };
    Some((data, format.to_owned()))
}

/// Inline audio as a part of a message, in the form that both APIs of OpenAI have. `None`: it is a link.
#[must_use]
pub fn audio_part(data: &str, format: Option<&str>) -> Option<Value> {
    let (data, format) = inline_sound(data, format)?;
    Some(json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } }))
}

/// Calls of one id that wait for an output: where each stands.
#[derive(Debug)]
struct Waiting {
    passage: usize,
    parts: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Reader<'a> {
    transcript: Transcript<'a>,
    /// Calls without an output so far, by their id. Servers use ids again, so each passage with such a call has an
    /// entry.
    waiting: HashMap<String, Vec<Waiting>>,
    /// The last passage is the assistant's, and no output for it has come: more of its words belong to it.
    is_open: bool,
}

impl<'a> Reader<'a> {
    fn message(&mut self, entry: Entry<'a>) {
        match &entry.kind {
            kind if kind.is_call() => self.calls(entry),
            kind if kind.is_output() => entry.outputs().for_each(|output| self.output(entry, output)),
            MessageType::Reasoning => self.part(Part::Reasoning(entry)),
            MessageType::McpApprovalRequest => {
                self.transcript.asked.extend(entry.approval_items().map(|item| (item.id, item.name)));
                self.part(Part::Asked(entry));
            }
            MessageType::McpApprovalResponse => self.passage(TranscriptPart::Decision(entry)),
            MessageType::Heartbeat | MessageType::Error | MessageType::McpListTools | MessageType::ProtocolEvent => {}
            _ => self.add_message(entry),
        }
    }

    fn add_message(&mut self, entry: Entry<'a>) {
        match &entry.role {
            Some(Role::Assistant) => self.part(Part::Said(entry)),
            Some(Role::System) => self.passage(TranscriptPart::System(entry)),
            Some(Role::Other(word)) if &**word == "developer" => self.passage(TranscriptPart::System(entry)),
            _ => self.passage(TranscriptPart::User(entry)),
        }
    }

    fn passage(&mut self, passage: TranscriptPart<'a>) {
        self.is_open = false;
        self.transcript.passages.push(passage);
    }

    /// Adds what the assistant says to its passage. Gives the place of the passage, and the part's place in it.
    fn add(&mut self, part: Part<'a>) -> (usize, usize) {
        let passages = &mut self.transcript.passages;
        if self.is_open
            && let Some(TranscriptPart::Assistant(turn)) = passages.last_mut()
        {
            turn.parts.push(part);
            let place = turn.parts.len() - 1;
            return (passages.len() - 1, place);
        }

        passages.push(TranscriptPart::Assistant(AssistantTurn { parts: vec![part] }));
        self.is_open = true;
        (passages.len() - 1, 0)
    }

    fn part(&mut self, part: Part<'a>) {
        self.add(part);
    }

    fn calls(&mut self, entry: Entry<'a>) {
        for call in entry.calls() {
            let id = call.call_id.clone();
            let (passage, part) = self.add(Part::Call(PairedCall { entry, call, output: None }));
            let waiting = self.waiting.entry(id).or_default();
            match waiting.last_mut().filter(|waiting| waiting.passage == passage) {
                Some(waiting) => waiting.parts.push_back(part),
                None => waiting.push(Waiting { passage, parts: VecDeque::from([part]) }),
            }
        }
    }

    /// An output belongs to the latest passage with an open call of its id, there to the first such call.
    fn output(&mut self, entry: Entry<'a>, output: ToolOutput) {
        let found = self.waiting.get_mut(&output.call_id).and_then(|waiting| {
            let last = waiting.last_mut()?;
            let found = (last.passage, last.parts.pop_front()?);
            if last.parts.is_empty() {
                waiting.pop();
            }
            Some(found)
        });

        let Some((passage, part)) = found else {
            self.transcript.unmatched_outputs += 1;
            return;
        };

        self.is_open &= passage + 1 != self.transcript.passages.len();
        if let Some(TranscriptPart::Assistant(turn)) = self.transcript.passages.get_mut(passage)
            && let Some(Part::Call(call)) = turn.parts.get_mut(part)
        {
            call.output = Some((entry, output));
        }
    }

    /// Leaves out the calls that have no output, but those that are kept.
    fn finish(mut self, keeps: impl Fn(&PairedCall<'a>) -> bool) -> Transcript<'a> {
        let mut left_out = 0;
        self.transcript.passages.retain_mut(|passage| {
            let TranscriptPart::Assistant(turn) = passage else { return true };
            turn.parts.retain(|part| match part {
                Part::Call(call) if call.output.is_none() && !keeps(call) => {
                    left_out += 1;
                    false
                }
                _ => true,
            });
            !turn.parts.is_empty()
        });

        self.transcript.open_calls = left_out;
        self.transcript
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Message {
        let call = ToolCall { call_id: id.into(), name: "f".into(), ..ToolCall::default() };
        Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![Content::data(&call)])
    }

    fn output(id: &str, text: &str) -> Message {
        let output = ToolOutput { call_id: id.into(), name: None, output: text.into() };
        Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&output)])
    }

    /// The transcript in short: one word for a passage.
    fn short(input: &[Message], answered: &[Pending], open_calls: OpenCalls<'_>) -> String {
        let transcript = Transcript::read(input, answered, open_calls);
        let part = |part: &Part<'_>| match part {
            Part::Reasoning(entry) => format!("~{}", entry.text()),
            Part::Said(entry) => entry.text(),
            Part::Asked(entry) => transcript.in_words(*entry).concat(),
            Part::Call(PairedCall { call, output, .. }) => {
                format!("{}={}", call.call_id, output.as_ref().map_or("?", |(_, output)| &output.output))
            }
        };
        let passages: Vec<String> = transcript
            .passages
            .iter()
            .map(|passage| match passage {
                TranscriptPart::System(entry) => format!("system:{}", entry.text()),
                TranscriptPart::User(entry) => format!("user:{}", entry.text()),
                TranscriptPart::Assistant(turn) => {
                    format!("[{}]", turn.parts.iter().map(part).collect::<Vec<_>>().join(" "))
                }
                TranscriptPart::Decision(entry) => transcript.in_words(*entry).join(" "),
            })
            .collect();
        format!("{} -{} -{}", passages.join(" | "), transcript.open_calls, transcript.unmatched_outputs)
    }

    #[test]
    fn calls_and_outputs_are_paired_and_halves_are_left_out() {
        let said = Message::assistant;
        let say = Message::user;
        let thought = Message::new(MessageType::Reasoning, Some(Role::Assistant), vec![Content::text("hm")]);
        let developer = Message::new(MessageType::Message, Some(Role::from("developer")), vec![Content::text("d")]);
        for (input, wanted) in [
            (vec![], " -0 -0"),
            (vec![Message::system("s"), developer, say("u")], "system:s | system:d | user:u -0 -0"),
            // What the assistant does in one go, outputs in another order than the calls, words between them.
            (
                vec![thought, said("look"), call("a"), call("b"), say("hurry"), output("b", "2"), output("a", "1")],
                "[~hm look a=1 b=2] | user:hurry -0 -0",
            ),
            // After an output the assistant begins again; other calls of the passage may still be answered.
            (vec![call("a"), call("b"), output("a", "1"), said("so"), output("b", "2")], "[a=1 b=2] | [so] -0 -0"),
            (vec![call("a"), say("never mind")], "user:never mind -1 -0"),
            (vec![output("a", "1"), say("u"), call("a")], "user:u -1 -1"),
            (vec![call("a"), output("a", "1"), output("a", "2")], "[a=1] -0 -1"),
            // An id that comes twice: in parallel, in sequence, and where the first was never answered.
            (vec![call("a"), call("a"), output("a", "1"), output("a", "2")], "[a=1 a=2] -0 -0"),
            (vec![call("a"), output("a", "1"), say("u"), call("a"), output("a", "2")], "[a=1] | user:u | [a=2] -0 -0"),
            (vec![call("a"), say("u"), call("a"), output("a", "2")], "user:u | [a=2] -1 -0"),
        ] {
            assert_eq!(short(&input, &[], OpenCalls::LeftOut), wanted);
        }
    }

    #[test]
    fn calls_that_an_answered_item_concerns_can_be_kept() {
        let data = r#"{"id":"p","name":"send","arguments":"{}","interrupt":{"call_id":"a"}}"#;
        let item = Pending::parse(&Json::parse(data).expect("JSON")).expect("an item");
        let input = [call("a"), call("b")];
        let answered = [item];
        assert_eq!(short(&input, &answered, OpenCalls::KeptIfAsked), "[a=?] -1 -0");
        assert_eq!(short(&input, &answered, OpenCalls::LeftOut), " -2 -0");
        let is_b = |message: &Message| message.calls().any(|call| call.call_id == "b");
        assert_eq!(short(&input, &answered, OpenCalls::KeptIf(&is_b)), "[b=?] -1 -0");
    }

    #[test]
    fn questions_and_decisions_can_be_put_into_words() {
        let data = r#"{"id":"p","name":"send","arguments":"{\"to\":1}","interrupt":{"message":"May I?"}}"#;
        let item = Pending::parse(&Json::parse(data).expect("JSON")).expect("an item");
        let request = item.request().expect("a request");
        let reject = answer::CheckedDecision {
            text: Some("not today".into()),
            ..answer::CheckedDecision::new(Decision::Reject)
        };
        let answer = reject.message(&item, true);

        let input = [request, answer];
        let asked = "[May I?\nI ask for approval of send with {\"to\":1}.]";
        let wanted = format!("{asked} | I do not approve send. not today -0 -0");
        assert_eq!(short(&input, &[], OpenCalls::LeftOut), wanted);

        // Without the request in the input, the item knows what was decided about; without the item, only its id is
        // known.
        assert_eq!(short(&input[1..], &[item], OpenCalls::LeftOut), "I do not approve send. not today -0 -0");
        assert_eq!(short(&input[1..], &[], OpenCalls::LeftOut), "I do not approve p. not today -0 -0");
    }
}
