//! Repairs that no transcript shows: what upstreams could send, one rule a test (Agent API, section 12).

use interlingua_core::FaultKind;
use interlingua_core::agent_api::Frame;
use interlingua_core::normalize::Normalizer;
use interlingua_core::run::Record;
use interlingua_core::testkit::{Recorder, begun, grammar, record as recorded, tale};

fn record(lines: &[&str]) -> Record {
    let bytes: Vec<u8> = lines.iter().flat_map(|line| format!("data: {line}\n\n").into_bytes()).collect();
    let record = recorded([bytes.as_slice()]);
    assert_eq!(grammar(&record), Ok(()), "{}", tale(&record));
    record
}

fn contents(record: &Record) -> Vec<String> {
    let slots = record.run().messages.iter().flat_map(|message| &message.slots);
    slots.map(|slot| interlingua_core::Json::from_serialize(&slot.content()).text().to_owned()).collect()
}

#[test]
fn two_pictures_in_one_place_are_two_contents() {
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
        let told = record(&[link, inline, end]);
        assert_eq!(contents(&told), both, "{end}");
        assert_eq!(contents(&record(&[link, link, inline, inline, end])), both, "said twice: {end}");
    }
}

#[test]
fn another_value_in_the_place_of_any_media_is_a_further_content() {
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
        let told = record(&[&frame(one), &frame(other)]);
        assert_eq!(told.run().messages[0].slots.len(), 2, "{one}\n{}", tale(&told));
    }
    // More of the same address, and more known of the same file, is no other.
    for (one, other) in [
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":"https://a/b.png""#),
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":".png""#),
        (r#""type":"file","file_url":"https://a/1""#, r#""type":"file","file_url":"https://a/1","filename":"f""#),
        (r#""type":"image","image_url":"https://a/b""#, r#""type":"image","image_url":null"#),
    ] {
        let frame = |value: &str| {
            format!(r#"{{"object":"content","status":"in_progress","index":0,"delta":true,"msg_id":"m",{value}}}"#)
        };
        let told = record(&[&frame(one), &frame(other)]);
        assert_eq!(told.run().messages[0].slots.len(), 1, "{other}\n{}", tale(&told));
    }
}

#[test]
fn the_next_message_closes_media_that_nobody_closed() {
    let told = record(&[
        r#"{"object":"message","status":"in_progress","id":"m","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"image","index":0,"delta":true,"msg_id":"m","image_url":"https://a/1"}"#,
        r#"{"object":"message","status":"in_progress","id":"n","type":"message","role":"assistant"}"#,
        r#"{"object":"content","status":"in_progress","type":"text","index":0,"delta":true,"msg_id":"n","text":"Hello"}"#,
        // Its end comes late, and again; what is new in it is not lost.
        r#"{"object":"content","status":"completed","type":"image","index":0,"msg_id":"m","image_url":"https://a/1"}"#,
        r#"{"object":"message","status":"completed","id":"m","type":"message","content":[{"type":"image","image_url":"https://a/1"},{"type":"text","text":"a cat"}]}"#,
        r#"{"object":"message","status":"completed","id":"n","type":"message","content":[{"type":"text","text":"Hello"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[]}"#,
    ]);
    insta::assert_snapshot!(tale(&told));
}

#[test]
fn what_comes_for_media_that_was_closed_for_the_next_message_is_told() {
    let told = record(&[
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
    assert_eq!(contents(&told), expected, "{}", tale(&told));
}

#[test]
fn a_rejection_of_the_agent_is_no_completion_of_its_server() {
    let rejected =
        r#"{"object":"response","status":"rejected","id":"inner","error":{"code":"NO","message":"not for you"}}"#;
    let begun = r#"{"object":"response","status":"in_progress","id":"r"}"#;
    let completed = r#"{"object":"response","status":"completed","id":"r","output":[]}"#;
    let told = record(&[begun, rejected, completed]);
    assert_eq!(told.run().turns[0].end, Some(interlingua_core::End::Rejected), "{}", tale(&told));
    assert_eq!(told.run().error().map(|error| error.code.as_str()), Some("NO"));
    // An agent that goes on was not the one that rejected it.
    let word = r#"{"object":"content","index":0,"delta":true,"msg_id":"m","text":"all the same: yes"}"#;
    let told = record(&[begun, rejected, word, completed]);
    assert_eq!(told.run().turns[0].end, Some(interlingua_core::End::Completed), "{}", tale(&told));
    let told = record(&[begun, rejected, r#"{"object":"response","status":"failed","id":"r"}"#]);
    assert_eq!(told.run().turns[0].end, Some(interlingua_core::End::Failed), "{}", tale(&told));
}

#[test]
fn data_of_the_output_is_the_same_only_if_it_holds_the_same() {
    let told = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":[{"type":"data","data":{"a":1,"b":2}}]}"#,
        r#"{"object":"message","status":"completed","id":"o","type":"plugin_call_output","content":[{"type":"data","data":{"call_id":"c","output":"x"}}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z1","type":"message","content":[{"type":"data","data":{"b":2,"a":1}}]},{"id":"z2","type":"message","content":[{"type":"data","data":{"a":7}}]},{"id":"z3","type":"plugin_call_output","content":[{"type":"data","data":{"call_id":"c","output":"y"}}]}]}"#,
    ]);
    assert_eq!(
        contents(&told),
        [
            r#"{"type":"data","data":{"a":1,"b":2}}"#,
            r#"{"type":"data","data":{"call_id":"c","output":"x"}}"#,
            r#"{"type":"data","data":{"a":7}}"#,
            r#"{"type":"data","data":{"call_id":"c","output":"y"}}"#,
        ]
    );
}

#[test]
fn a_message_that_is_in_the_output_is_no_other_messages_double() {
    let told = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":"same"}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z","type":"message","content":"same"},{"id":"a","type":"message","content":"same"}]}"#,
    ]);
    assert_eq!(told.run().messages.len(), 2, "{}", tale(&told));
    let renamed = record(&[
        r#"{"object":"message","status":"completed","id":"a","type":"message","content":"same"}"#,
        r#"{"object":"response","status":"completed","id":"other","output":[{"id":"y","type":"message","content":"same"}]}"#,
        r#"{"object":"response","status":"completed","id":"r","output":[{"id":"z","type":"message","content":"same"}]}"#,
    ]);
    assert_eq!(renamed.run().messages.len(), 1, "{}", tale(&renamed));
}

