//! Artifacts: appended, replaced, in chunks, of every kind.

use interlingua_core_testkit as testkit;
use serde_json::{Value, json};

use super::agent::{ALL, Session, V1, V1_REST, V03, artifact, fixed, status, submitted, task, text, texts};

fn tale(items: &[Value]) -> String {
    let mut all = vec![submitted()];
    all.extend_from_slice(items);
    all.push(status("COMPLETED"));
    testkit::render(&Session::new(&fixed(V1)).send_text("Paris?", [V1.stream(1, &all)]).record)
}

#[test]
fn pieces_of_two_artifacts_may_alternate() {
    let items =
        [text("a-1", "one ", false), text("a-2", "red ", false), text("a-1", "two", true), text("a-2", "blue", true)];
    insta::assert_snapshot!("alternating", tale(&items));
}

#[test]
fn an_artifact_is_replaced_by_its_new_content() {
    let items = [
        text("a-1", "It is", false),
        text("a-1", "It is 18 C.", false),
        text("a-1", "It is 19 C.", false),
        text("a-1", " Sunny.", true),
        artifact("a-1", &json!([{ "text": "" }]), true, true),
        // After its end: the same again is nothing new, another one is another message.
        text("a-1", "It is 19 C. Sunny.", false),
        text("a-1", "It is 20 C.", false),
    ];
    insta::assert_snapshot!("replaced", tale(&items));
}

#[test]
fn appending_to_an_unknown_artifact_creates_it() {
    let items =
        [text("a-1", "late", true), artifact("a-2", &json!([]), true, true), artifact("a-3", &json!([]), false, false)];
    insta::assert_snapshot!("appended_to_nothing", tale(&items));
}

#[test]
fn parts_of_every_kind_are_contents() {
    let parts = json!([
        { "text": "Look: " },
        { "raw": "AQID", "mediaType": "image/png", "filename": "a.png" },
        { "url": "https://x.example/a.mp3", "mediaType": "audio/mpeg" },
        { "url": "https://x.example/a.mp4", "mediaType": "video/mp4" },
        { "raw": "_-8", "filename": "a.pdf" },
        { "data": { "z": 1.0, "a": [1e3] } },
        { "data": null },
        { "text": "I will not.", "metadata": { "refusal": true } },
        { "text": "Nice", "mediaType": "text/html" },
        { "text": "." },
        { "what": "is this" }
    ]);
    let mut items = vec![artifact("a-1", &parts, false, false), text("a-1", ".", true)];
    items.push(artifact("a-1", &json!([{ "url": "https://x.example/b.png", "mediaType": "image/png" }]), true, true));
    insta::assert_snapshot!("parts_of_artifacts", tale(&items));

    // Of 0.3, in its own words.
    let update = |parts: Value| {
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "kind": "artifact-update", "taskId": "T", "contextId": "C",
            "artifact": { "artifactId": "a-1", "name": "pictures", "metadata": { "m": 1 }, "parts": parts } } })
    };
    let parts = json!([
        { "kind": "text", "text": "<p>", "metadata": { "mediaType": "text/html" } },
        { "kind": "file", "file": { "bytes": "AQID", "mimeType": "image/png", "name": "a.png" } },
        { "kind": "file", "file": { "uri": "https://x.example/a.pdf" } },
        { "kind": "data", "data": { "value": [1] }, "metadata": { "data_part_compat": true } },
        { "kind": "data", "data": { "data": 1 } }
    ]);
    let frames = format!(
        "{}data: {}\n\n{}",
        V03.frames(1, &[submitted()]),
        update(parts),
        V03.frames(1, &[status("COMPLETED")])
    );
    let driven = Session::new(&fixed(V03)).send_text("Paris?", [testkit::Answer::stream(&frames)]);
    insta::assert_snapshot!("parts_of_old_artifacts", testkit::render(&driven.record));
}

#[test]
fn thoughts_and_interfaces_are_messages_of_their_own_kind() {
    let items = [
        artifact("a-1", &json!([{ "text": "hm", "metadata": { "adk_thought": true } }]), false, true),
        artifact("a-2", &json!([{ "data": { "surface": 1 }, "mediaType": "application/json+a2ui" }]), false, true),
    ];
    insta::assert_snapshot!("kinds_of_artifacts", tale(&items));
}

#[test]
fn a_server_that_keeps_every_chunk_as_a_part_repeats_nothing() {
    for dialect in ALL {
        let chunks =
            json!([{ "artifactId": "a-1", "parts": [{ "text": "It " }, { "text": "is " }, { "text": "18 C." }] }]);
        let items = [
            submitted(),
            text("a-1", "It ", false),
            text("a-1", "is ", true),
            json!({ "task": task("COMPLETED", &chunks) }),
        ];
        let driven = Session::new(&fixed(dialect)).send_text("Paris?", [dialect.stream(1, &items)]);
        assert_eq!(texts(&driven), [("message".to_owned(), "It is 18 C.".to_owned())]);
    }
}

#[test]
fn an_older_state_takes_nothing_back() {
    let old = json!({ "task": task("WORKING", &json!([{ "artifactId": "a-1", "parts": [{ "text": "It" }] }])) });
    let items = [submitted(), text("a-1", "It is ", false), old, text("a-1", "18 C.", true), status("COMPLETED")];
    let driven = Session::new(&fixed(V1_REST)).send_text("Paris?", [V1_REST.stream(1, &items)]);
    assert_eq!(texts(&driven), [("message".to_owned(), "It is 18 C.".to_owned())]);
}

#[test]
fn another_tasks_events_are_not_read() {
    let mut other = text("a-1", "not yours", false);
    other["artifactUpdate"]["taskId"] = json!("U");
    let items = [submitted(), other, text("a-1", "18 C.", false), status("COMPLETED")];
    let driven = Session::new(&fixed(V1)).send_text("Paris?", [V1.stream(1, &items)]);
    assert_eq!(texts(&driven), [("message".to_owned(), "18 C.".to_owned())]);
}

#[test]
fn metadata_of_an_artifact_is_kept_with_its_message() {
    let mut item = text("a-1", "18 C.", false);
    let artifact = &mut item["artifactUpdate"]["artifact"];
    artifact["name"] = json!("forecast");
    artifact["description"] = json!("today");
    artifact["metadata"] = json!({ "k": 1.0 });
    artifact["extensions"] = json!(["urn:x"]);
    let driven =
        Session::new(&fixed(V1)).send_text("Paris?", [V1.stream(1, &[submitted(), item, status("COMPLETED")])]);
    let metadata = driven.record.run().messages[0].metadata.as_ref().expect("metadata").text().to_owned();
    assert_eq!(
        metadata,
        r#"{"a2a":{"artifact_id":"a-1","name":"forecast","description":"today","metadata":{"k":1.0},"extensions":["urn:x"],"task_id":"T"}}"#
    );
}
