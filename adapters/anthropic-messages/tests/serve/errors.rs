//! Every error about a request, with its exact text, and the error of every fault
//! (docs/protocols/anthropic-messages.md#errors).

use std::fmt::Write as _;
use std::time::Duration;

use interlingua_core::exchange::ProtocolAdapter;
use interlingua_core::{Fault, FaultKind, LimitState};
use interlingua_core_testkit as testkit;

use crate::support::{HELLO, route};

/// Each body with the reply to it. Ids of requests are left out.
fn replies(options: &str, bodies: &[String]) -> String {
    let route = route(options);
    let mut table = String::new();
    for body in bodies {
        let mut sent = route.create(body);
        let reply = if sent.outcome.is_ok() { "accepted".to_owned() } else { line(&sent.fail(None)) };
        writeln!(table, "{body}\n  {reply}").expect("writing into a string");
    }
    table
}

fn line(reply: &testkit::HttpResponse) -> String {
    let error = reply.json();
    assert_eq!(error["request_id"].as_str(), reply.head.get("request-id"), "{error}");
    assert_eq!(error["type"], "error");
    format!("{} {}", reply.status, error["error"])
}

#[test]
fn bodies_that_are_not_requests() {
    let bodies = [
        "",
        "{",
        "[]",
        "{}",
        r#"{"model":7}"#,
        r#"{"model":"demo"}"#,
        r#"{"model":"who","messages":[{"role":"user","content":"x"}]}"#,
    ];
    insta::assert_snapshot!(replies("{}", &bodies.map(str::to_owned)));
}

#[test]
fn settings_of_a_wrong_type_or_out_of_range() {
    let fields = [
        r#""messages":{}"#,
        r#""messages":[]"#,
        r#""stream":"yes""#,
        r#""max_tokens":-1"#,
        r#""max_tokens":1.5"#,
        r#""temperature":1.5"#,
        r#""top_p":"x""#,
        r#""top_k":-1"#,
        r#""stop_sequences":"x""#,
        r#""stop_sequences":[1]"#,
        r#""system":7"#,
        r#""system":[{"type":"image"}]"#,
        r#""system":[{"type":"text"}]"#,
        r#""thinking":{}"#,
        r#""thinking":{"type":"much"}"#,
        r#""output_config":[]"#,
        r#""output_config":{"format":{"type":"xml"}}"#,
        r#""output_config":{"format":{"type":"json_schema"}}"#,
        r#""metadata":[]"#,
        r#""metadata":{"user_id":7}"#,
        r#""tools":{}"#,
        r#""tools":[{"input_schema":{}}]"#,
        r#""tools":[{"name":"","input_schema":{}}]"#,
        r#""tools":[{"name":"f"}]"#,
        r#""tools":[{"name":"f","input_schema":"x"}]"#,
        r#""tool_choice":"auto""#,
        r#""tool_choice":{"type":"maybe"}"#,
        r#""tool_choice":{"type":"tool","name":"f"}"#,
        r#""thread":{"type":"fork"}"#,
        r#""thread":{"type":"continue"}"#,
        r#""unknown":{"anything":1},"cache_control":{},"container":"c""#,
    ];
    let bodies = fields.map(|field| {
        let messages = if field.contains("messages") { "" } else { r#""messages":[{"role":"user","content":"x"}],"# };
        format!(r#"{{"model":"demo",{messages}{field}}}"#)
    });
    insta::assert_snapshot!(replies("{}", &bodies));
}

#[test]
fn a_choice_of_a_function_that_only_the_gateway_has_is_refused() {
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"x"}],
        "tools":[{"name":"request_approval","input_schema":{}}],"tool_choice":{"type":"tool","name":"request_approval"}}"#;
    let reply = replies("{}", &[body.to_owned()]);
    assert!(reply.contains("400") && reply.contains("is a function of the gateway"), "{reply}");
    // As text, the agent has it like every other function. Without tools, it gets no choice.
    for options in [r#"{"approvals":"text"}"#, r#"{"client_tools":"ignore"}"#] {
        let reply = replies(options, &[body.to_owned()]);
        assert!(reply.contains("accepted"), "{options} {reply}");
    }
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let tool = r#"{"name":"f","input_schema":{}}"#;
    let body = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"x"}}],"tools":[{tool},{tool}]}}"#);
    let reply = replies("{}", &[body]);
    assert!(reply.contains("400") && reply.contains("two tools have the name 'f'"), "{reply}");
}

