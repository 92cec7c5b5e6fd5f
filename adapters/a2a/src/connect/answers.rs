//! Answers to what a task waits for, as parts: decisions, texts, and outputs of tools.

use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::model::{self, MessageType};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};

use super::long_running;
use super::questions::ItemSource;
use super::session::AskedCall;
use crate::wire::{Part, to_raw};

/// The answers of one message.
pub(super) struct Answers<'a> {
    items: &'a [Pending],
    /// Calls whose outputs ADK reads in a form of its own.
    long_running_calls: &'a [AskedCall],
    answered: Vec<&'a Pending>,
    /// Decisions that were written.
    decisions: u32,
    /// The number of answers that cancel.
    canceled: u32,
    outputs: u32,
    /// A person's reason has no place in the form of an answer.
    pub(super) has_lost_reason: bool,
    /// False if approvals are decided differently.
    are_alike: bool,
}

impl<'a> Answers<'a> {
    /// `items`: the pending items that the input answers. `long_running_calls`: the long-running calls whose outputs
    /// the waiting task needs.
    pub(super) const fn new(items: &'a [Pending], long_running_calls: &'a [AskedCall]) -> Self {
        Self {
            items,
            long_running_calls,
            answered: Vec::new(),
            decisions: 0,
            canceled: 0,
            outputs: 0,
            has_lost_reason: false,
            are_alike: true,
        }
    }

    pub(super) const fn any(&self) -> bool {
        self.decisions > 0 || (self.outputs > 0 && !self.items.is_empty())
    }

    pub(super) const fn only_cancel(&self) -> bool {
        self.decisions > 0 && self.decisions == self.canceled && self.outputs == 0
    }

    /// The task that asked.
    pub(super) fn task_id(&self) -> Option<String> {
        self.answered.iter().find_map(|item| source(item).task_id)
    }

    /// Sorts messages so that the answers in them have the order of the questions. Checks that an agent which does not
    /// know questions apart cannot run a call that was not accepted.
    ///
    /// # Errors
    /// If approvals without ids of the agent's are decided differently.
    pub(super) fn prepare<'m>(&mut self, messages: &mut [&'m model::Message]) -> Result<(), Fault> {
        let place = |message: &model::Message| {
            let ids: Vec<String> = answer::native(message).into_iter().map(|answer| answer.id).collect();
            self.items.iter().position(|item| ids.contains(&item.id))
        };
        let is_answer = |message: &&model::Message| message.kind == MessageType::McpApprovalResponse;
        let mut sorted: Vec<&'m model::Message> = messages.iter().copied().filter(is_answer).collect();
        sorted.sort_by_key(|message| place(message));

        let decided: Vec<(&Pending, Decision)> = sorted
            .iter()
            .flat_map(|message| answer::native(message))
            .filter_map(|answer| self.approval(&answer))
            .collect();
        let are_alike = decided.windows(2).all(|pair| pair[0].1 == pair[1].1);
        if !are_alike && decided.iter().any(|(item, _)| has_no_id(item)) {
            let message = "the agent gave its questions no ids, so all of them take the same decision";
            return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::NOT_TAKEN));
        }
        self.are_alike = are_alike;

        let mut sorted = sorted.into_iter();
        for message in messages.iter_mut().filter(|message| is_answer(message)) {
            if let Some(next) = sorted.next() {
                *message = next;
            }
        }
        Ok(())
    }

    /// The approval that an answer decides.
    fn approval(&self, answer: &answer::Answer) -> Option<(&'a Pending, Decision)> {
        let item = self.items.iter().find(|item| item.id == answer.id && item.kind == PendingKind::Approval)?;
        match answer.given {
            AnswerBody::Decided { decision, .. } => Some((item, decision)),
            _ => None,
        }
    }

    /// The decisions in a message.
    ///
    /// # Errors
    /// If one decides nothing: an agent might take it for a yes.
    pub(super) fn decisions(&mut self, message: &model::Message) -> Result<Vec<Part<'static>>, Fault> {
        let answers = answer::native(message);
        let is_one = answers.len() == 1 && self.items.len() <= 1;
        let mut parts = Vec::new();
        for answer in answers {
            let item = self.items.iter().find(|item| item.id == answer.id);
            self.answered.extend(item);
            let AnswerBody::Decided { decision, arguments, text, payload } = answer.given else {
                let message = format!("the answer to '{}' is not understood as a decision", answer.id);
                return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::UNDECIDED));
            };
            self.decisions += 1;
            self.canceled += u32::from(decision == Decision::Cancel);
            if let Some(call) = item.and_then(|item| source(item).confirmation) {
                self.has_lost_reason |= text.is_some_and(|text| !text.is_empty());
                parts.push(long_running::confirmed(&call, decision == Decision::Accept));
                continue;
            }
            let are_alike = self.are_alike;
            let written = WrittenDecision { item, id: &answer.id, decision, arguments, text, payload, are_alike };
            written.parts(is_one, &mut parts);
        }
        Ok(parts)
    }

    pub(super) fn outputs(&mut self, message: &model::Message) -> Vec<Part<'static>> {
        #[derive(Serialize)]
        struct Outer<'a> {
            function_call_output: Output<'a>,
        }
        #[derive(Serialize)]
        struct Output<'a> {
            call_id: &'a str,
            output: &'a str,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            is_error: bool,
        }
        let mut parts = Vec::new();
        for (output, is_error) in message.outputs().zip(message.failures()) {
            self.outputs += 1;
            self.answered.extend(self.items.iter().find(|item| item.id == output.call_id));
            parts.push(long_running::response(self.long_running_calls, &output, is_error).unwrap_or_else(|| {
                let output = Output { call_id: &output.call_id, output: &output.output, is_error };
                Part::data(to_raw(&Outer { function_call_output: output }))
            }));
        }
        parts
    }
}

