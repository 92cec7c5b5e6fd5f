//! Each row of the tables of forms and of their answers.

use interlingua_core::answer::AnswerBody;
use interlingua_core::pending::{Decision, Pending};
use interlingua_core::{Answer, Json};
use serde_json::{Value, json};

use super::round::AnswerRound;
use super::*;

mod any_schema;

const FORM: Modes = Modes { form: true, url: false };
const URL: Modes = Modes { form: false, url: true };
const BOTH: Modes = Modes { form: true, url: true };
const MODERN: Revision = Revision::July2026;

fn item(data: Value) -> Pending {
    Pending::parse(&Json::from_serialize(&data)).expect("an item")
}

/// An approval whose engine-made list has these decisions.
fn approval(decisions: Value) -> Pending {
    item(json!({"id": "appr_01", "name": "send_mail", "arguments": "{\"to\":\"a@example.com\"}",
        "interrupt": {"kind": "approval", "message": "Send this mail?", "decisions": decisions}}))
}

fn input(schema: Option<Value>) -> Pending {
    let mut data =
        json!({"id": "q", "name": "ask", "arguments": "{}", "interrupt": {"kind": "input", "message": "Size?"}});
    if let Some(schema) = schema {
        data["interrupt"]["response_schema"] = schema;
    }
    item(data)
}

fn login(url: Option<&str>) -> Pending {
    let mut data = json!({"id": "login", "name": "auth", "interrupt": {"kind": "auth", "message": "Log in."}});
    if let Some(url) = url {
        data["interrupt"]["payload"] = json!({ "url": url });
    }
    item(data)
}

fn tool() -> Pending {
    Pending::tool(interlingua_core::model::ToolCall {
        call_id: "call_1".to_owned(),
        name: "read_file".to_owned(),
        arguments: "{\"path\":\"a\"}".to_owned(),
        ..Default::default()
    })
}

fn only(item: &Pending, revision: Revision, modes: Modes) -> Value {
    let mut requests = requests(item, revision, modes, None);
    assert_eq!(requests.len(), 1);
    requests.remove(0).1
}

fn schema_of(item: &Pending) -> Value {
    only(item, MODERN, FORM)["requestedSchema"].clone()
}

fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// The decision, the arguments and the text of an answer.
fn decision(item: &Pending, result: &Value) -> Result<(Decision, Option<String>, Option<String>), String> {
    match read(item, MODERN, FORM, false, result) {
        Reading::Answer(Answer {
            id,
            given: AnswerBody::Decided { decision, arguments, text, payload },
            said: None,
        }) => {
            assert_eq!(id, item.id);
            Ok((decision, arguments, text.or_else(|| payload.map(|payload| payload.text().to_owned()))))
        }
        Reading::Undecided(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn decided(item: &Pending, result: &Value) -> Option<Decision> {
    decision(item, result).ok().map(|(decision, ..)| decision)
}

#[test]
fn an_approval_offers_its_decisions_and_no_default() {
    let form = only(&approval(json!(["accept", "reject"])), MODERN, FORM);
    assert_eq!(
        form,
        json!({"mode": "form", "message": "Send this mail?\nsend_mail: {\"to\":\"a@example.com\"}",
            "requestedSchema": {"type": "object", "required": ["decision"], "properties": {
                "decision": {"type": "string", "title": "Decision", "enum": ["accept", "reject"]},
                "text": {"type": "string", "title": "Text"}}}})
    );
    let edits = schema_of(&approval(json!(["accept", "edit", "respond"])));
    assert_eq!(edits["properties"]["decision"]["enum"], json!(["accept", "edit", "respond", "reject"]));
    assert_eq!(edits["properties"]["arguments"]["type"], "string");
    assert!(!edits.to_string().contains("default"));
    let bare = item(json!({"id": "a", "name": "drop"}));
    assert_eq!(schema_of(&bare)["properties"]["decision"]["enum"], json!(["accept", "reject"]));
}

#[test]
fn the_revisions_differ_in_the_mode() {
    let item = approval(json!(["accept", "reject"]));
    assert_eq!(only(&item, Revision::November2025, FORM)["mode"], "form");
    assert_eq!(only(&item, Revision::June2025, FORM).get("mode"), None);
    assert_eq!(requests(&item, Revision::March2025, BOTH, None), []);
    assert_eq!(requests(&item, MODERN, Modes::default(), None), []);
    assert_eq!(requests(&item, MODERN, URL, None), [], "an approval is no page");
}

#[test]
fn each_kind_of_question_has_its_form() {
    let flat = json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "string", "enum": ["s", "m"], "title": "Size", "default": "m"},
        "count": {"type": "integer", "minimum": 1, "default": 2}, "gift": {"type": "boolean", "default": false},
        "mail": {"type": "string", "format": "email", "minLength": 3, "pattern": "@"},
        "tags": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]}}});
    assert_eq!(schema_of(&input(Some(flat.clone()))), flat, "verbatim");

    let number = json!({"type": "number", "maximum": 5, "description": "How many"});
    let answer =
        |property: Value| json!({"type": "object", "properties": {"answer": property}, "required": ["answer"]});
    assert_eq!(schema_of(&input(Some(number.clone()))), answer(number));
    let colours = schema_of(&input(Some(json!({"enum": ["red", "blue"]}))));
    assert_eq!(colours, answer(json!({"type": "string", "enum": ["red", "blue"]})));

    let nested = json!({"type": "array", "items": {"type": "object"}});
    let other = schema_of(&input(Some(nested.clone())));
    assert_eq!(other["properties"]["answer"]["type"], "string");
    let description = other["properties"]["answer"]["description"].as_str().expect("a text");
    assert!(description.ends_with(&nested.to_string()), "{description}");

    assert_eq!(schema_of(&input(None)), answer(json!({"type": "string", "title": "Answer"})));
    let done = json!({"type": "string", "title": "Done", "enum": ["yes", "no"]});
    assert_eq!(schema_of(&login(None))["properties"]["done"], done);
    assert_eq!(schema_of(&tool())["properties"]["output"]["type"], "string");
    assert_eq!(only(&tool(), MODERN, FORM)["message"], "read_file: {\"path\":\"a\"}");
}

