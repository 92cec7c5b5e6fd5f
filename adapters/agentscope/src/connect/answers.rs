//! Answers to what a reply waits for: decisions, and outputs of calls that the client ran.

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_core::answer::{self, AnswerBody};
use interlingua_core::connector::TurnRequest;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{Extra, Fault, FaultKind, Json};
use serde::{Deserialize, Serialize};

use super::request::{self, Block};

/// The origin of an item: stored with the item, and read when the item is answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ItemSource {
    pub(super) protocol: String,
    pub(super) reply_id: String,
}

/// A call that is answered: the service's id, the run's, and its name.
#[derive(Clone, Debug)]
pub(super) struct AnsweredCall {
    pub(super) own_id: String,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) is_external: bool,
}

/// The answers of a turn.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Decisions, as `confirm_results`.
    pub(super) confirmed: Vec<Json>,
    /// Outputs, as `execution_results`.
    pub(super) executed: Vec<Json>,
    pub(super) calls: Vec<AnsweredCall>,
    /// The reply that asked. Empty: no item says it.
    pub(super) reply: String,
    /// True if one is an output, or a decision other than a cancellation.
    is_decided: bool,
}

impl Answers {
    /// The answers in the new messages.
    ///
    /// # Errors
    /// If one decides nothing: it must not be taken for a yes.
    pub(super) fn read(turn: &TurnRequest<'_>, call_ids: &CallIds, losses: &mut Losses) -> Result<Self, Fault> {
        let mut answers = Self::default();
        for (_, message) in turn.new_messages() {
            let is_failed = message.has_failed_output();
            for answer in answer::native(message) {
                // Outputs of the history, and answers to what no one asked.
                let Some(item) = turn.answered.iter().find(|item| item.id == answer.id) else { continue };
                match (item.kind, answer.given) {
                    (PendingKind::Tool, AnswerBody::Text(output)) => {
                        let blocks = request::output_blocks(&output, message, losses);
                        answers.is_decided = true;
                        answers.execute(item, call_ids.own(&item.id), &blocks, is_failed);
                    }
                    (_, AnswerBody::Decided { decision, arguments, text, payload }) => {
                        // What no one decided has no reason of anybody's.
                        let has_reason = text.is_some_and(|text| !text.is_empty()) && decision != Decision::Cancel;
                        if has_reason {
                            losses.lost(ContentKind::ApprovalReason, "the service takes no reason");
                        }
                        if decision == Decision::Cancel {
                            losses.changed(ContentKind::Approval, "what no one decided is sent as a rejection");
                        } else {
                            answers.is_decided = true;
                        }
                        answers.confirm(item, call_ids, decision, arguments.as_deref(), payload.as_ref());
                    }
                    _ => {
                        let message = format!("the answer to '{}' is not understood as a decision", answer.id);
                        return Err(Fault::new(FaultKind::Invalid, message).with_code(answer::UNDECIDED));
                    }
                }
            }
        }
        Ok(answers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// True if there are answers, and all of them are cancellations. The gateway cancels what expired, so that new
    /// words can be sent.
    pub(super) fn are_cancellations(&self) -> bool {
        !self.is_empty() && !self.is_decided
    }

    /// `own_id`: the service's id of the call.
    fn execute(&mut self, item: &Pending, own_id: &str, output: &[Block], is_failed: bool) {
        #[derive(Serialize)]
        struct ExecutedCall<'a> {
            r#type: &'static str,
            id: &'a str,
            name: &'a str,
            output: &'a [Block],
            state: &'static str,
        }
        self.executed.push(Json::from_serialize(&ExecutedCall {
            r#type: "tool_result",
            id: own_id,
            name: &item.name,
            output,
            state: if is_failed { "error" } else { "success" },
        }));
        self.calls.push(AnsweredCall {
            own_id: own_id.to_owned(),
            id: item.id.clone(),
            name: item.name.clone(),
            is_external: true,
        });
    }

    fn confirm(
        &mut self,
        item: &Pending,
        call_ids: &CallIds,
        decision: Decision,
        arguments: Option<&str>,
        payload: Option<&Json>,
    ) {
        let Extension { source, payload: asked } = extension(item);
        let call_id = item.call_id.clone().unwrap_or_else(|| item.id.clone());
        // The service wants the call back as it sent it.
        let mut call: Extra = asked.as_ref().and_then(Json::decode).unwrap_or_else(|| {
            let mut call = Extra::new();
            call.push("type", Json::from_serialize("tool_call"));
            call.push("id", Json::from_serialize(call_ids.own(&call_id)));
            call.push("name", Json::from_serialize(&item.name));
            call.push("input", Json::from_serialize(&item.arguments));
            call
        });
        if let Some(arguments) = arguments.filter(|_| decision == Decision::Edit) {
            call.set("input", Json::from_serialize(arguments));
        }

        let confirmed = matches!(decision, Decision::Accept | Decision::Edit);
        let own_id =
            call.get("id").and_then(Json::decode::<String>).unwrap_or_else(|| call_ids.own(&call_id).to_owned());
        let mut result = Extra::new();
        result.push("confirmed", Json::from_serialize(&confirmed));
        result.push("tool_call", Json::from_serialize(&call));
        // What the person permits for the future, in the service's own form.
        let rules = payload.and_then(Json::decode::<Extra>).and_then(|mut payload| payload.remove("rules"));
        if let Some(rules) = rules.filter(|rules| confirmed && rules.text().starts_with('[')) {
            result.push("rules", rules);
        }
        self.confirmed.push(Json::from_serialize(&result));
        self.calls.push(AnsweredCall { own_id, id: call_id, name: item.name.clone(), is_external: false });
        if self.reply.is_empty() {
            self.reply = source.reply_id;
        }
    }
}

/// Fields of an item in this protocol beside the call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Extension {
    source: ItemSource,
    /// The call as the service sent it.
    payload: Option<Json>,
}

fn extension(item: &Pending) -> Extension {
    let extension = item.extension.as_ref().and_then(Json::decode::<Extension>);
    extension.filter(|extension| extension.source.protocol == crate::NAME).unwrap_or_default()
}
