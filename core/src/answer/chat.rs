//! Approvals, questions and logins in chat protocols, which have no form for them
//! (docs/human-in-the-loop.md#in-chat-protocols): as calls of functions that the client declares for this purpose, or
//! as text whose last line is a marker. The client sends the marker back with the conversation.
//!
//! Not here: finding the item of an answer (the engine), and the check of its decision ([`super::decide`]).

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::hint;
use crate::answer::{ALL_DECISIONS, Answer, AnswerBody, AskPolicy, decision_word};
use crate::capability::AskKinds;
use crate::json::{Extra, Json};
use crate::pending::{Decision, Pending, PendingKind};

/// The form of approvals, questions and logins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalForm {
    /// Calls, if the request declares the functions; else text.
    #[default]
    Auto,
    /// Text with a marker.
    Text,
    /// Calls.
    Tool,
    /// Not at all: the answer is an error.
    Refuse,
}

/// Shows items in a chat protocol, by the settings of a route.
#[derive(Clone, Copy, Debug)]
pub struct ChatAsker<'a> {
    /// The form.
    pub form: ApprovalForm,
    /// The function for approvals.
    pub approval_function: &'a str,
    /// The function for questions and logins.
    pub input_function: &'a str,
}

/// An item in the form of a question to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AskedItem<'a> {
    /// A call of a function; its output is the answer.
    Call {
        /// The item's id.
        id: &'a str,
        /// The function.
        name: &'a str,
        /// JSON of an object.
        arguments: Json,
    },
    /// Text with the marker as its last line.
    Text(String),
}

#[derive(Serialize)]
struct ApprovalArguments<'a> {
    name: &'a str,
    arguments: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_label: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    decisions: &'a [Decision],
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Json>,
}

#[derive(Serialize)]
struct InputArguments<'a> {
    message: Option<&'a str>,
    payload: Option<&'a Json>,
    response_schema: Option<&'a Json>,
}

impl ApprovalForm {
    /// The decisions that a client can send.
    #[must_use]
    pub const fn decisions(self) -> &'static [Decision] {
        match self {
            // The output of a function can hold anything.
            Self::Auto | Self::Tool => ALL_DECISIONS,
            // A single word cannot contain new arguments or a result.
            Self::Text => &[Decision::Accept, Decision::Reject, Decision::Cancel],
            Self::Refuse => &[],
        }
    }

    /// The kinds of items that an agent can leave open.
    #[must_use]
    pub fn asks(self) -> AskKinds {
        if self == Self::Refuse { AskKinds::default() } else { AskKinds::ALL }
    }
}

impl<'a> ChatAsker<'a> {
    /// Checks the options `request_approval` and `request_input`, which name the functions.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub fn check(&self) -> Result<(), String> {
        let names = [("request_approval", self.approval_function), ("request_input", self.input_function)];
        if let Some((option, _)) = names.iter().find(|(_, name)| name.is_empty()) {
            return Err(format!("{option}: must not be empty"));
        }
        if self.approval_function == self.input_function {
            return Err("request_approval and request_input: must differ".to_owned());
        }
        Ok(())
    }

    /// True if calls of the function with this name are answers for the gateway, not for the agent.
    #[must_use]
    pub fn is_own(&self, name: &str) -> bool {
        let by_call = matches!(self.form, ApprovalForm::Auto | ApprovalForm::Tool);
        by_call && (name == self.approval_function || name == self.input_function)
    }

    fn function(&self, kind: PendingKind) -> &'a str {
        if kind == PendingKind::Approval { self.approval_function } else { self.input_function }
    }

    /// True if items of this kind are shown as calls. `declares`: whether the request declares a function.
    #[must_use]
    pub fn is_call(&self, kind: PendingKind, declares: &dyn Fn(&str) -> bool) -> bool {
        match self.form {
            ApprovalForm::Auto => declares(self.function(kind)),
            ApprovalForm::Tool => true,
            ApprovalForm::Text | ApprovalForm::Refuse => false,
        }
    }

    /// The form of a request's items, which determines the form of their answers. `declares`: whether the request
    /// declares a function.
    #[must_use]
    pub fn policy(&self, declares: &dyn Fn(&str) -> bool) -> AskPolicy {
        let kinds = [PendingKind::Approval, PendingKind::Input];
        if kinds.into_iter().all(|kind| self.is_call(kind, declares)) {
            AskPolicy::Together
        } else {
            AskPolicy::OneByOne
        }
    }

    /// The items to show now: all of them as calls, or the first one as text. Calls that the client runs are not among
    /// them.
    #[must_use]
    pub fn ask<'p>(&self, pending: &'p [Pending], declares: &dyn Fn(&str) -> bool) -> Vec<AskedItem<'p>>
    where
        'a: 'p,
    {
        let items = pending.iter().filter(|item| item.kind != PendingKind::Tool);
        match self.policy(declares) {
            AskPolicy::Together => items.map(|item| self.call(item)).collect(),
            _ => items
                .take(1)
                .map(
                    |item| {
                        if self.is_call(item.kind, declares) { self.call(item) } else { AskedItem::Text(text(item)) }
                    },
                )
                .collect(),
        }
    }

    fn call<'p>(&self, item: &'p Pending) -> AskedItem<'p>
    where
        'a: 'p,
    {
        let arguments = if item.kind == PendingKind::Approval {
            Json::from_serialize(&ApprovalArguments {
                name: &item.name,
                arguments: Json::parse(&item.arguments).unwrap_or_else(|| Json::from_serialize(&item.arguments)),
                server_label: item.server_label.as_deref(),
                message: item.message.as_deref(),
                decisions: &item.decisions,
                payload: item.payload.as_ref(),
            })
        } else {
            Json::from_serialize(&InputArguments {
                message: item.message.as_deref(),
                payload: item.payload.as_ref(),
                response_schema: item.response_schema.as_ref(),
            })
        };
        AskedItem::Call { id: &item.id, name: self.function(item.kind), arguments }
    }
}

