//! The effect of each event and each item: the rows of the table in docs/protocols/responses.md#what-is-read.

use interlingua_core_testkit::{self as testkit, Answer};

use crate::support::{driven, read, stream, summary, turn, whole_stream};

/// The outcomes of named streams, one after the other.
fn table(cases: &[(&str, &[&str])]) -> String {
    cases.iter().map(|(name, events)| format!("# {name}\n{}\n", read("{}", events))).collect()
}

#[test]
fn what_the_assistant_says() {
    let found = table(&[
        (
            "a text in pieces, closed four times",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[],"phase":"final_answer"}}"#,
                r#"content_part.added {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":""}}"#,
                r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel"}"#,
                r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo \"you\" \ud83d\ude00"}"#,
                r#"output_text.annotation.added {"item_id":"msg_1","output_index":0,"content_index":0,"annotation_index":0,"annotation":{"type":"url_citation","url":"http://a"}}"#,
                r#"output_text.done {"item_id":"msg_1","output_index":0,"content_index":0,"text":"Hello \"you\" \ud83d\ude00"}"#,
                r#"content_part.done {"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"Hello \"you\" \ud83d\ude00"}}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"Hello \"you\" \ud83d\ude00","annotations":[{"type":"url_citation","url":"http://a"}],"logprobs":[{"token":"Hel"}]}]}}"#,
            ],
        ),
        (
            "two parts, with notes on both",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
                r#"output_text.delta {"output_index":0,"content_index":0,"delta":"one"}"#,
                r#"output_text.delta {"output_index":0,"content_index":1,"delta":"two"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"one","annotations":[{"n":1}]},{"type":"output_text","text":"two","annotations":[{"n":2}]}]}}"#,
            ],
        ),
        (
            "a refusal",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
                r#"refusal.delta {"output_index":0,"content_index":0,"delta":"I will "}"#,
                r#"refusal.delta {"output_index":0,"content_index":0,"delta":"not."}"#,
                r#"refusal.done {"output_index":0,"content_index":0,"refusal":"I will not."}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I will not."}]}}"#,
            ],
        ),
        (
            "sound with its words",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
                r#"audio.transcript.delta {"output_index":0,"delta":"Hi"}"#,
                r#"audio.delta {"output_index":0,"delta":"AQID","format":"wav"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"},{"type":"output_audio","data":"AQID","format":"wav"},{"type":"later_part","x":1}]}}"#,
            ],
        ),
        (
            "summaries and thoughts",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
                r#"reasoning_summary_part.added {"output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
                r#"reasoning_summary_text.delta {"output_index":0,"summary_index":0,"delta":"In "}"#,
                r#"reasoning_summary_text.delta {"output_index":0,"summary_index":0,"delta":"short"}"#,
                r#"reasoning_summary_text.done {"output_index":0,"summary_index":0,"text":"In short"}"#,
                r#"reasoning_summary_text.delta {"output_index":0,"summary_index":1,"delta":"again"}"#,
                r#"reasoning_text.delta {"output_index":0,"content_index":0,"delta":"at length"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"In short"},{"type":"summary_text","text":"again"}],"content":[{"type":"reasoning_text","text":"at length"}],"encrypted_content":"c2VjcmV0"}}"#,
            ],
        ),
    ]);
    insta::assert_snapshot!(found);
}

#[test]
fn calls_for_the_client() {
    let found = table(&[
        (
            "two at once, interleaved",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":""}}"#,
                r#"output_item.added {"output_index":1,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"weather","arguments":"","namespace":"geo"}}"#,
                r#"function_call_arguments.delta {"item_id":"fc_1","output_index":0,"delta":"{\"city\":"}"#,
                r#"function_call_arguments.delta {"item_id":"fc_2","output_index":1,"delta":"{\"city\":"}"#,
                r#"function_call_arguments.delta {"item_id":"fc_1","output_index":0,"delta":"\"Paris\"}"}"#,
                r#"function_call_arguments.delta {"item_id":"fc_2","output_index":1,"delta":"\"Rome\"}"}"#,
                r#"function_call_arguments.done {"item_id":"fc_2","output_index":1,"arguments":"{\"city\":\"Rome\"}"}"#,
                r#"function_call_arguments.done {"item_id":"fc_1","output_index":0,"arguments":"{\"city\":\"Paris\"}"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"weather","arguments":"{\"city\":\"Paris\"}"}}"#,
                r#"output_item.done {"output_index":1,"item":{"id":"fc_2","type":"function_call","call_id":"call_2","name":"weather","arguments":"{\"city\":\"Rome\"}","namespace":"geo"}}"#,
            ],
        ),
        (
            "free text",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"call_1","name":"patch","input":""}}"#,
                r#"custom_tool_call_input.delta {"output_index":0,"delta":"say \"a\"\n"}"#,
                r#"custom_tool_call_input.delta {"output_index":0,"delta":"\\b\u0001"}"#,
                r#"custom_tool_call_input.done {"output_index":0,"input":"say \"a\"\n\\b\u0001"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"ctc_1","type":"custom_tool_call","call_id":"call_1","name":"patch","input":"say \"a\"\n\\b\u0001"}}"#,
            ],
        ),
        (
            "no arguments",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"now","arguments":""}}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"now","arguments":""}}"#,
            ],
        ),
        (
            "an output in the answer itself",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"now","arguments":"{}"}}"#,
                r#"output_item.done {"output_index":1,"item":{"id":"fco_1","type":"function_call_output","call_id":"call_1","output":"noon","status":"completed"}}"#,
            ],
        ),
        (
            "arguments that are no text",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"f","arguments":{"a":[1,2]}}}"#,
            ],
        ),
    ]);
    insta::assert_snapshot!(found);
}

