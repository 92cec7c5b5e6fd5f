//! Tests of the tools of a route.

use std::sync::Arc;

use interlingua_core::call::AgentCard;
use interlingua_core::capability::Media;
use serde_json::json;

use super::*;

fn card(name: &str) -> AgentCard {
    AgentCard { name: name.to_owned(), ..AgentCard::default() }
}

fn mounted(path: &str, cards: Vec<AgentCard>, options: Value) -> Result<Tools, String> {
    let options: Options = serde_json::from_value(options).expect("options");
    let agents = cards.into_iter().map(Arc::new).collect();
    Tools::new(&Mount { path: path.to_owned(), agents, public_url: None, schemes: Vec::new() }, &options)
}

fn tools(names: &[&str], options: Value) -> Result<Tools, String> {
    mounted("/mcp", names.iter().map(|name| card(name)).collect(), options)
}

fn agent<'t>(tools: &'t Tools, name: &str) -> &'t AgentTool {
    match tools.find(name) {
        Some(ToolRef::Agent(tool)) => tool,
        other => panic!("{name}: {other:?}"),
    }
}

fn list(tools: &Tools, revision: Revision) -> Vec<Value> {
    let page = tools.list(&|_| true, revision, None).expect("a page");
    page["tools"].as_array().expect("a list").clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

fn translator() -> Value {
    json!({ "tools": { "translator": {
        "name": "translate",
        "title": "Translator",
        "description": "Translates a text.",
        "message": "Translate into {language}: {text}",
        "arguments": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": { "language": { "enum": ["de", "fr"] } },
            "properties": {
                "text": { "type": "string" },
                "language": { "type": "string", "enum": ["de", "fr"] },
                "times": { "type": "integer" },
            },
            "if": { "required": ["times"] },
            "required": ["text", "language"],
            "additionalProperties": false,
        },
        "tasks": "never",
        "read_only": true,
    } } })
}

#[test]
fn a_plain_tool_takes_a_message() {
    let helper = AgentCard { description: "Answers questions about orders.".into(), ..card("helper") };
    let tools = mounted("/mcp", vec![helper], json!({ "session_note": false })).expect("tools");
    let list = list(&tools, Revision::July2026);
    assert_eq!(
        list[0],
        json!({
            "name": "helper", "description": "Answers questions about orders.",
            "inputSchema": { "type": "object", "properties": {
                "message": { "type": "string", "description": "What to say to the agent." },
                "session": { "type": "string", "description": "The session of an earlier result, to go on with that \
                    conversation. Leave it out to begin a new one." },
            }, "required": ["message"], "additionalProperties": false },
            "annotations": { "readOnlyHint": false, "openWorldHint": true },
        })
    );
}

#[test]
fn definitions_are_shown_in_full() {
    let media = AgentCard { input_media: Media { image: true, ..Media::NONE }, ..card("seer") };
    let mut options = translator();
    options["structured"] = json!(true);
    let tools = mounted("/mcp", vec![media, card("translator")], options).expect("tools");
    let full = serde_json::to_string_pretty(&list(&tools, Revision::November2025)).expect("JSON");
    insta::assert_snapshot!("definitions", full);
    assert_eq!(list(&tools, Revision::July2026), list(&tools, Revision::June2025));
    for tool in list(&tools, Revision::March2025) {
        assert_eq!((tool.get("title"), tool.get("outputSchema")), (None, None), "{tool}");
        assert!(tool["inputSchema"].is_object(), "{tool}");
    }
}

#[test]
fn a_declared_schema_is_sent_as_written_with_a_session() {
    let tools = tools(&["translator"], translator()).expect("tools");
    let mut schema = list(&tools, Revision::July2026)[0]["inputSchema"].clone();
    let session = schema["properties"].as_object_mut().expect("properties").remove("session");
    assert!(session.is_some_and(|session| session["type"] == "string"));
    assert_eq!(schema, translator()["tools"]["translator"]["arguments"]);

    let tools = self::tools(&["a"], json!({ "tools": { "a": { "message": "go" } } })).expect("tools");
    let schema = &list(&tools, Revision::July2026)[0]["inputSchema"];
    assert_eq!(
        (&schema["type"], schema["properties"].as_object().map(serde_json::Map::len)),
        (&json!("object"), Some(1))
    );
}

