//! Interrupt payloads of documented forms, which agents pass through from the framework they are written in: the
//! question of a payload, and the answer its source expects (docs/human-in-the-loop.md#answering,
//! docs/human-in-the-loop.md#interrupt-payloads). Also the payload that the gateway generates if a protocol needs one
//! and the source has none.
//!
//! Not here: the senders of each form. A form is recognized by its fields alone.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::answer::{CheckedDecision, PLAIN_DECISIONS};
use crate::json::{Extra, Json, is_same_value};
use crate::pending::{Decision, Pending, PendingKind};

/// The form of an answer that the gateway makes (`resume_style`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// `{"approved":bool,"editedArgs"?,"text"?}`.
    Approved,
    /// `{"type":"accept|edit|response|ignore","args":…}`.
    Typed,
    /// Like `Typed`, as the only element of a list.
    TypedList,
    /// `{"decisions":[…]}`, one per action.
    Decisions,
    /// The text or payload itself.
    Plain,
}

/// One question in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Approval or input.
    pub kind: PendingKind,
    /// Tool name. Empty for input.
    pub name: String,
    /// Arguments as JSON text. Empty for input.
    pub arguments: String,
    /// Prompt for the user.
    pub message: Option<String>,
    /// Allowed decisions.
    pub decisions: Vec<Decision>,
    /// JSON Schema of the arguments.
    pub schema: Option<Json>,
}

/// Parses a payload: one question, or one per action, and the form of the expected answer.
#[must_use]
pub fn parse(payload: &Json) -> (Vec<Question>, Style) {
    action_requests(payload)
        .or_else(|| action_request(payload).map(|question| (vec![question], Style::Typed)))
        .or_else(|| {
            let [only]: [Json; 1] = payload.decode::<Vec<Json>>()?.try_into().ok()?;
            Some((vec![action_request(&only)?], Style::TypedList))
        })
        .unwrap_or_else(|| (vec![input(payload)], Style::Plain))
}

fn action_request(payload: &Json) -> Option<Question> {
    let fields = object(payload)?;
    let action = object(fields.get("action_request")?)?;

    let decisions = match fields.get("config").and_then(object) {
        None => PLAIN_DECISIONS.to_vec(),
        Some(config) => and_no(
            [
                ("allow_accept", Decision::Accept),
                ("allow_edit", Decision::Edit),
                ("allow_respond", Decision::Respond),
                ("allow_ignore", Decision::Cancel),
            ]
            .into_iter()
            .filter(|(name, _)| config.get(name).and_then(Json::decode) == Some(true))
            .map(|(_, decision)| decision),
        ),
    };

    Some(Question {
        kind: PendingKind::Approval,
        name: word(&action, "action").unwrap_or_default(),
        arguments: action.get("args").map_or_else(|| "{}".to_owned(), |args| args.text().to_owned()),
        message: word(&fields, "description"),
        decisions,
        schema: None,
    })
}

fn action_requests(payload: &Json) -> Option<(Vec<Question>, Style)> {
    let fields = object(payload)?;
    let actions: Vec<Extra> = fields.get("action_requests")?.decode()?;
    let reviews: Vec<Extra> = fields.get("review_configs").and_then(Json::decode).unwrap_or_default();
    let questions: Vec<Question> = actions
        .iter()
        .map(|action| {
            let name = word(action, "name").unwrap_or_default();
            let review = reviews.iter().find(|review| word(review, "action_name").is_some_and(|known| known == name));
            let words: Option<Vec<String>> = review.and_then(|review| review.get("allowed_decisions")?.decode());
            let decisions = words.map_or_else(
                || PLAIN_DECISIONS.to_vec(),
                |words| and_no(words.iter().filter_map(|word| crate::pending::decision_word(word))),
            );
            let arguments = action.get("args").or_else(|| action.get("arguments"));

            Question {
                kind: PendingKind::Approval,
                name,
                arguments: arguments.map_or_else(|| "{}".to_owned(), |args| args.text().to_owned()),
                message: word(action, "description"),
                decisions,
                schema: review.and_then(|review| review.get("args_schema")).filter(|schema| !schema.is_null()).cloned(),
            }
        })
        .collect();
    (!questions.is_empty()).then_some((questions, Style::Decisions))
}

/// The decisions in an agent's list, and a rejection: each form has a word for it. A list without an allowed decision
/// differs from a missing list.
fn and_no(decisions: impl IntoIterator<Item = Decision>) -> Vec<Decision> {
    let mut decisions: Vec<Decision> = decisions.into_iter().collect();
    if !decisions.contains(&Decision::Reject) {
        decisions.push(Decision::Reject);
    }
    decisions
}

