//! One answer judged against one item: the table of section 4, and what a decision must bring along.
//!
//! Not here: whether the item is open at all ([`super::Waiting`]).

use std::fmt;

use crate::answer::schema::{Misfit, fits};
use crate::answer::text;
use crate::answer::{Given, NOT_TAKEN, UNDECIDED, decision_word};
use crate::fault::{Fault, FaultKind};
use crate::json::{Extra, Json};
use crate::pending::{Decision, Pending, PendingKind};

/// What was decided about an item, and checked against it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Decided {
    /// The decision.
    pub decision: Decision,
    /// For an edit: the complete new arguments, a JSON object as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// For a response: its text. For a rejection: why. For a tool: its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The answer to a question: the value that was checked, whatever form it came in. Else the client's answer, verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
}

impl Decided {
    /// A decision that needs nothing else.
    #[must_use]
    pub const fn new(decision: Decision) -> Self {
        Self { decision, arguments: None, text: None, payload: None }
    }
}

/// Why an answer decides nothing. The item stays open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// It says neither yes nor no.
    Unclear,
    /// It says what cannot be done with this item.
    NotOffered(Decision, Vec<Decision>),
    /// An edit without arguments, or with arguments that are no object.
    WithoutArguments,
    /// A response without a text.
    WithoutText,
    /// An edit that names another tool than the one that was asked about.
    OtherTool(String),
    /// What it brings does not fit the schema.
    Misfit(Misfit),
    /// What it says does not fit the question's schema; and what would.
    Unfit(Misfit, Option<String>),
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclear => f.write_str("the answer decides nothing"),
            Self::NotOffered(decision, offered) => {
                let offered: Vec<&str> = offered.iter().map(|offered| offered.as_str()).collect();
                write!(f, "'{}' cannot be decided here, only {}", decision.as_str(), offered.join(", "))
            }
            Self::WithoutArguments => f.write_str("an edit needs the new arguments as an object"),
            Self::WithoutText => f.write_str("a response needs a text"),
            Self::OtherTool(name) => write!(f, "the edit names another tool, '{name}'"),
            Self::Misfit(misfit) | Self::Unfit(misfit, None) => {
                write!(f, "the answer does not fit its schema: {misfit}")
            }
            Self::Unfit(misfit, Some(help)) => write!(f, "the answer does not fit its schema: {misfit}; {help}"),
        }
    }
}

impl From<Undecided> for Fault {
    fn from(undecided: Undecided) -> Self {
        let code = if undecided == Undecided::Unclear { UNDECIDED } else { NOT_TAKEN };
        Self::new(FaultKind::Invalid, undecided.to_string()).with_code(code)
    }
}

/// Reads an answer to an item. `offered` is what may be decided ([`super::offer`]); to cancel is always possible.
///
/// # Errors
/// If it decides nothing, or what it decides cannot be done.
pub fn decide(item: &Pending, given: &Given, offered: &[Decision]) -> Result<Decided, Undecided> {
    let spoken = match given {
        Given::Decided { decision, arguments, text, payload } => Spoken {
            decision: meant(item, *decision, text.as_deref(), offered),
            arguments: arguments.as_deref().map(|text| Json::parse(text).unwrap_or_else(Json::null)),
            value: payload.clone(),
            text: text.clone(),
            payload: payload.clone(),
            ..Spoken::new(*decision)
        },
        Given::Text(text) => spoken_text(item, text, offered)?,
        Given::Payload(payload) => match payload.decode::<String>() {
            Some(text) => spoken_text(item, &text, offered)?,
            None => spoken_json(item, payload, offered)?,
        },
    };
    spoken.checked(item, offered)
}

/// The plain native form has no word for an answer: it goes along with a yes (section 2).
fn meant(item: &Pending, decision: Decision, text: Option<&str>, offered: &[Decision]) -> Decision {
    let answers = item.kind == PendingKind::Input && text.is_some_and(|text| !text.is_empty());
    let is_offered = |decision| offered.contains(&decision);
    match decision {
        Decision::Accept if answers && !is_offered(decision) && is_offered(Decision::Respond) => Decision::Respond,
        decision => decision,
    }
}

/// A decision as it was said, not yet checked.
struct Spoken {
    decision: Decision,
    arguments: Option<Json>,
    /// The tool an edit names.
    tool: Option<String>,
    text: Option<String>,
    /// What answers a question, where that is no text, or besides it.
    value: Option<Json>,
    payload: Option<Json>,
}

impl Spoken {
    const fn new(decision: Decision) -> Self {
        Self { decision, arguments: None, tool: None, text: None, value: None, payload: None }
    }

    /// The value a question is answered with, and has been found to fit.
    fn answer(&self, item: &Pending) -> Result<Json, Undecided> {
        let text = self.text.as_deref().filter(|text| !text.is_empty());
        let value = self.value.as_ref();
        let Some(schema) = &item.response_schema else {
            return value.cloned().or_else(|| text.map(Json::from_serialize)).ok_or(Undecided::WithoutText);
        };
        let value = value.map(|value| match value.decode::<String>() {
            Some(text) => text::fitted(schema, &text),
            None => fits(schema, value).map(|()| value.clone()),
        });
        let fitting = match (value, text) {
            (Some(Ok(value)), _) => Ok(value),
            (_, Some(text)) => text::fitted(schema, text),
            (Some(misfit), None) => misfit,
            (None, None) => return Err(Undecided::WithoutText),
        };
        fitting.map_err(|misfit| Undecided::Unfit(misfit, text::help(schema)))
    }

