//! Ends of answers, read strictly in each protocol: an answer has exactly one end, and no client can take a failure for
//! success.
//!
//! Not here: the expected ends.

use serde_json::{Value, json};

use super::http::Response;
use super::pairs::{Protocol, frames};
use super::transcript::Transcript;

/// A way for a run to fail, as the protocols of clients say it.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The gateway's own code.
    pub code: &'static str,
    /// The status before a stream has begun.
    pub status: u16,
    /// The status of A2A, and its reason or the gateway's code in it.
    pub a2a: (u16, &'static str),
    /// Type and code of OpenAI's APIs.
    pub openai: (&'static str, &'static str),
    /// The type of Anthropic's API.
    pub anthropic: &'static str,
    /// Whether the stream ends while the run continues, so that nothing in it is closed.
    pub interrupts: bool,
}

/// The agent's answer breaks off.
pub const TRUNCATED: Failure = Failure {
    code: "UPSTREAM_TRUNCATED",
    status: 502,
    a2a: (500, "UPSTREAM_TRUNCATED"),
    openai: ("server_error", "upstream_error"),
    anthropic: "api_error",
    interrupts: false,
};

/// The agent falls silent.
pub const SILENT: Failure = Failure {
    code: "UPSTREAM_TIMEOUT",
    status: 504,
    a2a: (503, "UPSTREAM_UNAVAILABLE"),
    openai: ("server_error", "upstream_timeout"),
    anthropic: "timeout_error",
    interrupts: false,
};

/// The credentials of the caller have ended.
pub const REVOKED: Failure = Failure {
    code: "AUTH_FAILED",
    status: 401,
    a2a: (401, "UNAUTHENTICATED"),
    openai: ("invalid_request_error", "invalid_api_key"),
    anthropic: "authentication_error",
    interrupts: true,
};

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Completed,
    Failed,
}

/// Reads the only end of an answer in the client's protocol. Panics if the answer has no end, more than one, or another
/// failure than this.
pub fn ending(client: Protocol, answer: &Response, failure: &Failure) -> Ending {
    if answer.status != 200 {
        expect_refusal(client, answer, failure);
        return Ending::Failed;
    }

    let received = frames(answer.text());
    match client {
        Protocol::AgentApi if failure.interrupts => {
            let last = only_end(&received, |frame| frame["status"] == "failed");
            assert_eq!(last["error"]["code"], failure.code, "{last}");
            Ending::Failed
        }
        Protocol::AgentApi => {
            let transcript = Transcript::parse(&received);
            match transcript.status.as_str() {
                "completed" => Ending::Completed,
                status => {
                    assert_eq!((status, transcript.code()), ("failed", failure.code));
                    Ending::Failed
                }
            }
        }
        Protocol::Responses => {
            let last = only_end(&received, |frame| {
                let kind = frame["type"].as_str().expect("events have types");
                ["response.completed", "response.failed", "response.incomplete", "error"].contains(&kind)
            });
            let response = &last["response"];
            if failure.interrupts {
                assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!(failure.openai.1)), "{last}");
                return Ending::Failed;
            }
            if last["type"] == "response.completed" {
                assert_eq!((&response["status"], &response["error"]), (&json!("completed"), &Value::Null));
                return Ending::Completed;
            }
            let failed = (&last["type"], &response["status"], response["error"]["code"].is_string());
            assert_eq!(failed, (&json!("response.failed"), &json!("failed"), true), "{last}");
            Ending::Failed
        }
        Protocol::ChatCompletions => chat_completions_ending(answer, &received, failure),
        Protocol::AnthropicMessages => anthropic_messages_ending(answer, &received, failure),
        Protocol::A2a if failure.interrupts => {
            let last = only_end(&received, |frame| frame.get("error").is_some());
            assert_eq!(last["error"]["status"], failure.a2a.1, "{last}");
            Ending::Failed
        }
        Protocol::A2a => {
            let last = only_end(&received, |frame| {
                let state = frame["statusUpdate"]["status"]["state"].as_str().unwrap_or("TASK_STATE_WORKING");
                !["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state)
            });
            let status = &last["statusUpdate"]["status"];
            if status["state"] == "TASK_STATE_COMPLETED" {
                return Ending::Completed;
            }
            assert_eq!(status["state"], "TASK_STATE_FAILED");
            assert!(status.to_string().contains("the agent"), "it says why: {status}");
            Ending::Failed
        }
        Protocol::AgKit => {
            let text = answer.text();
            assert!(text.matches("data: [DONE]").count() == 1 && text.ends_with("data: [DONE]\n\n"), "{text}");
            let is_error = |frame: &&Value| frame["type"] == "error";
            let errors = received.iter().filter(is_error).count();
            assert_eq!(usize::from(received.last().is_some_and(|last| is_error(&last))), errors, "{text}");
            if errors == 0 { Ending::Completed } else { Ending::Failed }
        }
        Protocol::AgUi => ag_ui_ending(&received, failure),
        Protocol::Hitl => {
            let body = answer.json();
            if body["status"] == "completed" {
                return Ending::Completed;
            }
            assert_eq!((&body["status"], &body["result"]), (&json!("error"), &Value::Null), "{body}");
            assert!(body["message"].as_str().is_some_and(|message| message.contains("the agent")), "{body}");
            Ending::Failed
        }
    }
}

