//! The knowledge of a thread's client (docs/protocols/ag-ui.md#history): the calls it received, the ids in use, and the
//! new ones among the messages it sends.
//!
//! It is stored in the labels of each run, so that a replay has the same data. Not here: the conversation itself, which
//! the gateway or the agent keeps.

use std::borrow::Cow;

use interlingua_core::call::{HistoryJudge, RunView};
use interlingua_core::model::{Message, MessageType, Role};
use interlingua_core::run::Run;
use interlingua_core::{End, Json};
use serde::{Deserialize, Serialize};

use super::request::{Author, RunInput};

/// Maximum number of stored ids of each kind: clients and agents repeat only recent ones.
const MAX_IDS: usize = 128;
/// Longer ids are not remembered.
const MAX_ID: usize = 256;

/// The labels of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    /// The client's names of the thread and the run.
    pub(super) thread: String,
    pub(super) run: String,
    /// The version that the client declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The client's knowledge before the run.
    pub(super) known: ClientKnowledge,
}

impl Labels {
    /// The labels of a run. A run of another protocol has no labels of its own: thread and run get the gateway's ids.
    pub(super) fn from_view(view: &RunView<'_>) -> Self {
        let own = view.info.protocol == crate::NAME;
        let labels: Option<Self> = view.info.labels.decode().filter(|_| own);
        labels.filter(|labels| !labels.thread.is_empty()).unwrap_or_else(|| Self {
            thread: view.run().session_id.clone(),
            run: view.run().id.to_prefixed("run_"),
            version: Some("1.0".to_owned()),
            ..Self::default()
        })
    }

    pub(super) fn to_json(&self) -> Json {
        Json::from_serialize(self)
    }

    /// True if the client knows what version 1.0 added. A version that is no number is a later one.
    pub(super) fn is_v1(&self) -> bool {
        let Some(version) = self.version.as_deref() else { return false };
        version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major >= 1)
    }
}

/// The knowledge of a thread's client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ClientKnowledge {
    /// Ids of messages, its own and the agent's, oldest first.
    messages: Vec<String>,
    /// Calls, oldest first, and whether they have a result.
    calls: Vec<(String, bool)>,
    /// Ids of the messages and calls that the agent's latest answer ended with.
    latest: Vec<String>,
    /// The digest of that answer's text, for clients that do not keep ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The digest of the application's instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
}

impl ClientKnowledge {
    /// The client's knowledge after a run.
    pub(super) fn after(view: &RunView<'_>) -> Self {
        // This client has not seen runs of another protocol.
        let mut known = if view.info.protocol == crate::NAME { Labels::from_view(view).known } else { Self::default() };
        known.add(view.run());
        known
    }

    fn add(&mut self, run: &Run) {
        let before = self.clone();
        let input = run.turns.iter().flat_map(|turn| &turn.input);
        for message in input {
            self.messages.extend(message.id.clone().filter(|id| id.len() <= MAX_ID));
            message.outputs().for_each(|output| self.mark_answered(&output.call_id));
        }

        let (mut latest, mut text) = (Vec::new(), String::new());
        for message in &run.messages {
            if message.announced == MessageType::ProtocolEvent {
                continue;
            }
            let id = before.shown_id(&message.id, run).into_owned();
            latest.push(id.clone());
            if message.announced == MessageType::Message && message.role == Role::Assistant {
                text.push_str(&message.text());
            }
            self.messages.extend((id.len() <= MAX_ID).then_some(id));
            for slot in &message.slots {
                if let Some(head) = &slot.call {
                    latest.push(head.call_id.clone());
                    if !self.has_call(&head.call_id) && head.call_id.len() <= MAX_ID {
                        self.calls.push((head.call_id.clone(), false));
                    }
                }
            }
            if message.kind.is_output() {
                let outputs = message.slots.iter().filter_map(|slot| slot.output());
                outputs.for_each(|output| self.mark_answered(&output.call_id));
            }
        }
        // Approvals are shown as calls.
        for item in run.pending() {
            let id = item.call_id.unwrap_or(item.id);
            latest.push(id.clone());
            if !self.has_call(&id) && id.len() <= MAX_ID {
                self.calls.push((id, false));
            }
        }

        if !latest.is_empty() {
            latest.truncate(MAX_IDS);
            self.latest = latest;
            self.text = (!text.is_empty()).then(|| digest(&text));
        }
        let surplus = self.messages.len().saturating_sub(MAX_IDS);
        self.messages.drain(..surplus);
        let surplus = self.calls.len().saturating_sub(MAX_IDS);
        self.calls.drain(..surplus);
    }

    fn mark_answered(&mut self, call: &str) {
        if let Some((_, is_answered)) = self.calls.iter_mut().find(|(id, _)| id == call) {
            *is_answered = true;
        }
    }

    fn has_message(&self, id: &str) -> bool {
        self.messages.iter().any(|known| known == id)
    }

    /// True if the call was announced to the client in an earlier run.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.calls.iter().any(|(known, _)| known == id)
    }

    /// True if the call has a result.
    pub(super) fn is_answered(&self, call: &str) -> bool {
        self.calls.iter().any(|(known, is_answered)| known == call && *is_answered)
    }

    /// The id under which the client is shown a message of a run: the agent's, unless the thread has it already.
    pub(super) fn shown_id<'i>(&self, id: &'i str, run: &Run) -> Cow<'i, str> {
        if !self.has_message(id) {
            return Cow::Borrowed(id);
        }
        Cow::Owned(run.id.to_prefixed(&format!("{id}-")))
    }
}

