//! Errors of servers: found in an answer with a status, and inside a 200.
//!
//! Not here: which class of error it is ([`crate::error_class`]).

use std::time::Duration;

use crate::connector::Refusal;
use crate::error_class::{self, classify, retry_after};
use crate::filter::{client_text, truncated};
use crate::{Fault, FaultKind};
use serde_json::{Map, Value};

/// Length of a body in the log, in bytes.
const MAX_LOGGED: usize = 500;
/// Length of a text that may be a whole error in itself, in bytes. Longer ones are pages or answers.
const MAX_PLAIN_TEXT: usize = 2000;
/// Levels of errors in errors. Each gateway between the model and this one may add one.
const MAX_LEVELS: usize = 8;

/// An error that a server reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaint {
    /// The server's code, or the type where it has none. Empty: neither.
    code: String,
    /// Further words that may name the class: the type, a status word, a reason.
    words: Vec<String>,
    /// Its sentence. Empty: none.
    message: String,
    /// The raw answer of the model server, quoted by a gateway in front of it. Never shown.
    origin: String,
    /// The HTTP status that it gives as its code.
    status: Option<u16>,
}

impl Complaint {
    /// Reads any of the forms in use. `None`: neither JSON nor plain text.
    ///
    /// See `docs/protocols/chat-completions.md#refusals`.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?.trim();
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Self::from_value(&value, MAX_LEVELS),
            // A page of a proxy is not meant for a program.
            Err(_) if text.is_empty() || text.starts_with('<') => None,
            Err(_) => Some(Self { message: text.to_owned(), ..Self::default() }),
        }
    }

    /// Reads JSON that has no meaning in the agent's protocol: an object, or a list of them. `None`: it is not an
    /// error.
    pub fn from_unknown_object(data: &[u8]) -> Option<Self> {
        let value = serde_json::from_slice::<Value>(data).ok()?;
        let is_error = match &value {
            Value::Object(fields) => is_error(fields),
            Value::Array(entries) => {
                !entries.is_empty() && entries.iter().all(|entry| entry.as_object().is_some_and(is_error))
            }
            _ => false,
        };
        is_error.then(|| Self::from_value(&value, MAX_LEVELS).unwrap_or_default())
    }

    /// Reads an event whose type the agent's protocol does not have. `kind`: the type. `None`: it is no error.
    #[must_use]
    pub fn from_unknown_event(kind: &str, data: &[u8]) -> Option<Self> {
        // The types of errors, where servers write an error as an object of its own.
        let may_be = kind.is_empty() || kind == "error" || kind.ends_with("Error");
        if may_be { Self::from_unknown_object(data) } else { None }
    }

    fn from_value(value: &Value, levels: usize) -> Option<Self> {
        let levels = levels.checked_sub(1)?;
        match value {
            Value::String(text) => Some(Self::from_text(text, levels)),
            // Gemini sends a list with one error in it, validators one with an entry for each field.
            Value::Array(entries) => {
                let found: Vec<Self> = entries.iter().filter_map(|entry| Self::from_value(entry, levels)).collect();
                let message = found.iter().map(|found| found.message.as_str()).collect::<Vec<_>>().join("; ");
                let first = found.into_iter().next()?;
                Some(Self { message, ..first })
            }
            Value::Object(fields) => Self::from_fields(fields, levels),
            _ => None,
        }
    }

    /// Some gateways put the whole JSON of another server into a text.
    fn from_text(text: &str, levels: usize) -> Self {
        let inner = text.trim_start().starts_with('{').then(|| serde_json::from_str::<Value>(text).ok()).flatten();
        inner
            .and_then(|inner| Self::from_value(&inner, levels))
            .unwrap_or_else(|| Self { message: text.to_owned(), ..Self::default() })
    }

    fn from_fields(fields: &Map<String, Value>, levels: usize) -> Option<Self> {
        let word = |names: &[&str]| {
            let found = names.iter().find_map(|name| fields.get(*name)?.as_str().filter(|word| !word.is_empty()));
            found.unwrap_or_default().to_owned()
        };
        let own = word(&["message", "error_message", "errorMessage", "error_msg", "err_msg"]);
        let inner = ["error", "errors"].iter().find_map(|name| fields.get(*name).filter(|inner| !is_empty(inner)));
        if let Some(mut inner) = inner.and_then(|inner| Self::from_value(inner, levels)) {
            let is_text = fields.get("error").is_some_and(Value::is_string);
            // Frameworks name the status in `error`, and the reason beside it.
            if is_text && !own.is_empty() && own != inner.message {
                let name = std::mem::replace(&mut inner.message, own);
                if is_word(&name) && inner.code.is_empty() {
                    inner.code = name;
                }
            }
            inner.status = inner.status.or_else(|| status_in(fields));
            inner.add_words(fields);
            return Some(inner);
        }

        let nested = ["message", "detail", "details"].iter().find_map(|name| {
            let nested = fields.get(*name).filter(|nested| !is_empty(nested))?;
            // The details of Google's errors contain no sentence.
            if *name == "details" && !own.is_empty() { None } else { Self::from_value(nested, levels) }
        });
        let mut found = match nested {
            Some(nested) if own.is_empty() || own == nested.message => nested,
            // The message is JSON in a text.
            Some(nested) if own.trim_start().starts_with('{') => nested,
            _ => Self { message: own, ..Self::default() },
        };
        if found.message.is_empty() {
            found.message = word(&["msg", "title", "reason", "error_description"]);
        }
        if let Some(path) =
            fields.get("loc").and_then(Value::as_array).map(|path| dotted(path)).filter(|path| !path.is_empty())
        {
            found.message = format!("{path}: {}", found.message);
        }

        found.status = found.status.or_else(|| status_in(fields));
        let code = word(&["code", "error_code", "errorCode"]);
        // Some servers send the status as a number, others as a string of digits. Neither names the error.
        let code = Some(code).filter(|code| !code.is_empty() && code.parse::<u16>().is_err());
        let kind = word(&["type", "error_type", "errorType"]);
        if found.code.is_empty() {
            found.code = code.unwrap_or(kind);
        }
        found.add_words(fields);
        (!found.message.is_empty() || !found.code.is_empty()).then_some(found)
    }

    /// Collects what may name the class beside the code.
    fn add_words(&mut self, fields: &Map<String, Value>) {
        const WORDS: &[&str] =
            &["code", "error_code", "errorCode", "type", "error_type", "errorType", "status", "reason"];
        let reasons = fields.get("details").and_then(Value::as_array).into_iter().flatten();
        let reasons = reasons.filter_map(|detail| detail.get("reason")?.as_str());
        let words = WORDS.iter().filter_map(|name| fields.get(*name)?.as_str()).chain(reasons);
        self.words.extend(words.filter(|word| is_word(word)).take(MAX_LEVELS).map(str::to_owned));
        if let Some(raw) = fields.get("metadata").and_then(|metadata| metadata.get("raw")?.as_str()) {
            truncated(raw, MAX_PLAIN_TEXT).clone_into(&mut self.origin);
        }
    }

    /// The kind of the fault. `None`: the class of the error is unknown. `status`: the HTTP status of the answer;
    /// `None` for an error inside a 200.
    #[must_use]
    pub fn class(&self, status: Option<u16>) -> Option<FaultKind> {
        let words = std::iter::once(self.code.as_str()).chain(self.words.iter().map(String::as_str));
        // A gateway in front of the server has its own status, and repeats the server's.
        let status = match (status, self.status) {
            (Some(400), Some(inner @ 401..=499)) | (Some(500 | 502), Some(inner)) => Some(inner),
            (Some(outer), _) => Some(outer),
            (None, inner) => inner,
        };
        if self.origin.is_empty() {
            return classify(words, &self.message, status);
        }
        classify(words, &format!("{} {}", self.message, self.origin), status)
    }

    /// The server's code, or the type where it has none. Empty: neither.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Its sentence, unfiltered. Empty: none.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Code and sentence for the error that ends a run. Unfiltered.
    pub fn into_error(self) -> (String, String) {
        let code = self.class(None).filter(|kind| *kind != FaultKind::AgentFailed).map(|kind| kind.code().to_owned());
        let code = code.unwrap_or(self.code);
        let message = if self.message.is_empty() { "the agent failed".to_owned() } else { self.message };
        (code, message)
    }

    /// The fault of an answer that has a status of success and consists only of this error.
    #[must_use]
    pub fn into_fault(self) -> Fault {
        let kind = self.class(None).unwrap_or(FaultKind::AgentFailed);
        let shown = if self.message.is_empty() { None } else { Some(client_text(&self.code, &self.message)) };
        let sentence = error_class::sentence(kind, None);
        let message = match shown {
            Some(shown) if kind == FaultKind::AgentFailed => shown,
            Some(shown) if error_class::is_about_the_request(kind) => format!("{sentence}: {shown}"),
            _ => sentence.into_owned(),
        };
        let mut fault = Fault::new(kind, message);
        fault.retry_after = self.retry_after().filter(|_| kind.retry_helps());
        fault.code = Some(self.code).filter(|code| kind == FaultKind::AgentFailed && !code.is_empty());
        fault
    }

    /// The fault of a server that accepts no requests at the moment and reports this inside a 200. `None`: the error is
    /// of another class.
    pub fn not_now(&self) -> Option<Fault> {
        let kind = self.class(None)?;
        if !matches!(kind, FaultKind::UpstreamRateLimited | FaultKind::UpstreamOverloaded) {
            return None;
        }
        let mut fault = Fault::new(kind, error_class::sentence(kind, None)).with_detail(&self.message);
        fault.retry_after = self.retry_after();
        Some(fault)
    }

    /// The pause that the text names.
    fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.message)
    }
}

