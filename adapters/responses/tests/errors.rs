//! Every error about a request, with its exact text, and the error of every fault (docs/protocols/responses.md#errors).

mod support;

use std::fmt::Write as _;
use std::time::Duration;

use interlingua_core::{Fault, FaultKind, LimitState};
use support::{HELLO, mounted, route};

/// Each body with the reply of `POST /responses` to it.
fn replies(options: &str, bodies: &[&str]) -> String {
    let route = route(options);
    let mut table = String::new();
    for body in bodies {
        let sent = route.send("POST", "/responses", body);
        let reply = match &sent.outcome {
            Ok(_) => "accepted".to_owned(),
            Err(_) => sent.error_reply().line(),
        };
        writeln!(table, "{body}\n  {reply}").expect("writing into a string");
    }
    table
}

#[test]
fn bodies_that_are_not_requests() {
    insta::assert_snapshot!(replies(
        "{}",
        &[
            "",
            "{",
            "[]",
            "\"text\"",
            "{}",
            r#"{"model":7}"#,
            r#"{"model":null,"input":"x"}"#,
            r#"{"model":"who","input":"x"}"#,
        ]
    ));
}

#[test]
fn settings_of_a_wrong_type_or_out_of_range() {
    let fields = [
        r#""stream":"yes""#,
        r#""store":1"#,
        r#""background":true,"store":false"#,
        r#""instructions":["x"]"#,
        r#""input":7"#,
        r#""metadata":[]"#,
        r#""metadata":{"a":1}"#,
        r#""temperature":2.5"#,
        r#""temperature":"hot""#,
        r#""top_p":-0.1"#,
        r#""max_output_tokens":0"#,
        r#""max_output_tokens":1.5"#,
        r#""top_logprobs":21"#,
        r#""presence_penalty":3"#,
        r#""truncation":"some""#,
        r#""reasoning":{"effort":"huge"}"#,
        r#""reasoning":"high""#,
        r#""service_tier":1"#,
        r#""parallel_tool_calls":"x""#,
        r#""include":"all""#,
        r#""prompt":{"id":"p"}"#,
        r#""previous_response_id":7"#,
        r#""previous_response_id":"resp_nope""#,
        r#""conversation":7"#,
        r#""conversation":{}"#,
        r#""conversation":"conv_x""#,
        r#""previous_response_id":"a","conversation":"b""#,
        r#""text":{"format":{"type":"xml"}}"#,
        r#""text":{"format":{"type":"json_schema","name":"n"}}"#,
        r#""text":{"verbosity":"loud"}"#,
        r#""tools":{}"#,
        r#""tools":[{"name":"x"}]"#,
        r#""tools":[{"type":"function"}]"#,
        r#""tools":[{"type":"function","name":"f","parameters":"x"}]"#,
        r#""tool_choice":"maybe""#,
        r#""tool_choice":{"type":"function","name":"f"}"#,
        r#""tool_choice":{"type":"allowed_tools","mode":"never","tools":[]}"#,
        r#""tool_choice":{"type":"web_search"}"#,
        r#""unknown":{"anything":1},"client_metadata":{}"#,
    ];
    let bodies: Vec<String> = fields.iter().map(|field| format!(r#"{{"model":"demo",{field}}}"#)).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    insta::assert_snapshot!(replies("{}", &bodies));
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let tools = |tools: &str| format!(r#"{{"model":"demo","input":"x","tools":{tools}}}"#);
    let f = r#"{"type":"function","name":"f"}"#;
    let both = tools(&format!("[{f},{f}]"));
    let nested = tools(&format!(r#"[{{"type":"namespace","name":"crm","tools":[{f},{f}]}}]"#));
    for body in [&both, &nested] {
        let reply = replies("{}", &[body]);
        assert!(reply.contains("400") && reply.contains("two tools have the name"), "{reply}");
    }
    let apart = tools(&format!(r#"[{f},{{"type":"namespace","name":"crm","tools":[{f}]}}]"#));
    assert!(!replies("{}", &[&apart]).contains("two tools"));
}

#[test]
fn metadata_is_limited_in_count_and_length() {
    let pairs: Vec<String> = (0..17).map(|number| format!(r#""k{number}":"v""#)).collect();
    let many = format!(r#"{{"model":"demo","metadata":{{{}}}}}"#, pairs.join(","));
    let long_key = format!(r#"{{"model":"demo","metadata":{{"{}":"v"}}}}"#, "k".repeat(65));
    let long_value = format!(r#"{{"model":"demo","metadata":{{"k":"{}"}}}}"#, "v".repeat(513));
    for body in [many, long_key, long_value] {
        let error_reply = route("{}").send("POST", "/responses", &body).error_reply();
        assert_eq!(error_reply.status, 400, "{}", error_reply.body);
        assert_eq!(error_reply.json()["error"]["code"], "invalid_value");
    }
}

#[test]
fn errors_name_items_and_parts_by_their_path() {
    let items = [
        r#"7"#,
        r#"{}"#,
        r#"{"role":"pope","content":"x"}"#,
        r#"{"role":7,"content":"x"}"#,
        r#"{"role":"user"}"#,
        r#"{"type":"message","content":"x"}"#,
        r#"{"role":"user","content":7}"#,
        r#"{"role":"user","content":[7]}"#,
        r#"{"role":"user","content":[{"text":"x"}]}"#,
        r#"{"role":"user","content":[{"type":"input_text"}]}"#,
        r#"{"role":"user","content":[{"type":"input_text","text":"ok"},{"type":"hologram"}]}"#,
        r#"{"role":"user","content":[{"type":"input_image"}]}"#,
        r#"{"role":"user","content":[{"type":"input_image","file_id":"f"}]}"#,
        r#"{"role":"user","content":[{"type":"input_image","image_url":7}]}"#,
        r#"{"role":"user","content":[{"type":"input_file","filename":"x"}]}"#,
        r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"mp3"}}]}"#,
        r#"{"type":"function_call","name":"f","arguments":"{}"}"#,
        r#"{"type":"function_call","call_id":"c","name":"f","arguments":{}}"#,
        r#"{"type":"function_call_output","output":"x"}"#,
        r#"{"type":"function_call_output","call_id":"c"}"#,
        r#"{"type":"function_call_output","call_id":"c","output":7}"#,
        r#"{"type":"function_call_output","call_id":"c","output":"of nothing"}"#,
        r#"{"type":"mcp_approval_response","approve":true}"#,
        r#"{"type":"mcp_approval_response","approval_request_id":"a"}"#,
        r#"{"type":"mcp_approval_response","approval_request_id":"a","approve":"yes"}"#,
        r#"{"type":"reasoning","summary":[{"type":"summary_text"}]}"#,
        r#"{"type":"item_reference"}"#,
        r#"{"type":"item_reference","id":"msg_nope"}"#,
        r#"{"type":"compaction","encrypted_content":"not ours"}"#,
        r#"{"type":"mcp_call","name":"x"}"#,
        r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}}"#,
        r#"{"type":"something_new","id":"x"}"#,
        r#"{"type":"compaction_trigger"}"#,
    ];
    let bodies: Vec<String> = items
        .iter()
        .map(|item| format!(r#"{{"model":"demo","input":[{{"role":"user","content":"x"}},{item}]}}"#))
        .collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    insta::assert_snapshot!(replies("{}", &bodies));
}

#[test]
fn requests_that_options_refuse() {
    let tools = r#"{"model":"demo","tools":[{"type":"function","name":"f"}]}"#;
    let hosted = r#"{"model":"demo","tools":[{"type":"web_search"}]}"#;
    let json = r#"{"model":"demo","text":{"format":{"type":"json_object"}}}"#;
    let mut all = String::new();
    for (options, body) in [
        (r#"{"client_tools":"refuse"}"#, tools),
        (r#"{"hosted_tools":"refuse"}"#, hosted),
        (r#"{"structured_output":"refuse"}"#, json),
        (r#"{"unknown_fields":"refuse"}"#, r#"{"model":"demo","client_metadata":{}}"#),
        (r#"{"background":"off"}"#, r#"{"model":"demo","background":true}"#),
        (r#"{"conversations":"off"}"#, r#"{"model":"demo","conversation":"conv_1"}"#),
        (r#"{"any_model":true}"#, r#"{"model":"anything"}"#),
        (r#"{"models":{"gpt-4o":"demo"}}"#, r#"{"model":"gpt-4o"}"#),
    ] {
        all.push_str(&format!("{options}\n{}", replies(options, &[body])));
    }
    insta::assert_snapshot!(all);
}

/// The snapshot is documentation: every fault of the gateway as a Responses client sees it.
#[test]
fn every_fault_kind_has_an_error() {
    let mut table = String::new();
    for kind in FaultKind::ALL {
        let fault = Fault::new(*kind, "what went wrong");
        let error_reply = route("{}").send("POST", "/responses", "").fail_with(&fault);
        let headers: Vec<String> = ["retry-after", "x-should-retry"]
            .into_iter()
            .filter_map(|name| Some(format!(" {name}: {}", error_reply.head.get(name)?)))
            .collect();
        writeln!(table, "{kind:?}: {}{}", error_reply.line(), headers.concat()).expect("writing into a string");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn faults_of_the_engine() {
    let chained = format!(r#"{{"model":"demo","input":"x","previous_response_id":"{}"}}"#, support::response_id(9));
    let mut table = String::new();
    let mut add = |what: &str, line: String| writeln!(table, "{what}\n  {line}").expect("writing into a string");
    let gone = Fault::not_found("run");
    add("the previous response is unknown", route("{}").send("POST", "/responses", &chained).fail_with(&gone).line());

    let conversation = format!(r#"{{"model":"demo","conversation":"conv_{}"}}"#, support::run_id(9).to_prefixed(""));
    add("the conversation is unknown", route("{}").send("POST", "/responses", &conversation).fail_with(&gone).line());

    let reference = format!(
        r#"{{"model":"demo","input":[{{"type":"item_reference","id":"msg_{}_0"}}]}}"#,
        support::run_id(9).to_prefixed("")
    );
    add("the item is unknown", route("{}").send("POST", "/responses", &reference).fail_with(&gone).line());

    let hello = || route("{}").send("POST", "/responses", HELLO);

    let answered = Fault::new(FaultKind::Conflict, "'appr_1' was answered already").with_code("NOT_WAITING");
    add("an approval is answered twice", hello().fail_with(&answered).line());
    add("an answer to nothing", hello().fail_with(&Fault::not_found("approval 'x'")).line());
    add(
        "the conversation is busy",
        hello().fail_with(&Fault::new(FaultKind::Busy, "session 'x' has a run under way")).line(),
    );

    let mut slow =
        Fault::new(FaultKind::UpstreamRateLimited, "the agent is rate limited").with_code("MODEL_QUOTA_EXCEEDED");
    slow.retry_after = Some(Duration::from_millis(2500));
    let error_reply = hello().fail_with(&slow);
    add("a quota is used up", format!("{} retry-after: {:?}", error_reply.line(), error_reply.head.get("retry-after")));

    for name in ["tokens", "requests"] {
        let mut limited = Fault::new(FaultKind::RateLimited, "too many");
        let (window, reset) = (Duration::from_secs(86400), Duration::from_secs(60));
        limited.limit = Some(Box::new(LimitState { name, quota: 100, window, remaining: 0, reset }));
        let reply = hello().fail_with(&limited);
        let retries = reply.head.get("x-should-retry");
        add(&format!("a limit of {name} is used up"), format!("{} x-should-retry: {retries:?}", reply.line()));
    }

    let get = |target: String| route("{}").send("GET", &target, "");
    add("a response is unknown", get(format!("/responses/{}", support::response_id(9))).fail_with(&gone).line());
    add("an id of another shape", get("/responses/resp_1".into()).error_reply().line());
    add(
        "a cursor that is not a number",
        get(format!("/responses/{}?stream=true&starting_after=x", support::response_id(9))).error_reply().line(),
    );
    add(
        "a page that is too large",
        get(format!("/responses/{}/input_items?limit=101", support::response_id(9))).error_reply().line(),
    );
    add("an unknown path", get("/nowhere".into()).error_reply().line());
    add("the WebSocket endpoint without an upgrade", get("/responses".into()).error_reply().line());
    insta::assert_snapshot!(table);
}

#[test]
fn every_reply_has_a_request_id_and_a_wrong_method_names_the_allowed_one() {
    let error_reply = route("{}").send("GET", "/responses", "").error_reply();
    assert_eq!((error_reply.status, error_reply.head.get("allow")), (405, Some("POST")));
    assert!(error_reply.head.get("x-request-id").is_some_and(|id| id.starts_with("req_")));
    assert_eq!(error_reply.head.get("openai-version"), Some("2020-10-01"));
    assert_eq!(error_reply.head.get("content-type"), Some("application/json"));
}

#[test]
fn a_route_that_cannot_be_mounted_names_the_reason() {
    use interlingua_core::exchange::{Mount, ProtocolAdapter};
    let agents = vec![support::card("a"), support::card("b")];
    let mount = Mount { path: "/v1".into(), agents, public_url: None, schemes: Vec::new() };
    for (options, expected) in [
        (r#"{"models":{"m":"c"}}"#, "\"c\", which is not an agent"),
        (r#"{"any_model":true}"#, "several agents"),
        (r#"{"request_input":""}"#, "must not be empty"),
    ] {
        let error = interlingua_responses::Responses::mount(&mount, support::options(options)).err().expect("refused");
        assert!(error.contains(expected), "{error}");
    }
    assert!(mounted(&["a", "b"], "{}").send("POST", "/responses", r#"{"model":"b"}"#).outcome.is_ok());
}
