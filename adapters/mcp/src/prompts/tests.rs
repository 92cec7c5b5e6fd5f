//! Tests of prompts.

use std::sync::Arc;

use interlingua_core::Mount;
use interlingua_core::call::AgentCard;

use super::*;
use crate::options::Options;

fn tools() -> Tools {
    let options: Options = serde_json::from_value(json!({ "tools": { "translator": {
        "name": "translate", "title": "Translator", "description": "Translates.",
        "message": "Translate into {language}: {text} ({times})",
        "arguments": { "type": "object", "required": ["text"], "properties": {
            "text": { "type": "string", "description": "The text." },
            "language": { "type": "string", "enum": ["de", "fr"] },
            "times": { "type": "integer" },
        } },
    } } }))
    .expect("options");
    let card = |name: &str| Arc::new(AgentCard { name: name.to_owned(), ..AgentCard::default() });
    let agents = vec![card("translator"), card("helper")];
    Tools::new(&Mount { path: "/mcp".into(), agents, public_url: None, schemes: Vec::new() }, &options).expect("tools")
}

fn text(prompt: &str, arguments: Option<Value>) -> Result<String, (i64, String)> {
    let tools = tools();
    let tool = find(&tools, &|_| true, prompt).map_err(|error| (error.code, error.message))?;
    let result = get(tool, arguments.as_ref()).map_err(|error| (error.code, error.message))?;
    let message = &result["messages"][0];
    assert_eq!((&message["role"], &message["content"]["type"]), (&json!("user"), &json!("text")));
    assert_eq!(
        (result["messages"].as_array().map(Vec::len), &result["description"]),
        (Some(1), &json!(tool.description))
    );
    Ok(message["content"]["text"].as_str().expect("a text").to_owned())
}

#[test]
fn each_agent_is_a_prompt() {
    let tools = tools();
    let page = list(&tools, &|_| true, Revision::July2026, None).expect("a page");
    let expected = json!({ "prompts": [
        {
            "name": "helper", "description": "Asks the agent helper.",
            "arguments": [{ "name": "message", "description": "What to say to the agent.", "required": false }],
        },
        {
            "name": "translate", "title": "Translator", "description": "Translates.",
            "arguments": [
                { "name": "language", "required": false },
                { "name": "text", "description": "The text.", "required": true },
                { "name": "times", "required": false },
            ],
        },
    ] });
    assert_eq!(page, expected);
    let old = list(&tools, &|agent| agent == "translator", Revision::March2025, None).expect("a page");
    assert_eq!((old["prompts"][0].get("title"), old["prompts"].as_array().map(Vec::len)), (None, Some(1)));
    assert_eq!(list(&tools, &|_| true, Revision::July2026, Some("?")).map_err(|error| error.code), Err(-32602));
}

#[test]
fn a_prompt_asks_the_model_to_use_the_tool() {
    assert_eq!(text("helper", None), Ok("Use the tool helper.".into()));
    assert_eq!(text("helper", Some(json!({ "message": " " }))), Ok("Use the tool helper.".into()));
    assert_eq!(
        text("helper", Some(json!({ "message": "hi" }))),
        Ok("Use the tool helper with this message:\n\nhi".into())
    );
    let arguments = json!({ "text": "Hallo", "language": "fr", "times": "2", "other": "x" });
    assert_eq!(
        text("translate", Some(arguments)),
        Ok("Use the tool translate with these arguments: {\"language\":\"fr\",\"text\":\"Hallo\",\"times\":2}\n\n\
            Translate into fr: Hallo (2)"
            .into())
    );
}

#[test]
fn wrong_prompts_are_refused() {
    for (prompt, arguments, message) in [
        ("answer", None, "Unknown prompt: answer"),
        ("translator", None, "Unknown prompt: translator"),
        ("translate", None, "the argument 'text' is missing"),
        ("translate", Some(json!({ "text": 1 })), "the argument 'text' must be a string"),
        ("helper", Some(json!([])), "arguments must be an object"),
    ] {
        assert_eq!(text(prompt, arguments), Err((-32602, message.to_owned())));
    }
    let tools = tools();
    assert!(find(&tools, &|_| false, "helper").is_err(), "an agent that the caller may not use");
    let long = "ä".repeat(200);
    let error = find(&tools, &|_| true, &long).map(|_| ()).expect_err("unknown");
    assert!(error.message.len() < 100);
}
