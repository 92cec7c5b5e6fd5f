//! Checks one answer against one item: the table in docs/human-in-the-loop.md#reading-decisions, and the data a
//! decision requires.
//!
//! Not here: whether the item is open at all ([`super::Waiting`]).

use std::fmt;

use crate::answer::arguments::{self, GivenArguments, field, same_arguments, word};
use crate::answer::schema::{SchemaMismatch, fits};
use crate::answer::text;
use crate::answer::{AnswerBody, NOT_TAKEN, UNDECIDED, decision_word};
use crate::fault::{Fault, FaultKind};
use crate::json::{Extra, Json, is_empty_value};
use crate::pending::{Decision, Pending, PendingKind};

/// A decision on an item, validated against it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CheckedDecision {
    /// The decision itself.
    pub decision: Decision,
    /// For an edit: the complete new arguments, a JSON object as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// For a response: its text. For a rejection: the reason. For a tool call: its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For a question: the validated value, independent of the form of the answer. Otherwise the client's answer,
    /// verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
}

impl CheckedDecision {
    /// A decision without further data.
    #[must_use]
    pub const fn new(decision: Decision) -> Self {
        Self { decision, arguments: None, text: None, payload: None }
    }
}

/// The reason why an answer is not accepted. The item stays open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The answer contains no decision. Has the allowed ones.
    Unclear(Vec<Decision>),
    /// The decision is not allowed for this item. Has the allowed ones.
    NotOffered(Decision, Vec<Decision>),
    /// An acceptance with other arguments than those of the item, which allows no edits. Has the allowed decisions.
    OtherArguments(Vec<Decision>),
    /// An edit without arguments, or with arguments that are not an object.
    MissingArguments,
    /// A response without text.
    MissingText,
    /// An edit for another tool than the one in the request. Has the name in the answer.
    OtherTool(String),
    /// New arguments that do not match the tool's schema.
    SchemaMismatch(SchemaMismatch),
    /// A value that does not match the question's schema. The text is a hint for the client.
    ValueMismatch(SchemaMismatch, Option<String>),
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclear(offered) => {
                write!(f, "not understood as a decision: send one of {}", words(offered))
            }
            Self::NotOffered(decision, offered) => {
                write!(f, "decision '{}' is not allowed: must be one of {}", decision.as_str(), words(offered))
            }
            Self::OtherArguments(offered) => {
                write!(
                    f,
                    "the answer accepts other arguments than the agent asked with, and the agent takes no edits: \
                     send one of {}",
                    words(offered)
                )
            }
            Self::MissingArguments => f.write_str("an edit needs the new arguments as an object"),
            Self::MissingText => f.write_str("a response needs a text"),
            Self::OtherTool(name) => write!(f, "the edit names another tool, '{name}'"),
            Self::SchemaMismatch(mismatch) | Self::ValueMismatch(mismatch, None) => {
                write!(f, "the answer does not match its schema: {mismatch}")
            }
            Self::ValueMismatch(mismatch, Some(hint)) => {
                write!(f, "the answer does not match its schema: {mismatch}; {hint}")
            }
        }
    }
}

fn words(decisions: &[Decision]) -> String {
    let words: Vec<&str> = decisions.iter().map(|decision| decision.as_str()).collect();
    words.join(", ")
}

impl From<AnswerError> for Fault {
    fn from(error: AnswerError) -> Self {
        let code = if matches!(error, AnswerError::Unclear(_)) { UNDECIDED } else { NOT_TAKEN };
        let kind = match error {
            // The answer is valid, but contradicts what the agent asked.
            AnswerError::OtherArguments(_) => FaultKind::Conflict,
            _ => FaultKind::Invalid,
        };
        Self::new(kind, error.to_string()).with_code(code)
    }
}

