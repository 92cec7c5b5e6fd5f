//! Calls and texts are the same however a server cuts, orders, repeats and labels their pieces.

mod support;

use interlingua_core::model::MessageType;
use interlingua_core::{End, Record};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use support::record;

#[derive(Clone, Debug, PartialEq)]
struct ModelCall {
    name: &'static str,
    arguments: Value,
}

/// The labels on the pieces of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Labels {
    /// Index and id.
    Both,
    /// The index, and the id in a later piece.
    LateId,
    /// The index alone.
    Index,
    /// The id alone.
    Id,
}

/// The place of the name among the pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    First,
    /// In every piece.
    Repeated,
    /// With the last arguments.
    Late,
    /// Behind all arguments, in a piece of its own.
    Last,
    /// In two pieces before the arguments.
    Cut,
}

/// The way of arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Deltas,
    /// Each piece has all arguments so far.
    Cumulative,
    /// Deltas, and the whole call at the end.
    WholeAtEnd,
    /// An empty object, then deltas.
    Placeholder,
}

fn wanted() -> impl Strategy<Value = ModelCall> {
    let value = prop_oneof![
        any::<u8>().prop_map(Value::from),
        "[a-zä\\\\\"{}:, \n👀]{0,8}".prop_map(Value::from),
        vec(any::<bool>(), 0..3).prop_map(Value::from),
        select(vec![json!({}), json!({ "in": { "deep": [1, { "x": "}" }] } }), Value::Null]),
    ];
    let fields = proptest::collection::btree_map(select(vec!["q", "path", "größe", "a b"]), value, 1..4);
    (select(vec!["look", "send_mail", "f"]), fields)
        .prop_map(|(name, fields)| ModelCall { name, arguments: json!(fields) })
}

fn labels() -> impl Strategy<Value = (Labels, Name, Form)> {
    (
        select(vec![Labels::Both, Labels::LateId, Labels::Index, Labels::Id]),
        select(vec![Name::First, Name::Repeated, Name::Late, Name::Last, Name::Cut]),
        select(vec![Form::Deltas, Form::Cumulative, Form::WholeAtEnd, Form::Placeholder]),
    )
}

/// The arguments of the pieces.
fn cut(text: &str, cuts: &[prop::sample::Index], form: Form) -> Vec<String> {
    let places: Vec<usize> = text.char_indices().map(|(at, _)| at).skip(1).chain([text.len()]).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| places[cut.index(places.len())]).collect();
    at.push(text.len());
    at.sort_unstable();
    at.dedup();

    let mut start = 0;
    let mut pieces = Vec::new();
    for end in at {
        let from = if form == Form::Cumulative { 0 } else { start };
        pieces.push(text[from..end].to_owned());
        start = end;
    }
    match form {
        Form::WholeAtEnd => pieces.push(text.to_owned()),
        Form::Placeholder => pieces.insert(0, "{}".to_owned()),
        Form::Deltas | Form::Cumulative => {}
    }
    pieces
}

/// The pieces of a call, in order.
fn pieces(
    place: usize,
    call: &ModelCall,
    (labels, name, form): (Labels, Name, Form),
    cuts: &[prop::sample::Index],
) -> Vec<Value> {
    let arguments = cut(&call.arguments.to_string(), cuts, form);
    let last = arguments.len() - 1;
    let mut pieces: Vec<Value> = arguments
        .iter()
        .enumerate()
        .map(|(number, arguments)| {
            let is_named = match name {
                Name::First => number == 0,
                Name::Repeated => true,
                Name::Late => number == last,
                Name::Last | Name::Cut => false,
            };
            let mut function = json!({ "arguments": arguments });
            if is_named {
                function["name"] = call.name.into();
            }
            json!({ "function": function })
        })
        .collect();
    match name {
        Name::Last => pieces.push(json!({ "function": { "name": call.name } })),
        Name::Cut => {
            let (start, end) = call.name.split_at(call.name.len() / 2);
            let halves = [start, end].into_iter().filter(|half| !half.is_empty()).rev();
            for half in halves {
                pieces.insert(0, json!({ "function": { "name": half } }));
            }
        }
        Name::First | Name::Repeated | Name::Late => {}
    }

    let count = pieces.len();
    for (number, piece) in pieces.iter_mut().enumerate() {
        if labels != Labels::Id {
            piece["index"] = place.into();
        }
        let has_id = match labels {
            Labels::Both | Labels::Id => true,
            Labels::LateId => number + 1 == count,
            Labels::Index => false,
        };
        if has_id {
            piece["id"] = format!("call_{place}").into();
        }
    }
    pieces
}