/// The messages of a request, in two parts.
#[derive(Debug)]
pub(super) struct SplitMessages {
    /// The messages of the history.
    pub(super) history: Vec<Message>,
    /// The new messages.
    pub(super) new: Vec<Message>,
    /// True if the client has sent nothing that the thread does not know: it was loaded again.
    pub(super) is_repeated: bool,
}

/// Notes the instructions of a request, and splits its messages. `has_failed`: the thread's latest run has no answer.
pub(super) fn split(input: &mut RunInput, known: &mut ClientKnowledge, has_failed: bool) -> SplitMessages {
    let sent = std::mem::take(&mut input.messages);
    let instructions = instructions(&sent);
    let are_known = known.instructions == instructions;
    let had_others = !are_known && known.instructions.is_some();
    let first_new =
        sent.iter().rposition(|sent| Author::from_message(sent) == Author::Agent).map_or(0, |last| last + 1);
    let is_known = |sent: &Message| sent.id.as_deref().is_some_and(|id| known.has_message(id));
    // The agent's own results stand behind its last message.
    let is_clients = |sent: &Message| !outputs(sent).all(|call| known.is_answered(&call));
    let has_unknown =
        sent[first_new..].iter().any(|sent| Author::from_message(sent) == Author::User && !is_known(sent));
    // The messages before a question are not repeated with its answer.
    let is_answer = !input.resume.is_empty() || input.command.is_some();
    let is_repeated = !sent[first_new..].iter().any(|sent| match Author::from_message(sent) {
        Author::Tool => is_clients(sent),
        Author::User => has_failed || !is_known(sent),
        Author::Application | Author::Agent => false,
    });

    let (mut history, mut new) = (Vec::new(), Vec::new());
    for (place, sent) in sent.into_iter().enumerate() {
        let is_last = place >= first_new;
        let is_new = match Author::from_message(&sent) {
            Author::Tool => is_last && is_clients(&sent),
            // One that got no answer comes again with the next, and once is enough.
            Author::User => is_last && (!is_known(&sent) || !(has_unknown || is_answer)),
            // Instructions that have changed are new wherever they stand.
            Author::Application => had_others || (is_last && !are_known),
            Author::Agent => false,
        };
        if is_new { new.push(sent) } else { history.push(sent) }
    }

    known.instructions = instructions;
    SplitMessages { history, new, is_repeated }
}

fn outputs(message: &Message) -> impl Iterator<Item = String> {
    message.outputs().map(|output| output.call_id)
}

fn instructions(sent: &[Message]) -> Option<String> {
    let texts = sent.iter().filter(|sent| Author::from_message(sent) == Author::Application).map(Message::text);
    let text = texts.collect::<Vec<_>>().join("\n\n");
    (!text.is_empty()).then(|| digest(&text))
}

/// Front ends trim what they show.
fn digest(text: &str) -> String {
    format!("{:016x}", crate::connect::digest([text.trim()]))
}

/// Judges whether a client's list ends with the thread's latest answer.
#[derive(Debug)]
pub(super) struct Judge {
    /// Ids of the messages and calls at the end of the agent's last answer in the list.
    latest: Vec<String>,
    /// The digest of its text.
    text: Option<String>,
    /// Ids of the client's own messages, if the list has none of the agent.
    own: Vec<String>,
    has_answer: bool,
}

impl Judge {
    /// The judge for the list of a request.
    pub(super) fn new(input: &RunInput) -> Self {
        let is_agents = |sent: &Message| matches!(Author::from_message(sent), Author::Agent | Author::Tool);
        let end = input
            .messages
            .iter()
            .rposition(|sent| Author::from_message(sent) == Author::Agent)
            .map_or(0, |last| last + 1);
        let answer = &input.messages[..end];
        let begin = answer.iter().rposition(|sent| !is_agents(sent)).map_or(0, |last| last + 1);
        let answer = &answer[begin..];

        let ids = answer.iter().filter_map(|sent| sent.id.clone());
        let calls = answer.iter().flat_map(|sent| sent.calls()).map(|call| call.call_id);
        let text: String = answer.iter().filter(|sent| sent.kind == MessageType::Message).map(Message::text).collect();
        let own = input.messages.iter().filter(|sent| Author::from_message(sent) == Author::User);
        Self {
            latest: ids.chain(calls).collect(),
            text: (!text.is_empty()).then(|| digest(&text)),
            own: own.filter_map(|sent| sent.id.clone()).collect(),
            has_answer: !answer.is_empty(),
        }
    }
}

impl HistoryJudge for Judge {
    fn ends_with(&self, latest: RunView<'_>) -> bool {
        let known = ClientKnowledge::after(&latest);
        if !self.has_answer {
            // A client that sends what is new and nothing else, unless it asks again what it has asked before.
            return !self.own.iter().any(|id| known.has_message(id));
        }
        if self.latest.iter().any(|id| known.latest.contains(id)) {
            return true;
        }
        let is_older = self.latest.iter().any(|id| known.has_message(id) || known.has_call(id));
        !is_older && self.text.is_some() && self.text == known.text
    }
}

/// True if a run has no answer that its client could know.
pub(super) fn has_failed(run: &Run) -> bool {
    !matches!(run.outcome(), Some((End::Completed | End::Incomplete, _)))
}
