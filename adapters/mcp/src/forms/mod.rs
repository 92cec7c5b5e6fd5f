//! Questions of a run as elicitations, and their answers (docs/protocols/mcp.md#questions).
//!
//! Nothing is decided by default: no form has a default that decides, and an answer without a decision leaves its item
//! open. `schema` turns the schema of a question into a form, `message` writes the text for people, `read` reads the
//! answer. Not here: whether an item is open (the engine), and the ways on which forms travel (`serve`, `tasks`).

mod message;
mod read;
mod round;
mod schema;
mod text;

use interlingua_core::Answer;
use interlingua_core::answer::{ALL_DECISIONS, AnswerPolicy, AskPolicy, PLAIN_DECISIONS, offer};
use interlingua_core::call::{Delivery, RunCall, RunView, Thread};
use interlingua_core::http_url::Url;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::AgentRequest;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::policy::RunPolicy;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) use read::{Reading, read};
pub(crate) use round::{read_all, request_all};
pub(crate) use text::beginning;

use crate::revision::Revision;
use schema::{FormPart, fit};

/// Maximum length of a key in bytes.
const MAX_KEY_BYTES: usize = 120;
/// Suffix of the key under which a page is opened.
const OPEN: &str = ".open";
/// Maximum number of items that are asked at once.
pub(crate) const MAX_ITEMS: usize = 64;
/// Maximum number of times that one call asks a question.
pub(crate) const MAX_ROUNDS: u32 = 3;

/// The forms of questions that a client has declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    /// The client shows forms.
    pub(crate) form: bool,
    /// The client opens pages.
    pub(crate) url: bool,
}

impl Modes {
    /// The modes in the capabilities of a client: an empty declaration means forms.
    pub(crate) fn of(capabilities: &Value) -> Self {
        let Some(Value::Object(elicitation)) = capabilities.get("elicitation") else { return Self::default() };
        let (form, url) = (elicitation.contains_key("form"), elicitation.contains_key("url"));
        Self { form: form || !url, url }
    }

    /// The modes that a revision knows. Revision 2025-06-18 has only forms.
    pub(crate) fn within(self, revision: Revision) -> Self {
        match revision {
            Revision::March2025 => Self::default(),
            Revision::June2025 => Self { form: self.form || self.url, url: false },
            Revision::November2025 | Revision::July2026 => self,
        }
    }
}

/// The form in which the gateway asks for an answer to an item.
enum Question {
    /// One of these decisions; with the arguments and the text of an approval, or without.
    Decision { offered: Vec<Decision>, is_approval: bool },
    /// The fields of a form are the answer.
    Fields(Value),
    /// The field `answer`, with this schema.
    Value(Value),
    /// The field `answer`, as JSON text of this schema.
    JsonText(String),
    /// The field `answer`, as text.
    Text,
    /// Whether the person has logged in.
    Done,
    /// The output of a call.
    Output,
}

/// The decisions that an item offers.
pub(crate) fn offered(item: &Pending) -> Vec<Decision> {
    // The engine has already limited the list to what the agent accepts.
    let has_list = !item.decisions.is_empty() || item.kind != PendingKind::Approval;
    offer(item, if has_list { ALL_DECISIONS } else { PLAIN_DECISIONS })
}

fn question(item: &Pending, revision: Revision) -> Question {
    let offered = offered(item);
    let has = |decision| offered.contains(&decision);
    match item.kind {
        PendingKind::Tool => Question::Output,
        PendingKind::Auth if has(Decision::Accept) => Question::Done,
        PendingKind::Input | PendingKind::Auth if has(Decision::Respond) => match &item.response_schema {
            None => Question::Text,
            Some(schema) => match fit(schema, revision) {
                FormPart::Fields(form) => Question::Fields(form),
                FormPart::Value(property) => Question::Value(property),
                FormPart::Other(text) => Question::JsonText(text),
            },
        },
        kind => Question::Decision { offered, is_approval: kind == PendingKind::Approval },
    }
}

/// The requests for an answer to an item, as keys and the parameters of `elicitation/create`, in the order of asking.
/// Empty if the client declares no suitable mode. `reason`: why an earlier answer decided nothing.
pub(crate) fn requests(item: &Pending, revision: Revision, modes: Modes, reason: Option<&str>) -> Vec<(String, Value)> {
    let modes = modes.within(revision);
    let page = page(item).filter(|_| modes.url);
    let mut requests = Vec::new();
    if let Some(url) = &page {
        let message = message::write(item, reason, None);
        let mut params = json!({ "mode": "url", "message": message, "url": url });
        if !revision.is_modern() {
            params["elicitationId"] = Value::from(item.id.as_str());
        }
        requests.push((open_key(item), params));
    }
    if modes.form {
        // A client that cannot open the page shows where it is.
        let shown = self::page(item).filter(|_| page.is_none());
        let message = message::write(item, reason, shown.as_deref());
        let mut params = json!({ "message": message, "requestedSchema": form(&question(item, revision)) });
        if revision > Revision::June2025 {
            params["mode"] = Value::from("form");
        }
        requests.push((key(item), params));
    }
    requests
}

