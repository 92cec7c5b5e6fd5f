//! Tests of progress notifications.

mod scripts;

use interlingua_core::Record;
use interlingua_core::model::{ContentType, Role};
use interlingua_core::run::{CallHead, MessageStart};
use interlingua_core_testkit::{NOW, RUN, RunBuilder, started};

use super::*;

fn options(text: Value) -> Options {
    serde_json::from_value(text).expect("options")
}

fn progress(text: Value) -> Progress {
    Progress::new(json!("p1"), &options(text), "demo")
}

/// Value, message and `_meta` of each notification.
fn shown(out: &[Value]) -> Vec<String> {
    out.iter()
        .map(|notification| {
            let params = &notification["params"];
            assert_eq!(
                (&notification["method"], &params["progressToken"]),
                (&json!("notifications/progress"), &json!("p1"))
            );
            let meta = params.get("_meta").map_or(String::new(), |meta| format!(" {meta}"));
            format!("{} {}{meta}", params["progress"], params["message"].as_str().expect("a text"))
        })
        .collect()
}

/// The notifications for all steps of a record, as one stream without a clock.
fn replay(record: &Record, mut progress: Progress) -> Vec<Value> {
    let mut out = Vec::new();
    progress.accepted(record.run(), record.run().created_at, &mut out);
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    out
}

fn joined(out: &[Value], name: &str) -> String {
    out.iter().filter_map(|notification| notification["params"]["_meta"][name].as_str()).collect()
}

/// An agent that says words, each this many milliseconds after the last one.
fn talk(words: &[&str], every: u64) -> Record {
    let mut record = started();
    let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    for (word, number) in words.iter().zip(1..) {
        record.set_time(NOW + every * number);
        record.push(message, content, word);
    }
    record
}

/// The same with the end of the message.
fn say(words: &[&str], every: u64) -> Record {
    let mut record = talk(words, every);
    record.finish_content(0, 0, None, interlingua_core::Extra::new());
    record.finish_message(0, interlingua_core::run::MessageEnd::new(interlingua_core::End::Completed));
    record
}

