//! Tests of resources.

use std::sync::Arc;

use interlingua_core::call::AgentCard;
use interlingua_core::model::{Content, ContentType, File, MessageType};
use interlingua_core::{End, Mount};
use interlingua_core_testkit::{RUN, RunBuilder, TestRun};

use super::*;
use crate::options::Options;
use crate::result::{part_uri, run_uri};

fn options() -> Options {
    Options::default()
}

fn context(options: &Options, revision: Revision) -> ResultContext<'_> {
    ResultContext { options, revision, resources: true }
}

fn tools() -> Tools {
    let card = |name: &str| {
        Arc::new(AgentCard {
            name: name.to_owned(),
            description: "Helps.".to_owned(),
            version: "1.2".to_owned(),
            ..AgentCard::default()
        })
    };
    let mount =
        Mount { path: "/mcp".into(), agents: vec![card("wolf"), card("a b")], public_url: None, schemes: Vec::new() };
    Tools::new(&mount, &options()).expect("tools")
}

/// Reads a resource of these runs, the first of which has the id of test runs.
fn read(uri: &str, records: &[&Record], revision: Revision) -> Result<Value, RpcError> {
    let Resource::Run(mut resource) = Resource::parse(uri, revision)? else { panic!("{uri} is an agent") };
    let options = options();
    assert!(matches!(resource.call(), Call::Fetch(Target::Run(RUN))));
    for record in records {
        match resource.take(TestRun::new(record).view(), &context(&options, revision))? {
            ReadStep::Done(result) => return Ok(result),
            ReadStep::Call(Call::Fetch(Target::Run(_))) => {}
            other @ ReadStep::Call(_) => panic!("{other:?}"),
        }
    }
    resource.finish(&context(&options, revision))
}

fn answered(contents: Vec<Content>) -> Record {
    let mut run = RunBuilder::begin();
    let message = run.message(MessageType::Message);
    for content in contents {
        match &content.body {
            Body::Text(text) => {
                run.text(message, ContentType::Text, &[text]);
            }
            Body::Refusal(text) => {
                run.text(message, ContentType::Refusal, &[text]);
            }
            _ => run.value(message, content),
        }
    }
    run.end(message);
    run.finish(End::Completed)
}