    fn checked(self, item: &Pending, offered: &[Decision]) -> Result<Decided, Undecided> {
        let decision = self.decision;
        if decision != Decision::Cancel && !offered.contains(&decision) {
            return Err(Undecided::NotOffered(decision, offered.to_vec()));
        }
        let mut decided = Decided::new(decision);
        if decision == Decision::Respond && matches!(item.kind, PendingKind::Input | PendingKind::Auth) {
            let answer = self.answer(item)?;
            let besides = self.text.filter(|text| item.response_schema.is_none() && text != answer.text());
            decided.text = answer.decode::<String>().or(besides);
            decided.payload = Some(answer);
            return Ok(decided);
        }
        decided.text = self.text;
        decided.payload = self.payload;
        match decision {
            Decision::Edit => {
                let arguments = self.arguments.and_then(as_object).ok_or(Undecided::WithoutArguments)?;
                if let Some(tool) = self.tool.filter(|tool| *tool != item.name) {
                    return Err(Undecided::OtherTool(tool));
                }
                decided.arguments = Some(arguments.text().to_owned());
            }
            Decision::Respond => {
                let has_text = decided.text.as_ref().is_some_and(|text| !text.is_empty());
                match item.kind {
                    // What a tool returned may be empty.
                    PendingKind::Tool if decided.text.is_some() => decided.payload = None,
                    _ if !has_text => return Err(Undecided::WithoutText),
                    _ => {}
                }
            }
            Decision::Accept | Decision::Reject | Decision::Cancel => {}
        }
        Ok(decided)
    }
}

/// JSON text inside of JSON text is looked through once: `arguments` travels so in the canonical form.
fn as_object(json: Json) -> Option<Json> {
    let json = json.decode::<String>().and_then(|text| Json::parse(&text)).unwrap_or(json);
    // Read once, so that what goes on is an object a tool can be called with, and not nested beyond any parser.
    (json.is_object() && json.decode::<serde_json::Value>().is_some()).then_some(json)
}

fn spoken_text(item: &Pending, text: &str, offered: &[Decision]) -> Result<Spoken, Undecided> {
    if item.kind == PendingKind::Tool {
        return Ok(Spoken { text: Some(text.to_owned()), ..Spoken::new(Decision::Respond) });
    }
    if let Some(json) = Json::parse(text.trim()) {
        let mut spoken = match json.decode::<String>() {
            Some(inner) => spoken_words(item, &inner, offered)?,
            None => spoken_json(item, &json, offered)?,
        };
        // As a whole it is the answer: a text that is JSON may be meant as the text it is.
        let is_whole = spoken.decision == Decision::Respond && spoken.value.as_ref() == Some(&json);
        if is_whole && item.response_schema.is_some() && !json.is_object() {
            spoken.text = Some(text.to_owned());
        }
        return Ok(spoken);
    }
    spoken_words(item, text, offered)
}

/// A text that is no JSON: a word that decides, or the answer to a question.
fn spoken_words(item: &Pending, text: &str, offered: &[Decision]) -> Result<Spoken, Undecided> {
    let payload = Some(Json::from_serialize(text));
    let word = decision_word(text).or_else(|| done(text).filter(|_| item.kind == PendingKind::Auth));
    if let Some(decision) = word
        && may_mean(item, decision, offered)
    {
        return Ok(Spoken { payload, ..Spoken::new(decision) });
    }
    if !takes_anything(item, offered) || text.trim().is_empty() {
        return Err(Undecided::Unclear);
    }
    let value = payload.clone();
    Ok(Spoken { text: Some(text.to_owned()), value, payload, ..Spoken::new(Decision::Respond) })
}

