//! The results of all scripts of the testkit.

use interlingua_core_testkit::scripts;

use super::*;

/// The result of a script, as a client that is not asked receives it.
fn result_of(record: &Record, options: &Options, revision: Revision) -> Result<Value, RpcError> {
    let run = TestRun::new(record);
    let has_question = !run.view().pending.is_empty();
    let outcome = if has_question { Outcome::Waiting { reason: None } } else { Outcome::Ended };
    call_result(&context(options, revision), &[run.view()], outcome)
}

#[test]
fn every_script_has_its_result() {
    let plain = options(json!({}));
    let structured = options(json!({ "structured": true, "steps": true }));
    for script in scripts().iter().filter(|script| !script.is_large()) {
        let record = script.record();
        let result = match result_of(&record, &plain, Revision::November2025) {
            Ok(result) => result,
            Err(error) => error.to_value(),
        };
        let object = result_of(&record, &structured, Revision::November2025)
            .map_or(Value::Null, |result| result["structuredContent"].clone());
        let shown = format!("{result:#}\n\nstructuredContent: {object:#}");
        insta::assert_snapshot!(format!("script_{}", script.name), shown);
    }
}

#[test]
fn every_result_has_known_blocks_its_ids_and_a_legal_size() {
    for script in scripts() {
        let record = script.record();
        for text in [json!({}), json!({ "structured": true })] {
            let options = options(text);
            for revision in Revision::ALL {
                let Ok(result) = result_of(&record, &options, revision) else { continue };
                for block in result["content"].as_array().expect("a list") {
                    let kind = block["type"].as_str().expect("a type");
                    let known = ["text", "image", "audio", "resource", "resource_link"];
                    assert!(known.contains(&kind), "{}: {kind}", script.name);
                    assert!(kind != "resource_link" || revision != Revision::March2025, "{}", script.name);
                }
                assert!(
                    result["_meta"]["interlingua/run"].is_string()
                        && result["_meta"]["interlingua/session"].is_string()
                );
                assert!(serde_json::to_string(&result).expect("JSON").len() <= size::MAX_RESULT, "{}", script.name);
            }
        }
    }
}