#[test]
fn calls_of_the_server() {
    let found = table(&[
        (
            "an MCP tool",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"mcp_1","type":"mcp_call","server_label":"geo","name":"weather","arguments":"","output":null,"error":null,"approval_request_id":"mcpr_1"}}"#,
                r#"mcp_call.in_progress {"output_index":0,"item_id":"mcp_1"}"#,
                r#"mcp_call_arguments.delta {"output_index":0,"item_id":"mcp_1","delta":"{\"city\":\"Paris\"}"}"#,
                r#"mcp_call_arguments.done {"output_index":0,"item_id":"mcp_1","arguments":"{\"city\":\"Paris\"}"}"#,
                r#"mcp_call.completed {"output_index":0,"item_id":"mcp_1"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"mcp_1","type":"mcp_call","server_label":"geo","name":"weather","arguments":"{\"city\":\"Paris\"}","output":"18 C","error":null,"approval_request_id":"mcpr_1","status":"completed"}}"#,
            ],
        ),
        (
            "MCP tools that fail",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"mcp_1","type":"mcp_call","server_label":"geo","name":"a","arguments":"{}","output":null,"error":{"type":"mcp_tool_execution_error","content":[{"type":"text","text":"no city"}]}}}"#,
                r#"output_item.done {"output_index":1,"item":{"id":"mcp_2","type":"mcp_call","server_label":"geo","name":"b","arguments":"{}","error":{"type":"http_error","code":502,"message":"bad gateway"}}}"#,
                r#"output_item.done {"output_index":2,"item":{"id":"mcp_3","type":"mcp_call","server_label":"geo","name":"c","arguments":"{}","error":"plain"}}"#,
                r#"output_item.done {"output_index":3,"item":{"id":"mcp_4","type":"mcp_call","server_label":"geo","name":"d","arguments":"{}","status":"failed"}}"#,
            ],
        ),
        (
            "a search",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}"#,
                r#"web_search_call.in_progress {"output_index":0,"item_id":"ws_1"}"#,
                r#"web_search_call.searching {"output_index":0,"item_id":"ws_1"}"#,
                r#"web_search_call.completed {"output_index":0,"item_id":"ws_1"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"x"}}}"#,
            ],
        ),
        (
            "code",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"ci_1","type":"code_interpreter_call","status":"in_progress","code":"","outputs":null}}"#,
                r#"code_interpreter_call_code.delta {"output_index":0,"item_id":"ci_1","delta":"print("}"#,
                r#"code_interpreter_call_code.delta {"output_index":0,"item_id":"ci_1","delta":"1)"}"#,
                r#"code_interpreter_call_code.done {"output_index":0,"item_id":"ci_1","code":"print(1)"}"#,
                r#"code_interpreter_call.interpreting {"output_index":0,"item_id":"ci_1"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"print(1)","outputs":[{"type":"logs","logs":"1"}]}}"#,
            ],
        ),
        (
            "an image",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"ig_1","type":"image_generation_call","status":"in_progress"}}"#,
                r#"image_generation_call.partial_image {"output_index":0,"item_id":"ig_1","partial_image_b64":"AQ=="}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"ig_1","type":"image_generation_call","status":"completed","result":"AQID","output_format":"webp"}}"#,
            ],
        ),
        (
            "a tool that fails",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"fs_1","type":"file_search_call","status":"failed","queries":["x"]}}"#,
            ],
        ),
        (
            "a call that no client can run",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"cu_1","type":"computer_call","call_id":"call_9","action":{"type":"click"},"status":"completed"}}"#,
            ],
        ),
        (
            "a call of the server's own kind with its output",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"sh_1","type":"shell_call","call_id":"call_9","action":{"commands":["ls"]},"status":"completed"}}"#,
                r#"output_item.done {"output_index":1,"item":{"id":"sho_1","type":"shell_call_output","call_id":"call_9","output":[{"stdout":"a"}]}}"#,
            ],
        ),
    ]);
    insta::assert_snapshot!(found);
}