#[test]
fn tools_are_sorted_and_the_helper_tools_are_last() {
    let tools = tools(&["wolf", "answers", "b.c"], json!({})).expect("tools");
    let all = list(&tools, Revision::July2026);
    assert_eq!(names(&all), ["answers", "b_c", "wolf", "answer", "wait"]);
    assert_eq!(all[0]["description"], "Asks the agent answers.");
    assert_eq!(agent(&tools, "b_c").agent, "b.c");
    assert_eq!(tools.of_agent("b.c").map(|tool| tool.name.as_str()), Some("b_c"));
    assert!(matches!(tools.find("answer"), Some(ToolRef::Answer)) && matches!(tools.find("wait"), Some(ToolRef::Wait)));
    assert!(tools.find("b.c").is_none() && tools.find("").is_none());

    let mine = tools.list(&|agent| agent == "b.c", Revision::July2026, None).expect("a page");
    assert_eq!(names(mine["tools"].as_array().expect("a list")), ["b_c", "answer", "wait"]);
}

#[test]
fn helper_tools_can_be_renamed_and_switched_off() {
    let tools = tools(&["a"], json!({ "answer_tool": "", "wait_tool": "await_run" })).expect("tools");
    assert_eq!(names(&list(&tools, Revision::July2026)), ["a", "await_run"]);
    assert!(tools.find("answer").is_none() && tools.find("wait").is_none());
}

#[test]
fn long_lists_have_pages() {
    let all: Vec<String> = (0..150).map(|number| format!("agent{number:03}")).collect();
    let tools = tools(&all.iter().map(String::as_str).collect::<Vec<_>>(), json!({})).expect("tools");
    for revision in Revision::ALL {
        let first = tools.list(&|_| true, revision, None).expect("a page");
        let second = tools.list(&|_| true, revision, first["nextCursor"].as_str()).expect("a page");
        let (one, two) = (first["tools"].as_array().expect("a list"), second["tools"].as_array().expect("a list"));
        assert_eq!((one.len(), two.len(), second.get("nextCursor")), (100, 52, None));
        assert_eq!(names(&two[49..]), ["agent149", "answer", "wait"]);
        let wrong = tools.list(&|_| true, revision, Some("x")).map_err(|error| (error.status, error.code));
        assert_eq!(wrong, Err((200, -32602)));
    }
}

#[test]
fn wrong_configurations_are_refused() {
    let long = "a".repeat(65);
    let table = |table: Value| json!({ "tools": { "a": table } });
    for (agents, options, problem) in [
        (&["a.b", "a_b"][..], json!({}), "the agents 'a.b' and 'a_b' both have the tool name 'a_b'"),
        (&["a", "b"], table(json!({ "name": "b" })), "the agents 'a' and 'b' both have the tool name 'b'"),
        (&["answer"], json!({}), "the agent 'answer' has the name of the helper tool 'answer'"),
        (&["a"], table(json!({ "name": "wait" })), "has the name of the helper tool 'wait'"),
        (&[&*long], json!({}), "is too long: 65 characters, 64 are allowed"),
        (&["a"], table(json!({ "name": "a b" })), "contains ' '"),
        (&["a"], table(json!({ "name": "" })), "is empty"),
        (&["a"], json!({ "answer_tool": "a.b" }), "the option answer_tool 'a.b' contains '.'"),
        (&["a"], json!({ "answer_tool": "x", "wait_tool": "x" }), "both have the name 'x'"),
        (&["b"], table(json!({})), "the route has no agent 'a'"),
        (&["a"], table(json!({ "message": "{x}" })), "its message names the argument 'x', which is not declared"),
        (&["a"], table(json!({ "message": "{session}" })), "names the argument 'session'"),
        (&["a"], table(json!({ "message": "{x" })), "a brace is not closed"),
        (&["a"], table(json!({ "arguments": { "type": "array" } })), "it must be \"object\""),
        (&["a"], table(json!({ "arguments": { "properties": [] } })), "are no object"),
        (&["a"], table(json!({ "arguments": { "properties": { "session": {} } } })), "the argument 'session'"),
        (
            &["a"],
            table(json!({ "arguments": { "properties": { "x": { "x-mcp-header": "X" } } } })),
            "x-mcp-header, which is not supported",
        ),
        (&["a"], table(json!({ "tasks": "never", "ask_first": "1s" })), "has ask_first without tasks"),
        (&["a"], json!({ "tasks": "never", "ask_first": "1s" }), "ask_first has no effect without tasks"),
    ] {
        let error = tools(agents, options.clone()).map(|_| ()).expect_err(problem);
        assert!(error.contains(problem), "{options}: {error}");
    }

    let many: Vec<AgentCard> = (0..501).map(|number| card(&format!("a{number}"))).collect();
    assert!(mounted("/mcp", many[1..].to_vec(), json!({})).is_ok());
    assert!(mounted("/mcp", many, json!({})).is_err_and(|error| error.contains("501 agents")));
}