#[test]
fn errors_name_messages_and_blocks_by_their_path() {
    let blocks = [
        ("user", r#"7"#),
        ("user", r#"{}"#),
        ("user", r#"{"type":"hologram"}"#),
        ("user", r#"{"type":"text"}"#),
        ("user", r#"{"type":"image"}"#),
        ("user", r#"{"type":"image","source":{"type":"base64","data":"AAAA"}}"#),
        ("user", r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#),
        ("user", r#"{"type":"document","source":{"type":"scroll"}}"#),
        ("user", r#"{"type":"search_result","title":"t"}"#),
        ("user", r#"{"type":"tool_result","content":"x"}"#),
        ("user", r#"{"type":"tool_result","tool_use_id":"c","content":7}"#),
        ("user", r#"{"type":"tool_result","tool_use_id":"c","is_error":"yes"}"#),
        ("user", r#"{"type":"container_upload"}"#),
        ("assistant", r#"{"type":"tool_use","name":"f","input":{}}"#),
        ("assistant", r#"{"type":"tool_use","id":"c","name":"f","input":"x"}"#),
        ("assistant", r#"{"type":"redacted_thinking"}"#),
        ("assistant", r#"{"type":"something_new"}"#),
        ("system", r#"{"type":"image"}"#),
        ("system", r#"{"type":"tool_addition"}"#),
        ("pope", r#"{"type":"text","text":"x"}"#),
    ];
    let bodies = blocks.map(|(role, block)| {
        let first = r#"{"role":"user","content":"x"}"#;
        format!(r#"{{"model":"demo","messages":[{first},{{"role":"{role}","content":[{block}]}}]}}"#)
    });
    insta::assert_snapshot!(replies("{}", &bodies));
}

#[test]
fn requests_that_options_refuse() {
    let with = |field: &str| format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"x"}}],{field}}}"#);
    let prefill = r#"{"model":"demo","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}"#;
    let open = r#"{"model":"demo","messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":"y"}]}"#;
    let mut all = String::new();
    for (options, body) in [
        (r#"{"client_tools":"refuse"}"#, with(r#""tools":[{"name":"f","input_schema":{}}]"#)),
        (r#"{"hosted_tools":"refuse"}"#, with(r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#)),
        (r#"{"hosted_tools":"refuse"}"#, with(r#""mcp_servers":[{"type":"url"}]"#)),
        (r#"{"structured_output":"refuse"}"#, with(r#""output_config":{"format":{"type":"json_schema","schema":{}}}"#)),
        (r#"{"unknown_fields":"refuse"}"#, with(r#""client_metadata":{}"#)),
        (r#"{"threads":"off"}"#, with(r#""thread":{"type":"create"}"#)),
        (r#"{"prefill":"refuse"}"#, prefill.to_owned()),
        (r#"{"open_calls":"refuse"}"#, open.to_owned()),
        (r#"{"any_model":true}"#, with(r#""model":"anything""#)),
        (r#"{"models":{"claude-x":"demo"}}"#, with(r#""model":"claude-x""#)),
    ] {
        all.push_str(&format!("{options}\n{}", replies(options, &[body])));
    }
    insta::assert_snapshot!(all);
}

/// The snapshot is documentation: every fault of the gateway as a client of this protocol sees it.
#[test]
fn every_fault_kind_has_an_error() {
    let mut table = String::new();
    let mut add = |what: String, fault: &Fault| {
        let reply = route("{}").create(HELLO).fail(Some(fault));
        let headers: Vec<String> = ["retry-after", "x-should-retry"]
            .into_iter()
            .filter_map(|name| Some(format!(" {name}: {}", reply.head.get(name)?)))
            .collect();
        writeln!(table, "{what}: {}{}", line(&reply), headers.concat()).expect("writing into a string");
    };
    for kind in FaultKind::ALL {
        add(format!("{kind:?}"), &Fault::new(*kind, "what went wrong"));
    }

    let upstream = |kind, code: &str| Fault::new(kind, "what went wrong").with_code(code);
    let mut quota = upstream(FaultKind::UpstreamQuota, "MODEL_QUOTA_EXCEEDED");
    quota.retry_after = Some(Duration::from_millis(2500));
    add("a quota is used up".to_owned(), &quota);
    for name in ["tokens", "requests"] {
        let mut limited = Fault::new(FaultKind::RateLimited, "too many");
        let (window, reset) = (Duration::from_secs(86400), Duration::from_secs(60));
        limited.limit = Some(Box::new(LimitState { name, quota: 100, window, remaining: 0, reset }));
        add(format!("a limit of {name}"), &limited);
    }
    insta::assert_snapshot!(table);
}

#[test]
fn unknown_paths_and_models_are_errors_of_the_protocol() {
    let mut nowhere = route("{}").send("POST", "/v1/messages/batches", "{}", &[]);
    assert_eq!(nowhere.fail(None).status, 404);
    let sent = route("{}").send("GET", "/v1/models", "", &[]);
    assert!(sent.outcome.is_ok());
    for limit in ["0", "1001", "x"] {
        let route = route("{}");
        let (endpoint, params) = testkit::endpoint(&route.mounted, "GET", "/v1/models").expect("an endpoint");
        let mut exchange = (endpoint.open)();
        let query = format!("limit={limit}");
        let request = testkit::ClientRequest {
            query: &query,
            params: &params,
            ..testkit::ClientRequest::new("GET", "/v1/models")
        };
        let fault = request.decode(&mut *exchange).expect_err("refused");
        assert_eq!(fault.field.as_deref(), Some("limit"));
    }
}

#[test]
fn a_route_that_cannot_be_mounted_names_the_reason() {
    use interlingua_anthropic_messages::{AnthropicMessages, Options};
    let mount = testkit::mount("/anthropic", &["a", "b"]);
    for (options, expected) in [
        (r#"{"models":{"m":"c"}}"#, "\"c\", which is not an agent"),
        (r#"{"any_model":true}"#, "several agents"),
        (r#"{"request_input":""}"#, "must not be empty"),
    ] {
        let options: Options = serde_json::from_str(options).expect("options");
        let error = AnthropicMessages::mount(&mount, options).err().expect("refused");
        assert!(error.contains(expected), "{error}");
    }
}