#[test]
fn items_that_are_whole() {
    let found = table(&[
        (
            "tools of an MCP server",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"mcpl_1","type":"mcp_list_tools","server_label":"geo","tools":[]}}"#,
                r#"mcp_list_tools.completed {"output_index":0,"item_id":"mcpl_1"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"mcpl_1","type":"mcp_list_tools","server_label":"geo","tools":[{"name":"weather","input_schema":{}}]}}"#,
            ],
        ),
        (
            "a question for approval",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"mcpr_1","type":"mcp_approval_request","server_label":"geo","name":"delete","arguments":"{\"a\":1}"}}"#,
            ],
        ),
        (
            "a call beside its approval request",
            &[
                r#"completed {"response":{"id":"resp_1","status":"completed","output":[{"id":"fc_1","type":"function_call","call_id":"call_1","name":"delete","arguments":"{}"},{"id":"fc_2","type":"function_call","call_id":"call_2","name":"delete","arguments":"{}"},{"id":"call_1","type":"mcp_approval_request","name":"delete","arguments":"{}"}]}}"#,
            ],
        ),
        (
            "calls beside requests with ids of their own",
            &[
                r#"completed {"response":{"id":"resp_1","status":"completed","output":[{"id":"fc_1","type":"function_call","call_id":"call_1","name":"delete","arguments":"{\"a\": 1}"},{"id":"fc_2","type":"function_call","call_id":"call_2","name":"delete","arguments":"{\"a\":1}"},{"id":"af_1","type":"mcp_approval_request","name":"delete","arguments":"{\"a\":1}"}]}}"#,
            ],
        ),
        (
            "equal calls, one of which has run and one of which its request names",
            &[
                r#"completed {"response":{"id":"resp_1","status":"completed","output":[{"id":"fc_0","type":"function_call","call_id":"call_0","name":"delete","arguments":"{}"},{"id":"fo_0","type":"function_call_output","call_id":"call_0","output":"done"},{"id":"fc_1","type":"function_call","call_id":"call_1","name":"delete","arguments":"{}"},{"id":"fc_2","type":"function_call","call_id":"call_2","name":"delete","arguments":"{}"},{"id":"af_1","type":"mcp_approval_request","name":"delete","arguments":"{}"},{"id":"call_1","type":"mcp_approval_request","name":"delete","arguments":"{}"}]}}"#,
            ],
        ),
        (
            "a streamed call whose approval request comes at the end",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"delete","arguments":"{}"}}"#,
                r#"completed {"response":{"id":"resp_1","status":"completed","output":[{"id":"fc_1","type":"function_call","call_id":"call_1","name":"delete","arguments":"{}"},{"id":"call_1","type":"mcp_approval_request","name":"delete","arguments":"{}"}]}}"#,
            ],
        ),
        (
            "a question without an id",
            &[
                r#"output_item.done {"output_index":0,"item":{"type":"mcp_approval_request","name":"delete","arguments":"{}"}}"#,
            ],
        ),
        (
            "a type of a later version",
            &[
                r#"output_item.added {"output_index":0,"item":{"id":"x_1","type":"dream","scene":null}}"#,
                r#"dream.scene.delta {"output_index":0,"delta":"a"}"#,
                r#"output_item.done {"output_index":0,"item":{"id":"x_1","type":"dream","scene":"a boat"}}"#,
            ],
        ),
        (
            "the server's own memory",
            &[
                r#"output_item.done {"output_index":0,"item":{"id":"cmp_1","type":"compaction","encrypted_content":"x"}}"#,
            ],
        ),
    ]);
    insta::assert_snapshot!(found);
}