#[test]
fn a_server_for_each_agent_ignores_the_tables_of_the_others() {
    let options = json!({ "tools": { "a": { "name": "x" }, "b": {} } });
    let tools = mounted("/mcp/a", vec![card("a")], options.clone()).expect("tools");
    assert_eq!(agent(&tools, "x").agent, "a");
    assert!(mounted("/mcp", vec![card("a")], options).is_err());
}

#[test]
fn settings_of_a_tool_replace_those_of_the_route() {
    let options = json!({
        "tasks": "always", "task_after": "5s", "ask_first": "2s",
        "tools": { "b": { "tasks": "required", "task_after": "1s", "ask_first": "0s", "read_only": true } },
    });
    let tools = tools(&["a", "b"], options).expect("tools");
    let seconds = |tool: &str| {
        let settings = agent(&tools, tool).settings;
        (settings.tasks, settings.task_after.as_secs(), settings.ask_first.as_secs())
    };
    assert_eq!([seconds("a"), seconds("b")], [(Tasks::Always, 5, 2), (Tasks::Required, 1, 0)]);
    assert_eq!(list(&tools, Revision::July2026)[1]["annotations"]["readOnlyHint"], true);
}

/// The agent's input, or the error.
fn input(tool: &AgentTool, arguments: Value) -> Result<(String, Option<String>, String), String> {
    let input = tool.input(&arguments).map_err(|error| format!("{}: {}", error.code, error.message))?;
    let messages = serde_json::to_string(&input.messages).expect("JSON");
    Ok((messages, input.session, serde_json::to_string(&input.extra).expect("JSON")))
}

#[test]
fn a_message_becomes_the_input_of_a_run() {
    let media = AgentCard { input_media: Media::ALL, ..card("a") };
    let tools = mounted("/mcp", vec![media], json!({})).expect("tools");
    let arguments = json!({
        "message": "Look", "session": "s-1", "attachments": [{ "url": "https://x/a.png" }, { "text": "b" }],
    });
    let message = concat!(
        r#"[{"type":"message","role":"user","content":[{"type":"text","text":"Look"},"#,
        r#"{"type":"image","image_url":"https://x/a.png"},{"type":"file","file_url":null,"file_id":null,"#,
        r#""filename":null,"file_data":"data:text/plain;base64,Yg=="}]}]"#,
    );
    let expected = Ok((message.to_owned(), Some("s-1".to_owned()), "{}".to_owned()));
    assert_eq!(input(agent(&tools, "a"), arguments), expected);
}

#[test]
fn wrong_arguments_of_a_plain_tool_are_refused() {
    let tools = tools(&["a"], json!({})).expect("tools");
    let long = "s".repeat(513);
    for (arguments, problem) in [
        (json!({}), "MISSING_PARAMETER: message is missing"),
        (Value::Null, "MISSING_PARAMETER: message is missing"),
        (json!({ "message": 1 }), "MISSING_PARAMETER: message must be a string"),
        (json!({ "message": null }), "MISSING_PARAMETER: message must be a string"),
        (json!({ "message": " \n" }), "MISSING_PARAMETER: message is blank"),
        (json!([]), "PARAMETER_VALIDATION: the arguments must be an object"),
        (json!({ "message": "a", "mood": 1 }), "INVALID_PARAMETER: unknown argument 'mood': a takes message, session"),
        (json!({ "message": "a", "attachments": [] }), "INVALID_PARAMETER: unknown argument 'attachments'"),
        (json!({ "message": "a", "session": 1 }), "PARAMETER_VALIDATION: session must be a string"),
        (json!({ "message": "a", "session": null }), "PARAMETER_VALIDATION: session must be a string"),
        (json!({ "message": "a", "session": "" }), "RESOURCE_NOT_FOUND: no such session; leave session out"),
        (json!({ "message": "a", "session": long }), "RESOURCE_NOT_FOUND: no such session"),
    ] {
        let error = input(agent(&tools, "a"), arguments.clone()).expect_err(problem);
        assert!(error.starts_with(problem), "{arguments}: {error}");
    }
    let session = |text: &str| agent(&tools, "a").input(&json!({ "message": "a", "session": text })).ok()?.session;
    assert_eq!(session("[session s-1]").as_deref(), Some("s-1"));
}