/// Interprets an answer to an item. `offered` are the allowed decisions ([`super::offer`]); `Cancel` is always allowed.
///
/// # Errors
/// An [`AnswerError`]: for example an answer without a decision, or with one that is not allowed.
pub fn decide(item: &Pending, given: &AnswerBody, offered: &[Decision]) -> Result<CheckedDecision, AnswerError> {
    let parsed = match given {
        AnswerBody::Decided { decision, arguments, text, payload } => {
            // A text that is no JSON stays what it is: no arguments that could be accepted.
            let arguments = arguments.as_deref();
            let arguments = arguments.map(|text| Json::parse(text).unwrap_or_else(|| Json::from_serialize(text)));
            let mut accepted: Vec<GivenArguments> = arguments.iter().cloned().map(GivenArguments::new).collect();
            accepted.extend(payload.as_ref().and_then(object).iter().flat_map(arguments::given));
            ParsedAnswer {
                decision: effective_decision(item, *decision, text.as_deref(), offered),
                arguments,
                accepted: if *decision == Decision::Accept { accepted } else { Vec::new() },
                value: payload.clone(),
                text: text.clone(),
                payload: payload.clone(),
                ..ParsedAnswer::new(*decision)
            }
        }
        AnswerBody::Text(text) => parse_text(item, text, offered)?,
        AnswerBody::Payload(payload) => match payload.decode::<String>() {
            Some(text) => parse_text(item, &text, offered)?,
            None => parse_json(item, payload, offered)?,
        },
    };
    parsed.validate(item, offered)
}

/// The plain canonical form has no word for a response: a text with an approval is one
/// (docs/human-in-the-loop.md#plain-yes).
fn effective_decision(item: &Pending, decision: Decision, text: Option<&str>, offered: &[Decision]) -> Decision {
    let answers = item.kind == PendingKind::Input && text.is_some_and(|text| !text.is_empty());
    let is_offered = |decision| offered.contains(&decision);
    match decision {
        Decision::Accept if answers && !is_offered(decision) && is_offered(Decision::Respond) => Decision::Respond,
        decision => decision,
    }
}

/// An answer as parsed, not yet validated.
struct ParsedAnswer {
    decision: Decision,
    arguments: Option<Json>,
    /// The tool that an edit names.
    tool: Option<String>,
    /// Arguments beside an acceptance.
    accepted: Vec<GivenArguments>,
    text: Option<String>,
    /// The value for a question, if it is not a text or accompanies one.
    value: Option<Json>,
    payload: Option<Json>,
}

impl ParsedAnswer {
    const fn new(decision: Decision) -> Self {
        Self { decision, arguments: None, tool: None, accepted: Vec::new(), text: None, value: None, payload: None }
    }

    /// The value for a question, validated against its schema.
    fn answer(&self, item: &Pending) -> Result<Json, AnswerError> {
        let text = self.text.as_deref().filter(|text| !text.is_empty());
        let value = self.value.as_ref();
        let Some(schema) = &item.response_schema else {
            return value.cloned().or_else(|| text.map(Json::from_serialize)).ok_or(AnswerError::MissingText);
        };
        let value = value.map(|value| match value.decode::<String>() {
            Some(text) => text::coerce(schema, &text),
            None => fits(schema, value).map(|()| value.clone()),
        });

        let fitting = match (value, text) {
            (Some(Ok(value)), _) => Ok(value),
            (_, Some(text)) => text::coerce(schema, text),
            (Some(mismatch), None) => mismatch,
            (None, None) => return Err(AnswerError::MissingText),
        };
        fitting.map_err(|mismatch| AnswerError::ValueMismatch(mismatch, text::hint(schema)))
    }

    /// Turns an acceptance of other arguments into an edit, and an edit of an acceptance with the same arguments into
    /// accept.
    fn judge_arguments(&mut self, item: &Pending, offered: &[Decision]) -> Result<(), AnswerError> {
        if item.kind != PendingKind::Approval || self.accepted.is_empty() {
            return Ok(());
        }

        let mut others = std::mem::take(&mut self.accepted).into_iter().filter(|given| given.differ(item));
        let Some(other) = others.next() else {
            self.decision = Decision::Accept;
            return Ok(());
        };
        if !offered.contains(&Decision::Edit) {
            return Err(AnswerError::OtherArguments(offered.to_vec()));
        }
        // Two different sets are ambiguous.
        if others.any(|more| !same_arguments(other.value.text(), &more.value)) {
            return Err(AnswerError::Unclear(offered.to_vec()));
        }
        self.decision = Decision::Edit;
        self.arguments = Some(other.value);
        self.tool = other.tool;
        Ok(())
    }

