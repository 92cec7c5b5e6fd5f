//! The answer of a client to a form.

use interlingua_core::answer::{AnswerBody, AnswerError, decide};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Answer, Json};
use serde_json::{Map, Value};

use super::{Modes, Question, offered, question};
use crate::revision::Revision;

/// An answer to a form.
#[derive(Debug, PartialEq)]
pub(crate) enum Reading {
    /// It decides the item.
    Answer(Answer),
    /// It decides nothing, for this reason. The gateway asks again.
    Undecided(String),
    /// The person closed the form: the item stays open, and the call ends.
    StaysOpen,
    /// The person opened the page of a login, which decides nothing.
    Opened,
}

/// Reads the result of `elicitation/create`. `key_is_open`: it is the answer to a page, not to a form.
pub(crate) fn read(item: &Pending, revision: Revision, modes: Modes, key_is_open: bool, result: &Value) -> Reading {
    let content = result.get("content").and_then(Value::as_object);
    let modes = modes.within(revision);
    let given = match result.get("action").and_then(Value::as_str) {
        Some("cancel") => return Reading::StaysOpen,
        Some("decline") => Ok(declined(item)),
        Some("accept") if key_is_open && modes.form => return Reading::Opened,
        // This client has no form to confirm the login.
        Some("accept") if key_is_open && modes.url => Ok(decided(Decision::Accept, None)),
        Some("accept") => accepted(item, revision, content),
        _ => return Reading::Undecided("the action must be accept, decline or cancel".to_owned()),
    };
    let checked = given.and_then(|given| decide(item, &given, &offered(item)).map(|_| given));
    match checked {
        Ok(given) => Reading::Answer(Answer::new(item.id.clone(), given)),
        Err(error) => Reading::Undecided(error.to_string()),
    }
}

fn declined(item: &Pending) -> AnswerBody {
    let text = (item.kind == PendingKind::Tool).then(|| "declined by the user".to_owned());
    decided(Decision::Reject, text)
}

fn decided(decision: Decision, text: Option<String>) -> AnswerBody {
    AnswerBody::Decided { decision, arguments: None, text, payload: None }
}

fn accepted(
    item: &Pending,
    revision: Revision,
    content: Option<&Map<String, Value>>,
) -> Result<AnswerBody, AnswerError> {
    let unclear = || AnswerError::Unclear(offered(item));
    let content = content.ok_or_else(unclear)?;
    let field = |name: &str| content.get(name).filter(|value| !value.is_null());
    let text = |name: &str| field(name).and_then(Value::as_str);
    let said = |name: &str| text(name).filter(|text| !text.trim().is_empty());
    let payload = |value: &Value| AnswerBody::Decided {
        decision: Decision::Respond,
        arguments: None,
        text: None,
        payload: Some(Json::from_serialize(value)),
    };

    Ok(match question(item, revision) {
        Question::Decision { offered: words, is_approval } => {
            let word = text("decision").ok_or_else(unclear)?;
            let decision = words.iter().copied().find(|decision| decision.as_str() == word).ok_or_else(unclear)?;
            let arguments = match field("arguments").filter(|_| is_approval) {
                Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.trim().is_empty()),
                Some(value) => Some(value.to_string()),
                None => None,
            };
            let takes_arguments = matches!(decision, Decision::Accept | Decision::Edit);
            AnswerBody::Decided {
                decision,
                arguments: arguments.filter(|_| takes_arguments),
                text: said("text").map(str::to_owned),
                payload: None,
            }
        }
        Question::Fields(_) => payload(&Value::Object(content.clone())),
        Question::Value(_) => payload(field("answer").ok_or(AnswerError::MissingText)?),
        Question::JsonText(_) | Question::Text => {
            let answer = match field("answer") {
                Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
                Some(value) if !value.is_string() => value.to_string(),
                _ => return Err(AnswerError::MissingText),
            };
            decided(Decision::Respond, Some(answer))
        }
        Question::Done => match text("done") {
            Some("yes") => decided(Decision::Accept, None),
            Some("no") => decided(Decision::Reject, None),
            _ => return Err(unclear()),
        },
        // An output may be empty, but not missing.
        Question::Output => match field("output") {
            Some(Value::String(text)) => decided(Decision::Respond, Some(text.clone())),
            Some(value) => decided(Decision::Respond, Some(value.to_string())),
            None => return Err(AnswerError::MissingText),
        },
    })
}
