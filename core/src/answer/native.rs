//! Answers as canonical messages, in both directions: sent upstream, and received from clients
//! (docs/human-in-the-loop.md#canonical-form, docs/human-in-the-loop.md#answering).

use serde::Serialize;

use crate::answer::{Answer, AnswerBody, CheckedDecision, arguments, decision_word, payload};
use crate::json::{Extra, Json};
use crate::model::{Content, Message, MessageType, Role};
use crate::pending::{Decision, Pending, PendingKind, approval_id};

/// The data of an `mcp_approval_response`.
#[derive(Serialize)]
struct Response<'a> {
    approval_request_id: &'a str,
    id: &'a str,
    approve: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupt: Option<Extension<'a>>,
}

/// The parts of an answer that the plain canonical form cannot express.
#[derive(Serialize)]
struct Extension<'a> {
    decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a Json>,
}

/// The data of a `function_call_output`.
#[derive(Serialize)]
struct Output<'a> {
    call_id: &'a str,
    output: &'a str,
}

impl CheckedDecision {
    /// The canonical message for the agent. `extension`: the upstream understands the `interrupt` block. An item that
    /// came with one is always answered with one.
    #[must_use]
    pub fn message(&self, item: &Pending, extension: bool) -> Message {
        if item.kind == PendingKind::Tool {
            let output = Output { call_id: &item.id, output: self.output() };
            return Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
        }

        let extension = extension || item.extension.is_some();
        let decision = self.decision_for(item);

        let (approve, reason) = match decision {
            // Not offered, so it should never be decided. Reject it, so that nothing runs without approval
            // (docs/human-in-the-loop.md#rule-2).
            Decision::Edit if !extension => (false, Some("the upstream does not support edits")),
            // An agent that reads only `approve` would run the call that was not accepted. An agent that accepts edits
            // reads the extension.
            Decision::Edit => (false, self.text.as_deref()),
            Decision::Accept => (true, self.text.as_deref()),
            // An answer to a question lets the agent continue, but a text in place of an approval does not run the
            // call. A value that is not a text is sent as JSON.
            Decision::Respond => {
                (item.kind != PendingKind::Approval, self.text.as_deref().or(self.payload.as_ref().map(Json::text)))
            }
            Decision::Reject => (false, self.text.as_deref()),
            Decision::Cancel => (false, self.text.as_deref().or(Some("cancelled"))),
        };

        let extension = extension.then_some(Extension {
            decision,
            arguments: self.arguments.as_deref(),
            text: self.text.as_deref(),
            payload: self.payload.as_ref(),
        });

        let response = Response { approval_request_id: &item.id, id: &item.id, approve, reason, interrupt: extension };
        Message::new(MessageType::McpApprovalResponse, Some(Role::User), vec![Content::data(&response)])
    }

    /// The decision in a word that the agent accepts: a rejection is sent as `cancel` to an agent that lists only that
    /// form of refusal.
    fn decision_for(&self, item: &Pending) -> Decision {
        if self.decision != Decision::Reject || item.kind == PendingKind::Input {
            return self.decision;
        }
        // `offer` adds `reject` to the item's list, so the source's own list counts.
        let listed = item.extension.as_ref().and_then(listed_decisions).unwrap_or_default();
        let has_own_no = item.payload.as_ref().is_some_and(payload::has_word_for_no);
        if listed.contains(&Decision::Cancel) && !listed.contains(&Decision::Reject) && !has_own_no {
            Decision::Cancel
        } else {
            Decision::Reject
        }
    }

    /// The output of a client-side tool call that a person answered.
    fn output(&self) -> &str {
        self.text.as_deref().unwrap_or(match self.decision {
            Decision::Reject => "rejected",
            Decision::Cancel => "cancelled",
            Decision::Accept | Decision::Edit | Decision::Respond => "",
        })
    }
}

/// The decisions that an agent lists in its extension. A connector that completes the list keeps the agent's own list
/// beside it.
fn listed_decisions(extension: &Json) -> Option<Vec<Decision>> {
    let fields = extension.decode::<Extra>()?;
    let words: Vec<String> = fields.get("agent_decisions").or_else(|| fields.get("decisions"))?.decode()?;
    Some(words.iter().filter_map(|word| decision_word(word)).collect())
}

