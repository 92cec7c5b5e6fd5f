//! Repairs that no recorded stream shows: deviations that upstreams could have, one rule per test
//! (docs/protocols/agent-api.md#repairs).

use interlingua_core::FaultKind;
use interlingua_core::agent_api::Frame;
use interlingua_core::normalize::Normalizer;
use interlingua_core::run::Record;
use interlingua_core_testkit::{Recorder, grammar, record as recorded, render, started};

fn record(lines: &[&str]) -> Record {
    let bytes: Vec<u8> = lines.iter().flat_map(|line| format!("data: {line}\n\n").into_bytes()).collect();
    let record = recorded([bytes.as_slice()]);
    assert_eq!(grammar(&record), Ok(()), "{}", render(&record));
    record
}

fn contents(record: &Record) -> Vec<String> {
    let slots = record.run().messages.iter().flat_map(|message| &message.slots);
    slots.map(|slot| interlingua_core::Json::from_serialize(&slot.content()).text().to_owned()).collect()
}

#[test]
fn two_images_at_one_index_are_two_contents() {
    let link = r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://a/b.png"}"#;
    let inline = r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"data:image/png;base64,AAAA"}"#;
    let both = [
        r#"{"type":"image","image_url":"https://a/b.png"}"#,
        r#"{"type":"image","image_url":"data:image/png;base64,AAAA"}"#,
    ];
    for end in [
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
        r#"{"object":"content","status":"completed","type":"image","index":0,"msg_id":"m","image_url":"data:image/png;base64,AAAA"}"#,
        r#"{"object":"content","status":"completed","type":"image","index":0,"msg_id":"m","image_url":"https://a/b.png"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"image","index":0,"image_url":"https://a/b.png"},{"type":"image","index":0,"image_url":"data:image/png;base64,AAAA"}]}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"image","image_url":"https://a/b.png"},{"type":"image","image_url":"data:image/png;base64,AAAA"}]}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"image","image_url":"data:image/png;base64,AAAA"}]}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":null}"#,
    ] {
        let result = record(&[link, inline, end]);
        assert_eq!(contents(&result), both, "{end}");
        assert_eq!(contents(&record(&[link, link, inline, inline, end])), both, "sent twice: {end}");
    }
}