/// Whether an object that is no part of a protocol reports an error.
fn is_error(fields: &Map<String, Value>) -> bool {
    const SIGNS: &[&str] = &[
        "error",
        "errors",
        "detail",
        "error_message",
        "errorMessage",
        "error_msg",
        "error_type",
        "errorType",
        "error_code",
        "errorCode",
    ];
    let has = |name: &str| fields.get(name).is_some_and(|value| !is_empty(value));
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let is_named = ["object", "type", "status"].iter().any(|name| text(name) == "error");
    let is_pair = has("message") && (has("code") || text("type").to_ascii_lowercase().ends_with("error"));
    let has_failed = fields.get("success") == Some(&Value::Bool(false));
    is_named || is_pair || has_failed || SIGNS.iter().any(|name| has(name))
}

/// True for a value that carries no information: null, false, or empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len()) && !text.contains(char::is_whitespace)
}

/// The HTTP status in the fields of an error.
fn status_in(fields: &Map<String, Value>) -> Option<u16> {
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    };
    let mut found =
        ["code", "status", "error_code", "status_code"].iter().filter_map(|name| number(fields.get(*name)?));
    found.find(|status| (400..=599).contains(status))
}

/// The place of a validator's error, without the part of the request: `["body", "input", 0]` is `input.0`.
fn dotted(path: &[Value]) -> String {
    let parts = path.iter().filter(|part| part.as_str() != Some("body")).take(MAX_LEVELS);
    let parts = parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
    parts.collect::<Vec<_>>().join(".")
}

