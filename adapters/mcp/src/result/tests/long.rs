//! Results that would be too large.

use interlingua_core::loss::Losses;
use interlingua_core_testkit::RUN;

use super::*;

fn image(bytes: usize) -> Content {
    Content::new(Body::Image(Some(format!("data:image/png;base64,{}", "A".repeat(bytes)))))
}

fn size_of(result: &Value) -> usize {
    serde_json::to_string(&result["content"]).expect("JSON").len()
}

#[test]
fn the_largest_media_become_links_first() {
    let record = answered(vec![image(400_000), Content::text("hi"), image(600_000), image(300_000)]);
    let result = ended(&record, json!({})).expect("a result");
    let types: Vec<&str> =
        result["content"].as_array().into_iter().flatten().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(types, ["image", "text", "resource_link", "image", "text"]);
    let link = json!({
        "type": "resource_link", "uri": format!("interlingua://runs/{RUN}/parts/3"), "name": "image",
        "mimeType": "image/png",
    });
    assert_eq!(result["content"][2], link);
    assert!(size_of(&result) < size::MAX_RESULT);
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    for text in ["ä\"\n".repeat(300_000), "x".repeat(2_000_000), "\u{1}".repeat(400_000)] {
        let record = answered(vec![Content::text(text.clone()), Content::text(""), image(8)]);
        for options in [json!({}), json!({ "structured": true })] {
            let result = ended(&record, options.clone()).expect("a result");
            let blocks = result["content"].as_array().expect("a list");
            let cut = blocks[0]["text"].as_str().expect("a text");
            assert!(text.starts_with(cut) && cut.len() > 50_000, "{}", cut.len());
            let link = blocks.iter().find(|block| block["type"] == "resource_link").expect("a link");
            assert_eq!(link["uri"], format!("interlingua://runs/{RUN}"));
            let whole = serde_json::to_string(&result).expect("JSON").len();
            assert!(whole <= size::MAX_RESULT + 2000, "{options}: {whole}");
        }
    }
}

#[test]
fn many_messages_are_cut_between_or_within_them() {
    let mut run = RunBuilder::begin();
    for _ in 0..40 {
        run.say(MessageType::Message, &[&"y".repeat(50_000)]);
    }
    let result = ended(&run.finish(End::Completed), json!({})).expect("a result");
    let texts = shown(&result);
    assert_eq!(texts.iter().filter(|text| text.len() == 50_000).count(), 17);
    assert_eq!(texts.last().map(String::as_str), Some(NOTE), "what the gateway adds stays");
    assert!(size_of(&result) < size::MAX_RESULT && size_of(&result) > 850_000);
}

#[test]
fn without_resources_the_size_is_a_loss() {
    let record = answered(vec![image(1_000_000), Content::text("z".repeat(1_000_000))]);
    let options = options(json!({ "resources": false }));
    let context = context(&options, Revision::July2026);
    let run = TestRun::new(&record);
    let result = call_result(&context, &[run.view()], Outcome::Ended).expect("a result");
    let texts = shown(&result);
    assert_eq!(texts[0], "[image: image/png, 750000 bytes, too large]");
    assert!(texts.contains(&"[the answer is too large: the rest was cut off]".to_owned()));
    assert!(!result.to_string().contains("interlingua://"), "nothing to read");

    let note = |context: &ResultContext<'_>| {
        let mut losses = Losses::new();
        note_losses(context, &[run.view()], true, &mut losses);
        losses.as_slice().iter().map(|loss| loss.how).collect::<Vec<_>>()
    };
    assert_eq!(note(&context), ["the answer is too large for a result"]);
    assert_eq!(note(&ResultContext { resources: true, ..context }), Vec::<&str>::new());
}

#[test]
fn structured_content_leaves_out_its_largest_members() {
    let data = Content::new(Body::Data(interlingua_core::Json::from_serialize(&"d".repeat(600_000))));
    let record = answered(vec![data, Content::text("short")]);
    let result = ended(&record, json!({ "structured": true })).expect("a result");
    let object = &result["structuredContent"];
    assert_eq!((object.get("data"), object["text"].as_str()), (None, Some("short")));
}

#[test]
fn texts_are_measured_as_json() {
    for (text, max, kept) in [
        ("abc", 3, 3),
        ("abc", 2, 2),
        ("ä", 1, 0),
        ("\"\"", 3, 1),
        ("\n\u{1}x", 8, 2),
        ("\n\u{1}x", 7, 1),
        ("", 0, 0),
        ("a", 0, 0),
    ] {
        assert_eq!(size::cut_json_text(text, max), kept, "{text:?} {max}");
        let size = serde_json::to_string(&text[..kept]).expect("JSON").len() - 2;
        assert!(size <= max, "{text:?}");
    }
}
