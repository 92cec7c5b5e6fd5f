//! Tests of the testkit itself: the scripts match their table, and the laws detect violations.

use std::collections::BTreeSet;

use interlingua_core::call::{Call, Reply};
use interlingua_core::exchange::{Exchange, Flow, Next, Request};
use interlingua_core::{Event, Fault, Out, Step};
use interlingua_core_testkit::{self as testkit, Feature, Script, laws, render, script, scripts};

#[test]
fn every_script_matches_its_table_entry() {
    for script in scripts() {
        let record = script.record();
        assert_eq!(testkit::grammar(&record), Ok(()), "{}", script.name);
        assert_eq!(record.run().end, Some(script.end), "{}", script.name);

        let mut features = script.carries.to_vec();
        features.sort();
        assert_eq!(Feature::of_record(&record), features, "{}\n{}", script.name, render(&record));
        assert!(!script.description.is_empty() && !script.frames.is_empty());
    }
}

#[test]
fn every_script_has_a_snapshot_of_its_tale() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        insta::assert_snapshot!(format!("script_{}", script.name), render(&script.record()));
    }
}

#[test]
fn the_table_lists_every_file() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/core-testkit/src/scripts");
    let files = std::fs::read_dir(folder).expect("the scripts are there").map(|file| {
        let name = file.expect("a file").file_name();
        name.to_str().expect("UTF-8").trim_end_matches(".jsonl").to_owned()
    });
    let mut files: BTreeSet<String> = files.collect();
    files.insert("very_long".to_owned());
    let table: BTreeSet<String> = scripts().iter().map(|script| script.name.to_owned()).collect();
    assert_eq!(table, files);
    assert_eq!(scripts().len(), table.len(), "names are unique");

    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/transcripts/agentscope");
    let files = std::fs::read_dir(folder).expect("the transcripts are there").filter_map(|file| {
        let name = file.expect("a file").file_name();
        Some(name.to_str().expect("UTF-8").strip_suffix(".sse")?.to_owned())
    });
    let recorded: BTreeSet<String> = testkit::transcripts().iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(recorded, files.collect());
}

#[test]
fn scripts_cover_every_feature_and_every_outcome() {
    use interlingua_core::End;
    let scripts = scripts();
    for feature in [
        Feature::Text,
        Feature::Reasoning,
        Feature::ClientTool,
        Feature::ServerTool,
        Feature::Mcp,
        Feature::Component,
        Feature::Image,
        Feature::Audio,
        Feature::Video,
        Feature::File,
        Feature::Data,
        Feature::Refusal,
        Feature::Pending,
        Feature::Interrupt,
        Feature::Usage,
        Feature::ErrorMessage,
        Feature::Overlap,
        Feature::Replaced,
        Feature::Unknown,
    ] {
        assert!(scripts.iter().any(|script| script.carries(feature)), "{feature:?}");
    }

    for end in [End::Completed, End::Incomplete, End::Failed, End::Rejected, End::Canceled] {
        assert!(scripts.iter().any(|script| script.end == end), "{end:?}");
    }
}

#[test]
fn the_bytes_of_a_script_mean_the_same_as_its_frames() {
    for script in scripts() {
        let decoded = testkit::record([script.bytes().as_slice()]);
        assert_eq!(render(&decoded), render(&script.record()), "{}", script.name);
        assert_eq!(decoded.run().messages, script.record().run().messages, "{}", script.name);
    }
}

#[test]
fn the_bytes_of_a_script_look_like_the_runtime_s() {
    let first = String::from_utf8(script("greeting").bytes()).expect("UTF-8");
    let frames: Vec<&str> = first.split_terminator("\n\n").collect();
    assert_eq!(
        frames[0],
        r#"data: {"sequence_number":0,"object":"response","status":"created","error":null,"id":"response_01","created_at":null,"completed_at":null,"output":null,"usage":null,"session_id":null}"#
    );
    assert_eq!(
        frames[3],
        r#"data: {"sequence_number":3,"object":"content","status":"in_progress","error":null,"type":"text","index":0,"delta":true,"msg_id":"msg_02","text":"Hello"}"#
    );
    assert!(script("refused").bytes().starts_with(br#"data: {"error": ""#), "bare error frames stay as they are");
}

#[test]
fn any_split_of_a_script_s_bytes_gives_the_same_record() {
    for script in scripts() {
        let bytes = script.bytes();
        let read = |chunks: &[&[u8]]| render(&testkit::record(chunks.iter().copied()));
        if script.is_large() {
            let cut = laws::random_pieces(&bytes, 1);
            laws::assert_same(&read(&cut), &read(&[&bytes]), script.name);
        } else {
            laws::cut_anywhere(&bytes, read);
        }
    }
}

/// A minimal protocol that can violate a law.
#[derive(Default)]
struct Plain {
    /// Reads the current state of the run instead of the step.
    looks_ahead: bool,
    /// Ends the stream twice.
    ends_twice: bool,
}

impl Exchange for Plain {
    fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        Ok(Next::Done)
    }

    fn fail(&mut self, _: &Fault, _: &mut Out) {}

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match step.event {
            Event::ContentDelta { .. } if self.looks_ahead => {
                out.frame(None, step.slot().map_or("", |(_, slot)| slot.text()));
            }
            Event::ContentDelta { .. } => out.frame(None, step.delta()),
            Event::RunFinished { end } => {
                out.frame(Some("end"), end.as_str());
                if self.ends_twice {
                    out.frame(Some("end"), end.as_str());
                }
                return Flow::Close;
            }
            _ => {}
        }
        Flow::More
    }
}

fn breaks(law: impl Fn() + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(law).is_err()
}

fn encoded(exchange: &mut dyn Exchange, script: &Script) -> String {
    testkit::view(&script.record(), |run| laws::encode(exchange, run))
}

#[test]
fn a_correct_protocol_passes_the_laws() {
    for script in scripts() {
        laws::replay_equals_live(|| Box::new(Plain::default()), &script);
        laws::ends_once(&encoded(&mut Plain::default(), &script), |frame| frame.event.as_deref() == Some("end"));
    }

    let text: String = laws::frames(&encoded(&mut Plain::default(), &script("greeting")))
        .iter()
        .filter(|frame| frame.event.is_none())
        .map(|frame| serde_json::from_str::<String>(&frame.data).expect("a text"))
        .collect();
    assert_eq!(text, "Hello, world!");
}

#[test]
fn violations_of_a_law_are_detected() {
    let greeting = || script("greeting");
    assert!(breaks(move || {
        laws::replay_equals_live(|| Box::new(Plain { looks_ahead: true, ..Plain::default() }), &greeting());
    }));
    assert!(breaks(move || {
        let output = encoded(&mut Plain { ends_twice: true, ..Plain::default() }, &greeting());
        laws::ends_once(&output, |frame| frame.event.as_deref() == Some("end"));
    }));
    assert!(breaks(|| laws::ends_once("data: 1\n\n", |_| false)));
    assert!(breaks(|| laws::cut_anywhere(b"abc", |pieces| pieces.len().to_string())));
}