/// The fault in an answer whose status is no success.
pub fn map_refusal(refusal: &Refusal<'_>) -> Fault {
    let mut fault = refusal.to_fault();
    let complaint = Complaint::parse(refusal.body).unwrap_or_default();
    if let Some(kind) = complaint.class(Some(refusal.status)) {
        fault.kind = kind;
    }
    // Groq refuses a whole answer if its model wrote a broken call: the request was fine.
    let is_broken_call = refusal.status == 400 && complaint.code == "tool_use_failed";
    if is_broken_call {
        fault.kind = FaultKind::AgentFailed;
    }

    let status = Some(refusal.status).filter(|_| !is_broken_call);
    fault.message = error_class::sentence(fault.kind, status).into_owned();
    if fault.kind == FaultKind::UpstreamRateLimited {
        fault.retry_after = fault.retry_after.or_else(|| complaint.retry_after());
    }
    let is_shown = refusal.is_about_the_request() && error_class::is_about_the_request(fault.kind);
    if is_shown && !complaint.message.is_empty() {
        fault.message = format!("{}: {}", fault.message, client_text(&complaint.code, &complaint.message));
    }
    fault
}

/// The fault of an answer with a status of success that is not in the agent's protocol.
pub fn garbage(data: &[u8]) -> Fault {
    let beginning = String::from_utf8_lossy(&data[..data.len().min(MAX_LOGGED)]).into_owned();
    if let Some(complaint) = Complaint::from_unknown_object(data) {
        return complaint.into_fault().with_detail(beginning);
    }
    // Proxies and small servers report errors as plain text.
    let plain = std::str::from_utf8(data).ok().filter(|text| text.len() <= MAX_PLAIN_TEXT);
    let plain = plain.map(str::trim).filter(|text| !text.starts_with(['<', '{', '[', '"']));
    if let Some(text) = plain.filter(|text| error_class::of_text(text).is_some()) {
        let complaint = Complaint { message: text.to_owned(), ..Complaint::default() };
        return complaint.into_fault().with_detail(beginning);
    }
    Fault::new(FaultKind::UpstreamGarbage, "the agent's answer could not be understood").with_detail(beginning)
}

#[cfg(test)]
mod tests;