/// True for a payload whose answers use one word for a rejection and for a decision that no person made.
pub(super) fn has_word_for_no(payload: &Json) -> bool {
    matches!(parse(payload).1, Style::Typed | Style::TypedList)
}

fn input(payload: &Json) -> Question {
    let message = payload.decode::<String>().or_else(|| {
        let fields = object(payload)?;
        ["message", "question", "prompt"].iter().find_map(|name| word(&fields, name))
    });
    Question {
        kind: PendingKind::Input,
        name: String::new(),
        arguments: String::new(),
        message,
        decisions: vec![Decision::Respond],
        schema: None,
    }
}

/// The pending items for an upstream's interrupt: one per action, all answered together. `id` is the source's; with
/// several actions, their index is appended.
#[must_use]
pub fn items(id: &str, reason: Option<&str>, payload: &Json) -> Vec<Pending> {
    let (questions, _) = parse(payload);
    let several = questions.len() > 1;

    questions
        .into_iter()
        .enumerate()
        .map(|(index, question)| {
            let is_input = question.kind == PendingKind::Input;
            Pending {
                id: if several { format!("{id}:{index}") } else { id.to_owned() },
                kind: question.kind,
                name: if is_input { reason.unwrap_or("input_required").to_owned() } else { question.name },
                arguments: if is_input { payload.text().to_owned() } else { question.arguments },
                server_label: None,
                reason: reason.map(str::to_owned),
                message: question.message,
                call_id: None,
                decisions: question.decisions,
                response_schema: None,
                expires_at: None,
                payload: Some(payload.clone()),
                extension: None,
                request: None,
            }
        })
        .collect()
}

/// The answer to an upstream that asked with one payload. `decided` are its items, in any order: a list has the order
/// of the actions in the payload. An action whose item is not among them is rejected.
#[must_use]
pub fn answer(style: Style, decided: &[(&Pending, &CheckedDecision)]) -> Json {
    if style == Style::Decisions {
        let decisions: Vec<ReviewDecision<'_>> = in_order_of_actions(decided)
            .into_iter()
            .map(|found| {
                found.map_or(ReviewDecision::Reject { message: None }, |(item, decided)| to_decision(item, decided))
            })
            .collect();
        return Json::from_serialize(&Decisions { decisions });
    }

    let Some((item, decided)) = decided.first() else { return Json::null() };

    match style {
        Style::Typed => Json::from_serialize(&to_typed(item, decided)),
        Style::TypedList => Json::from_serialize(&[to_typed(item, decided)]),
        Style::Plain if decided.decision == Decision::Respond => {
            decided.payload.clone().unwrap_or_else(|| Json::from_serialize(&decided.text))
        }
        Style::Plain | Style::Approved | Style::Decisions => Json::from_serialize(&ApprovedPayload {
            approved: approved_flag(item, decided.decision),
            edited: raw(decided.arguments.as_deref()),
            text: decided.text.as_deref(),
        }),
    }
}

/// One decision for each action of the payload that the items share. `None`: no item is about this action.
fn in_order_of_actions<'a>(
    decided: &[(&'a Pending, &'a CheckedDecision)],
) -> Vec<Option<(&'a Pending, &'a CheckedDecision)>> {
    let payload = decided.iter().find_map(|(item, _)| item.payload.as_ref());
    let actions = payload.and_then(action_requests).map(|(questions, _)| questions).unwrap_or_default();
    if actions.is_empty() {
        // The agent asked in another form, and the operator configured this one.
        return decided.iter().copied().map(Some).collect();
    }

    let mut ordered = vec![None; actions.len()];
    let is_about = |item: &Pending, action: &Question| {
        item.name == action.name && is_same_value(&item.arguments, &action.arguments)
    };
    for (item, decided) in decided.iter().copied() {
        let named = action_place(&item.id).filter(|place| actions.get(*place).is_some_and(|one| is_about(item, one)));
        let mut matching = (0..actions.len()).filter(|place| is_about(item, &actions[*place]));
        let place = named.or_else(|| matching.find(|place| ordered[*place].is_none()));
        if let Some(place) = place {
            ordered[place] = Some((item, decided));
        }
    }
    ordered
}

/// The place of an item's action in its payload, which its id ends with if the payload has several.
fn action_place(id: &str) -> Option<usize> {
    let (_, place) = id.rsplit_once(':')?;
    place.bytes().all(|byte| byte.is_ascii_digit()).then(|| place.parse().ok())?
}

