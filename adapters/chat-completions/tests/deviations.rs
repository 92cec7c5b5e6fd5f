//! What real servers send instead of the protocol, row by row of `docs/protocols/chat-completions.md#deviations-and-repairs`:
//! chunks in, the tale of the record out.

mod support;

use support::tale;

/// Tells each case under its name.
fn table(cases: &[(&str, &str, &[&str])]) -> String {
    let tell = |(name, options, chunks): &(&str, &str, &[&str])| format!("## {name}\n{}\n", tale(options, chunks));
    cases.iter().map(tell).collect::<Vec<_>>().join("\n")
}

const DONE: &str = "[DONE]";
const CALLS: &str = r#" => tool_calls"#;

#[test]
fn calls() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("as it should be", "{}", &[
            r#""role":"assistant","content":null"#,
            r#""tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]"#,
            r#""tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]"#,
            r#""tool_calls":[{"index":0,"function":{"arguments":"1}"}}]"#,
            r#""tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}]"#,
            r#""tool_calls":[{"index":1,"function":{"arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("no index, whole calls in one chunk", "{}", &[
            r#""tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}]"#,
            CALLS, DONE,
        ]),
        ("no index, pieces", "{}", &[
            r#""tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]"#,
            r#""tool_calls":[{"function":{"arguments":"1}"}}]"#,
            r#""tool_calls":[{"function":{"name":"g"}}]"#,
            r#""tool_calls":[{"function":{"arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("no index, pieces by id, alternating", "{}", &[
            r#""tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]"#,
            r#""tool_calls":[{"id":"b","function":{"name":"f","arguments":"{\"y\":"}}]"#,
            r#""tool_calls":[{"id":"a","function":{"arguments":"1}"}}]"#,
            r#""tool_calls":[{"id":"b","function":{"arguments":"2}"}}]"#,
            CALLS, DONE,
        ]),
        ("all calls share an index", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
            r#""tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("all calls share an index, in one chunk, without ids", "{}", &[
            r#""tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":0,"function":{"name":"f","arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("gaps between indices, from 1", "{}", &[
            r#""tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
            r#""tool_calls":[{"index":7,"id":"b","function":{"name":"g","arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("id, type and name in every piece", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\""}}]"#,
            r#""tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":":1}"}}]"#,
            CALLS, DONE,
        ]),
        ("the name in two pieces", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"get_"}}]"#,
            r#""tool_calls":[{"index":0,"function":{"name":"weather","arguments":""}}]"#,
            r#""tool_calls":[{"index":0,"function":{"arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("empty and null labels in later pieces", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":null}}]"#,
            r#""tool_calls":[{"index":0,"id":"","type":null,"function":{"name":null,"arguments":"{}"}}]"#,
            r#""tool_calls":[{"index":0,"id":null,"function":{"name":"","arguments":""}}]"#,
            CALLS, DONE,
        ]),
        ("no ids", "{}", &[
            r#""tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"g","arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("equal ids", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}]"#,
            CALLS, DONE,
        ]),
        ("no arguments at all", "{}", &[r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]"#, CALLS, DONE]),
        ("arguments that are an object", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1.50}}}]"#, CALLS, DONE,
        ]),
        ("cut arguments, and a reason that hides it", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]"#, CALLS, DONE,
        ]),
        ("cut arguments, and a reason that says so", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}] => length"#, DONE,
        ]),
        ("arguments that are no JSON", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"city = Paris"}}]"#, CALLS, DONE,
        ]),
        ("empty lists of calls everywhere", "{}", &[
            r#""content":"a","tool_calls":[]"#, r#""content":"b","tool_calls":null"#, " => stop", DONE,
        ]),
        ("the reason says stop", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#, " => stop", DONE,
        ]),
        ("function_call", "{}", &[
            r#""function_call":{"name":"f","arguments":""}"#, r#""function_call":{"arguments":"{\"x\":"}"#,
            r#""function_call":{"arguments":"1}"}"#, " => function_call", DONE,
        ]),
        ("a call as text", "{}", &[r#""content":"<tool_call>{\"name\":\"f\"}</tool_call>" => stop"#, DONE]),
        ("text around calls", "{}", &[
            r#""content":"before""#, r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#,
            r#""content":"after""#, CALLS, DONE,
        ]),
        ("a signature that goes back with the call", "{}", &[
            r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"s"}}}]"#,
            CALLS, DONE,
        ]),
        ("tools that the server ran", "{}", &[
            r#""executed_tools":[{"index":0,"type":"search","arguments":"{\"q\":1}"}]"#,
            r#""executed_tools":[{"index":0,"output":"found","search_results":{"results":[]}}]"#,
            r#""content":"so""#, " => stop", DONE,
        ]),
    ];
    insta::assert_snapshot!(table(cases));
}