#[test]
fn each_end_is_what_it_is() {
    let word = r#"output_text.delta {"output_index":0,"delta":"Partial"}"#;
    let begin = r#"created {"response":{"id":"resp_1","object":"response","status":"in_progress"}}"#;
    let mut table = String::new();
    for (name, options, end) in [
        (
            "completed",
            "{}",
            r#"completed {"response":{"id":"resp_1","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":2}}}"#,
        ),
        (
            "too long",
            "{}",
            r#"incomplete {"response":{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
        ),
        (
            "filtered",
            "{}",
            r#"incomplete {"response":{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#,
        ),
        (
            "another reason",
            "{}",
            r#"incomplete {"response":{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"steered"}}}"#,
        ),
        (
            "incomplete counts as complete",
            r#"{"incomplete":"completed"}"#,
            r#"incomplete {"response":{"id":"resp_1","status":"incomplete"}}"#,
        ),
        (
            "failed",
            "{}",
            r#"failed {"response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"It broke."}}}"#,
        ),
        ("failed without a reason", "{}", r#"failed {"response":{"id":"resp_1","status":"failed","error":null}}"#),
        (
            "too long to read",
            "{}",
            r#"failed {"response":{"id":"resp_1","status":"failed","error":{"code":"context_length_exceeded","message":"Too long."}}}"#,
        ),
        (
            "too many requests",
            "{}",
            r#"failed {"response":{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"Try again in 2 s."}}}"#,
        ),
        (
            "a prompt that is not taken",
            "{}",
            r#"failed {"response":{"id":"resp_1","status":"failed","error":{"code":"invalid_prompt","message":"Not that."}}}"#,
        ),
        ("canceled in a failure", "{}", r#"failed {"response":{"id":"resp_1","status":"cancelled","error":null}}"#),
        ("canceled", "{}", r#"cancelled {"response":{"id":"resp_1","status":"cancelled"}}"#),
        ("an error, flat", "{}", r#"error {"code":"rate_limit_exceeded","message":"Slow down.","param":null}"#),
        ("an error, nested", "{}", r#"error {"error":{"type":"server_error","code":"x","message":"Nested."}}"#),
        (
            "an error that is no event",
            "{}",
            "data: {\"error\":{\"message\":\"Bare.\",\"type\":\"server_error\",\"code\":null}}\n\n",
        ),
        ("an error by name only", "{}", "event: error\ndata: {\"message\":\"Named.\",\"code\":\"c\"}\n\n"),
        ("a status of a later version", "{}", r#"completed {"response":{"id":"resp_1","status":"pondering"}}"#),
        ("the end mark alone", "{}", "data: [DONE]\n\n"),
        ("nothing", "{}", ": bye\n\n"),
    ] {
        let mut turn = turn(options);
        let driven = driven(&mut *turn, [Answer::stream(&stream(&[begin, word, end]))]);
        table.push_str(&format!("# {name}\n{}\n", summary(&driven.record, &*turn)));
    }
    insta::assert_snapshot!(table);
}

#[test]
fn pieces_go_out_as_they_come() {
    let mut turn = turn("{}");
    let events = [
        r#"output_item.added {"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
        r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"Hel"}"#,
        r#"output_text.delta {"item_id":"msg_1","output_index":0,"content_index":0,"delta":"lo"}"#,
        r#"output_item.added {"output_index":1,"item":{"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":""}}"#,
        r#"function_call_arguments.delta {"item_id":"fc_1","output_index":1,"delta":"{\"a\":"}"#,
        r#"function_call_arguments.delta {"item_id":"fc_1","output_index":1,"delta":"1}"}"#,
    ];
    let driven = driven(&mut *turn, [Answer::stream(&whole_stream(&events))]);
    insta::assert_snapshot!(testkit::render(&driven.record));
}

#[test]
fn a_call_of_the_server_ends_before_its_output_comes() {
    let added = |place: usize, id: &str| {
        format!(
            r#"output_item.added {{"output_index":{place},"item":{{"id":"{id}","type":"mcp_call","server_label":"geo","name":"f","arguments":""}}}}"#
        )
    };
    let called = |place: usize, id: &str| {
        format!(r#"mcp_call_arguments.done {{"output_index":{place},"item_id":"{id}","arguments":"{{}}"}}"#)
    };
    let done = |place: usize, id: &str| {
        format!(
            r#"output_item.done {{"output_index":{place},"item":{{"id":"{id}","type":"mcp_call","server_label":"geo","name":"f","arguments":"{{}}","output":"{id}"}}}}"#
        )
    };
    let events = [added(0, "a"), called(0, "a"), added(1, "b"), called(1, "b"), done(1, "b"), done(0, "a")];
    let mut turn = turn("{}");
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let driven = driven(&mut *turn, [Answer::stream(&whole_stream(&events))]);
    let ids: Vec<&str> = driven.record.run().messages.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "b_output", "a_output"]);
    let order = testkit::render(&driven.record);
    let at = |line: &str| order.find(line).unwrap_or_else(|| panic!("{line} in {order}"));
    assert!(at("message 0 completed") < at("message 1 completed"), "{order}");
    assert!(at("message 1 completed") < at("message 2 b_output"), "{order}");
}
