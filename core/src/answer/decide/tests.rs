//! The table in docs/human-in-the-loop.md#reading-decisions, row by row, and properties of all answers.

use proptest::prelude::*;

use super::*;
use crate::answer::{ALL_DECISIONS, NATIVE_DECISIONS, offer};

fn item(kind: PendingKind) -> Pending {
    let data = r#"{"id":"appr_1","name":"send_mail","arguments":"{\"to\":\"a\"}"}"#;
    let mut item = Pending::parse(&Json::parse(data).expect("JSON")).expect("an item");
    item.kind = kind;
    item
}

fn json(text: &str) -> Json {
    Json::parse(text).expect("JSON")
}

fn outcome(kind: PendingKind, given: &AnswerBody) -> String {
    let item = item(kind);
    match decide(&item, given, &offer(&item, ALL_DECISIONS)) {
        Ok(decided) => {
            let mut line = decided.decision.as_str().to_owned();
            if let Some(arguments) = decided.arguments {
                line.push_str(&format!(" arguments {arguments}"));
            }
            if let Some(text) = decided.text {
                line.push_str(&format!(" text {text:?}"));
            }
            line
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn payloads_are_interpreted_by_the_table() {
    let mut table = String::new();
    for payload in [
        "true",
        "false",
        "null",
        "7",
        "{}",
        "[]",
        "\"\"",
        "\"yes\"",
        "\" Approved \"",
        "\"maybe\"",
        "\"true\"",
        r#""{\"approved\":true}""#,
        r#"{"decisions":[{"type":"approve"}]}"#,
        r#"{"decisions":[{"type":"edit","edited_action":{"name":"send_mail","args":{"to":"b"}}}]}"#,
        r#"{"decisions":[{"type":"edit","edited_action":{"name":"drop_table","args":{"to":"b"}}}]}"#,
        r#"{"decisions":[{"type":"reject","message":"no need"}]}"#,
        r#"{"decisions":["approve","approve"]}"#,
        r#"{"decisions":["approve","reject"]}"#,
        r#"{"decisions":[{"type":"edit","args":{}},{"type":"edit","args":{}}]}"#,
        r#"{"decisions":[]}"#,
        r#"{"decisions":[{"decisions":["approve"]}]}"#,
        r#"[{"type":"accept","args":null}]"#,
        r#"[[true]]"#,
        r#"{"decision":"approve"}"#,
        r#"{"decision":"ok","reason":"fine"}"#,
        r#"{"decision":"perhaps","approved":true}"#,
        r#"{"type":"accept","args":{"action":"send_mail","args":{"to":"a"}}}"#,
        r#"{"type":"edit","args":{"to":"b"}}"#,
        r#"{"type":"edit","args":{"args":{"to":"b"}}}"#,
        r#"{"type":"edit","args":{"action":"send_mail","args":{"to":"b"}}}"#,
        r#"{"type":"edit","args":{"action":"drop_table","args":{"to":"b"}}}"#,
        r#"{"type":"edit","args":{"edited_args":{"to":"b"}}}"#,
        r#"{"type":"edit","editedArgs":{"to":"b"}}"#,
        r#"{"type":"edit","arguments":"{\"to\":\"b\"}"}"#,
        r#"{"type":"edit","args":{"args":"b"}}"#,
        r#"{"type":"edit","args":{"args":"b","to":"c"}}"#,
        r#"{"type":"edit","args":{}}"#,
        r#"{"type":"edit"}"#,
        r#"{"type":"edit","args":"to b"}"#,
        r#"{"type":"edit","editedArgs":[1]}"#,
        r#"{"type":"approve","args":{"edited_args":{"to":"b"}}}"#,
        r#"{"type":"response","args":"later"}"#,
        r#"{"type":"response","args":{"args":"later"}}"#,
        r#"{"type":"response","args":{"message":"later"}}"#,
        r#"{"type":"response","args":{"x":1}}"#,
        r#"{"type":"response"}"#,
        r#"{"type":"respond","feedback":"later"}"#,
        r#"{"type":"ignore","args":null}"#,
        r#"{"type":"cancelled"}"#,
        r#"{"type":"denied","args":"never"}"#,
        r#"{"type":"click","approved":true}"#,
        r#"{"type":"reject","approved":true}"#,
        r#"{"approved":true}"#,
        r#"{"approve":false,"reason":"no"}"#,
        r#"{"accepted":true,"editedArgs":{"to":"b"}}"#,
        r#"{"confirmed":true,"edited_args":{"to":"b"}}"#,
        r#"{"approved":true,"editedArgs":null}"#,
        r#"{"approved":true,"editedArgs":"all of them"}"#,
        r#"{"approved":false,"editedArgs":{"to":"b"}}"#,
        r#"{"approved":"yes"}"#,
        r#"{"approved":true,"confirmed":false}"#,
        r#"{"steps":["a"]}"#,
    ] {
        let given = AnswerBody::Payload(json(payload));
        table.push_str(&format!("{payload}\n    approval: {}\n", outcome(PendingKind::Approval, &given)));
        table.push_str(&format!("    input:    {}\n", outcome(PendingKind::Input, &given)));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn texts_are_interpreted_by_the_table() {
    let mut table = String::new();
    for text in [
        "accept",
        "Approve",
        "APPROVED",
        "yes",
        "ok",
        "edit",
        "respond",
        "reject",
        "no",
        "cancel",
        "ignore",
        "",
        "  ",
        "yes please",
        "true",
        "false",
        "\"yes\"",
        "{\"approved\":true}",
        "42",
        "Paris",
        "approved approved",
    ] {
        let given = AnswerBody::Text(text.to_owned());
        for kind in [PendingKind::Approval, PendingKind::Input, PendingKind::Auth, PendingKind::Tool] {
            table.push_str(&format!("{text:?} {kind:?}: {}\n", outcome(kind, &given)));
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_output_of_a_tool_decides_only_with_a_decision_word() {
    let item = item(PendingKind::Tool);
    let decided = |payload: &str| decide(&item, &AnswerBody::Payload(json(payload)), &offer(&item, ALL_DECISIONS));
    for output in [
        r#"{"type":"report","approved":true}"#,
        r#"{"type":"report","approved":false}"#,
        r#"{"decision":"perhaps","approved":true}"#,
        r#"{"decision":"perhaps","type":"reject"}"#,
        r#"{"approved":true}"#,
        r#"{"type":"report"}"#,
    ] {
        let decided = decided(output).unwrap_or_else(|why| panic!("{output}: {why}"));
        assert_eq!((decided.decision, decided.text.as_deref()), (Decision::Respond, Some(output)));
    }
    for word in ["reject", "denied", "cancel"] {
        for field in ["type", "decision"] {
            let decided = decided(&format!(r#"{{"{field}":"{word}"}}"#)).expect(word);
            assert!(matches!(decided.decision, Decision::Reject | Decision::Cancel), "{field} {word}");
        }
    }
    assert!(matches!(decided(r#"{"type":"accept"}"#), Err(AnswerError::NotOffered(Decision::Accept, _))));
}

#[test]
fn an_empty_value_is_no_answer_however_it_is_written() {
    for empty in ["{ }", "[\n]", "{\t}"] {
        for given in [AnswerBody::Payload(json(empty)), AnswerBody::Text(empty.to_owned())] {
            let item = item(PendingKind::Input);
            let decided = decide(&item, &given, &offer(&item, ALL_DECISIONS));
            assert!(matches!(decided, Err(AnswerError::Unclear(_))), "{given:?}: {decided:?}");
        }
    }
}

#[test]
fn an_edit_that_is_not_offered_is_refused_and_never_becomes_an_accept() {
    let item = item(PendingKind::Approval);
    let offered = offer(&item, NATIVE_DECISIONS);
    for payload in [r#"{"type":"edit","args":{"to":"b"}}"#, r#"{"approved":true,"editedArgs":{"to":"b"}}"#] {
        let refused = decide(&item, &AnswerBody::Payload(json(payload)), &offered).expect_err("not offered");
        let is_refused = matches!(refused, AnswerError::NotOffered(Decision::Edit, _) | AnswerError::OtherArguments(_));
        assert!(is_refused, "{refused:?}");
    }
}

/// Every form of an acceptance that carries arguments, with these.
fn acceptances(arguments: &str) -> Vec<AnswerBody> {
    let forms = [
        r#"{"approved":true,"arguments":ARGS}"#,
        r#"{"approve":true,"editedArgs":ARGS}"#,
        r#"{"accepted":true,"edited_args":ARGS}"#,
        r#"{"confirmed":true,"args":ARGS}"#,
        r#"{"decision":"accept","arguments":ARGS}"#,
        r#"{"decision":"accept","approved":true,"args":{"args":ARGS}}"#,
        r#"{"type":"accept","args":ARGS}"#,
        r#"{"type":"accept","args":{"action":"send_mail","args":ARGS}}"#,
        r#"{"type":"approve","args":{"edited_args":ARGS}}"#,
        r#"{"type":"approve","edited_action":{"name":"send_mail","args":ARGS}}"#,
        r#"{"decisions":[{"type":"approve","edited_action":{"name":"send_mail","args":ARGS}}]}"#,
        r#"[{"type":"accept","args":{"args":ARGS}}]"#,
        r#"{"approved":true,"input":ARGS}"#,
        r#"{"approved":true,"updatedInput":ARGS}"#,
    ];
    let given = forms.iter().map(|form| form.replace("ARGS", arguments));
    let mut all: Vec<AnswerBody> =
        given.flat_map(|form| [AnswerBody::Payload(json(&form)), AnswerBody::Text(form)]).collect();
    let decided = |arguments: Option<&str>, payload: Option<String>| AnswerBody::Decided {
        decision: Decision::Accept,
        arguments: arguments.map(str::to_owned),
        text: None,
        payload: payload.map(|payload| json(&payload)),
    };
    all.push(decided(Some(arguments), None));
    all.push(decided(None, Some(format!(r#"{{"approved":true,"arguments":{arguments}}}"#))));
    all
}

#[test]
fn an_acceptance_of_other_arguments_is_an_edit_or_refused() {
    let item = item(PendingKind::Approval);
    for given in acceptances(r#"{"to":"b"}"#) {
        let decided = decide(&item, &given, ALL_DECISIONS).unwrap_or_else(|why| panic!("{given:?}: {why}"));
        assert_eq!((decided.decision, decided.arguments.as_deref()), (Decision::Edit, Some(r#"{"to":"b"}"#)));
        let refused = decide(&item, &given, NATIVE_DECISIONS).expect_err("no edits");
        assert!(matches!(refused, AnswerError::OtherArguments(_)), "{given:?}: {refused:?}");
        let fault = Fault::from(refused);
        assert_eq!((fault.kind, fault.code()), (FaultKind::Conflict, NOT_TAKEN));
        assert!(fault.message.contains("takes no edits"), "{}", fault.message);
    }
}

#[test]
fn an_acceptance_of_the_same_arguments_is_an_acceptance() {
    let data = r#"{"id":"a","name":"send_mail","arguments":"{\"to\":\"a\",\"n\":1}"}"#;
    let item = Pending::parse(&json(data)).expect("an item");
    for arguments in [r#"{"to":"a","n":1}"#, r#"{ "n": 1.0, "to": "a" }"#] {
        for given in acceptances(arguments) {
            for offered in [ALL_DECISIONS, NATIVE_DECISIONS] {
                let decided = decide(&item, &given, offered).unwrap_or_else(|why| panic!("{given:?}: {why}"));
                assert_eq!((decided.decision, decided.arguments), (Decision::Accept, None), "{given:?}");
            }
        }
    }
}

#[test]
fn arguments_that_cannot_be_run_are_not_accepted() {
    let item = item(PendingKind::Approval);
    for given in [
        r#"{"approved":true,"arguments":"all of them"}"#,
        r#"{"approved":true,"arguments":[1]}"#,
        r#"{"approved":true,"editedArgs":{"to":"b"},"arguments":{"to":"c"}}"#,
        r#"{"type":"accept","args":{"action":"drop_table","args":{"to":"a"}}}"#,
        r#"[{"type":"approve","args":{"to":"b"}},{"type":"approve"}]"#,
    ] {
        let decided = decide(&item, &AnswerBody::Payload(json(given)), ALL_DECISIONS);
        assert!(decided.is_err(), "{given}: {decided:?}");
    }
}

#[test]
fn everyone_can_say_no() {
    for kind in [PendingKind::Approval, PendingKind::Auth, PendingKind::Input, PendingKind::Tool] {
        for listed in
            [vec![], vec![Decision::Accept], vec![Decision::Respond], vec![Decision::Accept, Decision::Cancel]]
        {
            let mut item = item(kind);
            item.decisions = listed;
            // Also an item that was stored with a list that has no rejection in it.
            for offered in [offer(&item, ALL_DECISIONS), item.decisions.clone()] {
                let no = AnswerBody::Decided {
                    decision: Decision::Reject,
                    arguments: None,
                    text: Some("no".into()),
                    payload: None,
                };
                let decided = decide(&item, &no, &offered).expect("a no").decision;
                assert!(matches!(decided, Decision::Reject | Decision::Cancel), "{item:?}");
                if matches!(kind, PendingKind::Approval | PendingKind::Auth) {
                    for word in ["reject", "no", "false"] {
                        let decided = decide(&item, &AnswerBody::Text(word.into()), &offered).expect(word);
                        assert_eq!(decided.decision, Decision::Reject, "{item:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn cancelling_is_always_possible() {
    let cancel = AnswerBody::Text("cancel".into());
    assert_eq!(decide(&item(PendingKind::Approval), &cancel, &[]).expect("possible").decision, Decision::Cancel);
}

#[test]
fn a_question_without_yes_and_no_accepts_yes_as_an_answer() {
    let mut item = item(PendingKind::Input);
    item.decisions = vec![Decision::Respond];
    let offered = offer(&item, ALL_DECISIONS);
    let decided = decide(&item, &AnswerBody::Text("yes".into()), &offered).expect("an answer");

    assert_eq!((decided.decision, decided.text.as_deref()), (Decision::Respond, Some("yes")));
    let decided = decide(&item, &AnswerBody::Payload(json("true")), &offered).expect("an answer");
    assert_eq!((decided.decision, decided.payload), (Decision::Respond, Some(json("true"))));
}

#[test]
fn an_answer_is_checked_against_the_schema_of_its_question() {
    let mut item = item(PendingKind::Input);
    item.response_schema =
        Some(json(r#"{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}"#));
    let offered = offer(&item, ALL_DECISIONS);
    let answer = |given: AnswerBody| decide(&item, &given, &offered);
    assert!(answer(AnswerBody::Payload(json(r#"{"city":"Paris"}"#))).is_ok());

    assert!(answer(AnswerBody::Text(r#"{"city":"Paris"}"#.into())).is_ok());
    // Some clients wrap the answer in their own form.
    for form in [
        r#"{"type":"response","args":{"args":{"city":"Paris"}}}"#,
        r#"{"type":"response","args":{"city":"Paris"}}"#,
        r#"{"type":"response","args":{"args":"{\"city\":\"Paris\"}"}}"#,
    ] {
        assert!(answer(AnswerBody::Payload(json(form))).is_ok(), "{form}");
    }

    for wrong in [r#"{"city":7}"#, "{}", "7", r#"{"type":"response","args":{"args":{"town":"Paris"}}}"#] {
        let error = answer(AnswerBody::Payload(json(wrong))).expect_err("a mismatch");
        assert!(matches!(error, AnswerError::ValueMismatch(_, Some(_))), "{wrong}: {error:?}");
    }

    let explicit = AnswerBody::Decided { decision: Decision::Accept, arguments: None, text: None, payload: None };
    assert!(matches!(answer(explicit), Err(AnswerError::NotOffered(..))), "continuing is not an answer");
}

#[test]
fn the_agent_gets_the_validated_value_in_every_form() {
    let mut item = item(PendingKind::Input);
    item.response_schema =
        Some(json(r#"{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}"#));
    let offered = offer(&item, ALL_DECISIONS);

    let text = |text: &str| AnswerBody::Text(text.to_owned());
    let decided = |text: Option<&str>, payload: Option<&str>| AnswerBody::Decided {
        decision: Decision::Respond,
        arguments: None,
        text: text.map(str::to_owned),
        payload: payload.map(json),
    };

    for given in [
        text("Paris"),
        text(r#"{"city":"Paris"}"#),
        AnswerBody::Payload(json(r#"{"city":"Paris"}"#)),
        AnswerBody::Payload(json(r#""Paris""#)),
        AnswerBody::Payload(json(r#"{"type":"response","args":{"args":{"city":"Paris"}}}"#)),
        AnswerBody::Payload(json(r#"{"type":"response","args":{"args":"Paris"}}"#)),
        AnswerBody::Payload(json(r#"{"decision":"respond","text":"Paris"}"#)),
        AnswerBody::Payload(json(r#"{"decision":"respond","payload":{"city":"Paris"}}"#)),
        decided(Some("Paris"), None),
        decided(None, Some(r#"{"city":"Paris"}"#)),
        decided(Some("Paris"), Some(r#"{"type":"response","args":"Paris"}"#)),
    ] {
        let decided = decide(&item, &given, &offered).unwrap_or_else(|why| panic!("{given:?}: {why}"));
        assert_eq!((decided.text, decided.payload), (None, Some(json(r#"{"city":"Paris"}"#))), "{given:?}");
    }
}

#[test]
fn a_mismatching_answer_is_refused_with_a_hint() {
    let mut item = item(PendingKind::Input);
    item.response_schema = Some(json(
        r#"{"type":"object","required":["a","b"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}"#,
    ));
    let offered = offer(&item, ALL_DECISIONS);
    let refused = decide(&item, &AnswerBody::Text("Paris".into()), &offered).expect_err("the field is ambiguous");
    let message = refused.to_string();
    assert!(message.contains("'a' (required, string), 'b' (required, string)"), "{message}");
    assert!(message.contains(r#"this would fit: {"a":"…","b":"…"}"#), "{message}");
}

#[test]
fn a_canonical_yes_with_a_text_answers_a_question() {
    let mut item = item(PendingKind::Input);
    item.decisions = vec![Decision::Respond, Decision::Reject];
    let offered = offer(&item, ALL_DECISIONS);
    let yes = |text: Option<&str>| AnswerBody::Decided {
        decision: Decision::Accept,
        arguments: None,
        text: text.map(str::to_owned),
        payload: None,
    };
    let decided = decide(&item, &yes(Some("Paris")), &offered).expect("an answer");
    assert_eq!((decided.decision, decided.text.as_deref()), (Decision::Respond, Some("Paris")));
    assert!(matches!(decide(&item, &yes(None), &offered), Err(AnswerError::NotOffered(..))));
}

#[test]
fn a_login_confirmation_continues_and_approves_nothing() {
    let mut login = item(PendingKind::Auth);
    login.decisions = vec![Decision::Accept, Decision::Reject];
    let offered = offer(&login, ALL_DECISIONS);
    for text in ["done", "Done.", "I'm done!", "logged in", "ok", "yes"] {
        let decided = decide(&login, &AnswerBody::Text(text.into()), &offered).expect(text);
        assert_eq!(decided.decision, Decision::Accept, "{text}");

        let approval = item(PendingKind::Approval);
        let approved = decide(&approval, &AnswerBody::Text(text.into()), ALL_DECISIONS);
        assert_eq!(approved.is_ok(), matches!(text, "ok" | "yes"), "{text}: {approved:?}");
    }

    for text in ["not done", "what for?", ""] {
        let unclear = decide(&login, &AnswerBody::Text(text.into()), &offered).expect_err(text);
        assert_eq!(unclear, AnswerError::Unclear(offered.clone()), "{text}");
        assert_eq!(unclear.to_string(), "not understood as a decision: send one of accept, reject");
    }
}

#[test]
fn the_client_s_answer_is_kept_verbatim() {
    let item = item(PendingKind::Approval);
    let payload = r#"{ "approved" : true, "editedArgs": {"z":1.50,"a":2}, "note":"x" }"#;
    for given in [
        AnswerBody::Payload(json(payload)),
        AnswerBody::Text(payload.into()),
        AnswerBody::Payload(Json::from_serialize(payload)),
    ] {
        let decided = decide(&item, &given, ALL_DECISIONS).expect("an edit");
        assert_eq!(decided.payload.expect("kept").text(), payload);
        assert_eq!(decided.arguments.as_deref(), Some(r#"{"z":1.50,"a":2}"#));
    }
}

#[test]
fn deep_nesting_is_harmless_and_not_a_decision() {
    let deep = format!("{{\"decisions\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let item = item(PendingKind::Approval);
    assert!(decide(&item, &AnswerBody::Text(deep), ALL_DECISIONS).is_err());
    let edit = format!("{{\"type\":\"edit\",\"args\":{}1{}}}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
    assert!(decide(&item, &AnswerBody::Text(edit), ALL_DECISIONS).is_err());
}

/// Random JSON-like text with words that mean something.
fn anything() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        Just("1".to_owned()),
        "[a-z ]{0,9}".prop_map(|text| format!("{text:?}")),
        Just("\"edit\"".to_owned()),
        Just("\"reject\"".to_owned()),
    ];
    let name = prop_oneof![
        Just("type"),
        Just("decision"),
        Just("args"),
        Just("approved"),
        Just("decisions"),
        Just("editedArgs"),
        Just("x"),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name.clone(), inner), 0..4).prop_map(|fields| {
                let fields: Vec<String> =
                    fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    /// Approval requires one of the few forms of yes.
    #[test]
    fn nothing_approves_by_default(payload in anything()) {
        let item = item(PendingKind::Approval);
        if let Ok(decided) = decide(&item, &AnswerBody::Text(payload.clone()), ALL_DECISIONS)
            && decided.decision == Decision::Accept
        {
            let words = ["true", "accept", "approve", "yes", "ok"];
            prop_assert!(words.iter().any(|word| payload.to_lowercase().contains(word)), "{}", payload);
            prop_assert!(decided.arguments.is_none());
        }
    }

    #[test]
    fn an_edit_always_has_an_object_of_arguments(payload in anything()) {
        if let Ok(decided) = decide(&item(PendingKind::Approval), &AnswerBody::Text(payload), ALL_DECISIONS) {
            let is_edit = decided.decision == Decision::Edit;
            prop_assert_eq!(is_edit, decided.arguments.is_some_and(|arguments| arguments.starts_with('{')));
        }
    }
}
