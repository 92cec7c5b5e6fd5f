//! Every error about a request, with its exact text (docs/protocols/chat-completions.md#errors).

use std::fmt::Write as _;
use std::time::Duration;

use interlingua_core::answer::NOT_WAITING;
use interlingua_core::{Fault, FaultKind};

use crate::support::{HELLO, route};

/// Each body with the reply to it.
fn replies(options: &str, bodies: &[String]) -> String {
    let route = route(options);
    let mut table = String::new();
    for body in bodies {
        let mut sent = route.create(body);
        let reply = if sent.outcome.is_ok() { "accepted".to_owned() } else { sent.fail(None).line() };
        writeln!(table, "{body}\n  {reply}").expect("writing into a string");
    }
    table
}

fn with_fields(fields: &[&str]) -> Vec<String> {
    let body = |field: &&str| format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"x"}}],{field}}}"#);
    fields.iter().map(body).collect()
}

fn with_messages(messages: &[&str]) -> Vec<String> {
    messages.iter().map(|messages| format!(r#"{{"model":"demo","messages":{messages}}}"#)).collect()
}

#[test]
fn bodies_that_are_not_requests() {
    let bodies = ["", "{", "[]", "{}", r#"{"model":7}"#, r#"{"model":"demo"}"#, r#"{"model":"demo","input":"x"}"#];
    let unknown = r#"{"model":"who","messages":[{"role":"user","content":"x"}]}"#;
    let bodies: Vec<String> = bodies.into_iter().chain([unknown]).map(str::to_owned).collect();
    insta::assert_snapshot!(replies("{}", &bodies));
}

#[test]
fn settings_of_a_wrong_type_or_out_of_range() {
    let fields = [
        r#""n":2"#,
        r#""n":0"#,
        r#""n":1"#,
        r#""stream":"yes""#,
        r#""stream_options":true"#,
        r#""stream_options":{"include_usage":1}"#,
        r#""temperature":2.5"#,
        r#""top_p":-0.1"#,
        r#""presence_penalty":3"#,
        r#""frequency_penalty":-3"#,
        r#""max_tokens":0"#,
        r#""max_completion_tokens":1.5"#,
        r#""seed":"x""#,
        r#""stop":["a","b","c","d","e"]"#,
        r#""stop":[7]"#,
        r#""stop":7"#,
        r#""reasoning_effort":"huge""#,
        r#""verbosity":"loud""#,
        r#""store":1"#,
        r#""metadata":{"a":1}"#,
        r#""user":7"#,
        r#""top_logprobs":21"#,
        r#""logit_bias":[]"#,
        r#""modalities":["smell"]"#,
        r#""audio":"x""#,
        r#""response_format":{"type":"xml"}"#,
        r#""response_format":{"type":"json_schema"}"#,
        r#""response_format":{"type":"json_schema","json_schema":{"schema":{}}}"#,
        r#""tools":{}"#,
        r#""tools":[{"function":{"name":"f"}}]"#,
        r#""tools":[{"type":"function"}]"#,
        r#""tools":[{"type":"function","function":{"name":""}}]"#,
        r#""tools":[{"type":"function","function":{"name":"f","parameters":"x"}}]"#,
        r#""tools":[{"type":"web_search"}]"#,
        r#""tool_choice":"maybe""#,
        r#""tool_choice":{"type":"function","function":{"name":"f"}}"#,
        r#""tool_choice":{"type":"web_search"}"#,
        r#""functions":[{"description":"d"}]"#,
        r#""function_call":"required""#,
        r#""unknown":{"anything":1},"parallel_tool_calls":null"#,
    ];
    insta::assert_snapshot!(replies("{}", &with_fields(&fields)));
}

#[test]
fn a_choice_of_a_function_that_only_the_gateway_has_is_refused() {
    let tools = r#""tools":[{"type":"function","function":{"name":"request_approval"}},{"type":"function","function":{"name":"f"}}]"#;
    let choices = [
        r#""tool_choice":{"type":"function","function":{"name":"request_approval"}}"#,
        r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"request_approval"}}]}}"#,
        r#""functions":[{"name":"request_approval"}],"function_call":{"name":"request_approval"}"#,
    ];
    let bodies = choices.map(|choice| format!("{tools},{choice}"));
    let bodies = with_fields(&bodies.each_ref().map(String::as_str));
    insta::assert_snapshot!(replies("{}", &bodies));
    // As text, the agent has it like every other function. Without tools, it gets no choice.
    for options in [r#"{"approvals":"text"}"#, r#"{"client_tools":"ignore"}"#] {
        assert!(replies(options, &bodies).lines().skip(1).step_by(2).all(|reply| reply == "  accepted"), "{options}");
    }
}