/// The question in words.
fn text(item: &Pending) -> String {
    let mut text = item.message.clone().unwrap_or_default();
    let mut line = |words: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(words);
    };

    if item.kind == PendingKind::Approval {
        line(&format!("I want to run {} with {}.", item.name, item.arguments));
        let accepts = item.decisions.is_empty() || item.decisions.contains(&Decision::Accept);
        line(if accepts { "Answer \"approve\" or \"reject\"." } else { "Answer \"reject\"." });
    } else {
        let payload: Extra = item.payload.as_ref().and_then(Json::decode).unwrap_or_default();
        if let Some(url) = payload.get("url").and_then(Json::decode::<String>) {
            line(&url);
        }
        if let Some(hint) = item.response_schema.as_ref().and_then(hint) {
            line(&format!("In your answer, {hint}"));
        }
        if item.kind == PendingKind::Auth {
            line("Answer \"done\" when you are logged in.");
        } else if item.message.is_none() {
            line("The agent needs an answer.");
        }
    }
    let is_approval = item.kind == PendingKind::Approval;
    line(&Marker { is_approval, id: item.id.clone() }.to_line());
    text
}

/// Prefix of the line with the reason for a repeated question.
const NOT_DECIDED: &str = "Not decided: ";

/// The line in front of a repeated question, and a blank line.
#[must_use]
pub fn reason_line(reason: &str) -> String {
    let mut line = String::with_capacity(NOT_DECIDED.len() + reason.len() + 2);
    line.push_str(NOT_DECIDED);
    line.extend(reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter }));
    line.push_str("\n\n");
    line
}

/// A text of the assistant without the [`reason_line`] in front of it.
#[must_use]
pub fn without_reason(text: &str) -> &str {
    let Some(rest) = text.trim_start().strip_prefix(NOT_DECIDED) else { return text };
    rest.split_once('\n').map_or("", |(_, question)| question)
}

/// The item that a line such as `[approval appr_1]` refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// True for an approval; false for a question or a login.
    pub is_approval: bool,
    /// The item's id.
    pub id: String,
}

/// Maximum length of an id in a marker, in bytes. Longer ids are ignored.
const MAX_MARKED_ID: usize = 1024;

impl Marker {
    /// The last marker that is a line of its own.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.lines().rev().find_map(|line| {
            let inner = line.trim().strip_prefix('[')?.strip_suffix(']')?;
            let (kind, id) = inner.split_once(' ')?;
            let is_approval = match kind {
                "approval" => true,
                "question" => false,
                _ => return None,
            };
            let is_id = !id.is_empty() && id.len() <= MAX_MARKED_ID && !id.contains([' ', '[', ']']);
            is_id.then(|| Self { is_approval, id: unescaped(id) })
        })
    }

    /// The line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let kind = if self.is_approval { "approval" } else { "question" };
        format!("[{kind} {}]", escaped(&self.id))
    }

    /// The user's only new text as an answer. A single word alone decides an approval: any other text, and JSON, is no
    /// decision.
    #[must_use]
    pub fn answer(&self, words: &str) -> Answer {
        let decides = !self.is_approval || decision_word(words).is_some();
        let given = if decides { AnswerBody::Text(words.trim().to_owned()) } else { AnswerBody::Payload(Json::null()) };
        Answer::new(self.id.clone(), given)
    }
}