    fn validate(mut self, item: &Pending, offered: &[Decision]) -> Result<CheckedDecision, AnswerError> {
        self.judge_arguments(item, offered)?;
        let decision = match self.decision {
            // A client can always reject. A question that allows no rejection is withdrawn.
            Decision::Reject if item.kind == PendingKind::Input && !offered.contains(&Decision::Reject) => {
                Decision::Cancel
            }
            decision => decision,
        };
        let is_no = matches!(decision, Decision::Reject | Decision::Cancel);
        if !is_no && !offered.contains(&decision) {
            return Err(AnswerError::NotOffered(decision, offered.to_vec()));
        }

        let mut decided = CheckedDecision::new(decision);
        if decision == Decision::Respond && matches!(item.kind, PendingKind::Input | PendingKind::Auth) {
            let answer = self.answer(item)?;
            let comment = self.text.filter(|text| item.response_schema.is_none() && text != answer.text());
            decided.text = answer.decode::<String>().or(comment);
            decided.payload = Some(answer);
            return Ok(decided);
        }

        decided.text = self.text;
        decided.payload = self.payload;

        match decision {
            Decision::Edit => {
                let arguments = self.arguments.and_then(as_object).ok_or(AnswerError::MissingArguments)?;
                if let Some(tool) = self.tool.filter(|tool| *tool != item.name) {
                    return Err(AnswerError::OtherTool(tool));
                }
                decided.arguments = Some(arguments.text().to_owned());
            }
            Decision::Respond => {
                let has_text = decided.text.as_ref().is_some_and(|text| !text.is_empty());
                match item.kind {
                    // The output of a tool may be empty.
                    PendingKind::Tool if decided.text.is_some() => decided.payload = None,
                    _ if !has_text => return Err(AnswerError::MissingText),
                    _ => {}
                }
            }
            Decision::Accept | Decision::Reject | Decision::Cancel => {}
        }
        Ok(decided)
    }
}

/// Accepts one level of JSON text inside JSON: the canonical form sends `arguments` that way.
fn as_object(json: Json) -> Option<Json> {
    let json = json.decode::<String>().and_then(|text| Json::parse(&text)).unwrap_or(json);
    // Decode it once to make sure that it is a valid object and not nested beyond the parser's limit.
    (json.is_object() && json.decode::<serde_json::Value>().is_some()).then_some(json)
}

fn parse_text(item: &Pending, text: &str, offered: &[Decision]) -> Result<ParsedAnswer, AnswerError> {
    if item.kind == PendingKind::Tool {
        return Ok(ParsedAnswer { text: Some(text.to_owned()), ..ParsedAnswer::new(Decision::Respond) });
    }
    if let Some(json) = Json::parse(text.trim()) {
        let mut parsed = match json.decode::<String>() {
            Some(inner) => parse_words(item, &inner, offered)?,
            None => parse_json(item, &json, offered)?,
        };
        // If all of the text is the answer, it may also be meant as a string.

        let is_complete = parsed.decision == Decision::Respond && parsed.value.as_ref() == Some(&json);
        if is_complete && item.response_schema.is_some() && !json.is_object() {
            parsed.text = Some(text.to_owned());
        }
        return Ok(parsed);
    }
    parse_words(item, text, offered)
}

/// Parses text that is not JSON: a decision word, or the answer to a question.
fn parse_words(item: &Pending, text: &str, offered: &[Decision]) -> Result<ParsedAnswer, AnswerError> {
    let payload = Some(Json::from_serialize(text));

    let word = decision_word(text).or_else(|| login_confirmation(text).filter(|_| item.kind == PendingKind::Auth));
    if let Some(decision) = word
        && is_possible(item, decision, offered)
    {
        return Ok(ParsedAnswer { payload, ..ParsedAnswer::new(decision) });
    }

    if !accepts_any_value(item, offered) || text.trim().is_empty() {
        return Err(AnswerError::Unclear(offered.to_vec()));
    }
    let value = payload.clone();
    Ok(ParsedAnswer { text: Some(text.to_owned()), value, payload, ..ParsedAnswer::new(Decision::Respond) })
}