#[test]
fn titled_choices_have_the_form_of_each_revision() {
    let titled = json!({"type": "object", "properties": {
        "one": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b"}]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}]}}}});
    let new = schema_of(&input(Some(titled.clone())));
    assert_eq!(
        new["properties"]["one"]["oneOf"],
        json!([{"const": "r", "title": "Red"}, {"const": "b", "title": "b"}])
    );
    assert_eq!(new["properties"]["many"]["items"], json!({"anyOf": [{"const": "r", "title": "Red"}]}));

    let one = json!({"type": "object", "properties": {"one": titled["properties"]["one"]}});
    let old = only(&input(Some(one)), Revision::June2025, FORM)["requestedSchema"]["properties"]["one"].clone();
    assert_eq!(old, json!({"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "b"]}));
    let lists = only(&input(Some(titled)), Revision::June2025, FORM)["requestedSchema"].clone();
    assert_eq!(lists["properties"]["answer"]["type"], "string", "lists have no form in that revision");
}

#[test]
fn a_login_with_a_page_is_opened_first() {
    let item = login(Some("https://id.example.com/go"));
    let asked = requests(&item, MODERN, BOTH, None);
    let keys: Vec<&str> = asked.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["login.open", "login"]);
    assert_eq!(asked[0].1, json!({"mode": "url", "message": "Log in.", "url": "https://id.example.com/go"}));
    assert_eq!(asked[1].1["message"], "Log in.");
    let legacy = requests(&item, Revision::November2025, BOTH, None);
    assert_eq!(legacy[0].1["elicitationId"], "login");
    assert_eq!(requests(&item, Revision::June2025, BOTH, None).len(), 1, "that revision opens no pages");

    let form = only(&item, MODERN, FORM);
    assert_eq!(form["message"], "Log in.\nhttps://id.example.com/go", "it cannot open the page itself");
    assert_eq!(only(&item, MODERN, URL)["mode"], "url");
    for url in ["javascript:alert(1)", "https://user@evil.example.com", "file:///etc/passwd", "x"] {
        assert_eq!(only(&login(Some(url)), MODERN, BOTH)["mode"], "form", "{url}");
    }
}

#[test]
fn an_approval_is_decided_by_its_word_only() {
    let item = approval(json!(["accept", "edit", "respond", "reject"]));
    let send = |content: Value| decision(&item, &accept(content));
    assert_eq!(send(json!({"decision": "accept"})), Ok((Decision::Accept, None, None)));
    let noted = send(json!({"decision": "reject", "text": "too late"}));
    assert_eq!(noted, Ok((Decision::Reject, None, Some("too late".to_owned()))));
    let edited = send(json!({"decision": "edit", "arguments": "{\"to\":\"b\"}"}));
    assert_eq!(edited, Ok((Decision::Edit, Some("{\"to\":\"b\"}".to_owned()), None)));
    let answered = send(json!({"decision": "respond", "text": "no mail today"}));
    assert_eq!(answered, Ok((Decision::Respond, None, Some("no mail today".to_owned()))));

    for undecided in [
        json!({}),
        json!({"decision": ""}),
        json!({"decision": null}),
        json!({"decision": "cancel"}),
        json!({"decision": "Accept"}),
        json!({"decision": "yes"}),
        json!({"decision": true}),
        json!({"decision": ["accept"]}),
        json!({"text": "accept"}),
        json!({"approve": true}),
        json!({"done": "yes"}),
        json!({"decision": "edit"}),
        json!({"decision": "edit", "arguments": ""}),
        json!({"decision": "edit", "arguments": "[1]"}),
        json!({"decision": "edit", "arguments": "to: b"}),
        json!({"decision": "respond"}),
        json!({"decision": "respond", "text": "  "}),
    ] {
        assert!(send(undecided.clone()).is_err(), "{undecided}");
    }
    assert!(decision(&item, &json!({"action": "accept"})).is_err(), "an acceptance without content");
    assert!(decision(&item, &json!({"action": "accept", "content": null})).is_err());
    for action in [json!("yes"), json!(null), json!("ACCEPT")] {
        let result = json!({"action": action, "content": {"decision": "accept"}});
        assert!(decision(&item, &result).is_err(), "{action}");
    }
}

#[test]
fn an_acceptance_of_other_arguments_is_an_edit_only_if_that_is_offered() {
    let other = accept(json!({"decision": "accept", "arguments": "{\"to\":\"b\"}"}));
    let same = accept(json!({"decision": "accept", "arguments": "{ \"to\" : \"a@example.com\" }"}));
    let checked = |decisions: Value, result: &Value| {
        let item = approval(decisions);
        let Reading::Answer(answer) = read(&item, MODERN, FORM, false, result) else { return None };
        let checked = interlingua_core::answer::decide(&item, &answer.given, &offered(&item)).expect("it was checked");
        Some((checked.decision, checked.arguments))
    };
    let edits = || json!(["accept", "edit"]);
    assert_eq!(checked(edits(), &other), Some((Decision::Edit, Some("{\"to\":\"b\"}".to_owned()))));
    assert_eq!(checked(edits(), &same), Some((Decision::Accept, None)));
    assert_eq!(checked(json!(["accept"]), &other), None);
    assert_eq!(checked(json!(["accept"]), &same), Some((Decision::Accept, None)));
    let refused = decision(&approval(json!(["accept"])), &other);
    assert!(refused.expect_err("no edits").contains("other arguments"));
}

#[test]
fn questions_get_the_value_in_the_form() {
    let flat = input(Some(json!({"type": "object", "required": ["size"], "properties": {"size": {"type": "string"}}})));
    let sent = decision(&flat, &accept(json!({"size": "m"}))).expect("an answer");
    assert_eq!(sent, (Decision::Respond, None, Some("{\"size\":\"m\"}".to_owned())));
    let reason = decision(&flat, &accept(json!({"size": 3}))).expect_err("a mismatch");
    assert!(reason.contains("size must be of type string"), "{reason}");
    assert!(decision(&flat, &accept(json!({}))).is_err());

    let number = input(Some(json!({"type": "integer"})));
    assert_eq!(decision(&number, &accept(json!({"answer": 5}))), Ok((Decision::Respond, None, Some("5".to_owned()))));
    for wrong in [json!({}), json!({"answer": null}), json!({"answer": "five"}), json!({"number": 5})] {
        assert!(decision(&number, &accept(wrong.clone())).is_err(), "{wrong}");
    }

    let nested = input(Some(json!({"type": "array", "items": {"type": "object"}})));
    assert_eq!(decided(&nested, &accept(json!({"answer": "[{\"a\":1}]"}))), Some(Decision::Respond));
    assert_eq!(decided(&nested, &accept(json!({"answer": "words"}))), None);

    let free = input(None);
    let said = decision(&free, &accept(json!({"answer": "yes"})));
    assert_eq!(said, Ok((Decision::Respond, None, Some("yes".to_owned()))));
    assert_eq!(decided(&free, &accept(json!({"answer": " "}))), None);
    assert_eq!(decided(&free, &json!({"action": "accept"})), None);
}

#[test]
fn a_question_that_takes_no_answer_offers_its_decisions() {
    let item =
        item(json!({"id": "q", "name": "go", "interrupt": {"kind": "input", "decisions": ["accept", "reject"]}}));
    let words = json!({"type": "string", "title": "Decision", "enum": ["accept", "reject"]});
    assert_eq!(schema_of(&item)["properties"], json!({ "decision": words }));
    assert_eq!(decided(&item, &accept(json!({"decision": "accept"}))), Some(Decision::Accept));
    assert_eq!(decided(&item, &accept(json!({"answer": "accept"}))), None);
}

#[test]
fn outputs_of_tools_may_be_empty_but_not_missing() {
    let item = tool();
    let output = |text: &str| Ok((Decision::Respond, None, Some(text.to_owned())));
    assert_eq!(decision(&item, &accept(json!({"output": "done"}))), output("done"));
    assert_eq!(decision(&item, &accept(json!({"output": ""}))), output(""));
    assert!(decision(&item, &accept(json!({}))).is_err());
    let declined = decision(&item, &json!({"action": "decline"}));
    assert_eq!(declined, Ok((Decision::Reject, None, Some("declined by the user".to_owned()))));
}

#[test]
fn logins_are_confirmed_by_their_form_only() {
    let item = login(Some("https://id.example.com"));
    assert_eq!(decided(&item, &accept(json!({"done": "yes"}))), Some(Decision::Accept));
    assert_eq!(decided(&item, &accept(json!({"done": "no"}))), Some(Decision::Reject));
    for undecided in [json!({}), json!({"done": true}), json!({"done": "maybe"})] {
        assert_eq!(decided(&item, &accept(undecided.clone())), None, "{undecided}");
    }
    let opened = json!({"action": "accept"});
    assert_eq!(read(&item, MODERN, BOTH, true, &opened), Reading::Opened, "a page that was opened decides nothing");
    let Reading::Answer(answer) = read(&item, MODERN, URL, true, &opened) else { panic!("a client without forms") };
    assert!(matches!(answer.given, AnswerBody::Decided { decision: Decision::Accept, .. }));
    let declined = read(&item, MODERN, BOTH, true, &json!({"action": "decline"}));
    assert!(matches!(
        declined,
        Reading::Answer(Answer { given: AnswerBody::Decided { decision: Decision::Reject, .. }, .. })
    ));
}

#[test]
fn declining_rejects_and_closing_leaves_open() {
    let closed = json!({"action": "cancel", "content": {"decision": "accept", "done": "yes", "answer": "x"}});
    for item in [approval(json!(["accept"])), input(None), input(Some(json!({"type": "string"}))), login(None), tool()]
    {
        assert_eq!(
            decided(&item, &json!({"action": "decline", "content": {"decision": "accept"}})),
            Some(Decision::Reject)
        );
        assert_eq!(read(&item, MODERN, FORM, false, &closed), Reading::StaysOpen, "{}", item.name);
    }
}

#[test]
fn keys_are_legal_short_and_different() {
    let named = |id: &str| Pending { id: id.to_owned(), ..approval(json!(["accept"])) };
    assert_eq!(key(&named("user_name.1-a")), "user_name.1-a");
    let ids = ["a b", "a/b", "a_b", &"x".repeat(200), &"x".repeat(201), "ä"];
    let keys: Vec<String> = ids.iter().map(|id| key(&named(id))).collect();
    for (index, key) in keys.iter().enumerate() {
        assert!(key.len() <= 120 && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.-".contains(letter)));
        assert!(!keys[..index].contains(key), "{key}");
    }
    assert!(keys[0].starts_with("a_b-"));
    let long = Pending { id: "x".repeat(200), ..login(Some("https://id.example.com")) };
    assert!(open_key(&long).len() <= 120 && open_key(&long).ends_with(".open"));
}

#[test]
fn a_round_asks_for_all_items_and_takes_what_decides() {
    let items = [approval(json!(["accept"])), login(Some("https://id.example.com")), input(None)];
    let none = std::collections::BTreeMap::new();
    let asked = request_all(&items, MODERN, BOTH, &none, &|_| String::new());
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["appr_01", "login", "login.open", "q"]);
    assert_eq!(asked["q"]["method"], "elicitation/create");

    let read = |responses: Value| read_all(&items, MODERN, BOTH, &responses, &|_| String::new());
    let round =
        read(json!({"appr_01": {"action": "accept"}, "login": {"action": "accept", "content": {"done": "yes"}},
        "login.open": {"action": "accept"}, "q": {"action": "cancel"}, "other": {"action": "accept"}}))
        .expect("objects");
    assert_eq!(round.answers.iter().map(|answer| answer.id.as_str()).collect::<Vec<_>>(), ["login"]);
    assert_eq!(round.undecided.keys().collect::<Vec<_>>(), ["appr_01"]);
    assert_eq!(round.closed, ["q"]);
    assert_eq!(read(json!({})).expect("an object"), AnswerRound::default());
    assert_eq!(read(json!({"login.open": {"action": "accept"}})).expect("an object"), AnswerRound::default());
    let refused =
        read(json!({"login.open": {"action": "decline"}, "login": {"action": "accept", "content": {"done": "yes"}}}));
    let answers = refused.expect("objects").answers;
    assert!(matches!(answers[0].given, AnswerBody::Decided { decision: Decision::Reject, .. }), "once, and refused");
    for wrong in [json!(null), json!([]), json!("x"), json!({"q": null}), json!({"other": "accept"})] {
        assert_eq!(read(wrong.clone()).map_err(|error| (error.status, error.code)), Err((200, -32602)), "{wrong}");
    }

    let suffixed =
        request_all(&items, MODERN, FORM, &none, &|item| if item.id == "q" { "#2".to_owned() } else { String::new() });
    assert_eq!(suffixed.keys().collect::<Vec<_>>(), ["appr_01", "login", "q#2"]);
    let reasons = std::collections::BTreeMap::from([("q".to_owned(), "Not that.".to_owned())]);
    let again = request_all(&items, MODERN, FORM, &reasons, &|_| String::new());
    assert_eq!(again["q"]["params"]["message"], "Not that.\nSize?");
}