/// Ids may contain any character; characters that would end a marker are written as `%` and two digits.
fn escaped(id: &str) -> String {
    let mut line = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte <= b' ' || byte == 0x7f || matches!(byte, b'[' | b']' | b'%') || !byte.is_ascii() {
            let written = write!(line, "%{byte:02X}");
            debug_assert!(written.is_ok(), "writing into a string does not fail");
        } else {
            line.push(char::from(byte));
        }
    }
    line
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMS: ChatAsker<'static> =
        ChatAsker { form: ApprovalForm::Auto, approval_function: "request_approval", input_function: "request_input" };

    fn items() -> Vec<Pending> {
        [
            r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a\"}","server_label":"mailer","interrupt":{"kind":"approval","message":"Send it?"}}"#,
            r#"{"id":"ask 1","name":"colour","interrupt":{"kind":"input","message":"Which?","response_schema":{"type":"string"}}}"#,
            r#"{"id":"auth_1","name":"login","interrupt":{"kind":"auth","payload":{"url":"https://a/b"}}}"#,
        ]
        .iter()
        .map(|data| Pending::parse(&Json::parse(data).expect("JSON")).expect("an item"))
        .collect()
    }

    #[test]
    fn items_become_calls_if_the_functions_are_declared() {
        let items = items();
        let asked = FORMS.ask(&items, &|_| true);
        assert_eq!(asked.len(), 3);
        let AskedItem::Call { id, name, arguments } = &asked[0] else { panic!("{asked:?}") };
        assert_eq!((*id, *name), ("appr_1", "request_approval"));
        assert_eq!(
            arguments.text(),
            r#"{"name":"send_mail","arguments":{"to":"a"},"server_label":"mailer","message":"Send it?","decisions":[]}"#
        );
        assert!(matches!(&asked[1], AskedItem::Call { name: "request_input", .. }), "{asked:?}");
        assert!(FORMS.is_own("request_input") && !FORMS.is_own("other"));

        let only_input = |name: &str| name == "request_input";
        let asked = FORMS.ask(&items, &only_input);
        assert!(matches!(asked.as_slice(), [AskedItem::Text(_)]), "{asked:?}");
        assert_eq!(FORMS.policy(&only_input), AskPolicy::OneByOne);
    }

    #[test]
    fn the_first_item_becomes_text_without_declared_functions() {
        let items = items();
        let texts: Vec<String> = items.iter().map(text).collect();
        assert_eq!(
            texts[0],
            "Send it?\nI want to run send_mail with {\"to\":\"a\"}.\nAnswer \"approve\" or \"reject\".\n[approval appr_1]"
        );
        assert!(texts[1].starts_with("Which?\n") && texts[1].ends_with("\n[question ask%201]"), "{}", texts[1]);
        assert_eq!(texts[2], "https://a/b\nAnswer \"done\" when you are logged in.\n[question auth_1]");
        assert_eq!(FORMS.ask(&items, &|_| false), [AskedItem::Text(texts[0].clone())]);
    }

    #[test]
    fn a_marker_is_a_line_of_its_own() {
        let find = |text: &str| Marker::find(text).map(|marker| (marker.is_approval, marker.id));
        assert_eq!(find("x\n[approval appr_1]\n"), Some((true, "appr_1".to_owned())));
        assert_eq!(find("[approval a]\n  [question ask%201] "), Some((false, "ask 1".to_owned())));
        for text in ["[approval]", "x [approval a]", "[approval a] x", "[decision a]", "[approval a b]", ""] {
            assert_eq!(find(text), None, "{text}");
        }
        for id in ["appr_1", "a b", "ä]\n%41", "%"] {
            let marker = Marker { is_approval: true, id: id.to_owned() };
            assert_eq!(Marker::find(&marker.to_line()), Some(marker));
        }
    }

    #[test]
    fn the_reason_precedes_the_question() {
        let question = text(&items()[0]);
        let again = format!("{}{question}", reason_line("not understood:\nsend approve"));
        assert!(again.starts_with("Not decided: not understood: send approve\n\nSend it?"), "{again}");
        assert_eq!(without_reason(&again).trim(), question.trim());
        assert_eq!(without_reason(&question), question);
        assert_eq!(without_reason("Not decided: x"), "", "a call is asked without words");
        assert_eq!(Marker::find(&again), Marker::find(&question));
    }

    #[test]
    fn only_a_single_word_decides_an_approval() {
        let answer = |is_approval, words: &str| Marker { is_approval, id: "a".to_owned() }.answer(words).given;
        assert_eq!(answer(true, " Approve "), AnswerBody::Text("Approve".to_owned()));
        for words in ["approve it", "true", r#"{"approve":true}"#, ""] {
            assert_eq!(answer(true, words), AnswerBody::Payload(Json::null()), "{words}");
        }
        assert_eq!(answer(false, "blue"), AnswerBody::Text("blue".to_owned()));
    }
}