#[test]
fn choices_and_content() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("no choices at first, as at Azure", "{}", &[
            r#"{"id":"","object":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
            r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"a"}}]}"#, " => stop", DONE,
        ]),
        ("choices null or missing", "{}", &[
            r#"{"id":"c1","choices":null,"usage":{"prompt_tokens":1}}"#, r#""content":"a""#, r#"{"id":"c1"}"#, " => stop", DONE,
        ]),
        ("delta null, missing, or called message", "{}", &[
            r#"{"choices":[{"index":0,"delta":null}]}"#, r#"{"choices":[{"index":0}]}"#,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"}}]}"#, " => stop", DONE,
        ]),
        ("an index that counts tokens", "{}", &[
            r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#, r#"{"choices":[{"index":1,"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"index":"2","delta":{"content":"c"},"finish_reason":"stop"}]}"#, DONE,
        ]),
        ("a second choice with calls", "{}", &[
            r#"{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}}]}}]}"#,
            CALLS, DONE,
        ]),
        ("a second choice with text", "{}", &[
            r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"a"}}]}"#, " => stop", DONE,
        ]),
        ("role everywhere, empty content everywhere", "{}", &[
            r#""role":"assistant","content":"""#, r#""role":null,"content":"a""#, r#""role":"assistant","content":null"#,
            r#""content":"" => stop"#, DONE,
        ]),
        ("content as a list", "{}", &[
            r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]"#,
            r#""content":[{"type":"thinking","thinking":" so"},{"type":"text","text":"a"}]"#, r#""content":"b""#, " => stop", DONE,
        ]),
        ("the id changes", "{}", &[
            r#"{"id":"c1","created":1.5,"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"id":"c2","created":2,"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#, DONE,
        ]),
        ("images", "{}", &[
            r#""content":"see""#, r#""images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]"#,
            r#""images":[{"type":"image_url","image_url":{"url":"https://a/2.png"}}],"content":"both" => stop"#, DONE,
        ]),
        ("speech", "{}", &[
            r#""audio":{"id":"a1","transcript":"Hel"}"#, r#""audio":{"data":"YWI=","transcript":"lo"}"#,
            r#""audio":{"data":"Y2Q="}"#, r#""audio":{"expires_at":1} => stop"#, DONE,
        ]),
        ("sources", "{}", &[
            r#"{"citations":["https://a"],"choices":[{"delta":{"content":"a"}}]}"#,
            r#"{"citations":["https://a","https://b"],"choices":[{"delta":{"content":"b","annotations":[{"type":"url_citation"}]}}]}"#,
            " => stop", DONE,
        ]),
        ("a refusal", "{}", &[r#""refusal":"I can""#, r#""refusal":"not" => stop"#, DONE]),
    ];
    insta::assert_snapshot!(table(cases));
}