/// Words that confirm a login. They only continue the run and approve nothing.
fn login_confirmation(text: &str) -> Option<Decision> {
    const WORDS: [&str; 9] = [
        "done",
        "i am done",
        "i'm done",
        "finished",
        "ready",
        "logged in",
        "i am logged in",
        "i'm logged in",
        "signed in",
    ];
    let text = text.trim().trim_end_matches(['.', '!']);
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word)).then_some(Decision::Accept)
}

fn parse_json(item: &Pending, json: &Json, offered: &[Decision]) -> Result<ParsedAnswer, AnswerError> {
    let decision = parse_decision(json);
    if item.kind == PendingKind::Tool {
        // Only an explicit decision counts: any other JSON is the tool's output.
        // A flag does not: outputs have fields such as `approved`, and a `type` that is no word of a decision.
        let is_explicit = object(json)
            .and_then(|fields| word(&fields, "decision").or(word(&fields, "type")))
            .is_some_and(|word| decision_word(&word).is_some());
        return Ok(decision.filter(|_| is_explicit).unwrap_or_else(|| ParsedAnswer {
            text: Some(json.text().to_owned()),
            ..ParsedAnswer::new(Decision::Respond)
        }));
    }

    if let Some(mut parsed) = decision
        && is_possible(item, parsed.decision, offered)
    {
        parsed.payload = Some(json.clone());
        return Ok(parsed);
    }
    let empty = json.is_null() || (item.response_schema.is_none() && is_empty_value(json.text()));
    if !accepts_any_value(item, offered) || empty {
        return Err(AnswerError::Unclear(offered.to_vec()));
    }
    Ok(ParsedAnswer { value: Some(json.clone()), payload: Some(json.clone()), ..ParsedAnswer::new(Decision::Respond) })
}

/// If a question offers no yes and no, "yes" is an ordinary answer.
fn is_possible(item: &Pending, decision: Decision, offered: &[Decision]) -> bool {
    match item.kind {
        PendingKind::Tool | PendingKind::Approval => true,
        PendingKind::Auth if decision == Decision::Reject => true,
        PendingKind::Input | PendingKind::Auth => decision == Decision::Cancel || offered.contains(&decision),
    }
}

fn accepts_any_value(item: &Pending, offered: &[Decision]) -> bool {
    match item.kind {
        PendingKind::Input => true,
        PendingKind::Auth => offered.contains(&Decision::Respond),
        PendingKind::Tool | PendingKind::Approval => false,
    }
}

/// Parses a JSON value by the rows of the table. `None`: not a decision.
fn parse_decision(json: &Json) -> Option<ParsedAnswer> {
    match json.text() {
        "true" => return Some(ParsedAnswer::new(Decision::Accept)),
        "false" => return Some(ParsedAnswer::new(Decision::Reject)),
        _ => {}
    }
    if json.text().starts_with('[') {
        // Agents that ask with a list of one are answered with a list of one.
        return parse_decision_list(&json.decode::<Vec<Json>>()?);
    }

    let fields = object(json)?;
    if let Some(decisions) = field(&fields, "decisions") {
        return parse_decision_list(&decisions.decode::<Vec<Json>>()?);
    }

    let flag = approval_flag(&fields)?;
    let named = match (word(&fields, "decision"), word(&fields, "type")) {
        (Some(decision), _) => Some(decision_word(&decision)?),
        (None, Some(word)) => decision_word(&word),
        (None, None) => None,
    };

    let mut decision = match (named, flag) {
        (Some(decision), None) => decision,
        (None, Some(yes)) => {
            if yes {
                Decision::Accept
            } else {
                Decision::Reject
            }
        }
        // A word and a flag must agree.
        (Some(decision @ (Decision::Accept | Decision::Edit)), Some(true)) => decision,
        (Some(decision @ (Decision::Reject | Decision::Cancel)), Some(false)) => decision,
        (Some(Decision::Respond), Some(_)) => Decision::Respond,
        _ => return None,
    };

    let edit = edited_arguments(&fields);
    let accepted = if decision == Decision::Accept { arguments::given(&fields) } else { Vec::new() };
    // An approval with new arguments must never approve the old ones.
    if decision == Decision::Accept && edit.is_some() {
        decision = Decision::Edit;
    }

    let mut parsed = ParsedAnswer { accepted, ..ParsedAnswer::new(decision) };
    let args = field(&fields, "args").cloned();

    match decision {
        Decision::Edit => {
            let (arguments, tool) = edit.unwrap_or_else(|| inner_arguments(&fields));
            parsed.arguments = arguments;
            parsed.tool = tool;
        }
        Decision::Respond => {
            let inner = args.as_ref().and_then(object).and_then(|args| field(&args, "args").cloned());
            let value = inner.or(args);
            parsed.text = text(&fields);
            if parsed.text.is_none() {
                parsed.text = value.as_ref().map(|value| value.text().to_owned());
                parsed.value = value.or_else(|| field(&fields, "payload").cloned());
            }
        }
        Decision::Reject | Decision::Cancel | Decision::Accept => parsed.text = text(&fields),
    }
    Some(parsed)
}