#[test]
fn attachments_can_be_switched_off() {
    let media = || AgentCard { input_media: Media::ALL, ..card("a") };
    let takes = |options: Value| {
        let tools = mounted("/mcp", vec![media()], options).expect("tools");
        let schema = list(&tools, Revision::July2026)[0]["inputSchema"].clone();
        schema["properties"].get("attachments").is_some()
    };
    assert!(takes(json!({})) && !takes(json!({ "attachments": false })));
    assert!(!takes(json!({ "tools": { "a": { "arguments": {} } } })), "declared arguments have their own schema");
}

#[test]
fn declared_arguments_fill_the_message_and_go_to_the_agent() {
    let tools = tools(&["translator"], translator()).expect("tools");
    let tool = agent(&tools, "translate");
    let arguments = json!({ "text": "Hallo {x}", "language": "fr", "session": "s" });
    let message =
        r#"[{"type":"message","role":"user","content":[{"type":"text","text":"Translate into fr: Hallo {x}"}]}]"#;
    let extra = r#"{"arguments":{"language":"fr","text":"Hallo {x}"}}"#;
    assert_eq!(input(tool, arguments), Ok((message.to_owned(), Some("s".to_owned()), extra.to_owned())));

    for (arguments, problem) in [
        (json!({ "language": "fr" }), "MISSING_PARAMETER: the argument 'text' is missing"),
        (json!({ "text": "a" }), "MISSING_PARAMETER: the argument 'language' is missing"),
        (
            json!({ "text": "a", "language": "it" }),
            "INVALID_PARAMETER: the argument 'language' must be one of the allowed values",
        ),
        (json!({ "text": 1, "language": "de" }), "INVALID_PARAMETER: the argument 'text' must be of type string"),
        (
            json!({ "text": "a", "language": "de", "mood": 1 }),
            "INVALID_PARAMETER: the arguments must not have the field 'mood'",
        ),
    ] {
        assert_eq!(input(tool, arguments.clone()), Err(problem.to_owned()), "{arguments}");
    }
}

#[test]
fn arguments_without_a_template_are_the_message() {
    let options = json!({ "tools": {
        "a": { "arguments": { "properties": { "x": { "type": "integer" } } } },
        "b": { "message": "go", "arguments": {} },
        "c": { "message": "{x}", "arguments": { "properties": { "x": {} } } },
    } });
    let tools = tools(&["a", "b", "c"], options).expect("tools");
    let text = |tool: &str, arguments: Value| {
        agent(&tools, tool).input(&arguments).map(|input| input.messages[0].text()).map_err(|error| error.code)
    };
    assert_eq!(text("a", json!({ "x": 1, "y": [2] })), Ok(r#"{"x":1,"y":[2]}"#.to_owned()), "the schema is open");
    assert_eq!(text("b", Value::Null), Ok("go".to_owned()));
    assert_eq!(text("c", json!({})), Err("MISSING_PARAMETER"));
}

#[test]
fn a_digest_depends_on_the_tool_and_the_arguments_alone() {
    let tools = tools(&["a", "b"], json!({})).expect("tools");
    let digest =
        |tool: &str, text: &str| agent(&tools, tool).digest(&serde_json::from_str::<Value>(text).expect("JSON"));
    let one = digest("a", r#"{"message":"x","session":"s","n":[{"b":1,"a":2}]}"#);
    assert_eq!(one, digest("a", r#"{ "n": [{"a":2,"b":1}], "session": "s", "message": "\u0078" }"#));
    assert_eq!(digest("a", "null"), digest("a", "{}"));
    for other in [
        digest("b", r#"{"message":"x","session":"s","n":[{"b":1,"a":2}]}"#),
        digest("a", r#"{"message":"x","session":"s","n":[{"b":1,"a":3}]}"#),
        digest("a", r#"{"message":"x","session":"s","n":[{"b":1},{"a":2}]}"#),
        digest("a", r#"{"message":"x","session":"s"}"#),
        digest("a", r#"{"message":9007199254740993}"#),
        digest("a", r#"{"message":9007199254740992}"#),
    ] {
        assert_ne!(one, other);
    }
    assert_ne!(digest("a", r#"{"message":9007199254740993}"#), digest("a", r#"{"message":9007199254740992}"#));
    assert_eq!(one.len(), 43);
}