#[test]
fn agents_are_resources() {
    let tools = tools();
    let all = list(&tools, &|_| true, None).expect("a page");
    let expected = json!({
        "uri": "interlingua://agents/a%20b", "name": "a b", "description": "Helps.", "mimeType": "application/json",
    });
    assert_eq!((&all["resources"][0], all["resources"].as_array().map(Vec::len)), (&expected, Some(2)));
    assert_eq!(list(&tools, &|_| false, None).expect("a page"), json!({ "resources": [] }));
    assert_eq!(list(&tools, &|_| true, Some("x")).map_err(|error| error.code), Err(-32602));

    let Ok(Resource::Agent(name)) = Resource::parse("interlingua://agents/a%20b", Revision::July2026) else {
        panic!("an agent")
    };
    let result = agent(tools.of_agent(&name).expect("an agent"));
    let contents = &result["contents"][0];
    assert_eq!((&contents["uri"], &contents["mimeType"]), (&expected["uri"], &expected["mimeType"]));
    let text: Value = serde_json::from_str(contents["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(text, json!({ "name": "a b", "description": "Helps.", "version": "1.2", "tool": "a_b" }));
}

#[test]
fn runs_are_templates() {
    let page = templates(None).expect("a page");
    let uris: Vec<&str> = page["resourceTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["uriTemplate"].as_str())
        .collect();
    assert_eq!(uris, ["interlingua://runs/{run}", "interlingua://runs/{run}/parts/{n}"]);
    assert_eq!(templates(Some("x")).map_err(|error| error.code), Err(-32602));
}

#[test]
fn a_run_is_the_object_of_structured_content() {
    let result = read(&run_uri(RUN), &[&answered(vec![Content::text("hi")])], Revision::July2026).expect("a result");
    let contents = &result["contents"][0];
    assert_eq!((&contents["uri"], &contents["mimeType"]), (&json!(run_uri(RUN)), &json!("application/json")));
    let object: Value = serde_json::from_str(contents["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(
        (&object["text"], &object["status"], &object["session"]),
        (&json!("hi"), &json!("completed"), &json!("session-1"))
    );
    assert_eq!(object["run"], RUN.to_string());
}

#[test]
fn a_failed_run_can_be_read() {
    let object =
        read(&run_uri(RUN), &[&RunBuilder::begin().finish(End::Failed)], Revision::July2026).expect("a result");
    let object: Value = serde_json::from_str(object["contents"][0]["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!((&object["status"], &object["error"]["code"]), (&json!("failed"), &json!("MODEL_TIMEOUT")));
}

#[test]
fn parts_of_an_answer_are_resources() {
    let file = |url: Option<&str>, data: Option<&str>| {
        let (url, data) = (url.map(str::to_owned), data.map(str::to_owned));
        Content::new(Body::File(File { url, data, id: None, name: None }))
    };
    let record = answered(vec![
        Content::text("hi"),
        Content::new(Body::Image(Some("data:image/png;base64,AQID".into()))),
        file(None, Some("data:text/csv;base64,aGk=")),
        file(Some("https://x/a"), None),
        Content::data(&json!({ "a": 1 })),
        Content::new(Body::Audio { data: Some("AQID".into()), format: Some("mp3".into()) }),
    ]);
    let part = |number: usize| {
        let result = read(&part_uri(RUN, number), &[&record], Revision::July2026).map_err(|error| error.code)?;
        let mut contents = result["contents"][0].clone();
        assert_eq!(contents["uri"], part_uri(RUN, number));
        contents.as_object_mut().expect("an object").remove("uri");
        Ok::<Value, i64>(contents)
    };
    assert_eq!(part(1), Ok(json!({ "mimeType": "text/plain", "text": "hi" })));
    assert_eq!(part(2), Ok(json!({ "mimeType": "image/png", "blob": "AQID" })));
    assert_eq!(part(3), Ok(json!({ "mimeType": "text/csv", "text": "hi" })));
    assert_eq!(part(4), Ok(json!({ "mimeType": "text/uri-list", "text": "https://x/a" })));
    assert_eq!(part(5), Ok(json!({ "mimeType": "application/json", "text": r#"{"a":1}"# })));
    assert_eq!(part(6), Ok(json!({ "mimeType": "audio/mpeg", "blob": "AQID" })));
    assert_eq!(part(7), Err(-32602));
}

#[test]
fn a_run_is_read_with_the_run_that_answered_it() {
    let mut first = RunBuilder::begin();
    first.say(MessageType::Message, &["May I?"]);
    let mut first = first.record;
    first.finish_turn(End::Completed, None);
    first.start_linked_turn(RunId(uuid::Uuid::from_u128(9)));
    let second = answered(vec![Content::text("Done")]);

    let text = |records: &[&Record]| {
        let result = read(&run_uri(RUN), records, Revision::July2026).expect("a result");
        let object: Value =
            serde_json::from_str(result["contents"][0]["text"].as_str().expect("a text")).expect("JSON");
        object["text"].as_str().map(str::to_owned)
    };
    assert_eq!(text(&[&first, &second]).as_deref(), Some("May I?\n\nDone"));
    assert_eq!(text(&[&first]).as_deref(), Some("May I?"), "the other run was deleted");
    let part = read(&part_uri(RUN, 2), &[&first, &second], Revision::July2026).expect("a result");
    assert_eq!(part["contents"][0]["text"], "Done");
}

#[test]
fn a_cycle_of_runs_ends() {
    let mut record = RunBuilder::begin().record;
    record.finish_turn(End::Completed, None);
    record.start_linked_turn(RUN);
    let records = vec![&record; MAX_CHAIN];
    assert!(read(&run_uri(RUN), &records, Revision::July2026).is_ok());
}

#[test]
fn other_uris_are_unknown() {
    let run = run_uri(RUN);
    for uri in [
        "",
        "https://x",
        "interlingua://agents/",
        "interlingua://agents/%zz",
        "interlingua://agents/%ff",
        "interlingua://runs/",
        "interlingua://runs/7",
        &format!("{run}/"),
        &format!("{run}/parts"),
        &format!("{run}/parts/"),
        &format!("{run}/parts/0"),
        &format!("{run}/parts/+1"),
        &format!("{run}/parts/-1"),
        &format!("{run}/parts/1/2"),
        &format!("interlingua://agents/{}", "a".repeat(1024)),
    ] {
        for (revision, code) in [(Revision::July2026, -32602), (Revision::November2025, -32002)] {
            let error = Resource::parse(uri, revision).map(|_| ()).expect_err(uri);
            assert_eq!((error.status, error.code), (200, code), "{uri}");
            assert!(error.data.is_some_and(|data| data["uri"].as_str().is_some_and(|shown| uri.starts_with(shown))));
        }
    }
    assert_eq!(read(&run, &[], Revision::June2025).map_err(|error| error.code), Err(-32002), "an unknown run");
}
