//! Answers to what the agent asked, as it expects them.

use std::collections::HashMap;

use interlingua_core::answer::payload::{self, Style, prescribes_edits};
use interlingua_core::answer::{self, ALL_DECISIONS, CheckedDecision, fits, has_arguments};
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{Message, MessageType};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, Json};
use serde::Deserialize;
use serde_json::json;

use super::asks::{AnswerForm, Source, has_property};
use super::options::ResumeStyle;

/// The answers of a turn.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Entries of `resume`.
    pub(super) resume: Vec<Json>,
    /// `forwardedProps.command.resume`.
    pub(super) command: Option<Json>,
    /// Outputs of calls that asked by being left unanswered: the id of the call, and the text.
    pub(super) outputs: Vec<(String, String)>,
    /// Where the answered items come from.
    pub(super) sources: Vec<Source>,
}

struct AnsweredItem<'a> {
    item: &'a Pending,
    source: Source,
    decided: CheckedDecision,
}

impl Answers {
    /// The answers in a request.
    ///
    /// # Errors
    /// If one decides nothing.
    pub(super) fn new(turn: &TurnRequest<'_>, style: ResumeStyle, losses: &mut Losses) -> Result<Self, Fault> {
        let mut answers = Self::default();
        // The items of one interrupt are answered together.
        let mut groups: Vec<(String, Vec<AnsweredItem<'_>>)> = Vec::new();
        for answered in answered_items(turn)? {
            answers.sources.push(answered.source.clone());
            let id = answered.source.id.clone().unwrap_or_else(|| own_id(&answered.item.id).to_owned());
            match groups.iter_mut().find(|(known, _)| *known == id) {
                Some((_, group)) => group.push(answered),
                None => groups.push((id, vec![answered])),
            }
        }

        let mut commands = Vec::new();
        for (id, group) in groups {
            let Some(way) = group.first().map(|first| first.source.way) else { continue };
            match (way, style) {
                (AnswerForm::Confirmation | AnswerForm::Values | AnswerForm::Confirmed, _) => {
                    answers.outputs.extend(group.iter().filter_map(|answered| to_output(answered, losses)));
                }
                (AnswerForm::Resume, ResumeStyle::Auto | ResumeStyle::Standard)
                | (AnswerForm::Command, ResumeStyle::Standard) => {
                    answers.resume.push(to_entry(&id, &group, losses));
                }
                (AnswerForm::Command, _) | (AnswerForm::Resume, ResumeStyle::Command) => {
                    let is_named = group.iter().any(|answered| answered.source.id.is_some());
                    commands.push((is_named.then_some(id), to_payload(&group, losses)));
                }
            }
        }
        answers.command = to_command(commands);
        Ok(answers)
    }
}

/// The pending items that the new messages of a request answer, with the decisions, in the order of the answers.
fn answered_items<'a>(turn: &TurnRequest<'a>) -> Result<Vec<AnsweredItem<'a>>, Fault> {
    let items: HashMap<&str, &Pending> = turn.answered.iter().map(|item| (item.id.as_str(), item)).collect();
    let mut answered = Vec::new();
    let approvals = turn.new_messages().filter(|(_, message)| message.kind == MessageType::McpApprovalResponse);
    for answer in approvals.flat_map(|(_, message): (usize, &Message)| answer::native(message)) {
        let Some(item) = items.get(answer.id.as_str()).copied().filter(|item| item.kind != PendingKind::Tool) else {
            continue;
        };
        let offered = if item.decisions.is_empty() { ALL_DECISIONS } else { item.decisions.as_slice() };
        let decided = answer::decide(item, &answer.given, offered)?;
        answered.push(AnsweredItem { item, source: source(item), decided });
    }
    Ok(answered)
}

/// Where an item comes from, as it says. One that another protocol asked, or an older gateway, has the default.
pub(super) fn source(item: &Pending) -> Source {
    #[derive(Deserialize)]
    struct Extension {
        source: Source,
    }
    let extension = item.extension.as_ref().and_then(Json::decode::<Extension>);
    extension.map(|extension| extension.source).filter(|source| source.protocol == crate::NAME).unwrap_or_default()
}

/// The interrupt's id in that of an item: with several actions, their place is appended.
fn own_id(item: &str) -> &str {
    let is_number = |place: &str| !place.is_empty() && place.bytes().all(|byte| byte.is_ascii_digit());
    item.rsplit_once(':').filter(|(_, place)| is_number(place)).map_or(item, |(id, _)| id)
}