/// Whether `approved` of this form is true. An edit has no flag unless the agent prescribes it in the schema of its
/// answer: an agent that reads only the flag would run the call that was not accepted.
fn approved_flag(item: &Pending, decision: Decision) -> Option<bool> {
    match decision {
        Decision::Accept => Some(true),
        Decision::Edit => prescribes_edits(item).then_some(true),
        Decision::Respond => Some(item.kind != PendingKind::Approval),
        Decision::Reject | Decision::Cancel => Some(false),
    }
}

/// True if the schema of the agent's answer has a place for new arguments.
#[must_use]
pub fn prescribes_edits(item: &Pending) -> bool {
    let schema = item.response_schema.as_ref().and_then(object).unwrap_or_default();
    let properties = schema.get("properties").and_then(object).unwrap_or_default();
    properties.get("editedArgs").is_some()
}

#[derive(Serialize)]
struct ApprovedPayload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<bool>,
    #[serde(rename = "editedArgs", skip_serializing_if = "Option::is_none")]
    edited: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

#[derive(Serialize)]
struct TypedAnswer<'a> {
    r#type: &'static str,
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Text(&'a str),
    Action { action: &'a str, args: &'a RawValue },
}

#[derive(Serialize)]
struct Decisions<'a> {
    decisions: Vec<ReviewDecision<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ReviewDecision<'a> {
    Approve,
    Edit {
        edited_action: EditedAction<'a>,
    },
    Reject {
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct EditedAction<'a> {
    name: &'a str,
    args: &'a RawValue,
}

fn to_typed<'a>(item: &'a Pending, decided: &'a CheckedDecision) -> TypedAnswer<'a> {
    let (word, args) = match decided.decision {
        Decision::Accept => ("accept", None),
        Decision::Edit => {
            let args = raw(decided.arguments.as_deref()).unwrap_or(RawValue::NULL);
            ("edit", Some(Args::Action { action: &item.name, args }))
        }
        Decision::Respond => ("response", decided.text.as_deref().map(Args::Text)),
        Decision::Reject | Decision::Cancel => ("ignore", None),
    };
    TypedAnswer { r#type: word, args }
}

fn to_decision<'a>(item: &'a Pending, decided: &'a CheckedDecision) -> ReviewDecision<'a> {
    match (decided.decision, raw(decided.arguments.as_deref())) {
        (Decision::Accept, _) => ReviewDecision::Approve,
        (Decision::Edit, Some(args)) => ReviewDecision::Edit { edited_action: EditedAction { name: &item.name, args } },
        (Decision::Cancel, _) => ReviewDecision::Reject { message: Some("cancelled") },
        _ => ReviewDecision::Reject { message: decided.text.as_deref() },
    }
}

fn raw(text: Option<&str>) -> Option<&RawValue> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

#[derive(Serialize)]
struct Action<'a> {
    action: &'a str,
    args: Json,
}

#[derive(Serialize)]
struct Config {
    allow_accept: bool,
    allow_edit: bool,
    allow_respond: bool,
    allow_ignore: bool,
}

#[derive(Serialize)]
struct Request<'a> {
    action_request: Action<'a>,
    config: Config,
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct InputRequest<'a> {
    message: Option<&'a str>,
    response_schema: Option<&'a Json>,
}

/// The payload to ask with: the source's own, verbatim, else a generated one (docs/human-in-the-loop.md#asking).
#[must_use]
pub fn to_json(item: &Pending, offered: &[Decision]) -> Json {
    if let Some(payload) = &item.payload {
        return payload.clone();
    }
    match item.kind {
        PendingKind::Approval | PendingKind::Tool => request(item, offered),
        PendingKind::Input | PendingKind::Auth => Json::from_serialize(&InputRequest {
            message: item.message.as_deref(),
            response_schema: item.response_schema.as_ref(),
        }),
    }
}

/// The item as an `action_request`, whatever the source's form.
#[must_use]
pub fn request(item: &Pending, offered: &[Decision]) -> Json {
    let has = |decision| offered.contains(&decision);
    Json::from_serialize(&Request {
        action_request: Action { action: &item.name, args: arguments(&item.arguments) },
        config: Config {
            allow_accept: has(Decision::Accept),
            allow_edit: has(Decision::Edit),
            allow_respond: has(Decision::Respond),
            allow_ignore: has(Decision::Reject) || has(Decision::Cancel),
        },
        description: item.message.as_deref(),
    })
}