/// Merges the pieces of calls, each in its own order.
fn interleaved(mut calls: Vec<Vec<Value>>, choices: &[prop::sample::Index]) -> Vec<Value> {
    calls.iter_mut().for_each(|pieces| pieces.reverse());
    let mut merged = Vec::new();
    let mut choices = choices.iter().cycle();
    while calls.iter().any(|pieces| !pieces.is_empty()) {
        let open: Vec<usize> = (0..calls.len()).filter(|place| !calls[*place].is_empty()).collect();
        let chosen = choices.next().map_or(0, |choice| choice.index(open.len()));
        merged.extend(calls[open[chosen]].pop());
    }
    merged
}

fn read(pieces: &[Value]) -> Record {
    let mut lines: Vec<String> = pieces.iter().map(|piece| format!("\"tool_calls\":[{piece}]")).collect();
    lines.extend(["=> tool_calls".to_owned(), "[DONE]".to_owned()]);
    record("{}", &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn calls(record: &Record) -> Vec<ModelCall> {
    let messages = record.run().messages.iter().filter(|message| message.kind == MessageType::FunctionCall);
    let data = messages.flat_map(|message| message.slots.iter().map(|slot| slot.content()));
    data.map(|content| {
        let data: Value = content.as_data().and_then(interlingua_core::Json::decode).expect("a call");
        let name = ["look", "send_mail", "f"].into_iter().find(|name| data["name"] == **name);
        let arguments = data["arguments"].as_str().expect("a text");
        ModelCall {
            name: name.unwrap_or_else(|| panic!("{data}")),
            arguments: serde_json::from_str(arguments).unwrap_or_else(|_| panic!("{arguments}")),
        }
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_call_is_the_same_in_any_pieces(
        call in wanted(),
        labels in labels(),
        cuts in vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let pieces = pieces(0, &call, labels, &cuts);
        let record = read(&pieces);
        prop_assert_eq!(calls(&record), vec![call], "{:?}", pieces);
        prop_assert_eq!(record.run().end, Some(End::Completed));
    }

    #[test]
    fn calls_that_come_in_turns_stay_apart(
        all in vec((wanted(), labels(), vec(any::<prop::sample::Index>(), 0..4)), 2..4),
        choices in vec(any::<prop::sample::Index>(), 1..12),
    ) {
        // A server labels all calls alike. A name and an empty object are final once another call begins.
        let is_by_id = all[0].1.0 == Labels::Id;
        let each = all.iter().enumerate().map(|(place, (call, (labels, name, form), cuts))| {
            let labels = if is_by_id || *labels == Labels::Id { [Labels::Both, Labels::Id][usize::from(is_by_id)] } else { *labels };
            let name = if *name == Name::Cut { Name::Repeated } else { *name };
            let form = if *form == Form::Placeholder { Form::Deltas } else { *form };
            pieces(place, call, (labels, name, form), cuts)
        });
        let pieces = interleaved(each.collect(), &choices);
        let mut found = calls(&read(&pieces));
        let mut wanted: Vec<ModelCall> = all.into_iter().map(|(call, ..)| call).collect();
        let order = |call: &ModelCall| (call.name, call.arguments.to_string());
        found.sort_by_key(order);
        wanted.sort_by_key(order);
        prop_assert_eq!(found, wanted, "{:?}", pieces);
    }

    #[test]
    fn a_text_is_the_same_with_a_snapshot_anywhere_behind_it(
        text in "[a-zä👀 \n]{1,30}",
        cuts in vec(any::<prop::sample::Index>(), 0..5),
        is_message in any::<bool>(),
        is_beside in any::<bool>(),
    ) {
        let mut lines: Vec<String> = cut(&text, &cuts, Form::Deltas)
            .iter()
            .map(|piece| format!("\"content\":{}", json!(piece)))
            .collect();
        let mut choice = if is_message { json!({ "message": { "content": text } }) } else { json!({ "text": text }) };
        if is_beside {
            choice["delta"] = json!({});
        }
        choice["index"] = 0.into();
        choice["finish_reason"] = "stop".into();
        lines.push(json!({ "id": "c1", "choices": [choice] }).to_string());
        lines.push("[DONE]".to_owned());
        let record = record("{}", &lines.iter().map(String::as_str).collect::<Vec<_>>());
        let found: String = record.run().messages.iter().map(|message| message.text()).collect();
        prop_assert_eq!(found, text);
    }
}