#[test]
fn reasoning() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("reasoning_content", "{}", &[r#""reasoning_content":"hm""#, r#""content":"a""#, " => stop", DONE]),
        ("reasoning", "{}", &[r#""reasoning":"hm""#, r#""content":"a""#, " => stop", DONE]),
        ("both", "{}", &[r#""reasoning":"hm","reasoning_content":"hm""#, r#""content":"a""#, " => stop", DONE]),
        ("details beside it", "{}", &[
            r#""reasoning":"h","reasoning_details":[{"type":"reasoning.text","text":"h","index":0}]"#,
            r#""reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m","index":0,"signature":"s"}]"#,
            r#""content":"a""#, " => stop", DONE,
        ]),
        ("details alone", "{}", &[
            r#""reasoning_details":[{"type":"reasoning.summary","summary":"hm","index":0}]"#, r#""content":"a""#, " => stop", DONE,
        ]),
        ("details that nobody can read", "{}", &[
            r#""content":"a""#, r#""reasoning_details":[{"type":"reasoning.encrypted","data":"x","index":0}]"#, " => stop", DONE,
        ]),
        ("tags cut across chunks", "{}", &[
            r#""content":"<th""#, r#""content":"ink>hm</thi""#, r#""content":"nk>a""#, " => stop", DONE,
        ]),
        ("a tag that the template opened", r#"{"think_tags":"opened"}"#, &[r#""content":"hm""#, r#""content":"</think>a""#, " => stop", DONE]),
        ("tags that are left alone", r#"{"think_tags":"off"}"#, &[r#""content":"<think>hm</think>a""#, " => stop", DONE]),
        ("a tag that is no tag", "{}", &[r#""content":"<th""#, " => stop", DONE]),
        ("a tag inside the text", "{}", &[r#""content":"write <think>""#, " => stop", DONE]),
        ("thoughts between texts", "{}", &[
            r#""reasoning_content":"one""#, r#""content":"a""#, r#""reasoning_content":"\n""#, r#""content":"b""#,
            r#""reasoning_content":"two""#, r#""content":"c""#, " => stop", DONE,
        ]),
    ];
    insta::assert_snapshot!(table(cases));
}

#[test]
fn ends_and_usage() {
    let usage = r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"completion_tokens_details":{"reasoning_tokens":2},"cost":0.1}}"#;
    let cases: &[(&str, &str, &[&str])] = &[
        ("an empty reason until the end", "{}", &[
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":""}]}"#, " => stop", DONE,
        ]),
        ("no reason, but the end mark", "{}", &[r#""content":"a""#, DONE]),
        ("a reason, but no end mark", "{}", &[r#""content":"a" => stop"#]),
        ("neither", "{}", &[r#""content":"a""#]),
        ("neither, with a tag begun", "{}", &[r#""content":"<thi""#]),
        ("nothing but the end mark", "{}", &[DONE]),
        ("nothing at all", "{}", &[]),
        ("an empty answer", "{}", &[r#""role":"assistant","content":"" => stop"#, DONE]),
        ("two reasons, text between them", "{}", &[r#""content":"a" => stop"#, r#""content":"b" => length"#, " => stop", DONE]),
        ("end_turn", "{}", &[r#""content":"a" => end_turn"#, DONE]),
        ("model_length", "{}", &[r#""content":"a" => model_length"#, DONE]),
        ("MAX_TOKENS", "{}", &[r#""content":"a" => MAX_TOKENS"#, DONE]),
        ("content_filter", "{}", &[r#""content":"a" => content_filter"#, DONE]),
        ("error", "{}", &[r#""content":"a" => error"#, DONE]),
        ("a word that nobody knows", "{}", &[r#""content":"a" => because"#, DONE]),
        ("usage at the end", "{}", &[r#""content":"a" => stop"#, usage, DONE]),
        ("usage beside the reason", "{}", &[
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#, DONE,
        ]),
        ("usage in every chunk, null at last", "{}", &[
            r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}"#,
            r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2}}"#,
            r#"{"choices":[],"usage":null}"#, DONE,
        ]),
        ("usage at Groq", "{}", &[r#"{"x_groq":{"usage":{"prompt_tokens":1}},"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#, DONE]),
        ("usage in the choice", "{}", &[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop","usage":{"prompt_tokens":1}}]}"#, DONE]),
        ("usage behind the end mark, and text that is none", "{}", &[r#""content":"a" => stop"#, DONE, usage, r#""content":"b""#]),
    ];
    insta::assert_snapshot!(table(cases));
}

#[test]
fn errors_inside_a_200() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("an object", "{}", &[r#""content":"a""#, r#"{"error":{"message":"it broke","type":"server_error","code":"overloaded"}}"#, DONE]),
        ("beside choices", "{}", &[
            r#"{"error":{"code":502,"message":"it broke"},"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}"#, DONE,
        ]),
        ("by the event's name", "{}", &[r#""content":"a""#, "event: error", r#"{"message":"it broke"}"#]),
        ("a text", "{}", &[r#"{"error":"it broke"}"#]),
        ("an object of type error", "{}", &[r#"{"object":"error","message":"it broke","code":400}"#]),
        ("detail", "{}", &[r#"{"detail":"it broke"}"#]),
        ("the context is too long", "{}", &[r#"{"error":{"message":"maximum context length is 8192 tokens"}}"#]),
        ("no JSON", "{}", &[r#""content":"a""#, "<html>502</html>"]),
        ("blank data", "{}", &[r#""content":"a""#, "data:  ", "", " => stop", DONE]),
        ("JSON of another kind", "{}", &[r#"{"type":"ping"}"#, r#""content":"a" => stop"#, DONE]),
    ];
    insta::assert_snapshot!(table(cases));
}
