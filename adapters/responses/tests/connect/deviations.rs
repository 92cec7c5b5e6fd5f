//! Deviations of servers from the description, and their repair (docs/protocols/responses.md#deviations).

use interlingua_core_testkit::Answer;

use crate::support::{driven, read, stream, summary, turn, whole_stream};

/// The messages in a summary: the end, the state and the losses are the same for all.
fn messages(summary: &str) -> String {
    summary.lines().take_while(|line| *line != "completed").collect::<Vec<_>>().join("\n")
}

/// A text, and two calls at once, as the description says.
const PLAIN: &[&str] = &[
    r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
    r#"content_part.added {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"I look "}"#,
    r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"it up."}"#,
    r#"output_text.done {"item_id":"msg_1","output_index":0,"content_index":0,"text":"I look it up."}"#,
    r#"content_part.done {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"I look it up."}}"#,
    r#"output_item.done {"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"I look it up.","annotations":[]}]}}"#,
    r#"output_item.added {"output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":""}}"#,
    r#"output_item.added {"output_index":2,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"weather","arguments":""}}"#,
    r#"function_call_arguments.delta {"item_id":"fc_1","output_index":1,"delta":"{\"city\":\"Paris\"}"}"#,
    r#"function_call_arguments.delta {"item_id":"fc_2","output_index":2,"delta":"{\"city\":\"Rome\"}"}"#,
    r#"output_item.done {"output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Paris\"}"}}"#,
    r#"output_item.done {"output_index":2,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"weather","arguments":"{\"city\":\"Rome\"}"}}"#,
];

fn changed(change: impl Fn(&str) -> Option<String>) -> String {
    let events: Vec<String> = PLAIN.iter().filter_map(|event| change(event)).collect();
    messages(&read("{}", &events.iter().map(String::as_str).collect::<Vec<_>>()))
}

#[test]
fn labels_that_are_missing_or_wrong_change_nothing() {
    let plain = messages(&read("{}", PLAIN));
    assert!(plain.contains("\"I look it up.\"") && plain.contains("Rome"), "{plain}");

    let without = |event: &str, field: &str| {
        let end = event.find(field).map(|at| at + event[at..].find(',').expect("a field behind it") + 1);
        end.map_or(event.to_owned(), |end| format!("{}{}", &event[..event.find(field).expect("it")], &event[end..]))
    };
    let kind = |event: &str| event.split(' ').next().unwrap_or_default().to_owned();

    for (name, found) in [
        ("no parts", changed(|event| (!event.starts_with("content_part")).then(|| event.to_owned()))),
        ("no places", changed(|event| Some(without(event, "\"output_index\":")))),
        ("no ids of items in pieces", changed(|event| Some(without(event, "\"item_id\":")))),
        ("other ids in pieces", changed(|event| Some(event.replace("\"item_id\":\"", "\"item_id\":\"other_")))),
        (
            "one place for all",
            changed(|event| {
                Some(
                    event
                        .replace("\"output_index\":1", "\"output_index\":0")
                        .replace("\"output_index\":2", "\"output_index\":0"),
                )
            }),
        ),
        (
            "places as texts",
            changed(|event| {
                let quoted = event.replace("\"output_index\":1", "\"output_index\":\"1\"");
                Some(quoted.replace("\"output_index\":2", "\"output_index\":\"2\""))
            }),
        ),
        (
            "no ends of parts",
            changed(|event| {
                (!matches!(kind(event).as_str(), "output_text.done" | "content_part.done")).then(|| event.to_owned())
            }),
        ),
        ("items that only end", changed(|event| (kind(event) == "output_item.done").then(|| event.to_owned()))),
        ("no pieces", changed(|event| (!kind(event).ends_with(".delta")).then(|| event.to_owned()))),
        (
            "pieces of texts without their beginning",
            changed(|event| (!event.contains("output_item.added {\"output_index\":0")).then(|| event.to_owned())),
        ),
    ] {
        assert_eq!(found, plain, "{name}");
    }
}

