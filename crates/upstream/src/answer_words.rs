//! Answers to pending items in words, as people type them: yes, no, `edit JSON`, or a text. The kind of the item
//! decides the form of the answer, and its decisions what a text means.

use interlingua_core::answer::AnswerBody;
use interlingua_core::pending::{Decision, Pending, PendingKind};

/// Words that accept, in lower case.
const YES: [&str; 4] = ["yes", "y", "accept", "approve"];
/// Words that reject, in lower case.
const NO: [&str; 4] = ["no", "n", "reject", "decline"];

/// The answer that a text means for an item.
pub(super) fn read(item: &Pending, text: &str) -> AnswerBody {
    let decided = |decision, arguments: Option<&str>, text: Option<&str>| AnswerBody::Decided {
        decision,
        arguments: arguments.map(str::to_owned),
        text: text.map(str::to_owned),
        payload: None,
    };
    let may_respond = item.decisions.is_empty() || item.decisions.contains(&Decision::Respond);
    // The words of a question's answer are never a decision: "no" may be the answer.
    if item.kind == PendingKind::Tool {
        return AnswerBody::Text(text.to_owned());
    }
    if item.kind == PendingKind::Input && may_respond {
        return decided(Decision::Respond, None, Some(text));
    }

    let trimmed = text.trim();
    let word = trimmed.to_ascii_lowercase();
    let after = |command: &str| {
        let (first, rest) = trimmed.split_once(char::is_whitespace)?;
        first.eq_ignore_ascii_case(command).then(|| rest.trim())
    };
    if YES.contains(&word.as_str()) {
        decided(Decision::Accept, None, None)
    } else if NO.contains(&word.as_str()) {
        decided(Decision::Reject, None, None)
    } else if word == "cancel" {
        decided(Decision::Cancel, None, None)
    } else if let Some(arguments) = after("edit") {
        decided(Decision::Edit, Some(arguments), None)
    } else if let Some(reason) = after("reject") {
        decided(Decision::Reject, None, Some(reason))
    } else {
        decided(Decision::Respond, None, Some(after("respond").unwrap_or(text)))
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::Json;

    use super::*;

    fn item(kind: &str, decisions: &str) -> Pending {
        let data = format!(
            r#"{{"id":"lc-1","name":"order","arguments":"{{}}","interrupt":{{"kind":"{kind}","decisions":{decisions}}}}}"#
        );
        Pending::parse(&Json::parse(&data).expect("JSON")).expect("an item")
    }

    fn render_answer(item: &Pending, text: &str) -> String {
        match read(item, text) {
            AnswerBody::Decided { decision, arguments, text, .. } => {
                format!("{} {} {}", decision.as_str(), arguments.unwrap_or_default(), text.unwrap_or_default())
            }
            AnswerBody::Text(text) => format!("output {text}"),
            AnswerBody::Payload(payload) => payload.text().to_owned(),
        }
    }

    #[test]
    fn the_kind_of_an_item_decides_the_form_and_not_its_id() {
        let approval = item("approval", r#"["accept","reject","edit","respond"]"#);
        for (text, expected) in [
            ("yes", "accept  "),
            (" Approve ", "accept  "),
            ("no", "reject  "),
            ("reject too much", "reject  too much"),
            ("edit {\"what\":\"40 kg\"}", "edit {\"what\":\"40 kg\"} "),
            ("respond done already", "respond  done already"),
            ("done already", "respond  done already"),
            ("cancel", "cancel  "),
        ] {
            assert_eq!(render_answer(&approval, text), expected, "{text}");
        }

        let question = item("input", r#"["respond"]"#);
        assert_eq!(
            (render_answer(&question, "no"), render_answer(&question, "edit it")),
            ("respond  no".into(), "respond  edit it".into())
        );
        assert_eq!(render_answer(&item("auth", "[]"), "yes"), "accept  ");
        let tool = Pending { kind: PendingKind::Tool, ..item("approval", "[]") };
        assert_eq!(render_answer(&tool, "yes"), "output yes");
    }
}