#[test]
fn the_first_notification_names_run_and_session() {
    let record = started();
    let mut out = Vec::new();
    progress(json!({})).accepted(record.run(), NOW, &mut out);
    let meta = format!(r#"{{"interlingua/run":"{RUN}","interlingua/session":"session-1"}}"#);
    assert_eq!(shown(&out), [format!("0.001 demo is working {meta}")]);
}

#[test]
fn texts_are_gathered_and_the_first_is_sent_at_once() {
    let record = talk(&["It ", "is ", "18 ", "de", "grees", "."], 200);
    let out = replay(&record, progress(json!({})));
    let whole = r#"9 It is 18 degrees {"interlingua/delta":"is 18 degrees"}"#;
    assert_eq!(shown(&out)[1..], [r#"5 It  {"interlingua/delta":"It "}"#, whole]);
}

#[test]
fn gathered_text_is_sent_when_its_time_comes() {
    let record = talk(&["One ", "two"], 10);
    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    assert_eq!(progress.wake_at(), Some(NOW + 10_000), "the keep-alive");
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    assert_eq!((out.len(), progress.reported(), progress.wake_at()), (2, 5, Some(NOW + 520)));
    progress.on_time(NOW + 519, &mut out);
    assert_eq!(out.len(), 2);
    progress.on_time(NOW + 520, &mut out);
    assert_eq!(shown(&out)[2], r#"6 One two {"interlingua/delta":"two"}"#);
    assert_eq!((progress.reported(), progress.wake_at()), (6, Some(NOW + 10_520)));
}

#[test]
fn the_end_of_a_message_is_sent_at_once() {
    let record = say(&["One ", "two"], 10);
    let out = replay(&record, progress(json!({})));
    assert_eq!(shown(&out)[2], r#"8 One two {"interlingua/delta":"two"}"#);
}

#[test]
fn the_message_is_the_end_of_the_text() {
    let long = "ä".repeat(300);
    let mut run = RunBuilder::begin();
    run.say(MessageType::Message, &[&long, "!"]);
    let out = replay(&run.record, progress(json!({})));
    assert_eq!(joined(&out, "interlingua/delta"), format!("{long}!"));
    assert_eq!(out.last().and_then(|last| last["params"]["message"].as_str()), Some(&*format!("{}!", "ä".repeat(199))));
}

#[test]
fn calls_outputs_and_errors_are_labels() {
    let mut run = RunBuilder::begin();
    run.call(MessageType::PluginCall, "c1", "get_weather", &["{}"]);
    run.output(MessageType::PluginCallOutput, "c1", "18 degrees");
    run.call(MessageType::McpCall, "c2", "", &[]);
    run.output(MessageType::McpCallOutput, "c7", "?");
    run.call(MessageType::ComponentCall, "c3", "table", &[]);
    run.call(MessageType::FunctionCall, "c4", "ask_client", &[]);
    run.output(MessageType::FunctionCallOutput, "c4", "hidden");
    run.say(MessageType::Error, &["the network is slow"]);
    run.data(MessageType::McpListTools, "{}");
    run.say(MessageType::Heartbeat, &["."]);
    let out = replay(&run.record, progress(json!({})));
    let messages: Vec<&str> = out.iter().filter_map(|one| one["params"]["message"].as_str()).collect();
    let expected = [
        "demo is working",
        "Calls get_weather",
        "Got the answer of get_weather",
        "Calls a tool",
        "Got the answer of a tool",
        "Calls table",
        "the network is slow",
    ];
    assert_eq!(messages, expected);
    assert!(out[1..].iter().all(|one| one["params"].get("_meta").is_none()));
}

#[test]
fn reasoning_is_sent_apart_from_the_text() {
    let mut run = RunBuilder::begin();
    run.say(MessageType::Reasoning, &["Let me ", "see."]);
    run.say(MessageType::Message, &["18"]);
    let out = replay(&run.record, progress(json!({})));
    assert_eq!(
        shown(&out)[1..],
        [r#"8 Thinking… {"interlingua/reasoning":"Let me see."}"#, r#"11 18 {"interlingua/delta":"18"}"#]
    );
    let out = replay(&run.record, progress(json!({ "reasoning": "drop" })));
    assert_eq!(shown(&out)[1..], [r#"11 18 {"interlingua/delta":"18"}"#]);
}

#[test]
fn a_replaced_text_is_sent_as_a_whole() {
    let mut record = talk(&["wrong"], 10);
    record.replace(0, 0, "right");
    let out = replay(&record, progress(json!({})));
    assert_eq!(shown(&out)[2], r#"6 right {"interlingua/replaced":"right"}"#);
}

#[test]
fn silence_is_broken_by_small_steps() {
    let record = talk(&["One"], 10);
    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    for _ in 0..3 {
        let wake = progress.wake_at().expect("a time");
        progress.on_time(wake, &mut out);
    }
    let seconds = [10, 20, 30].map(|seconds| seconds);
    let expected = seconds.map(|seconds| format!("5.00{} demo is still working ({seconds} s)", seconds / 10));
    assert_eq!(shown(&out)[2..], expected);
}

#[test]
fn values_always_increase() {
    let values: Vec<f64> = (1..3_000).map(|count| quiet_value(41, count).as_f64().expect("a number")).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]) && values.iter().all(|value| (41.0..42.0).contains(value)));
    assert_eq!(
        [quiet_value(41, 1), quiet_value(41, 2), quiet_value(0, 900)],
        [json!(41.001), json!(41.002), json!(0.9)]
    );
}

#[test]
fn a_waiting_run_says_so() {
    let mut record = say(&["May I?"], 10);
    record.finish_turn(interlingua_core::End::Completed, None);
    let mut progress = progress(json!({ "progress_keepalive": "2s" }));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    progress.on_time(NOW + 5_000, &mut out);
    assert!(shown(&out).last().is_some_and(|last| last.ends_with("Waiting for an answer")), "{out:?}");
}

#[test]
fn no_more_than_twenty_are_sent_in_a_second_and_nothing_is_lost() {
    let mut record = started();
    for number in 0..60 {
        record.set_time(NOW + number * 10);
        let message = record.start_message(MessageStart::new("", MessageType::PluginCall, Role::Assistant));
        let head = CallHead { call_id: format!("c{number}"), name: format!("tool{number}"), server_label: None };
        record.start_content(message, ContentType::Data, Some(head));
    }
    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    assert_eq!(out.len(), 20);
    assert_eq!(progress.wake_at(), Some(NOW + 1000));
    progress.on_time(NOW + 1000, &mut out);
    let last = shown(&out).pop().expect("a notification");
    assert!(last.starts_with(&format!("{} ", record.len())) && last.contains("tool59"), "{last}");
}

#[test]
fn text_under_the_limit_of_the_rate_is_sent_together() {
    let words: Vec<String> = (0..200).map(|number| format!("{number} ")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut record = talk(&words, 10);
    record.close(interlingua_core::End::Completed, None);
    let out = replay(&record, progress(json!({ "progress_interval": "0s" })));
    assert_eq!(joined(&out, "interlingua/delta"), words.concat());
    assert!(out.len() <= 43, "{}", out.len());
}

#[test]
fn a_resumed_stream_repeats_nothing() {
    let words: Vec<String> = (0..50).map(|number| format!("{number} ")).collect();
    let mut record = talk(&words.iter().map(String::as_str).collect::<Vec<_>>(), 70);
    record.close(interlingua_core::End::Completed, None);
    let all = replay(&record, progress(json!({})));
    for cut in 0..=all.len() {
        let seen = &all[..cut];
        let position = seen.iter().filter_map(|one| one["params"]["progress"].as_u64()).next_back().unwrap_or(0);
        let rest = replay(&record, progress(json!({})).resumed(position));
        let text = joined(seen, "interlingua/delta") + &joined(&rest, "interlingua/delta");
        assert_eq!(text, words.concat(), "{position}");
        let values = rest.iter().filter_map(|one| one["params"]["progress"].as_f64());
        assert!(values.clone().all(|value| value > f64::from(u32::try_from(position).expect("small"))));
        let names_run = rest.iter().any(|one| one["params"]["_meta"].get("interlingua/run").is_some());
        assert_eq!(names_run, position == 0);
    }
}

#[test]
fn the_run_that_answered_counts_on() {
    let mut first = say(&["May I?"], 10);
    first.finish_turn(interlingua_core::End::Completed, None);
    let other = RunId(uuid::Uuid::from_u128(9));
    first.start_linked_turn(other);

    let mut second = Record::new(Run::new(other, "demo", "session-1", NOW));
    second.start_turn(Vec::new());
    let message = second.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = second.start_content(message, ContentType::Text, None);
    second.push(message, content, "Done");

    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(first.run(), NOW, &mut out);
    first.steps(0).chain(second.steps(0)).for_each(|step| progress.step(&step, None, &mut out));
    let position = first.len() + second.len();
    assert_eq!(shown(&out).last(), Some(&format!(r#"{position} Done {{"interlingua/delta":"Done"}}"#)));
    assert_eq!(joined(&out, "interlingua/delta"), "May I?Done");
}

#[test]
fn a_long_text_is_sent_in_pieces() {
    let long = "ä".repeat(MAX_DELTA);
    let record = talk(&[&long], 10);
    let out = replay(&record, progress(json!({})));
    let pieces: Vec<usize> =
        out.iter().filter_map(|one| one["params"]["_meta"]["interlingua/delta"].as_str()).map(str::len).collect();
    assert_eq!(pieces, [MAX_DELTA, MAX_DELTA]);
    assert_eq!(joined(&out, "interlingua/delta"), long);
    let values: Vec<f64> = out.iter().filter_map(|one| one["params"]["progress"].as_f64()).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
}

#[test]
fn a_flush_sends_what_has_waited() {
    let record = talk(&["One ", "two"], 10);
    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    record.steps(0).for_each(|step| progress.step(&step, None, &mut out));
    progress.flush(&mut out);
    assert_eq!(joined(&out, "interlingua/delta"), "One two");
    let count = out.len();
    progress.flush(&mut out);
    assert_eq!(out.len(), count);
}

#[test]
fn the_state_of_a_run_has_a_message() {
    assert_eq!(status_message(started().run()), None);
    let mut run = RunBuilder::begin();
    run.call(MessageType::PluginCall, "c1", "get_weather", &["{}"]);
    assert_eq!(status_message(run.record.run()).as_deref(), Some("Calls get_weather"));
    run.output(MessageType::PluginCallOutput, "c1", "18");
    assert_eq!(status_message(run.record.run()).as_deref(), Some("Got the answer of get_weather"));
    run.say(MessageType::Message, &[&"x".repeat(300)]);
    run.say(MessageType::Reasoning, &["hm"]);
    assert_eq!(status_message(run.record.run()), Some("x".repeat(200)));
}