#[test]
fn framing_changes_nothing() {
    let plain = whole_stream(PLAIN);
    let whole = |bytes: &str| {
        let mut turn = turn("{}");
        let record = driven(&mut *turn, [Answer::stream(bytes)]).record;
        summary(&record, &*turn)
    };
    let expected = whole(&plain);
    let without_names: String =
        plain.lines().filter(|line| !line.starts_with("event:")).map(|line| format!("{line}\n")).collect();
    for bytes in [
        plain.replace('\n', "\r\n"),
        plain.replace("data: ", "data:"),
        format!("\u{feff}{plain}"),
        format!(": ping\n\n{plain}data: [DONE]\n\n"),
        without_names,
        plain.trim_end().to_owned(),
        plain.replace("event: response.output_text.delta\n", "event: message\nid: 7\n"),
    ] {
        assert_eq!(whole(&bytes), expected);
    }

    let mut under_json = turn("{}");
    let record = driven(&mut *under_json, [Answer::body(&plain)]).record;
    assert_eq!(summary(&record, &*under_json), expected, "under the content type of JSON");

    let bytes = plain.as_bytes();
    for at in (0..bytes.len()).step_by(7) {
        let mut turn = turn("{}");
        let pieces = vec![bytes[..at].to_vec(), bytes[at..].to_vec()];
        let record = driven(&mut *turn, [Answer::Stream(pieces)]).record;
        assert_eq!(summary(&record, &*turn), expected, "cut at {at}");
    }
}

#[test]
fn servers_that_deviate_are_read() {
    let mut table = String::new();
    let mut case = |name: &str, events: &[&str]| {
        table.push_str(&format!("# {name}\n{}\n", read("{}", events)));
    };
    case(
        "thoughts as vLLM sends them",
        &[
            r#"output_item.added {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"status":"in_progress"}}"#,
            r#"reasoning_part.added {"item_id":"rs_1","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":""}}"#,
            r#"reasoning_text.delta {"item_id":"rs_1","output_index":0,"content_index":0,"delta":"Hm "}"#,
            r#"reasoning_text.delta {"item_id":"rs_1","output_index":0,"content_index":0,"delta":"yes"}"#,
            r#"reasoning_text.done {"item_id":"rs_1","output_index":0,"content_index":0,"text":"Hm yes"}"#,
            r#"reasoning_part.done {"item_id":"rs_1","output_index":0,"content_index":0,"part":{"type":"reasoning_text","text":"Hm yes"}}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm yes"}],"status":"completed"}}"#,
        ],
    );
    case(
        "thoughts as Open Responses names them",
        &[
            r#"reasoning.delta {"item_id":"rs_1","output_index":0,"content_index":0,"delta":"Hm"}"#,
            r#"reasoning.done {"item_id":"rs_1","output_index":0,"content_index":0,"text":"Hm"}"#,
        ],
    );
    case(
        "thoughts that repeat their summary",
        &[
            r#"reasoning_summary_text.delta {"item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Hm"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"text":"Hm"}],"content":[{"text":"Hm"}]}}"#,
        ],
    );
    case(
        "a call without pieces of arguments, as Groq sends it",
        &[
            r#"output_item.added {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{\"a\":1}"}}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{\"a\":1}"}}"#,
        ],
    );
    case(
        "pieces of a call that nothing announced",
        &[
            r#"function_call_arguments.delta {"item_id":"fc_1","output_index":0,"delta":"{}"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}}"#,
        ],
    );
    case(
        "a call without a call_id",
        &[
            r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","name":"f","arguments":"{}"}}"#,
        ],
    );
    case(
        "items without ids",
        &[
            r#"output_item.added {"output_index":0,"item":{"type":"message","role":"assistant"}}"#,
            r#"output_text.delta {"output_index":0,"delta":"one"}"#,
            r#"output_item.done {"output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"one"}]}}"#,
            r#"output_item.done {"output_index":1,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"two"}]}}"#,
        ],
    );
    case(
        "one id for two items",
        &[
            r#"output_item.added {"output_index":0,"item":{"id":"x","type":"message","role":"assistant"}}"#,
            r#"output_text.delta {"item_id":"x","output_index":0,"delta":"one"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"x","type":"message","role":"assistant","content":[{"type":"output_text","text":"one"}]}}"#,
            r#"output_item.added {"output_index":1,"item":{"id":"x","type":"message","role":"assistant"}}"#,
            r#"output_text.delta {"item_id":"x","output_index":1,"delta":"two"}"#,
            r#"output_item.done {"output_index":1,"item":{"id":"x","type":"message","role":"assistant","content":[{"type":"output_text","text":"two"}]}}"#,
        ],
    );
    case(
        "one label for all",
        &[
            r#"output_item.added {"output_index":0,"item":{"id":"x","type":"reasoning","summary":[]}}"#,
            r#"reasoning_text.delta {"item_id":"x","output_index":0,"content_index":0,"delta":"Hm"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"x","type":"reasoning","summary":[],"content":[{"text":"Hm"}]}}"#,
            r#"output_item.added {"output_index":0,"item":{"id":"x","type":"message","role":"assistant"}}"#,
            r#"output_text.delta {"item_id":"x","output_index":0,"delta":"one"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"x","type":"message","role":"assistant","content":[{"type":"output_text","text":"one"}]}}"#,
            r#"output_item.added {"output_index":0,"item":{"id":"x","type":"message","role":"assistant"}}"#,
            r#"output_text.delta {"item_id":"x","output_index":0,"delta":"two"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"x","type":"message","role":"assistant","content":[{"type":"output_text","text":"two"}]}}"#,
        ],
    );
    case(
        "a text that its end corrects",
        &[
            r#"output_text.delta {"output_index":0,"delta":"helo"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":"hello"}]}}"#,
        ],
    );
    case(
        "items that say nothing",
        &[
            r#"output_item.added {"output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[]}}"#,
            r#"output_text.delta {"output_index":0,"content_index":0,"delta":""}"#,
            r#"output_text.done {"output_index":0,"content_index":0,"text":""}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":""}]}}"#,
            r#"output_item.done {"output_index":1,"item":{"id":"rs","type":"reasoning","summary":[]}}"#,
        ],
    );
    case(
        "an end without the words that came",
        &[
            r#"output_text.delta {"item_id":"m","output_index":0,"content_index":0,"delta":"hi"}"#,
            r#"output_item.done {"output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[]}}"#,
        ],
    );
    case(
        "events of no description",
        &[
            "data: {\"type\":\"ping\"}\n\n",
            "keepalive",
            r#"output_text.delta {"output_index":0,"delta":"hi"}"#,
            r#"output_text.sparkle {"output_index":0,"delta":"hi"}"#,
            "data: {\"object\":\"usage\"}\n\n",
        ],
    );
    insta::assert_snapshot!(table);
}