#[test]
fn messages_of_the_output_end_as_it_says() {
    insta::assert_snapshot!(tale(&record(&[
        r#"{"object":"content","delta":true,"msg_id":"a","text":"one"}"#,
        r#"{"object":"content","delta":true,"msg_id":"b","text":"two"}"#,
        r#"{"object":"content","delta":true,"msg_id":"c","text":"three"}"#,
        r#"{"object":"response","status":"incomplete","id":"r","output":[{"id":"a","status":"completed","content":"one"},{"id":"b","status":"incomplete","content":"two!"},{"id":"c","status":"in_progress","content":"three"},{"id":"d","status":null,"content":"four"}]}"#,
    ])));
}

#[test]
fn a_call_keeps_fields_that_no_call_has() {
    let told = record(&[
        r#"{"object":"message","status":"completed","id":"m","type":"component_call","content":[{"type":"data","data":{"component":"Card","props":{"n":1.50}},"note":"kept"}]}"#,
        r#"{"object":"message","status":"completed","id":"n","type":"mcp_call","content":[{"type":"data","data":{"id":"i","name":"f","arguments":{"a":1},"error":null,"output":"x"}}]}"#,
    ]);
    assert_eq!(
        contents(&told),
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
fn what_was_heard_as_data_is_a_call_once_its_message_says_so() {
    let told = record(&[
        r#"{"object":"content","index":0,"msg_id":"m","status":"completed","data":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"object":"message","id":"m","type":"function_call","status":"completed","content":null}"#,
    ]);
    let slot = &told.run().messages[0].slots[0];
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
fn what_was_guessed_to_be_a_call_stays_data_if_its_message_says_so() {
    let told = record(&[
        r#"{"object":"content","index":0,"delta":true,"msg_id":"m","data":{"call_id":"c","arguments":"{"}}"#,
        r#"{"object":"message","id":"m","type":"message","status":"completed","content":null}"#,
    ]);
    assert_eq!(contents(&told), [r#"{"type":"data","data":{"call_id":"c","name":"","arguments":"{"}}"#]);
}

#[test]
fn contents_without_an_index_are_told_once() {
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
fn several_values_for_one_place_are_all_told() {
    let told = record(&[
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"one"}"#,
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"two"}"#,
        r#"{"object":"content","status":"completed","msg_id":"m","image_url":"one"}"#,
        r#"{"object":"message","id":"m","type":"message","status":"completed","content":[{"type":"image","image_url":"one"},{"type":"image","image_url":"two"}]}"#,
    ]);
    assert_eq!(contents(&told), [r#"{"type":"image","image_url":"one"}"#, r#"{"type":"image","image_url":"two"}"#]);
}

#[test]
fn several_calls_in_one_place_are_several_calls() {
    let told = record(&[
        r#"{"object":"message","id":"m","type":"plugin_call","status":"in_progress"}"#,
        r#"{"object":"content","index":0,"msg_id":"m","status":"in_progress","data":{"call_id":"c1","name":"f","arguments":"{"}}"#,
        r#"{"object":"content","index":0,"msg_id":"m","status":"completed","data":{"call_id":"c2","name":"g","arguments":"{}"}}"#,
        r#"{"object":"message","id":"m","type":"plugin_call","status":"completed","content":[{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{"}},{"type":"data","data":{"call_id":"c2","name":"g","arguments":"{}"}}]}"#,
    ]);
    assert_eq!(
        contents(&told),
        [
            r#"{"type":"data","data":{"call_id":"c1","name":"f","arguments":"{"}}"#,
            r#"{"type":"data","data":{"call_id":"c2","name":"g","arguments":"{}"}}"#,
        ]
    );
}

#[test]
fn ids_are_unique_over_all_turns_of_a_run() {
    let mut record = begun();
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
    assert_eq!(texts, "abcdabcd", "{}", tale(&record));
}

#[test]
fn the_rest_of_a_text_in_very_many_pieces_is_told() {
    let mut lines = Vec::new();
    for number in 0..200 {
        lines.push(format!(r#"{{"object":"content","index":0,"delta":true,"msg_id":"m","text":"{number} "}}"#));
        lines.push(r#"{"object":"content","index":1,"delta":true,"msg_id":"m","refusal":"no "}"#.to_owned());
    }
    let whole: String = (0..200).map(|number| format!("{number} ")).collect();
    lines.push(format!(
        r#"{{"object":"message","id":"m","type":"message","status":"completed","content":[{{"type":"text","index":0,"text":"{whole}and the rest"}}]}}"#
    ));
    let told = record(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(told.run().messages[0].text(), format!("{whole}and the rest"));
}

#[test]
fn a_snapshot_takes_the_place_of_fragments_nobody_was_told() {
    let told = tale(&record(&[
        r#"{"object":"message","id":"m","type":"plugin_call","status":"in_progress"}"#,
        r#"{"object":"content","index":0,"delta":true,"msg_id":"m","data":{"call_id":"c","arguments":"{\"b"}}"#,
        r#"{"object":"content","index":0,"status":"completed","msg_id":"m","data":{"call_id":"c","name":"f","arguments":"{\"a\":1}"}}"#,
    ]));
    assert!(told.contains(r#"0.0 + "{\"a\":1}""#) && !told.contains(" = "), "{told}");
}

#[test]
fn a_text_said_anew_that_contradicts_what_was_told_takes_its_place_at_once() {
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
    let told = tale(&record(&frames.each_ref().map(String::as_str)));
    let said = told.lines().filter_map(|line| Some(line.split_once(" 0.0 ")?.1));
    let said: Vec<&str> = said.filter(|line| line.starts_with(['+', '='])).collect();
    let wanted = [r#"+ "Search""#, r#"+ "ing""#, r#"= "Found""#, r#"+ " it""#, r#"+ ": 4""#, r#"+ "2""#];
    assert_eq!(said, wanted, "{told}");
}

/// Every version of a text is kept: those an agent may have are bounded, and the last one is told in the end.
#[test]
fn an_agent_that_says_everything_anew_again_and_again_does_not_exhaust_its_run() {
    let mut recorder = Recorder::of(begun(), 1 << 20);
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
fn a_type_says_which_field_is_meant() {
    let told = record(&[
        r#"{"object":"content","type":"refusal","index":0,"delta":true,"msg_id":"m","text":"not this","refusal":"this"}"#,
    ]);
    assert_eq!(contents(&told), [r#"{"type":"refusal","refusal":"this"}"#]);
}

/// Whatever is kept counts towards the limit, wherever it is kept.
#[test]
fn nothing_that_is_held_escapes_the_limit() {
    let filling = "x".repeat(1_000);
    let ways: [(&str, &str, String); 8] = [
        (
            "texts behind a call",
            r#"{"object":"content","msg_id":"m","index":0,"status":"in_progress","data":{"call_id":"c","name":"f","arguments":""}}"#,
            format!(r#"{{"object":"content","msg_id":"m","index":#,"delta":true,"text":"{filling}"}}"#),
        ),
        (
            "data nobody completes",
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
    for (what, first, again) in ways {
        let mut recorder = Recorder::of(begun(), 400_000);
        recorder.try_emit(&Frame::parse(first.as_bytes()).expect("an object").event()).expect("small");
        let fault = (0..20_000).find_map(|number| {
            let frame = again.replace('#', &number.to_string());
            recorder.try_emit(&Frame::parse(frame.as_bytes()).expect("an object").event()).err()
        });
        if what == "unknown fields of responses" {
            // They are kept up to a number, then passed over.
            assert!(fault.is_none_or(|fault| fault.kind == FaultKind::UpstreamTooLarge), "{what}");
            assert!(recorder.record().size() < 1_000_000, "{what}");
            continue;
        }
        assert_eq!(fault.map(|fault| fault.kind), Some(FaultKind::UpstreamTooLarge), "{what}");
        assert_eq!(grammar(&recorder.finish()), Ok(()), "{what}");
    }
}