/// Several decisions for one item count as one if they are the same and have no data.
fn parse_decision_list(decisions: &[Json]) -> Option<ParsedAnswer> {
    let mut all = decisions.iter().map(|one| match one.decode::<String>() {
        Some(word) => decision_word(&word).map(ParsedAnswer::new),
        // Only one level: nested lists are not decisions.
        None if one.text().starts_with('[') => None,
        None if object(one).is_some_and(|fields| field(&fields, "decisions").is_some()) => None,
        None => parse_decision(one),
    });
    let first = all.next()??;
    if decisions.len() == 1 {
        return Some(first);
    }
    let is_plain = |one: &ParsedAnswer| {
        matches!(one.decision, Decision::Accept | Decision::Reject | Decision::Cancel) && one.accepted.is_empty()
    };
    let is_first = |one: ParsedAnswer| one.decision == first.decision && is_plain(&one);
    let are_same = is_plain(&first) && all.all(|other| other.is_some_and(is_first));
    are_same.then_some(first)
}

/// The yes/no flag of an answer. The outer `Option` is `None` if the flags contradict each other or are not booleans.
fn approval_flag(fields: &Extra) -> Option<Option<bool>> {
    let mut flag = None;
    for name in ["approved", "approve", "accepted", "confirmed"] {
        if let Some(value) = field(fields, name) {
            let value: bool = value.decode()?;
            if flag.is_some_and(|flag| flag != value) {
                return None;
            }
            flag = Some(value);
        }
    }
    Some(flag)
}

/// Arguments that are explicitly new ones, and the tool they are for.
fn edited_arguments(fields: &Extra) -> Option<(Option<Json>, Option<String>)> {
    if let Some(arguments) = field(fields, "editedArgs").or_else(|| field(fields, "edited_args")) {
        return Some((Some(arguments.clone()), None));
    }
    if let Some(action) = field(fields, "edited_action") {
        let action = object(action).unwrap_or_default();
        return Some((field(&action, "args").cloned(), word(&action, "name")));
    }
    let args = object(field(fields, "args")?)?;
    Some((Some(field(&args, "edited_args")?.clone()), None))
}

/// The arguments of an answer with the type `edit`.
fn inner_arguments(fields: &Extra) -> (Option<Json>, Option<String>) {
    if let Some(arguments) = field(fields, "arguments") {
        return (Some(arguments.clone()), None);
    }
    let Some(args) = field(fields, "args") else { return (None, None) };
    let inner = object(args).unwrap_or_default();
    match field(&inner, "args") {
        Some(arguments) if arguments.is_object() => (Some(arguments.clone()), word(&inner, "action")),
        // `args` was meant as a wrapper, but contains no arguments.
        Some(_) if inner.iter().count() == 1 => (None, None),
        _ => (Some(args.clone()), None),
    }
}

fn text(fields: &Extra) -> Option<String> {
    const NAMES: [&str; 4] = ["text", "message", "feedback", "reason"];
    let outer = NAMES.iter().find_map(|name| word(fields, name)).or_else(|| word(fields, "args"));
    outer.or_else(|| {
        let args = object(field(fields, "args")?)?;
        word(&args, "args").or_else(|| NAMES.iter().find_map(|name| word(&args, name)))
    })
}

fn object(json: &Json) -> Option<Extra> {
    if json.is_object() { json.decode() } else { None }
}

#[cfg(test)]
mod tests;
