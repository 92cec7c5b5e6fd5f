//! Complaints of model servers in every form, and their pauses.

use super::*;
use crate::error_class::MAX_RETRY_AFTER;

#[test]
fn a_complaint_is_found_in_every_form() {
    for (body, code, message) in [
        (r#"{"error":{"message":"no","type":"t","code":"c"}}"#, "c", "no"),
        (r#"{"error":{"message":"no","type":"t","code":null}}"#, "t", "no"),
        (r#"{"error":{"code":502,"message":"no"}}"#, "", "no"),
        (r#"{"error":{"code":"500","message":"no","type":"internal_server_error"}}"#, "internal_server_error", "no"),
        (r#"{"error":{"code":"500","message":"no","type":null}}"#, "", "no"),
        (r#"{"error":"no"}"#, "", "no"),
        (r#"{"object":"error","message":"no","code":"c"}"#, "c", "no"),
        (r#"{"detail":"no"}"#, "", "no"),
        (r#"{"detail":[{"loc":["body"],"msg":"no"},{"msg":"nor this"}]}"#, "", "no; nor this"),
        (r#"[{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}]"#, "", "no"),
        ("no\n", "", "no"),
        (r#"{"choices":null,"error_type":"BadRequestError","error_message":"no"}"#, "BadRequestError", "no"),
        (r#"{"status":400,"error":"Bad Request","message":"no","path":"/"}"#, "", "no"),
        (r#"{"error":"insufficient_quota","message":"no"}"#, "insufficient_quota", "no"),
        (r#"{"error":{"message":"{\"error\":{\"message\":\"no\",\"code\":\"c\"}}","code":null}}"#, "c", "no"),
        (r#"{"detail":"{\"error\":{\"message\":\"no\",\"code\":\"c\"}}"}"#, "c", "no"),
        (r#"{"success":false,"errors":[{"code":7003,"message":"no"}]}"#, "", "no"),
        (r#"{"type":"about:blank","title":"no","status":400}"#, "about:blank", "no"),
        (r#"{"detail":[{"loc":["body","input",0],"msg":"no","type":"missing"}]}"#, "missing", "input.0: no"),
    ] {
        let complaint = Complaint::parse(body.as_bytes()).expect(body);
        assert_eq!((complaint.code.as_str(), complaint.message.as_str()), (code, message), "{body}");
    }

    for body in ["", "<html>", "{}", "[]", "null", "7", "{\"error\":null}"] {
        assert_eq!(Complaint::parse(body.as_bytes()), None, "{body}");
    }
}

#[test]
fn many_forms_of_an_overload_are_recognized() {
    let kind = |body: &str| {
        let fault = Complaint::parse(body.as_bytes()).expect(body).not_now();
        fault.map(|fault| (fault.kind, fault.retry_after))
    };
    let busy = Some((FaultKind::UpstreamOverloaded, None));
    for (body, wanted) in [
        (r#"{"error":{"type":"overloaded_error","message":"busy"}}"#, busy),
        (r#"{"error":{"code":529,"message":"busy"}}"#, busy),
        (r#"{"error":{"code":"503","message":"busy"}}"#, busy),
        (
            r#"{"error":{"code":429,"message":"try again in 2s"}}"#,
            Some((FaultKind::UpstreamRateLimited, Some(Duration::from_secs(2)))),
        ),
        (r#"{"error":{"code":500,"message":"no"}}"#, None),
        (r#"{"error":"overloaded_error"}"#, None),
    ] {
        assert_eq!(kind(body), wanted, "{body}");
    }
}

#[test]
fn each_refusal_becomes_the_fault_of_the_table() {
    use FaultKind as K;
    for (status, body, kind, code, message) in [
        (
            400,
            r#"{"error":{"message":"bad n"}}"#,
            K::UpstreamRefused,
            K::UpstreamRefused.code(),
            "the agent refused the request: bad n",
        ),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"8192 tokens"}}"#,
            K::UpstreamContextTooLong,
            K::UpstreamContextTooLong.code(),
            "the conversation is too long for the agent: 8192 tokens",
        ),
        (
            400,
            r#"{"error":"the request exceeds the available context size"}"#,
            K::UpstreamContextTooLong,
            K::UpstreamContextTooLong.code(),
            "the conversation is too long for the agent: the request exceeds the available context size",
        ),
        (
            401,
            r#"{"error":{"message":"bad key sk-123"}}"#,
            K::UpstreamCredentials,
            K::UpstreamCredentials.code(),
            "the agent refused the gateway's credentials",
        ),
        (402, "", K::UpstreamQuota, K::UpstreamQuota.code(), "the agent's quota is used up"),
        (
            429,
            r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#,
            K::UpstreamQuota,
            K::UpstreamQuota.code(),
            "the agent's quota is used up",
        ),
        (
            404,
            r#"{"error":{"code":"model_not_found","message":"x"}}"#,
            K::UpstreamNoSuchModel,
            K::UpstreamNoSuchModel.code(),
            "the agent does not have the model",
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
            K::UpstreamNoSuchModel,
            K::UpstreamNoSuchModel.code(),
            "the agent does not have the model",
        ),
        (
            404,
            "<html>",
            K::UpstreamMisconfigured,
            K::UpstreamMisconfigured.code(),
            "the agent has nothing at the URL that the gateway asks",
        ),
        (
            400,
            r#"{"error":{"code":"tool_use_failed","message":"broken call"}}"#,
            K::AgentFailed,
            K::AgentFailed.code(),
            "the agent failed: broken call",
        ),
        (503, r#"{"error":"busy"}"#, K::UpstreamOverloaded, K::UpstreamOverloaded.code(), "the agent is not available"),
        (529, "", K::UpstreamOverloaded, K::UpstreamOverloaded.code(), "the agent is not available"),
        (500, r#"{"error":{"message":"secret"}}"#, K::AgentFailed, K::AgentFailed.code(), "the agent failed (500)"),
        (
            500,
            r#"{"error":"the input length exceeds the context length"}"#,
            K::UpstreamContextTooLong,
            K::UpstreamContextTooLong.code(),
            "the conversation is too long for the agent",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Pass sk-1","status":"INVALID_ARGUMENT"}}"#,
            K::UpstreamCredentials,
            K::UpstreamCredentials.code(),
            "the agent refused the gateway's credentials",
        ),
    ] {
        let fault = map_refusal(&Refusal { status, body: body.as_bytes(), retry_after: None });
        assert_eq!((fault.kind, fault.code(), fault.message.as_str()), (kind, code, message), "{status} {body}");
        assert_eq!((fault.upstream_status, fault.detail.as_deref()), (Some(status), Some(body)));
    }
}

#[test]
fn the_pause_is_read_from_the_header_or_the_text() {
    let pause = |text: &str, header: Option<u64>| {
        let body = format!(r#"{{"error":{{"message":"{text}"}}}}"#);
        let retry_after = header.map(Duration::from_secs);
        map_refusal(&Refusal { status: 429, body: body.as_bytes(), retry_after }).retry_after
    };

    assert_eq!(pause("Please try again in 1.5s.", None), Some(Duration::from_millis(1500)));
    assert_eq!(pause("try again in 20 seconds", None), Some(Duration::from_secs(20)));
    assert_eq!(pause("Try again in 300ms", None), Some(Duration::from_millis(300)));
    assert_eq!(pause("try again in 2m", None), Some(Duration::from_secs(120)));
    assert_eq!(pause("try again in 99999999999999999999999s", None), Some(MAX_RETRY_AFTER));
    assert_eq!(pause("try again in 20s", Some(3)), Some(Duration::from_secs(3)));
    assert_eq!(pause("try again later", None), None);
}

#[test]
fn json_of_no_protocol_is_an_error_only_with_the_signs_of_one() {
    let class = |body: &str| Complaint::from_unknown_object(body.as_bytes()).map(|found| found.class(None));
    for (body, expected) in [
        (
            r#"{"choices":null,"error_type":"BadRequestError","error_message":"context length is 4096"}"#,
            Some(FaultKind::UpstreamContextTooLong),
        ),
        (r#"{"error":"boom"}"#, None),
        (r#"{"message":"too much","code":"context_length_exceeded"}"#, Some(FaultKind::UpstreamContextTooLong)),
        (r#"[{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}]"#, Some(FaultKind::UpstreamRefused)),
        (r#"{"object":"error","message":"busy","code":503}"#, Some(FaultKind::UpstreamOverloaded)),
        (r#"{"success":false}"#, None),
    ] {
        assert_eq!(class(body), Some(expected), "{body}");
    }
    for body in [
        "{}",
        "[]",
        "[1]",
        "7",
        "\"error\"",
        r#"{"error":null}"#,
        r#"{"type":"ping"}"#,
        r#"{"message":"hi","type":"note"}"#,
        r#"{"error":"","errors":[]}"#,
        "<html>",
        "",
    ] {
        assert_eq!(class(body), None, "{body}");
    }
}

#[test]
fn errors_in_errors_are_read_to_a_bound() {
    let deep = "{\"error\":".repeat(100) + "\"no\"" + &"}".repeat(100);
    assert_eq!(Complaint::parse(deep.as_bytes()), None);
    assert_eq!(garbage(deep.as_bytes()).kind, FaultKind::AgentFailed);
}

#[test]
fn an_invalid_answer_has_a_class_or_is_garbage() {
    for (body, kind, message) in [
        (
            "prompt is too long: 9 > 8",
            FaultKind::UpstreamContextTooLong,
            "the conversation is too long for the agent: prompt is too long: 9 > 8",
        ),
        (r#"{"detail":"boom"}"#, FaultKind::AgentFailed, "boom"),
        (
            r#"{"error":{"code":"invalid_api_key","message":"bad sk-1"}}"#,
            FaultKind::UpstreamCredentials,
            "the agent refused the gateway's credentials",
        ),
        ("<html>the context length</html>", FaultKind::UpstreamGarbage, "the agent's answer could not be understood"),
        ("hello", FaultKind::UpstreamGarbage, "the agent's answer could not be understood"),
    ] {
        let fault = garbage(body.as_bytes());
        assert_eq!((fault.kind, fault.message.as_str()), (kind, message), "{body}");
        assert_eq!(fault.detail.as_deref(), Some(body));
    }
}