/// What people say when they have logged in. Going on lets nothing run that was not approved.
fn done(text: &str) -> Option<Decision> {
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

fn spoken_json(item: &Pending, json: &Json, offered: &[Decision]) -> Result<Spoken, Undecided> {
    let said = said(json);
    if item.kind == PendingKind::Tool {
        // Only an outspoken decision is one: whatever else is JSON is what the tool returned.
        let outspoken =
            object(json).is_some_and(|fields| word(&fields, "decision").or(word(&fields, "type")).is_some());
        return Ok(said
            .filter(|_| outspoken)
            .unwrap_or_else(|| Spoken { text: Some(json.text().to_owned()), ..Spoken::new(Decision::Respond) }));
    }
    if let Some(mut said) = said
        && may_mean(item, said.decision, offered)
    {
        said.payload = Some(json.clone());
        return Ok(said);
    }
    let empty = json.is_null() || (item.response_schema.is_none() && matches!(json.text(), "{}" | "[]"));
    if !takes_anything(item, offered) || empty {
        return Err(Undecided::Unclear);
    }
    Ok(Spoken { value: Some(json.clone()), payload: Some(json.clone()), ..Spoken::new(Decision::Respond) })
}

/// To a question that offers no yes and no, «yes» is an answer like any other.
fn may_mean(item: &Pending, decision: Decision, offered: &[Decision]) -> bool {
    let is_question = matches!(item.kind, PendingKind::Input | PendingKind::Auth);
    !is_question || decision == Decision::Cancel || offered.contains(&decision)
}

fn takes_anything(item: &Pending, offered: &[Decision]) -> bool {
    match item.kind {
        PendingKind::Input => true,
        PendingKind::Auth => offered.contains(&Decision::Respond),
        PendingKind::Tool | PendingKind::Approval => false,
    }
}

/// What a JSON value says by the rows of the table. None: nothing.
fn said(json: &Json) -> Option<Spoken> {
    match json.text() {
        "true" => return Some(Spoken::new(Decision::Accept)),
        "false" => return Some(Spoken::new(Decision::Reject)),
        _ => {}
    }
    if json.text().starts_with('[') {
        // List in, list out: agents that ask with a list of one are answered with one.
        return one_of(&json.decode::<Vec<Json>>()?);
    }
    let fields = object(json)?;
    if let Some(decisions) = field(&fields, "decisions") {
        return one_of(&decisions.decode::<Vec<Json>>()?);
    }
    let flag = flag(&fields)?;
    let told = match (word(&fields, "decision"), word(&fields, "type")) {
        (Some(decision), _) => Some(decision_word(&decision)?),
        (None, Some(word)) => decision_word(&word),
        (None, None) => None,
    };
    let mut decision = match (told, flag) {
        (Some(decision), None) => decision,
        (None, Some(yes)) => {
            if yes {
                Decision::Accept
            } else {
                Decision::Reject
            }
        }
        // Said twice, it has to be said alike.
        (Some(decision @ (Decision::Accept | Decision::Edit)), Some(true)) => decision,
        (Some(decision @ (Decision::Reject | Decision::Cancel)), Some(false)) => decision,
        (Some(Decision::Respond), Some(_)) => Decision::Respond,
        _ => return None,
    };
    let edit = edited(&fields);
    // Approved with other arguments is never approved with the old ones.
    if decision == Decision::Accept && edit.is_some() {
        decision = Decision::Edit;
    }
    let mut spoken = Spoken::new(decision);
    let args = field(&fields, "args").cloned();
    match decision {
        Decision::Edit => {
            let (arguments, tool) = edit.unwrap_or_else(|| inner_arguments(&fields));
            spoken.arguments = arguments;
            spoken.tool = tool;
        }
        Decision::Respond => {
            let inner = args.as_ref().and_then(object).and_then(|args| field(&args, "args").cloned());
            let whole = inner.or(args);
            spoken.text = text(&fields);
            if spoken.text.is_none() {
                spoken.text = whole.as_ref().map(|whole| whole.text().to_owned());
                spoken.value = whole.or_else(|| field(&fields, "payload").cloned());
            }
        }
        Decision::Reject | Decision::Cancel | Decision::Accept => spoken.text = text(&fields),
    }
    Some(spoken)
}

/// Several decisions for one item count as one if they are all the same plain one.
fn one_of(decisions: &[Json]) -> Option<Spoken> {
    let mut all = decisions.iter().map(|one| match one.decode::<String>() {
        Some(word) => decision_word(&word).map(Spoken::new),
        // One level: a list in a list says nothing.
        None if one.text().starts_with('[') => None,
        None if object(one).is_some_and(|fields| field(&fields, "decisions").is_some()) => None,
        None => said(one),
    });
    let first = all.next()??;
    if decisions.len() == 1 {
        return Some(first);
    }
    let plain = matches!(first.decision, Decision::Accept | Decision::Reject | Decision::Cancel);
    all.all(|other| other.is_some_and(|other| other.decision == first.decision)).then_some(first).filter(|_| plain)
}

/// The outer option is None if the flags contradict one another or are no booleans.
fn flag(fields: &Extra) -> Option<Option<bool>> {
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

/// Arguments that are plainly said to be new ones, and the tool they are for.
fn edited(fields: &Extra) -> Option<(Option<Json>, Option<String>)> {
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

/// Arguments of something that calls itself an edit.
fn inner_arguments(fields: &Extra) -> (Option<Json>, Option<String>) {
    if let Some(arguments) = field(fields, "arguments") {
        return (Some(arguments.clone()), None);
    }
    let Some(args) = field(fields, "args") else { return (None, None) };
    let inner = object(args).unwrap_or_default();
    match field(&inner, "args") {
        Some(arguments) if arguments.is_object() => (Some(arguments.clone()), word(&inner, "action")),
        // Meant as the form around the arguments, and nothing is in it.
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

fn field<'a>(fields: &'a Extra, name: &str) -> Option<&'a Json> {
    fields.get(name).filter(|value| !value.is_null())
}

fn word(fields: &Extra, name: &str) -> Option<String> {
    field(fields, name)?.decode()
}

#[cfg(test)]
mod tests;
