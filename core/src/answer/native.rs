//! Answers as canonical messages, in both directions: sent upstream, and received from clients
//! (docs/human-in-the-loop.md#canonical-form, docs/human-in-the-loop.md#answering).

use serde::Serialize;

use crate::answer::{Answer, AnswerBody, Decided, decision_word};
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

/// What the plain canonical answer cannot express.
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

impl Decided {
    /// The canonical message for the agent. `extension`: the upstream understands the `interrupt` block. An item that
    /// came with one is always answered with one.
    #[must_use]
    pub fn message(&self, item: &Pending, extension: bool) -> Message {
        if item.kind == PendingKind::Tool {
            let output = Output { call_id: &item.id, output: self.output() };
            return Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![Content::data(&output)]);
        }

        let extension = extension || item.extension.is_some();

        let (approve, reason) = match self.decision {
            // Not offered, so it should never be decided. Reject it, so that nothing runs without approval
            // (docs/human-in-the-loop.md#rule-2).
            Decision::Edit if !extension => (false, Some("the upstream does not support edits")),
            Decision::Accept | Decision::Edit => (true, self.text.as_deref()),
            // An answer to a question lets the agent continue, but a text in place of an approval does not run the
            // call. A value that is not a text is sent as JSON.
            Decision::Respond => {
                (item.kind != PendingKind::Approval, self.text.as_deref().or(self.payload.as_ref().map(Json::text)))
            }
            Decision::Reject => (false, self.text.as_deref()),
            Decision::Cancel => (false, Some("cancelled")),
        };

        let extension = extension.then_some(Extension {
            decision: self.decision,
            arguments: self.arguments.as_deref(),
            text: self.text.as_deref(),
            payload: self.payload.as_ref(),
        });

        let response = Response { approval_request_id: &item.id, id: &item.id, approve, reason, interrupt: extension };
        Message::new(MessageType::McpApprovalResponse, Some(Role::User), vec![Content::data(&response)])
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
        (Some(Decision::Accept | Decision::Edit), Some(approve)) => !approve,
        (Some(Decision::Reject | Decision::Cancel), Some(approve)) => approve,
        _ => false,
    };

    let given = match decision.filter(|_| !contradicts) {
        Some(decision) => AnswerBody::Decided {
            decision,
            arguments: text(&extension, "arguments"),
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

    fn body(decided: &Decided, item: &Pending, extension: bool) -> String {
        decided.message(item, extension).content[0].as_data().expect("data").text().to_owned()
    }

    #[test]
    fn each_decision_becomes_the_native_answer_of_the_table() {
        let with = |decision, text: Option<&str>| Decided { text: text.map(str::to_owned), ..Decided::new(decision) };
        let mut table = String::new();
        for kind in [PendingKind::Approval, PendingKind::Input, PendingKind::Tool] {
            for extension in [false, true] {
                for decided in [
                    Decided::new(Decision::Accept),
                    Decided { arguments: Some(r#"{"to":"b"}"#.into()), ..Decided::new(Decision::Edit) },
                    with(Decision::Respond, Some("tell her yourself")),
                    with(Decision::Reject, Some("not today")),
                    Decided::new(Decision::Reject),
                    Decided::new(Decision::Cancel),
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
        let body = body(&Decided::new(Decision::Accept), &item(PendingKind::Input, true), false);
        assert!(body.contains(r#""interrupt":{"decision":"accept"}"#), "{body}");
    }

    #[test]
    fn an_answer_survives_a_round_trip() {
        let item = item(PendingKind::Approval, false);
        for decision in [Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject, Decision::Cancel] {
            let decided = Decided {
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