/// Arguments as JSON. The model writes them, so they may be invalid; then they become a JSON string.
fn arguments(text: &str) -> Json {
    if text.trim().is_empty() {
        return Json::from_serialize(&Extra::new());
    }
    Json::parse(text).unwrap_or_else(|| Json::from_serialize(text))
}

fn object(json: &Json) -> Option<Extra> {
    if json.is_object() { json.decode() } else { None }
}

fn word(fields: &Extra, name: &str) -> Option<String> {
    fields.get(name)?.decode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).expect("JSON")
    }

    #[test]
    fn each_payload_of_the_table_is_parsed() {
        use Decision::{Accept, Cancel, Reject, Respond};
        let action = r#"{"action_request":{"action":"book","args":{"n":1}},"config":{"allow_accept":true,"allow_edit":false,"allow_ignore":true},"description":"Book?"}"#;
        let (questions, style) = parse(&json(action));
        assert_eq!(style, Style::Typed);
        let [question] = questions.try_into().expect("one question");
        assert_eq!((question.kind, question.decisions), (PendingKind::Approval, vec![Accept, Cancel, Reject]));
        assert_eq!((question.name.as_str(), question.arguments.as_str()), ("book", r#"{"n":1}"#));

        let (questions, style) = parse(&json(&format!("[{}]", r#"{"action_request":{"action":"b"},"config":null}"#)));
        assert_eq!((style, &questions[0].decisions), (Style::TypedList, &vec![Accept, Reject]));
        let nothing = r#"{"action_request":{"action":"b"},"config":{"allow_accept":false}}"#;
        assert_eq!(parse(&json(nothing)).0[0].decisions, [Reject]);

        let several = r#"{"action_requests":[{"name":"a","args":{}},{"name":"b","args":{"x":1},"description":"B?"}],
            "review_configs":[{"action_name":"b","allowed_decisions":["approve","reject"]}]}"#;
        let (questions, style) = parse(&json(several));
        assert_eq!((style, questions.len()), (Style::Decisions, 2));
        assert_eq!(questions[0].decisions, [Accept, Reject]);
        assert_eq!((&questions[1].decisions, questions[1].message.as_deref()), (&vec![Accept, Reject], Some("B?")));

        for (payload, message) in [
            (r#""Which city?""#, Some("Which city?")),
            (r#"{"question":"Which city?"}"#, Some("Which city?")),
            (r#"{"steps":[1]}"#, None),
            ("7", None),
            ("[1,2]", None),
            (r#"{"action_requests":[]}"#, None),
        ] {
            let (questions, style) = parse(&json(payload));
            let [question] = questions.try_into().expect("one question");
            assert_eq!((style, question.kind), (Style::Plain, PendingKind::Input), "{payload}");
            assert_eq!((question.message.as_deref(), question.decisions), (message, vec![Respond]), "{payload}");
        }
    }

    #[test]
    fn several_actions_become_several_items_with_one_payload() {
        let payload =
            json(r#"{"action_requests":[{"name":"a","args":{}},{"name":"b","args":{}}],"review_configs":[]}"#);
        let items = items("int-1", Some("review"), &payload);
        let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["int-1:0", "int-1:1"]);
        assert!(items.iter().all(|item| item.payload.as_ref() == Some(&payload)));
        let edit = CheckedDecision { arguments: Some(r#"{"x":2}"#.into()), ..CheckedDecision::new(Decision::Edit) };
        let no = CheckedDecision { text: Some("why".into()), ..CheckedDecision::new(Decision::Reject) };
        assert_eq!(
            answer(Style::Decisions, &[(&items[0], &edit), (&items[1], &no)]).text(),
            r#"{"decisions":[{"type":"edit","edited_action":{"name":"a","args":{"x":2}}},{"type":"reject","message":"why"}]}"#
        );
    }

    #[test]
    fn decisions_have_the_order_of_the_actions() {
        let payload = json(
            r#"{"action_requests":[{"name":"a","args":{"n":1}},{"name":"a","args":{"n":1}},{"name":"b","args":{}}]}"#,
        );
        let items = items("int:1", None, &payload);
        let (yes, no) = (CheckedDecision::new(Decision::Accept), CheckedDecision::new(Decision::Reject));
        let decided = [&yes, &no, &yes];
        let written = |order: &[usize]| {
            let pairs: Vec<_> = order.iter().map(|place| (&items[*place], decided[*place])).collect();
            answer(Style::Decisions, &pairs).text().to_owned()
        };
        let asked = r#"{"decisions":[{"type":"approve"},{"type":"reject"},{"type":"approve"}]}"#;
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(written(&order), asked, "{order:?}");
        }
        let rejected = r#"{"decisions":[{"type":"reject"},{"type":"reject"},{"type":"approve"}]}"#;
        assert_eq!(written(&[2]), rejected, "what no one decided does not run");
    }

    #[test]
    fn each_style_has_a_form_for_each_decision() {
        let item = &items("i", None, &json(r#"{"action_request":{"action":"send","args":{}},"config":null}"#))[0];
        let decisions = [
            CheckedDecision::new(Decision::Accept),
            CheckedDecision { arguments: Some("{}".into()), ..CheckedDecision::new(Decision::Edit) },
            CheckedDecision { text: Some("hi".into()), ..CheckedDecision::new(Decision::Respond) },
            CheckedDecision::new(Decision::Reject),
            CheckedDecision::new(Decision::Cancel),
        ];
        let mut table = String::new();
        for style in [Style::Approved, Style::Typed, Style::TypedList, Style::Decisions, Style::Plain] {
            for decided in &decisions {
                let message = answer(style, &[(item, decided)]);
                table.push_str(&format!("{style:?} {:?}: {}\n", decided.decision, message.text()));
                // Our own parser must understand the answer as the decision it came from.
                let given = crate::answer::AnswerBody::Payload(message);
                let parsed = crate::answer::decide(item, &given, super::super::ALL_DECISIONS);
                let parsed = parsed.map(|parsed| parsed.decision).ok();

                let mut denies = matches!(decided.decision, Decision::Reject | Decision::Cancel | Decision::Respond);
                // An edit that no schema prescribes is no yes.
                denies |= decided.decision == Decision::Edit && matches!(style, Style::Approved | Style::Plain);
                let parsed_as_denial = !matches!(parsed, Some(Decision::Accept | Decision::Edit));
                assert_eq!(denies, parsed_as_denial, "{style:?} {decided:?} {parsed:?}");
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn no_form_but_an_acceptance_holds_a_word_or_flag_that_means_yes() {
        let item = &items("i", None, &json(r#"{"action_request":{"action":"send","args":{"n":1}},"config":null}"#))[0];
        let with = |decision, text: Option<&str>| CheckedDecision {
            arguments: (decision == Decision::Edit).then(|| r#"{"n":2}"#.to_owned()),
            text: text.map(str::to_owned),
            ..CheckedDecision::new(decision)
        };
        for style in [Style::Approved, Style::Typed, Style::TypedList, Style::Decisions, Style::Plain] {
            for decided in [
                with(Decision::Edit, None),
                with(Decision::Reject, Some("no")),
                with(Decision::Reject, None),
                with(Decision::Cancel, None),
            ] {
                let written = answer(style, &[(item, &decided)]);
                let written = written.text();
                for yes in [r#""approved":true"#, r#""accept""#, r#""approve""#, "yes", r#""n":1"#] {
                    assert!(!written.contains(yes), "{style:?} {:?}: {written}", decided.decision);
                }
                let has_arguments = written.contains(r#""n":2"#);
                assert_eq!(has_arguments, decided.decision == Decision::Edit, "{style:?} {written}");
            }
        }
        // An agent that prescribes both fields gets both.
        let mut prescribed = item.clone();
        prescribed.response_schema = Some(json(r#"{"properties":{"approved":{},"editedArgs":{}}}"#));
        let edit = with(Decision::Edit, None);
        assert_eq!(
            answer(Style::Approved, &[(&prescribed, &edit)]).text(),
            r#"{"approved":true,"editedArgs":{"n":2}}"#
        );
    }

    #[test]
    fn the_source_s_own_payload_is_used_verbatim() {
        let own = json(r#"{ "z":1, "a" : [ 2.50 ] }"#);
        let mut item = items("i", None, &own).remove(0);
        assert_eq!(to_json(&item, &[]).text(), own.text());
        item.payload = None;
        item.kind = PendingKind::Approval;
        item.name = "send".into();
        item.arguments = "{broken".into();
        item.message = Some("Send?".into());
        assert_eq!(
            to_json(&item, &[Decision::Accept, Decision::Reject]).text(),
            r#"{"action_request":{"action":"send","args":"{broken"},"config":{"allow_accept":true,"allow_edit":false,"allow_respond":false,"allow_ignore":true},"description":"Send?"}"#
        );
    }
}