/// True if the gateway made the id of an item up.
fn has_no_id(item: &Pending) -> bool {
    let source = source(item);
    source.protocol == "a2a" && source.id.is_none() && source.confirmation.is_none()
}

/// The origin of an item.
fn source(item: &Pending) -> ItemSource {
    #[derive(Deserialize)]
    struct Extension {
        source: ItemSource,
    }
    let extension = item.extension.as_ref().and_then(Json::decode::<Extension>);
    extension.map(|extension| extension.source).filter(|source| source.protocol == "a2a").unwrap_or_default()
}

struct WrittenDecision<'a> {
    item: Option<&'a Pending>,
    id: &'a str,
    decision: Decision,
    arguments: Option<String>,
    text: Option<String>,
    payload: Option<Json>,
    /// False if approvals are decided differently in one message.
    are_alike: bool,
}

impl WrittenDecision<'_> {
    /// Its parts. `is_one`: no other item is answered beside it.
    fn parts(&self, is_one: bool, parts: &mut Vec<Part<'static>>) {
        // An id that the gateway made up says nothing to the agent.
        let id = match self.item {
            Some(item) => source(item).id,
            None => Some(self.id.to_owned()),
        };
        let kind = self.item.map_or(PendingKind::Input, |item| item.kind);
        if self.decision == Decision::Respond && kind != PendingKind::Approval {
            return self.response(id, is_one, parts);
        }
        let mut data = Extra::new();
        if let Some(id) = id {
            data.push("interrupt_id", Json::from_serialize(&id));
        }
        data.push("decision", Json::from_serialize(&self.decision));
        // An agent that reads nothing but this flag would run the call that was edited, so an edit has none.
        if self.decision != Decision::Edit {
            data.push("approved", Json::from_serialize(&(self.decision == Decision::Accept)));
        }
        if let Some(arguments) = &self.arguments {
            let arguments = Json::parse(arguments).unwrap_or_else(|| Json::from_serialize(arguments));
            data.push("arguments", arguments);
        }
        if let Some(text) = &self.text {
            data.push("text", Json::from_serialize(text));
        }
        parts.push(Part::data(to_raw(&data)));

        parts.push(Part::text(self.word(kind)));
    }

    /// The text for agents that read nothing else. A person's words may hold a yes in the reason for a no, so they are
    /// in the data alone.
    fn word(&self, kind: PendingKind) -> String {
        let own = self.payload.as_ref().and_then(Json::decode::<String>);
        let is_word_of_person = |word: &String| answer::decision_word(word) == Some(self.decision);
        if kind == PendingKind::Input
            && let Some(word) = own.filter(is_word_of_person)
        {
            return word;
        }
        let word = match self.decision {
            // A text does not say which of several calls it is about.
            Decision::Accept if kind == PendingKind::Approval && !self.are_alike => "see data",
            Decision::Accept => "approved",
            Decision::Edit => "edited",
            Decision::Cancel => "cancelled",
            Decision::Respond | Decision::Reject => "rejected",
        };
        word.to_owned()
    }

    /// The answer to a question: as text, and as data where it is more than a text.
    fn response(&self, id: Option<String>, is_one: bool, parts: &mut Vec<Part<'static>>) {
        let text = self.text.clone().or_else(|| self.payload.as_ref().and_then(Json::decode::<String>));
        let payload =
            self.payload.as_ref().filter(|payload| payload.decode::<String>().is_none() && !payload.is_null());

        match (id, payload) {
            (Some(id), payload) => {
                let mut data = Extra::new();
                data.push("interrupt_id", Json::from_serialize(&id));
                data.push("decision", Json::from_serialize(&Decision::Respond));
                if let Some(payload) = payload {
                    data.push("payload", payload.clone());
                } else if let Some(text) = &text {
                    data.push("text", Json::from_serialize(text));
                }
                parts.push(Part::data(to_raw(&data)));
            }
            (None, Some(payload)) => parts.push(Part::data(to_raw(payload))),
            (None, None) if !is_one => {
                // Which of several questions a text answers, only its data can say.
                let mut data = Extra::new();
                data.push("interrupt_id", Json::from_serialize(self.id));
                data.push("text", Json::from_serialize(&text));
                parts.push(Part::data(to_raw(&data)));
            }
            (None, None) => {}
        }
        match (text, payload) {
            (Some(text), _) => parts.push(Part::text(text)),
            (None, Some(payload)) => parts.push(Part::text(payload.text().to_owned())),
            (None, None) => parts.push(Part::text("")),
        }
    }
}