#[test]
fn items_that_only_the_end_has_are_shown() {
    let output = r#"[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hm"}]},
        {"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]},
        {"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":"{}"}]"#
        .replace('\n', "");
    let body = format!(
        r#"{{"id":"resp_1","object":"response","status":"completed","output":{output},"usage":{{"input_tokens":1}}}}"#
    );
    let end = format!(r#"completed {{"response":{body}}}"#);
    let begin = r#"created {"response":{"id":"resp_1","status":"in_progress"}}"#;
    let streamed = |events: &[&str]| {
        let mut turn = turn("{}");
        let record = driven(&mut *turn, [Answer::stream(&stream(events))]).record;
        summary(&record, &*turn)
    };
    let whole = streamed(&[begin, &end]);
    insta::assert_snapshot!(whole);

    let mut one_object = turn("{}");
    let record = driven(&mut *one_object, [Answer::body(&body)]).record;
    assert_eq!(summary(&record, &*one_object), whole, "one object");

    // What came before under other ids is not shown twice.
    let before = [
        begin,
        r#"reasoning_summary_text.delta {"item_id":"a","output_index":0,"summary_index":0,"delta":"Hm"}"#,
        r#"output_text.delta {"item_id":"b","output_index":1,"delta":"Hi"}"#,
        &end,
    ];
    let texts =
        |summary: &str| summary.lines().filter(|line| line.starts_with("  ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(texts(&streamed(&before)), texts(&whole));
}

#[test]
fn neighbouring_protocols_are_named() {
    for (answer, protocol) in [
        (
            Answer::stream("data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[]}\n\n"),
            "chat-completions",
        ),
        (
            Answer::body(r#"{"id":"c","object":"chat.completion","choices":[{"message":{"content":"hi"}}]}"#),
            "chat-completions",
        ),
        (Answer::body(r#"{"id":"m","type":"message","role":"assistant","content":[]}"#), "anthropic-messages"),
    ] {
        let mut turn = turn("{}");
        let record = driven(&mut *turn, [answer]).record;
        let error = record.run().turns[0].error.clone().expect("an error");
        assert!(error.message.contains(protocol), "{error:?}");
    }
}

#[test]
fn a_list_at_the_end_with_other_labels_repeats_nothing() {
    let events = [
        r#"created {"response":{"id":"resp_1","status":"in_progress"}}"#,
        r#"output_item.added {"output_index":3,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
        r#"reasoning_summary_text.delta {"item_id":"rs_1","output_index":3,"summary_index":0,"delta":"hm"}"#,
        r#"output_item.added {"output_index":4,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
        r#"output_text.delta {"item_id":"msg_1","output_index":4,"content_index":0,"delta":"one"}"#,
        r#"output_item.added {"output_index":5,"item":{"id":"msg_2","type":"message","role":"assistant","content":[]}}"#,
        r#"output_text.delta {"item_id":"msg_2","output_index":5,"content_index":0,"delta":"tw"}"#,
    ];
    let item = |id: &str, text: &str| {
        format!(
            r#"{{"id":"{id}","type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#
        )
    };
    let thought = r#"{"id":"x","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#;
    let end = format!(
        r#"completed {{"response":{{"id":"resp_1","status":"completed","output":[{},{},{thought}]}}}}"#,
        item("y", "one"),
        item("z", "two"),
    );
    let all: Vec<&str> = events.into_iter().chain([end.as_str()]).collect();
    let mut turn = turn("{}");
    let record = driven(&mut *turn, [Answer::stream(&stream(&all))]).record;
    let texts: Vec<String> = record.run().messages.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["hm", "one", "two"]);
}

#[test]
fn ends_are_judged_by_every_word_of_the_server() {
    let ended = |response: &str| {
        let end = format!("completed {{\"response\":{response}}}");
        let text = r#"output_text.delta {"item_id":"m","output_index":0,"delta":"a"}"#;
        let mut turn = turn("{}");
        let record = driven(&mut *turn, [Answer::stream(&stream(&[text, &end]))]).record;
        let turn = record.run().turns.last().expect("a turn");
        let code = turn.error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
        format!("{} {code}", turn.end.map_or("open", |end| end.as_str()))
    };
    for (response, wanted) in [
        (r#"{"status":"completed","incomplete_details":null}"#, "completed "),
        (r#"{"status":"completed","incomplete_details":{"reason":"content_filter"}}"#, "incomplete content_filter"),
        (r#"{"status":"incomplete","incomplete_details":{"reason":"max_tokens"}}"#, "incomplete max_output_tokens"),
        (r#"{"status":"incomplete","incomplete_details":{"reason":"SAFETY"}}"#, "incomplete content_filter"),
        (r#"{"status":"incomplete"}"#, "incomplete AGENT_ERROR"),
        (r#"{"status":"failed","error":{"code":"network_error","message":"m"}}"#, "failed network_error"),
    ] {
        assert_eq!(ended(response), wanted, "{response}");
    }
}

#[test]
fn reasoning_is_read_under_every_name() {
    for event in [
        r#"reasoning_text.delta {"item_id":"r","output_index":0,"content_index":0,"delta":"hm"}"#,
        r#"reasoning.delta {"item_id":"r","output_index":0,"content_index":0,"delta":{"text":"hm"}}"#,
        r#"reasoning_content.delta {"item_id":"r","output_index":0,"delta":"hm"}"#,
        r#"reasoning_summary.delta {"item_id":"r","output_index":0,"summary_index":0,"delta":"hm"}"#,
        r#"output_item.done {"output_index":0,"item":{"id":"r","type":"reasoning","summary":["hm"]}}"#,
        r#"output_item.done {"output_index":0,"item":{"id":"r","type":"reasoning","summary":[],"content":"hm"}}"#,
    ] {
        let found = read("{}", &[event]);
        assert!(found.contains("reasoning") && found.contains("text \"hm\""), "{event}\n{found}");
    }
}

#[test]
fn a_broken_character_costs_one_character() {
    let events = [
        r#"output_text.delta {"item_id":"m","output_index":0,"content_index":0,"delta":"a\ud83d"}"#,
        r#"output_text.delta {"item_id":"m","output_index":0,"content_index":0,"delta":"b"}"#,
    ];
    assert!(read("{}", &events).contains("a\u{fffd}b"));
    let mut bytes = whole_stream(&events).into_bytes();
    let at = bytes.windows(2).position(|pair| pair == b"\"b").expect("the text") + 1;
    bytes[at] = 0xff;
    let mut turn = turn("{}");
    let record = driven(&mut *turn, [Answer::Stream(vec![bytes])]).record;
    assert_eq!(record.run().messages[0].text(), "a\u{fffd}\u{fffd}");
    assert!(turn.losses().iter().any(|loss| loss.how == interlingua_core::json_repair::LOSS));
}