/// An entry of `resume`.
fn to_entry(id: &str, group: &[AnsweredItem<'_>], losses: &mut Losses) -> Json {
    if group.iter().all(|answered| answered.decided.decision == Decision::Cancel) {
        return Json::from_serialize(&json!({ "interruptId": id, "status": "cancelled" }));
    }
    let mut entry = Extra::new();
    entry.push("interruptId", Json::from_serialize(id));
    entry.push("status", Json::from_serialize("resolved"));
    entry.push("payload", to_payload(group, losses));
    Json::from_serialize(&entry)
}

/// The payload for an interrupt.
fn to_payload(group: &[AnsweredItem<'_>], losses: &mut Losses) -> Json {
    let Some(first) = group.first() else { return Json::null() };
    let style = first.source.style.unwrap_or(match first.item.kind {
        PendingKind::Input => Style::Plain,
        _ => Style::Approved,
    });
    if style == Style::Approved && first.item.kind == PendingKind::Approval {
        return to_approval(first, losses);
    }
    let decided: Vec<(&Pending, &CheckedDecision)> =
        group.iter().map(|answered| (answered.item, &answered.decided)).collect();
    payload::answer(style, &decided)
}

/// The recommended answer to an approval: the client's own if it fits what the agent expects.
fn to_approval(answered: &AnsweredItem<'_>, losses: &mut Losses) -> Json {
    let AnsweredItem { item, decided, .. } = answered;
    let is_accepted = decided.decision == Decision::Accept;
    let is_edited = decided.decision == Decision::Edit;
    // An agent that reads one field of it alone must find what was decided.
    let says_so = |payload: &&Json| {
        let fields: Extra = payload.decode().unwrap_or_default();
        let flag = fields.get("approved").and_then(Json::decode::<bool>);
        !is_edited && flag == Some(is_accepted) && !has_arguments(payload)
    };
    let fits = |payload: &&Json| item.response_schema.as_ref().is_none_or(|schema| fits(schema, payload).is_ok());
    if let Some(own) = decided.payload.as_ref().filter(says_so).filter(fits) {
        return own.clone();
    }

    let mut payload = Extra::new();
    // An edit is approved in words only where the agent prescribes both fields.
    if !is_edited || prescribes_edits(item) {
        payload.push("approved", Json::from_serialize(&(is_accepted || is_edited)));
    }
    if let Some(arguments) = decided.arguments.as_deref().and_then(Json::parse).filter(|_| is_edited) {
        payload.push("editedArgs", arguments);
    }
    if let Some(text) = decided.text.as_deref().filter(|text| !text.is_empty()) {
        let named = ["reason", "message", "feedback", "text"].into_iter();
        let known =
            item.response_schema.as_ref().and_then(|schema| named.clone().find(|name| has_property(schema, name)));
        match (known, &item.response_schema) {
            (Some(name), _) => payload.push(name, Json::from_serialize(text)),
            (None, None) => payload.push("reason", Json::from_serialize(text)),
            (None, Some(_)) => {
                losses.lost(ContentKind::ApprovalReason, "the schema of the agent's answer has no place for a reason");
            }
        }
    }
    Json::from_serialize(&payload)
}

/// The value of a command: the only answer, or all by the ids of their interrupts.
fn to_command(mut commands: Vec<(Option<String>, Json)>) -> Option<Json> {
    if commands.len() <= 1 {
        return commands.pop().map(|(_, payload)| payload);
    }
    if commands.iter().all(|(id, _)| id.is_some()) {
        let by_id: Extra =
            commands.into_iter().filter_map(|(id, payload)| Some((id?.into_boxed_str(), payload))).collect();
        return Some(Json::from_serialize(&by_id));
    }
    let payloads: Vec<Json> = commands.into_iter().map(|(_, payload)| payload).collect();
    Some(Json::from_serialize(&payloads))
}

/// The output of a call that asked by being left unanswered.
fn to_output(answered: &AnsweredItem<'_>, losses: &mut Losses) -> Option<(String, String)> {
    let AnsweredItem { item, source, decided } = answered;
    let mut output = Extra::new();
    if source.way == AnswerForm::Confirmed {
        // ADK reads nothing but a yes or a no.
        output.push("confirmed", Json::from_serialize(&(decided.decision == Decision::Accept)));
        if decided.text.as_deref().is_some_and(|text| !text.is_empty()) {
            losses.lost(ContentKind::ApprovalReason, "ADK's confirmation takes a yes or a no alone");
        }
        return Some((source.id.clone()?, Json::from_serialize(&output).text().to_owned()));
    }

    let call = item.call_id.clone()?;
    if source.way == AnswerForm::Values && decided.decision == Decision::Respond {
        let value = decided.payload.clone().or_else(|| decided.text.as_ref().map(Json::from_serialize));
        let value = value.unwrap_or_else(Json::null);
        let fields: Extra = value.decode().unwrap_or_default();
        let is_whole = ["values", "selections"].iter().any(|name| fields.get(name).is_some_and(Json::is_object));
        return Some(if is_whole {
            (call, value.text().to_owned())
        } else {
            output.push("values", value);
            (call, Json::from_serialize(&output).text().to_owned())
        });
    }

    // The form has no place for new arguments, so an edit cannot be accepted in it.
    let is_accepted = decided.decision == Decision::Accept;
    output.push("accepted", Json::from_serialize(&is_accepted));
    if let Some(text) = decided.text.as_deref().filter(|text| !text.is_empty()) {
        if is_accepted {
            losses.lost(ContentKind::ApprovalReason, "the agent reads a reason with a refusal alone");
        } else {
            output.push("note", Json::from_serialize(text));
        }
    }
    Some((call, Json::from_serialize(&output).text().to_owned()))
}