/// Records that forms show only a part of what they ask about.
pub(crate) fn note_losses(items: &[Pending], losses: &mut Losses) {
    for item in items {
        let kind = match item.kind {
            PendingKind::Approval => ContentKind::Approval,
            PendingKind::Tool => ContentKind::ClientCall,
            PendingKind::Input | PendingKind::Auth => continue,
        };
        if !message::shows_call(item) {
            losses.changed(kind, "a form shows the beginning of long arguments");
        }
    }
}

/// The text of an item for people whose client shows no forms.
pub(crate) fn question_text(item: &Pending) -> String {
    message::write(item, None, page(item).as_deref())
}

/// The page of a login, if it is one that a browser opens.
fn page(item: &Pending) -> Option<String> {
    if item.kind != PendingKind::Auth
        || !matches!(offered(item).as_slice(), offered if offered.contains(&Decision::Accept))
    {
        return None;
    }
    let payload: Map<String, Value> = item.payload.as_ref()?.decode()?;
    let url = payload.get("url")?.as_str()?;
    Url::parse(url).map(|_| url.to_owned())
}

/// The form of a question.
fn form(question: &Question) -> Value {
    let text = |title: &str, description: Option<&str>| match description {
        None => json!({ "type": "string", "title": title }),
        Some(description) => json!({ "type": "string", "title": title, "description": description }),
    };
    let one =
        |name: &str, property: Value| json!({ "type": "object", "properties": { name: property }, "required": [name] });
    match question {
        Question::Decision { offered, is_approval } => {
            let words: Vec<&str> = offered.iter().map(|decision| decision.as_str()).collect();
            let mut form = one("decision", json!({ "type": "string", "title": "Decision", "enum": words }));
            if *is_approval {
                if offered.contains(&Decision::Edit) {
                    let description = "The new arguments as a JSON object, for the decision edit.";
                    form["properties"]["arguments"] = text("Arguments", Some(description));
                }
                form["properties"]["text"] = text("Text", None);
            }
            form
        }
        Question::Fields(form) => form.clone(),
        Question::Value(property) => one("answer", property.clone()),
        Question::JsonText(schema) => {
            let description = format!("JSON that matches this schema: {schema}");
            one("answer", text("Answer", Some(&description)))
        }
        Question::Text => one("answer", text("Answer", None)),
        Question::Done => one("done", json!({ "type": "string", "title": "Done", "enum": ["yes", "no"] })),
        Question::Output => one("output", text("Output", None)),
    }
}

/// The key of an item in `inputRequests`: its id, if that is a legal key. Any other id is cut or rewritten, and gets a
/// digest, so that no two items have one key.
pub(crate) fn key(item: &Pending) -> String {
    key_of(&item.id, MAX_KEY_BYTES)
}

/// The key under which the page of a login is opened.
pub(crate) fn open_key(item: &Pending) -> String {
    format!("{}{OPEN}", key_of(&item.id, MAX_KEY_BYTES - OPEN.len()))
}

fn key_of(id: &str, max: usize) -> String {
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '-');
    if id.len() <= max && id.chars().all(is_legal) {
        return id.to_owned();
    }
    let digest = Sha256::digest(id.as_bytes());
    let digest: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let words = id.chars().map(|letter| if is_legal(letter) { letter } else { '_' });
    let mut key: String = words.take(max - digest.len() - 1).collect();
    key.push('-');
    key.push_str(&digest);
    key
}

/// The rules for answers over MCP: the items of a run are collected until the last one has its answer, calls of tools
/// too.
pub(crate) fn answer_policy() -> AnswerPolicy {
    AnswerPolicy { asking: AskPolicy::OneByOneWithTools, ..AnswerPolicy::default() }
}

/// The turn whose questions a run asks. Turns that did not reach the agent do not count: an answer that has to wait for
/// others leaves such a turn.
pub(crate) fn asking_turn(view: RunView<'_>) -> usize {
    view.run().last_effective_turn().unwrap_or(0)
}

/// The call that answers items of a run: its next turn if it began over MCP, else a run of its own in the same session.
pub(crate) fn answer_call(view: RunView<'_>, answers: Vec<Answer>, delivery: Delivery, policy: RunPolicy) -> RunCall {
    let run = view.run();
    let mut call = RunCall::new(run.agent.clone(), AgentRequest::default());
    call.thread = if view.info.protocol == crate::revision::NAME && !view.info.state.is_ended() {
        Thread::Continue(run.id)
    } else {
        Thread::Session(run.session_id.clone())
    };
    call.answers = answers;
    call.answer_policy = answer_policy();
    call.delivery = delivery;
    call.policy = policy;
    call
}

#[cfg(test)]
mod tests;