#[test]
fn messages_are_named_by_their_path() {
    let call =
        r#"{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let messages = [
        "7",
        "[]",
        "[7]",
        "[{}]",
        r#"[{"role":"pope","content":"x"}]"#,
        r#"[{"role":"user"}]"#,
        r#"[{"role":"user","content":7}]"#,
        r#"[{"role":"user","content":[7]}]"#,
        r#"[{"role":"user","content":[{"text":"x"}]}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"x"},{"type":"hologram"}]}]"#,
        r#"[{"role":"user","content":[{"type":"image_url"}]}]"#,
        r#"[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]"#,
        r#"[{"role":"user","content":[{"type":"file","file":{"filename":"a"}}]}]"#,
        r#"[{"role":"user","content":[]}]"#,
        r#"[{"role":"tool","content":"x"}]"#,
        r#"[{"role":"tool","tool_call_id":"c","content":"x"},{"role":"assistant","content":"y"}]"#,
        r#"[{"role":"function","name":"f","content":"x"}]"#,
        r#"[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}]"#,
        r#"[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]}]"#,
        r#"[{"role":"assistant","tool_calls":[{"id":"c","type":"search","search":{}}]}]"#,
        &format!(r#"[{call},{{"role":"tool","tool_call_id":"c","content":[{{"text":"x"}}]}}]"#),
    ];
    insta::assert_snapshot!(replies("{}", &with_messages(&messages)));
}

#[test]
fn two_tools_of_one_name_are_refused() {
    let table = replies(
        "{}",
        &with_fields(&[
            r#""tools":[{"type":"function","function":{"name":"f"}},{"type":"function","name":"f"}]"#,
            r#""tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"f"}}]"#,
            r#""functions":[{"name":"f"},{"name":"f"}]"#,
        ]),
    );
    let replies: Vec<&str> = table.lines().skip(1).step_by(2).collect();
    for (reply, path) in replies.iter().zip(["tools[1].name", "tools[1].custom.name", "functions[1].name"]) {
        assert!(
            reply.contains("400") && reply.contains("two tools have the name 'f'") && reply.contains(path),
            "{reply}"
        );
    }
}

#[test]
fn options_refuse_what_they_name() {
    let open = r#"[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]"#;
    let refused = [
        (r#"{"unknown_fields":"refuse"}"#, with_fields(&[r#""odd":1"#]).remove(0)),
        (
            r#"{"unknown_fields":"refuse","forward_fields":["odd"],"session":["session_id"]}"#,
            with_fields(&[r#""odd":1,"session_id":"s""#]).remove(0),
        ),
        (
            r#"{"client_tools":"refuse"}"#,
            with_fields(&[r#""tools":[{"type":"function","function":{"name":"f"}}]"#]).remove(0),
        ),
        (r#"{"hosted_tools":"refuse"}"#, with_fields(&[r#""tools":[{"type":"web_search"}]"#]).remove(0)),
        (r#"{"hosted_tools":"refuse"}"#, with_fields(&[r#""web_search_options":{}"#]).remove(0)),
        (r#"{"structured_output":"refuse"}"#, with_fields(&[r#""response_format":{"type":"json_object"}"#]).remove(0)),
        (r#"{"open_calls":"refuse"}"#, with_messages(&[open]).remove(0)),
    ];
    let table: String = refused
        .iter()
        .map(|(options, body)| format!("{options} {}", replies(options, std::slice::from_ref(body))))
        .collect();
    insta::assert_snapshot!(table);
}

#[test]
fn faults_of_the_engine_have_a_status_a_type_and_a_code() {
    let mut table = String::new();
    for kind in [
        FaultKind::Busy,
        FaultKind::RateLimited,
        FaultKind::UpstreamUnreachable,
        FaultKind::UpstreamTimeout,
        FaultKind::AgentFailed,
        FaultKind::ShuttingDown,
        FaultKind::Internal,
    ] {
        let mut fault = Fault::new(kind, "the reason");
        fault.retry_after = Some(Duration::from_millis(1500));
        let reply = route("{}").create(HELLO).fail(Some(&fault));
        let headers = ["retry-after", "x-should-retry"].map(|name| reply.head.get(name));
        assert!(reply.head.get("x-request-id").is_some_and(|id| id.starts_with("req_")));
        writeln!(table, "{kind:?} {} {headers:?}", reply.line()).expect("writing into a string");
    }
    insta::assert_snapshot!(table);
}

#[test]
fn an_output_that_answers_nothing_is_named() {
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"y"}]}"#;
    let mut sent = route("{}").create(body);
    assert_eq!(sent.run_call().answers[0].id, "c");
    let reply = sent.fail(Some(&Fault::new(FaultKind::Conflict, "'c' is unknown").with_code(NOT_WAITING)));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &"messages[1]".into()));
}

#[test]
fn paths_that_do_not_exist_are_errors_too() {
    for (method, path) in [("GET", "/chat"), ("POST", "/completions")] {
        let reply = route("{}").send(method, path, "", &[]).fail(None);
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (404, &"invalid_request_error".into()), "{path}");
    }
}

#[test]
fn a_mount_that_cannot_work_is_refused() {
    use interlingua_chat_completions::{ChatCompletions, Options};
    use interlingua_core::exchange::ProtocolAdapter;
    use interlingua_core_testkit::mount;

    let refuse = |agents: &[&str], options: &str| {
        let options: Options = serde_json::from_str(options).expect("options");
        ChatCompletions::mount(&mount("/v1", agents), options).err().expect("it is refused")
    };
    assert!(refuse(&["a"], r#"{"models":{"gpt":"b"}}"#).contains("not an agent of this route"));
    assert!(refuse(&["a", "b"], r#"{"any_model":true}"#).contains("any_model"));
    assert!(refuse(&["a"], r#"{"request_input":""}"#).contains("request_input"));
}