/// With `[DONE]` only after a reason to stop: some clients take a stream that merely ends for a success.
fn chat_completions_ending(answer: &Response, received: &[Value], failure: &Failure) -> Ending {
    let text = answer.text();
    let reasons = received.iter().filter(|chunk| chunk["choices"][0]["finish_reason"].is_string()).count();
    let done = text.matches("data: [DONE]\n\n").count();
    let last = received.last().expect("a stream has chunks");
    if last.get("error").is_none() {
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert_eq!((reasons, done), (1, 1), "{text}");
        return Ending::Completed;
    }
    assert_eq!((reasons, done), (0, 0), "{text}");
    let error = &last["error"];
    assert_eq!(
        (error["type"].as_str(), error["code"].as_str()),
        (Some(failure.openai.0), Some(failure.openai.1)),
        "{last}"
    );
    Ending::Failed
}

/// With the line `event:`, without which clients skip a frame.
fn anthropic_messages_ending(answer: &Response, received: &[Value], failure: &Failure) -> Ending {
    for frame in answer.text().split("\n\n").filter(|frame| !frame.is_empty()) {
        let event = frame.lines().next().and_then(|line| line.strip_prefix("event: "));
        let data = frame.lines().nth(1).and_then(|line| line.strip_prefix("data: ")).expect("an event has data");
        let data: Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(event, data["type"].as_str(), "{frame}");
    }
    let last = only_end(received, |event| ["message_stop", "error"].contains(&event["type"].as_str().expect("a type")));
    if last["type"] == "message_stop" {
        let reasons = received.iter().filter(|event| event["delta"]["stop_reason"].is_string()).count();
        assert_eq!(reasons, 1, "{}", answer.text());
        return Ending::Completed;
    }
    assert_eq!(last["error"]["type"], failure.anthropic, "{last}");
    assert_eq!(last["error"]["details"]["error_code"], failure.code.to_lowercase(), "{last}");
    Ending::Failed
}

fn ag_ui_ending(received: &[Value], failure: &Failure) -> Ending {
    let last = only_end(received, |frame| {
        ["RUN_FINISHED", "RUN_ERROR"].contains(&frame["type"].as_str().expect("events have types"))
    });
    if last["type"] == "RUN_FINISHED" {
        return Ending::Completed;
    }
    assert_eq!(last["code"], failure.code, "{last}");
    Ending::Failed
}

/// The last frame, which has to be the only end.
fn only_end(frames: &[Value], is_end: impl Fn(&Value) -> bool) -> &Value {
    let last = frames.last().expect("a stream has frames");
    let ends = frames.iter().filter(|frame| is_end(frame)).count();
    assert!(ends == 1 && is_end(last), "{ends} endings: {frames:#?}");
    last
}

/// An answer whose status says that it failed.
fn expect_refusal(client: Protocol, answer: &Response, failure: &Failure) {
    let body = answer.json();
    let (found, expected) = match client {
        Protocol::AgentApi => (&body["code"], (failure.status, failure.code.to_owned())),
        Protocol::Responses | Protocol::ChatCompletions => {
            assert_eq!(answer.header("x-should-retry"), Some("false"), "the agent may have begun to work");
            (&body["error"]["code"], (failure.status, failure.openai.1.to_owned()))
        }
        Protocol::AnthropicMessages => {
            assert_eq!(answer.header("x-should-retry"), Some("false"), "the agent may have begun to work");
            assert_eq!(body["error"]["details"]["error_code"], failure.code.to_lowercase(), "{body}");
            (&body["error"]["type"], (failure.status, failure.anthropic.to_owned()))
        }
        Protocol::A2a => {
            let detail = &body["error"]["details"][0];
            let code = &detail["metadata"]["code"];
            let named = if code.is_null() { &detail["reason"] } else { code };
            (named, (failure.a2a.0, failure.a2a.1.to_owned()))
        }
        Protocol::AgKit => (&body["error"]["code"], (failure.status, failure.code.to_lowercase())),
        Protocol::AgUi => panic!("errors of the agent are events there: {body}"),
        Protocol::Hitl => panic!("errors of the agent are regular answers there: {body}"),
    };
    assert_eq!((answer.status, found.as_str()), (expected.0, Some(expected.1.as_str())), "{client:?}: {body}");
}

/// The text of a streamed answer, or of one that has no stream.
pub fn text_of(client: Protocol, answer: &Response) -> String {
    let received = frames(answer.text());
    let joined = |piece: &dyn Fn(&Value) -> Option<String>| received.iter().filter_map(piece).collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match client {
        Protocol::AgentApi => Transcript::parse(&received).text(),
        Protocol::Responses => {
            joined(&|event| text(&event["delta"]).filter(|_| event["type"] == "response.output_text.delta"))
        }
        Protocol::ChatCompletions => joined(&|chunk| text(&chunk["choices"][0]["delta"]["content"])),
        Protocol::AnthropicMessages => joined(&|event| text(&event["delta"]["text"])),
        Protocol::A2a => joined(&|event| {
            let parts = event["artifactUpdate"]["artifact"]["parts"].as_array()?;
            Some(parts.iter().filter_map(|part| part["text"].as_str()).collect())
        }),
        Protocol::AgKit => joined(&|event| text(&event["content"]).filter(|_| event["type"] == "text")),
        Protocol::AgUi => joined(&|event| text(&event["delta"]).filter(|_| event["type"] == "TEXT_MESSAGE_CONTENT")),
        Protocol::Hitl => super::pairs::texts_of(answer.json()["result"].to_string().as_str()),
    }
}
