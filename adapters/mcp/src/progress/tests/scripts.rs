//! The progress of all scripts of the testkit.

use interlingua_core_testkit::{Feature, Recorder, Script, scripts};

use super::*;

/// The progress of a script whose frames arrive 300 ms apart.
fn stream(script: &Script) -> (Record, Vec<Value>) {
    let mut recorder = Recorder::new(script.input.clone()).ticking(300);
    for frame in &script.frames {
        recorder.emit(&script.event(frame));
    }
    let record = recorder.finish();
    let mut progress = progress(json!({}));
    let mut out = Vec::new();
    progress.accepted(record.run(), NOW, &mut out);
    for step in record.steps(0) {
        while let Some(wake) = progress.wake_at().filter(|wake| *wake < step.at) {
            progress.on_time(wake, &mut out);
        }
        progress.step(&step, None, &mut out);
    }
    assert_eq!(progress.wake_at().is_none(), record.is_finished(), "{}", script.name);
    (record, out)
}

#[test]
fn every_script_has_its_progress() {
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let (_, out) = stream(script);
        insta::assert_snapshot!(format!("progress_{}", script.name), shown(&out).join("\n"));
    }
}

#[test]
fn deltas_joined_are_the_texts_of_the_messages() {
    for script in scripts() {
        if script.carries(Feature::Overlap) || script.carries(Feature::Replaced) {
            continue;
        }
        let (record, out) = stream(&script);
        let answer = record.run().messages.iter().filter(|message| {
            message.announced == MessageType::Message && !matches!(message.role, Role::User | Role::System)
        });
        let slots = answer.flat_map(|message| &message.slots).filter(|slot| slot.call.is_none());
        let texts = slots.filter(|slot| matches!(slot.kind, ContentType::Text | ContentType::Refusal));
        let text: String = texts.map(interlingua_core::run::Slot::text).collect();
        assert_eq!(joined(&out, "interlingua/delta"), text, "{}", script.name);
    }
}

#[test]
fn values_increase_within_the_events_of_the_run() {
    for script in scripts() {
        let (record, out) = stream(&script);
        let values: Vec<f64> = out.iter().filter_map(|one| one["params"]["progress"].as_f64()).collect();
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{}: {values:?}", script.name);
        #[expect(clippy::cast_precision_loss, reason = "scripts are short")]
        let events = record.len() as f64;
        assert!(values.last().is_some_and(|last| *last <= events + 1.0), "{}", script.name);
    }
}