#[test]
fn a_second_media_value_at_one_index_is_another_content() {
    for (one, other) in [
        (r#""type":"video","video_url":"https://a/1""#, r#""type":"video","video_url":"https://a/2""#),
        (
            r#""type":"audio","data":"https://a/1","format":"mp3""#,
            r#""type":"audio","data":"https://a/2","format":"mp3""#,
        ),
        (r#""type":"file","file_url":"https://a/1""#, r#""type":"file","file_url":"https://a/2""#),
        (r#""type":"file","file_id":"1""#, r#""type":"file","file_id":"2""#),
    ] {
        let frame = |value: &str| {
            format!(r#"{{"object":"content","status":"in_progress","index":0,"delta":true,"msg_id":"m",{value}}}"#)
        };
        let result = record(&[&frame(one), &frame(other)]);
        assert_eq!(result.run().messages[0].slots.len(), 2, "{one}\n{}", render(&result));
    }

    // A longer part of the same URL, or more fields of the same file, is not another content.
    for (one, other) in [
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":"https://a/b.png""#),
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":".png""#),
        (r#""type":"file","file_url":"https://a/1""#, r#""type":"file","file_url":"https://a/1","filename":"f""#),
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":null"#),
    ] {
        let frame = |value: &str| {
            format!(r#"{{"object":"content","status":"in_progress","index":0,"delta":true,"msg_id":"m",{value}}}"#)
        };
        let result = record(&[&frame(one), &frame(other)]);
        assert_eq!(result.run().messages[0].slots.len(), 1, "{other}\n{}", render(&result));
    }
}

#[test]
fn the_next_message_closes_open_media() {
    let result = record(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://a/1"}"#,
        r#"{"object":"message","status":"in_progress","id":"n","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"n","text":"Hello"}"#,
        // The end of the closed message arrives late and twice; the new content in it is not lost.
        r#"{"object":"content","status":"completed","type":"image","index":0,"msg_id":"m","image_url":"https://a/1"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"image","image_url":"https://a/1"},{"type":"text","text":"a cat"}]}"#,
        r#"{"object":"message","status":"completed","id":"n","type":"message","content":[{"type":"text","text":"Hello"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]);
    insta::assert_snapshot!(render(&result));
}

#[test]
fn media_that_follows_an_early_close_is_emitted() {
    let result = record(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://a/1"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"n","text":"Hello"}"#,
        r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://a/2"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]);
    let expected = [
        r#"{"type":"image","image_url":"https://a/1"}"#,
        r#"{"type":"text","text":"Hello"}"#,
        r#"{"type":"image","image_url":"https://a/2"}"#,
    ];
    assert_eq!(contents(&result), expected, "{}", render(&result));
}

#[test]
fn a_rejection_by_the_agent_is_not_a_completion_by_its_server() {
    let rejected =
        r#"{"object":"response","status":"rejected","id":"inner","error":{"code":"NO","message":"not for you"}}"#;
    let start = r#"{"object":"response","status":"in_progress","id":"r"}"#;
    let completed = r#"{"object":"response","status":"completed","id":"r","output":[]}"#;
    let result = record(&[start, rejected, completed]);
    assert_eq!(result.run().turns[0].end, Some(interlingua_core::End::Rejected), "{}", render(&result));
    assert_eq!(result.run().error().map(|error| error.code.as_str()), Some("NO"));

    // If the agent continues, the inner response was not its own.
    let text = r#"{"object":"content","index":0,"delta":true,"msg_id":"m","text":"all the same: yes"}"#;
    let result = record(&[start, rejected, text, completed]);
    assert_eq!(result.run().turns[0].end, Some(interlingua_core::End::Completed), "{}", render(&result));

    // The same if it continues a text that was open before.
    let begun = r#"{"object":"content","index":0,"delta":true,"msg_id":"m","text":"One moment. "}"#;
    let result = record(&[start, begun, rejected, text, completed]);
    assert_eq!(result.run().turns[0].end, Some(interlingua_core::End::Completed), "{}", render(&result));
    let result = record(&[start, begun, rejected, completed]);
    assert_eq!(result.run().turns[0].end, Some(interlingua_core::End::Rejected), "{}", render(&result));

    let result = record(&[start, rejected, r#"{"object":"response","status":"failed","id":"r"}"#]);
    assert_eq!(result.run().turns[0].end, Some(interlingua_core::End::Failed), "{}", render(&result));
}

#[test]
fn data_in_the_output_is_a_duplicate_only_if_it_is_equal() {
    let result = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":[{"type":"data","data":{"a":1,"b":2}}]}"#,
        r#"{"object":"message","status":"completed","id":"o","type":"plugin_call_output","content":[{"type":"data","data":{"call_id":"c","output":"x"}}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z1","type":"message","content":[{"type":"data","data":{"b":2,"a":1}}]},{"id":"z2","type":"message","content":[{"type":"data","data":{"a":7}}]},{"id":"z3","type":"plugin_call_output","content":[{"type":"data","data":{"call_id":"c","output":"y"}}]}]}"#,
    ]);
    assert_eq!(
        contents(&result),
        [
            r#"{"type":"data","data":{"a":1,"b":2}}"#,
            r#"{"type":"data","data":{"call_id":"c","output":"x"}}"#,
            r#"{"type":"data","data":{"a":7}}"#,
            r#"{"type":"data","data":{"call_id":"c","output":"y"}}"#,
        ]
    );
}

#[test]
fn a_message_in_the_output_is_matched_with_one_message_only() {
    let result = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":"same"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z","type":"message","content":"same"},{"id":"a","type":"message","content":"same"}]}"#,
    ]);
    assert_eq!(result.run().messages.len(), 2, "{}", render(&result));

    let renamed = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":"same"}"#,
        r#"{"object":"response","status":"completed","id":"other","output":[{"id":"y","type":"message","content":"same"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z","type":"message","content":"same"}]}"#,
    ]);
    assert_eq!(renamed.run().messages.len(), 1, "{}", render(&renamed));
}

#[test]
fn messages_end_with_the_status_in_the_output() {
    insta::assert_snapshot!(render(&record(&[
        r#"{"object":"content","delta":true,"msg_id":"a","text":"one"}"#,
        r#"{"object":"content","delta":true,"msg_id":"b","text":"two"}"#,
        r#"{"object":"content","delta":true,"msg_id":"c","text":"three"}"#,
        r#"{"object":"response","status":"incomplete","id":"r","output":[{"id":"a","status":"completed","content":"one"},{"id":"b","status":"incomplete","content":"two!"},{"id":"c","status":"in_progress","content":"three"},{"id":"d","status":null,"content":"four"}]}"#,
    ])));
}

#[test]
fn unknown_fields_of_a_call_are_kept() {
    let result = record(&[
        r#"{"object":"message","status":"completed","id":"m","type":"component_call","content":[{"type":"data","data":{"component":"Card","props":{"n":1.50}},"note":"kept"}]}"#,
        r#"{"object":"message","status":"completed","id":"n","type":"mcp_call","content":[{"type":"data","data":{"id":"i","name":"f","arguments":{"a":1},"error":null,"output":"x"}}]}"#,
    ]);
    assert_eq!(
        contents(&result),
        [
            r#"{"type":"data","data":{"component":"Card","props":{"n":1.50},"call_id":"m","name":"","arguments":""},"note":"kept"}"#,
            r#"{"type":"data","data":{"id":"i","name":"f","arguments":"{\"a\":1}","error":null,"output":"x","call_id":"n"}}"#,
        ]
    );

    let fragments = record(&[
        r#"{"object":"message","id":"m","type":"mcp_call","status":"in_progress"}"#,
        r#"{"object":"content","delta":true,"index":0,"msg_id":"m","data":{"call_id":"c","name":"f","arguments":"{","tags":["a"]}}"#,
        r#"{"object":"content","delta":true,"index":0,"msg_id":"m","data":{"arguments":"}","tags":["b"]}}"#,
        r#"{"object":"message","id":"m","type":"mcp_call","status":"completed"}"#,
    ]);
    assert_eq!(
        contents(&fragments),
        [r#"{"type":"data","data":{"tags":["a","b"],"call_id":"c","name":"f","arguments":"{}"}}"#]
    );
}

#[test]
fn data_becomes_a_call_if_its_message_is_a_call() {
    let result = record(&[
        r#"{"object":"content","index":0,"msg_id":"m","status":"completed","data":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"object":"message","id":"m","type":"function_call","status":"completed","content":null}"#,
    ]);
    let slot = &result.run().messages[0].slots[0];
    assert_eq!(slot.content().as_data().and_then(|data| data.decode::<interlingua_core::model::ToolCall>()), {
        Some(interlingua_core::model::ToolCall {
            call_id: "m".into(),
            name: "f".into(),
            arguments: r#"{"a":1}"#.into(),
            server_label: None,
        })
    });
}

#[test]
fn a_guessed_call_stays_data_if_its_message_is_not_a_call() {
    let result = record(&[
        r#"{"object":"content","index":0,"delta":true,"msg_id":"m","data":{"call_id":"c","arguments":"{"}}"#,
        r#"{"object":"message","id":"m","type":"message","status":"completed","content":null}"#,
    ]);
    assert_eq!(contents(&result), [r#"{"type":"data","data":{"call_id":"c","name":"","arguments":"{"}}"#]);
}

#[test]
fn contents_without_an_index_are_emitted_once() {
    let mixed = [
        r#"{"object":"content","delta":true,"msg_id":"m","text":"Look: "}"#,
        r#"{"object":"content","delta":false,"status":"completed","msg_id":"m","image_url":"u"}"#,
        r#"{"object":"message","id":"m","type":"message","status":"completed","content":[{"type":"text","text":"Look: "},{"type":"image","image_url":"u"}]}"#,
    ];
    let expected = [r#"{"type":"text","text":"Look: "}"#, r#"{"type":"image","image_url":"u"}"#];
    assert_eq!(contents(&record(&mixed)), expected);

    let zeros = mixed.map(|line| {
        line.replace(r#""msg_id":"m","#, r#""msg_id":"m","index":0,"#).replace(r#"{"type":"#, r#"{"index":0,"type":"#)
    });
    assert_eq!(contents(&record(&zeros.each_ref().map(String::as_str))), expected);
}

#[test]
fn several_values_for_one_index_are_all_emitted() {
    let result = record(&[
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"one"}"#,
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"two"}"#,
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"one"}"#,
        r#"{"object":"message","id":"m","type":"message","status":"completed","content":[{"type":"image","image_url":"one"},{"type":"image","image_url":"two"}]}"#,
    ]);
    assert_eq!(contents(&result), [r#"{"type":"image","image_url":"one"}"#, r#"{"type":"image","image_url":"two"}"#]);
}

#[test]
fn several_calls_at_one_index_are_separate_calls() {
    let result = record(&[
        r#"{"object":"message","id":"m","type":"plugin_call","status":"in_progress"}"#,
        r#"{"object":"content","index":0,"msg_id":"m","status":"in_progress","data":{"call_id":"c1","name":"f","arguments":"{"}}"#,
        r#"{"object":"content","index":0,"msg_id":"m","status":"completed","data":{"call_id":"c2","name":"g","arguments":"{}"}}"#,
        r#"{"object":"message","id":"m","type":"plugin_call","status":"completed","content":[{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{"}},{"type":"data","data":{"call_id":"c2","name":"g","arguments":"{}"}}]}"#,
    ]);
    assert_eq!(
        contents(&result),
        [
            r#"{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{"}}"#,
            r#"{"type":"data","data":{"call_id":"c2","name":"g","arguments":"{}"}}"#,
        ]
    );
}

#[test]
fn ids_are_unique_over_all_turns_of_a_run() {
    let mut record = started();
    for _ in 0..2 {
        let mut normalizer = Normalizer::new(1 << 20);
        for line in [
            r#"{"object":"message","id":"m","type":"message","status":"completed","content":"a"}"#,
            r#"{"object":"message","id":"m","type":"message","status":"in_progress"}"#,
            r#"{"object":"message","id":"m","type":"message","status":"completed","content":"b"}"#,
            r#"{"object":"message","id":"m_2","type":"message","status":"completed","content":"c"}"#,
            r#"{"object":"message","type":"message","status":"completed","content":"d"}"#,
            r#"{"object":"response","status":"completed","id":"r"}"#,
        ] {
            let frame = Frame::parse(line.as_bytes()).expect("an object");
            normalizer.emit(&mut record, &frame.event()).expect("within the limit");
        }
        if record.run().turns.len() == 1 {
            record.start_turn(Vec::new());
        }
    }
    record.close(interlingua_core::End::Completed, None);

    assert_eq!(grammar(&record), Ok(()));
    let texts: String = record.run().messages.iter().map(interlingua_core::run::Message::text).collect();
    assert_eq!(texts, "abcdabcd", "{}", render(&record));
}

#[test]
fn the_rest_of_a_text_in_very_many_pieces_is_emitted() {
    let mut lines = Vec::new();
    for number in 0..200 {
        lines.push(format!(r#"{{"object":"content","index":0,"delta":true,"msg_id":"m","text":"{number} "}}"#));
        lines.push(r#"{"object":"content","index":1,"delta":true,"msg_id":"m","refusal":"no "}"#.to_owned());
    }

    let text: String = (0..200).map(|number| format!("{number} ")).collect();
    lines.push(format!(
        r#"{{"object":"message","id":"m","type":"message","status":"completed","content":[{{"type":"text","index":0,"text":"{text}and the rest"}}]}}"#
    ));
    let result = record(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(result.run().messages[0].text(), format!("{text}and the rest"));
}

#[test]
fn a_snapshot_replaces_fragments_that_were_not_emitted() {
    let result = render(&record(&[
        r#"{"object":"message","id":"m","type":"plugin_call","status":"in_progress"}"#,
        r#"{"object":"content","index":0,"delta":true,"msg_id":"m","data":{"call_id":"c","arguments":"{\"b"}}"#,
        r#"{"object":"content","index":0,"status":"completed","msg_id":"m","data":{"call_id":"c","name":"f","arguments":"{\"a\":1}"}}"#,
    ]));
    assert!(result.contains(r#"0.0 + "{\"a\":1}""#) && !result.contains(" = "), "{result}");
}

#[test]
fn a_snapshot_that_contradicts_the_emitted_text_replaces_it_at_once() {
    let snapshot = |text: &str| {
        format!(r#"{{"object":"content","index":0,"delta":false,"status":"in_progress","msg_id":"m","text":"{text}"}}"#)
    };
    let fragment =
        |text: &str| format!(r#"{{"object":"content","index":0,"delta":true,"msg_id":"m","text":"{text}"}}"#);
    let end = r#"{"object":"message","id":"m","type":"message","status":"completed","content":[{"type":"text","index":0,"text":"Found it: 42"}]}"#;
    let frames = [
        snapshot("Search"),
        snapshot("Searching"),
        snapshot("Found"),
        fragment(" it"),
        snapshot("Found it: 4"),
        end.to_owned(),
    ];
    let result = render(&record(&frames.each_ref().map(String::as_str)));
    let emitted = result.lines().filter_map(|line| Some(line.split_once(" 0.0 ")?.1));
    let emitted: Vec<&str> = emitted.filter(|line| line.starts_with(['+', '='])).collect();
    let expected = [r#"+ "Search""#, r#"+ "ing""#, r#"= "Found""#, r#"+ " it""#, r#"+ ": 4""#, r#"+ "2""#];
    assert_eq!(emitted, expected, "{result}");
}

/// Every version of a text is stored, so their number is limited. The last version is emitted at the end.
#[test]
fn an_agent_that_replaces_its_text_again_and_again_does_not_exhaust_its_run() {
    let mut recorder = Recorder::with_limit(started(), 1 << 20);
    let text = |number: usize| format!("{number}: {}", "x".repeat(10_000));
    for number in 0..1_000 {
        let frame = serde_json::json!({ "object": "content", "index": 0, "msg_id": "m", "text": text(number) });
        recorder
            .try_emit(&Frame::parse(frame.to_string().as_bytes()).expect("an object").event())
            .expect("there is room");
    }
    let record = recorder.finish();
    assert_eq!(record.run().messages[0].text(), text(999));
    assert!(record.size() < 1 << 19, "{}", record.size());
}

#[test]
fn the_type_selects_the_field_that_is_read() {
    let result = record(&[
        r#"{"object":"content","type":"refusal","index":0,"delta":true,"msg_id":"m","text":"not this","refusal":"this"}"#,
    ]);
    assert_eq!(contents(&result), [r#"{"type":"refusal","refusal":"this"}"#]);
}

/// Everything the normalizer stores counts towards the limit.
#[test]
fn everything_that_is_held_counts_towards_the_limit() {
    let filling = "x".repeat(1_000);
    let cases: [(&str, &str, String); 8] = [
        (
            "texts behind a call",
            r#"{"object":"content","msg_id":"m","index":0,"status":"in_progress","data":{"call_id":"c","name":"f","arguments":""}}"#,
            format!(r#"{{"object":"content","msg_id":"m","index":#,"delta":true,"text":"{filling}"}}"#),
        ),
        (
            "data without an end",
            "{}",
            format!(
                r#"{{"object":"content","msg_id":"m","index":#,"status":"in_progress","data":{{"a":"{filling}"}}}}"#
            ),
        ),
        (
            "data in fragments",
            "{}",
            format!(r#"{{"object":"content","msg_id":"m","index":0,"delta":true,"data":{{"a":"{filling}"}}}}"#),
        ),
        ("announcements", "{}", r#"{"object":"message","id":"m#","type":"message","status":"in_progress"}"#.into()),
        (
            "metadata",
            "{}",
            format!(
                r#"{{"object":"message","id":"m#","type":"message","status":"completed","metadata":{{"a":"{filling}"}}}}"#
            ),
        ),
        (
            "unknown fields of messages",
            "{}",
            format!(r#"{{"object":"message","id":"m#","type":"message","status":"completed","odd":"{filling}"}}"#),
        ),
        (
            "unknown fields of contents",
            "{}",
            format!(
                r#"{{"object":"content","msg_id":"m","index":#,"status":"completed","text":"a","odd":"{filling}"}}"#
            ),
        ),
        (
            "unknown fields of responses",
            "{}",
            format!(r#"{{"object":"response","id":"r","status":"in_progress","odd#":"{filling}","x#":1}}"#),
        ),
    ];
    for (what, first, repeated) in cases {
        let mut recorder = Recorder::with_limit(started(), 400_000);
        recorder.try_emit(&Frame::parse(first.as_bytes()).expect("an object").event()).expect("small");
        let fault = (0..20_000).find_map(|number| {
            let frame = repeated.replace('#', &number.to_string());
            recorder.try_emit(&Frame::parse(frame.as_bytes()).expect("an object").event()).err()
        });
        if what == "unknown fields of responses" {
            // Only a limited number of them is stored; the rest is ignored.
            assert!(fault.is_none_or(|fault| fault.kind == FaultKind::UpstreamTooLarge), "{what}");
            assert!(recorder.record().size() < 1_000_000, "{what}");
            continue;
        }

        assert_eq!(fault.map(|fault| fault.kind), Some(FaultKind::UpstreamTooLarge), "{what}");
        assert_eq!(grammar(&recorder.finish()), Ok(()), "{what}");
    }
}