/// The answers in a canonical message: approvals, and outputs of client-side tools. A message may hold several.
#[must_use]
pub fn native(message: &Message) -> Vec<Answer> {
    match message.kind {
        MessageType::McpApprovalResponse => {
            message.content.iter().filter_map(Content::as_data).filter_map(approval).collect()
        }
        MessageType::FunctionCallOutput => message
            .outputs()
            .filter(|output| !output.call_id.is_empty())
            .map(|output| Answer::new(output.call_id, AnswerBody::Text(output.output)))
            .collect(),
        _ => Vec::new(),
    }
}

/// New arguments as JSON text.
fn new_arguments(fields: &Extra) -> Option<String> {
    let given = arguments::given(fields).into_iter().next()?.value;
    Some(given.decode::<String>().unwrap_or_else(|| given.text().to_owned()))
}

fn approval(data: &Json) -> Option<Answer> {
    let id = approval_id(data)?;
    let fields: Extra = data.decode()?;
    let text = |fields: &Extra, name: &str| fields.get(name).and_then(Json::decode::<String>);
    let approve = fields.get("approve").and_then(Json::decode::<bool>);
    let extension: Extra = fields.get("interrupt").and_then(Json::decode).unwrap_or_default();

    let decision = match text(&extension, "decision") {
        // An unknown word is not a decision, whatever other fields say.
        Some(word) => decision_word(&word),
        None => approve.map(|approve| if approve { Decision::Accept } else { Decision::Reject }),
    };

    let contradicts = match (decision, approve) {
        (Some(Decision::Accept), Some(approve)) => !approve,
        (Some(Decision::Reject | Decision::Cancel), Some(approve)) => approve,
        _ => false,
    };

    let given = match decision.filter(|_| !contradicts) {
        Some(decision) => AnswerBody::Decided {
            decision,
            arguments: new_arguments(&extension).or_else(|| new_arguments(&fields)),
            text: text(&extension, "text").or_else(|| text(&fields, "reason")),
            payload: extension.get("payload").filter(|payload| !payload.is_null()).cloned(),
        },
        // Not a decision for any kind of item.
        None => AnswerBody::Payload(Json::null()),
    };

    Some(Answer::new(id, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: PendingKind, extension: bool) -> Pending {
        let data = r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a\"}","server_label":"mailer"}"#;
        let mut item = Pending::parse(&Json::parse(data).expect("JSON")).expect("an item");

        item.kind = kind;
        item.extension = extension.then(|| Json::parse("{}").expect("JSON"));
        item
    }

    fn body(decided: &CheckedDecision, item: &Pending, extension: bool) -> String {
        decided.message(item, extension).content[0].as_data().expect("data").text().to_owned()
    }

    #[test]
    fn each_decision_becomes_the_native_answer_of_the_table() {
        let with = |decision, text: Option<&str>| CheckedDecision {
            text: text.map(str::to_owned),
            ..CheckedDecision::new(decision)
        };
        let mut table = String::new();
        for kind in [PendingKind::Approval, PendingKind::Input, PendingKind::Tool] {
            for extension in [false, true] {
                for decided in [
                    CheckedDecision::new(Decision::Accept),
                    CheckedDecision { arguments: Some(r#"{"to":"b"}"#.into()), ..CheckedDecision::new(Decision::Edit) },
                    with(Decision::Respond, Some("tell her yourself")),
                    with(Decision::Reject, Some("not today")),
                    CheckedDecision::new(Decision::Reject),
                    CheckedDecision::new(Decision::Cancel),
                ] {
                    let body = body(&decided, &item(kind, false), extension);
                    table.push_str(&format!("{kind:?} {extension} {:?}: {body}\n", decided.decision));
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn an_item_with_the_extension_is_answered_with_the_extension() {
        let body = body(&CheckedDecision::new(Decision::Accept), &item(PendingKind::Input, true), false);
        assert!(body.contains(r#""interrupt":{"decision":"accept"}"#), "{body}");
    }

    #[test]
    fn an_answer_survives_a_round_trip() {
        let item = item(PendingKind::Approval, false);
        for decision in [Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel] {
            let decided = CheckedDecision {
                decision,
                arguments: (decision == Decision::Edit).then(|| "{}".to_owned()),
                text: Some("why".to_owned()),
                payload: Json::parse(r#"{"x":1}"#),
            };
            let parsed = native(&decided.message(&item, true));
            let given = AnswerBody::Decided {
                decision,
                arguments: decided.arguments.clone(),
                text: decided.text.clone(),
                payload: decided.payload.clone(),
            };
            assert_eq!(parsed, [Answer::new("appr_1".into(), given)]);
        }
    }

    #[test]
    fn only_an_acceptance_carries_approve_true() {
        for extension in [false, true] {
            for decision in [Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel] {
                let decided = CheckedDecision {
                    arguments: (decision == Decision::Edit).then(|| r#"{"to":"b"}"#.to_owned()),
                    text: Some("yes, approved".to_owned()),
                    ..CheckedDecision::new(decision)
                };
                for kind in [PendingKind::Approval, PendingKind::Auth] {
                    if (decision, kind) == (Decision::Respond, PendingKind::Auth) {
                        continue;
                    }
                    let body = body(&decided, &item(kind, extension), extension);
                    assert!(body.contains(r#""approve":false"#), "{decision:?} {body}");
                }
            }
        }
    }

    #[test]
    fn a_rejection_is_sent_as_cancel_to_an_agent_that_lists_no_other_no() {
        let sent = |extension: &str| {
            let data = format!(r#"{{"id":"a","name":"send","interrupt":{extension}}}"#);
            let item = Pending::parse(&Json::parse(&data).expect("JSON")).expect("an item");
            let decided = CheckedDecision { text: Some("why".into()), ..CheckedDecision::new(Decision::Reject) };
            let AnswerBody::Decided { decision, text, .. } = native(&decided.message(&item, true)).remove(0).given
            else {
                panic!("no decision")
            };
            (decision, text)
        };
        let why = Some("why".to_owned());
        assert_eq!(sent(r#"{"decisions":["accept","cancel"]}"#), (Decision::Cancel, why.clone()));
        assert_eq!(sent(r#"{"decisions":["accept","ignore"]}"#), (Decision::Cancel, why.clone()));
        let completed = r#"{"decisions":["accept","cancel","reject"],"agent_decisions":["accept","cancel"]}"#;
        assert_eq!(sent(completed), (Decision::Cancel, why.clone()));
        assert_eq!(sent(r#"{"decisions":["accept","reject","cancel"]}"#), (Decision::Reject, why.clone()));
        assert_eq!(sent(r#"{"decisions":["accept"]}"#), (Decision::Reject, why.clone()));
        // The payload's form has `ignore` for both.
        let payload = r#"{"action_request":{"action":"send"},"config":{"allow_accept":true,"allow_ignore":true}}"#;
        let listed = format!(r#"{{"decisions":["accept","cancel"],"payload":{payload}}}"#);
        assert_eq!(sent(&listed), (Decision::Reject, why));
    }

    #[test]
    fn arguments_of_an_answer_are_read_wherever_they_stand() {
        for data in [
            r#"{"id":"a","approve":true,"interrupt":{"decision":"accept","arguments":"{\"to\":\"b\"}"}}"#,
            r#"{"id":"a","approve":true,"interrupt":{"decision":"accept","arguments":{"to":"b"}}}"#,
            r#"{"id":"a","approve":true,"arguments":{"to":"b"}}"#,
            r#"{"id":"a","approve":true,"editedArgs":{"to":"b"}}"#,
        ] {
            let given = approval(&Json::parse(data).expect("JSON")).expect("an answer").given;
            let AnswerBody::Decided { decision: Decision::Accept, arguments, .. } = given else { panic!("{given:?}") };
            assert_eq!(arguments.as_deref(), Some(r#"{"to":"b"}"#), "{data}");
        }
    }

    #[test]
    fn a_contradictory_answer_is_not_a_decision() {
        for data in [
            r#"{"id":"a"}"#,
            r#"{"id":"a","approve":"yes"}"#,
            r#"{"id":"a","approve":true,"interrupt":{"decision":"reject"}}"#,
            r#"{"id":"a","approve":false,"interrupt":{"decision":"accept"}}"#,
            r#"{"id":"a","approve":true,"interrupt":{"decision":"perhaps"}}"#,
        ] {
            let data = Json::parse(data).expect("JSON");
            assert_eq!(approval(&data).expect("an answer").given, AnswerBody::Payload(Json::null()), "{data:?}");
        }
    }
}
