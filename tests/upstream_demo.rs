//! The demo agent, read like any other agent: through frames, reader and normalizer.

use std::time::{Duration, Instant};

use interlingua::upstream::demo::DemoUpstream;
use interlingua::upstream::{SendOptions, Upstream};
use interlingua_ag_ui::AgUi;
use interlingua_anthropic_messages::AnthropicMessages;
use interlingua_chat_completions::ChatCompletions;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::connector::{EventSink, TurnRequest};
use interlingua_core::exchange::ProtocolAdapter;
use interlingua_core::model::{AgentRequest, Content, ContentType, Message, MessageType, Role};
use interlingua_core::normalize::Normalizer;
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{End, Event, Fault, Json, Out, Record, Run, RunId};
use interlingua_core_testkit::{self as testkit, ClientRequest, TestRun};
use serde_json::{Value, json};
use uuid::Uuid;

struct Sink {
    record: Record,
    normalizer: Normalizer,
}

impl EventSink for Sink {
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        self.normalizer.emit(&mut self.record, event).map(|_| ())
    }

    fn has_ended(&self) -> bool {
        self.normalizer.has_ended()
    }
}

/// Runs one turn to its end and returns the record.
async fn run_turn(agent: &DemoUpstream, request: &AgentRequest, answered: &[Pending]) -> Record {
    let mut record = Record::new(Run::new(RunId(Uuid::now_v7()), "demo", "s1", 0));
    record.start_turn(request.input.clone());
    let mut sink = Sink { record, normalizer: Normalizer::new(64 << 20) };
    let state = Json::null();
    let request = TurnRequest::new(request, &state, answered);
    let mut conversation = agent.start(&request, SendOptions::default()).expect("the demo agent always responds");
    conversation.begin().await.expect("no network");
    while let Some(chunk) = conversation.chunk().await.expect("no network") {
        conversation.feed(&chunk, &mut sink).expect("no frame is too large");
    }

    assert!(conversation.chunk().await.expect("the end is not a fault").is_none(), "the end is final");
    conversation.finish(&mut sink).expect("nothing is left over");
    conversation.release();
    sink.normalizer.end_of_body(&mut sink.record);
    assert!(!sink.record.in_turn(), "the turn has ended");
    assert!(sink.record.run().messages.iter().all(|message| message.end.is_some()));
    sink.record
}

fn request(input: Vec<Message>) -> AgentRequest {
    AgentRequest {
        input: input.into(),
        session_id: Some("s1".to_owned()),
        user_id: Some("u1".to_owned()),
        ..AgentRequest::default()
    }
}

async fn run_text(text: &str) -> Record {
    run_turn(&DemoUpstream::new(Duration::ZERO), &request(vec![Message::user(text)]), &[]).await
}

fn kinds(record: &Record) -> Vec<&str> {
    record.run().messages.iter().map(|message| message.kind.as_str()).collect()
}

/// The text of all messages to the user.
fn text(record: &Record) -> String {
    let messages = record.run().messages.iter().filter(|message| message.kind == MessageType::Message);
    messages.map(|message| message.text()).collect()
}

fn end(record: &Record) -> Option<End> {
    record.run().turn().and_then(|turn| turn.end)
}

fn data(record: &Record, kind: &MessageType) -> Vec<Value> {
    let messages = record.run().messages.iter().filter(|message| message.kind == *kind);
    messages.flat_map(|message| &message.slots).filter_map(|slot| slot.content().as_data()?.decode()).collect()
}

#[tokio::test]
async fn a_message_is_answered_in_several_deltas() {
    let record = run_text("Is there help for a poor client?").await;
    assert_eq!(end(&record), Some(End::Completed));
    assert!(text(&record).contains("You said: Is there help for a poor client?"), "{}", text(&record));
    assert!(record.steps(0).filter(|step| matches!(step.event, Event::ContentDelta { .. })).count() > 5);
    assert!(text(&run_text("").await).contains("said nothing"));
}

#[tokio::test]
async fn attached_content_is_mentioned() {
    let picture = Content::new(interlingua_core::model::Body::Image(Some("https://example.com/cat.png".to_owned())));
    let message = Message::new(MessageType::Message, Some(Role::User), vec![Content::text("look"), picture]);
    let record = run_turn(&DemoUpstream::new(Duration::ZERO), &request(vec![message]), &[]).await;
    assert!(text(&record).contains("I also got: image."), "{}", text(&record));
}

#[tokio::test]
async fn every_command_in_the_help_text_works_and_ends() {
    let help = text(&run_text("help").await);
    let words: Vec<&str> =
        help.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(':')).map(|(word, _)| word).collect();
    assert!(words.len() > 25, "{words:?}");

    for word in words {
        let pending_item = word.replace("TEXT", "hello").replace("N MS", "3 0").replace("MS", "1");
        let record = run_text(&pending_item).await;
        let expected = match word {
            "error" | "fail" | "break" => End::Failed,
            "incomplete" => End::Incomplete,
            "reject" => End::Rejected,
            "cancel" => End::Canceled,
            _ => End::Completed,
        };
        assert_eq!(end(&record), Some(expected), "{word}");
        assert!(record.run().error().is_some() || expected != End::Failed, "{word}");
        assert!(record.run().error().is_none() || expected != End::Completed, "{word}");
        assert!(!text(&record).contains("You said"), "{word} is not a word it knows: {}", text(&record));
    }
}

#[tokio::test]
async fn each_command_produces_its_message_type() {
    let cases: &[(&str, &[&str])] = &[
        ("reasoning", &["reasoning", "message"]),
        ("overlap", &["reasoning", "message"]),
        ("summary", &["reasoning", "message"]),
        ("signed", &["reasoning", "message"]),
        ("redacted", &["reasoning", "message"]),
        ("interleaved", &["reasoning", "plugin_call", "plugin_call_output", "reasoning", "message"]),
        ("tool", &["plugin_call", "plugin_call_output", "message"]),
        ("parallel", &["plugin_call", "plugin_call", "plugin_call_output", "plugin_call_output", "message"]),
        ("mcp", &["mcp_list_tools", "mcp_call", "mcp_call_output", "message"]),
        ("component", &["component_call", "component_call_output", "message"]),
        ("client tool", &["function_call"]),
        ("approval", &["message", "mcp_approval_request"]),
        ("question", &["mcp_approval_request"]),
        ("login", &["mcp_approval_request"]),
        ("warning", &["error", "message"]),
        ("heartbeat", &["message"]),
        ("empty", &[]),
        ("error", &[]),
        ("fail", &["message"]),
    ];
    for (word, expected) in cases {
        assert_eq!(kinds(&run_text(word).await), *expected, "{word}");
    }

    for (word, kind) in [
        ("image", ContentType::Image),
        ("audio", ContentType::Audio),
        ("video", ContentType::Video),
        ("file", ContentType::File),
        ("data", ContentType::Data),
        ("refusal", ContentType::Refusal),
    ] {
        let record = run_text(word).await;
        let shown = record.run().messages.iter().flat_map(|message| &message.slots).any(|slot| slot.kind == kind);
        assert!(shown, "{word}");
    }
}

#[tokio::test]
async fn commands_are_read_only_from_the_start_of_the_message() {
    let record = run_text("Reasoning, image usage and then an error").await;
    assert_eq!(end(&record), Some(End::Completed));
    assert_eq!(kinds(&record), ["reasoning", "message", "message"]);
    assert!(text(&record).contains("You said: and then an error"), "{}", text(&record));

    let usage: Value = record.run().usage().and_then(Json::decode).expect("it says what it cost");
    assert_eq!(usage["input_tokens"], 7);
    assert_eq!(usage["total_tokens"], 7 + usage["output_tokens"].as_u64().expect("a number"));
    assert_eq!(text(&run_text("echo  long 5 5").await), "long 5 5");
}

#[tokio::test]
async fn reasoning_and_message_overlap() {
    let record = run_text("overlap").await;
    let order: Vec<(bool, u32)> = record
        .steps(0)
        .filter_map(|step| match step.event {
            Event::MessageStarted { message } => Some((true, message)),
            Event::MessageFinished { message } => Some((false, message)),
            _ => None,
        })
        .collect();
    assert_eq!(order, [(true, 0), (true, 1), (false, 0), (false, 1)]);
}

#[tokio::test]
async fn calls_and_outputs_are_paired() {
    let record = run_text("parallel").await;
    let called = data(&record, &MessageType::PluginCall);
    let returned = data(&record, &MessageType::PluginCallOutput);
    assert_eq!((&called[0]["call_id"], &called[1]["call_id"]), (&returned[1]["call_id"], &returned[0]["call_id"]));
    assert_eq!(called[0]["arguments"], r#"{"city":"Paris"}"#);
}

#[tokio::test]
async fn a_client_tool_call_continues_with_its_output() {
    let agent = DemoUpstream::new(Duration::ZERO);
    let mut pending_item = request(vec![Message::user("client tool")]);
    let parameters = json!({ "properties": { "city": { "type": "string" }, "unit": { "enum": ["C", "F"] } } });
    pending_item.tools = Some(vec![Json::from_serialize(
        &json!({ "type": "function", "function": { "name": "my_tool", "parameters": parameters } }),
    )]);
    let record = run_turn(&agent, &pending_item, &[]).await;
    let pending = record.run().pending();
    assert_eq!((pending[0].kind, pending[0].name.as_str()), (PendingKind::Tool, "my_tool"));
    assert_eq!(
        serde_json::from_str::<Value>(&pending[0].arguments).ok(),
        Some(json!({ "city": "example", "unit": "C" }))
    );

    let output = Content::data(&json!({ "call_id": pending[0].id, "output": "42" }));
    let output = Message::new(MessageType::FunctionCallOutput, Some(Role::Tool), vec![output]);
    let record = run_turn(&agent, &request(vec![output.clone()]), &pending).await;
    assert_eq!(text(&record), "Your tool my_tool says: 42");

    // The same with the full history in the request, as some clients send it.
    let call = Content::data(&json!({ "call_id": pending[0].id, "name": "my_tool", "arguments": "{}" }));
    let call = Message::new(MessageType::FunctionCall, Some(Role::Assistant), vec![call]);
    let record = run_turn(&agent, &request(vec![Message::user("client tool"), call, output]), &[]).await;
    assert_eq!(text(&record), "Your tool my_tool says: 42");
    assert_eq!(run_text("client tool").await.run().pending()[0].name, "get_location");
}

async fn answer(pending_item: &str, answer: Value, in_front: bool) -> Record {
    let agent = DemoUpstream::new(Duration::ZERO);
    let pending = run_turn(&agent, &request(vec![Message::user(pending_item)]), &[]).await.run().pending();
    let item = &pending[0];
    let mut body = json!({ "approval_request_id": item.id, "id": item.id });
    for (name, value) in answer.as_object().expect("an object") {
        body[name] = value.clone();
    }

    let answer = Message::new(MessageType::McpApprovalResponse, Some(Role::User), vec![Content::data(&body)]);
    if in_front {
        // The client sends the request message before its answer; the gateway has no history.
        let data = json!({
            "id": item.id, "name": item.name, "arguments": item.arguments, "interrupt": item.extension,
        });
        let front = Message::new(MessageType::McpApprovalRequest, Some(Role::Assistant), vec![Content::data(&data)]);
        return run_turn(&agent, &request(vec![front, answer]), &[]).await;
    }
    run_turn(&agent, &request(vec![answer]), &pending).await
}

#[tokio::test]
async fn a_tool_runs_only_as_it_was_approved() {
    let pending_item = run_text("approval").await.run().pending().remove(0);
    assert_eq!((pending_item.kind, pending_item.name.as_str()), (PendingKind::Approval, "send_mail"));
    assert_eq!(pending_item.decisions, [Decision::Accept, Decision::Edit, Decision::Respond, Decision::Reject]);
    assert!(pending_item.call_id.is_some() && pending_item.message.is_some());

    let edit = json!({ "approve": true, "interrupt": { "decision": "edit", "arguments": "{\"to\":\"bob\"}" } });
    let respond = json!({ "approve": false, "interrupt": { "decision": "respond", "text": "done by hand" } });
    let cases = [
        (json!({ "approve": true }), Some("sent to ada@example.com"), "sent to ada@example.com"),
        (edit, Some("sent to bob"), "sent to bob"),
        (respond, Some("done by hand"), "done by hand"),
        (json!({ "approve": false, "reason": "not now" }), None, "rejected it: not now"),
        (json!({ "approve": false, "interrupt": { "decision": "cancel" } }), None, "no one decided"),
        (json!({}), None, "rejected it"),
    ];

    for (given, result, words) in cases {
        for in_front in [false, true] {
            let record = answer("approval", given.clone(), in_front).await;
            let outputs = data(&record, &MessageType::PluginCallOutput);
            assert_eq!(outputs.first().and_then(|output| output["output"].as_str()), result, "{given}");
            assert!(text(&record).contains(words), "{given}: {}", text(&record));
        }
    }
}

#[tokio::test]
async fn questions_and_logins_are_answered() {
    let pending_item = run_text("question").await.run().pending().remove(0);
    assert_eq!(pending_item.kind, PendingKind::Input);
    assert!(pending_item.response_schema.is_some() && pending_item.payload.is_some());
    assert_eq!(run_text("login").await.run().pending()[0].kind, PendingKind::Auth);

    let given = json!({ "approve": true, "interrupt": { "decision": "respond", "payload": { "colour": "red" } } });
    assert!(text(&answer("question", given, false).await).contains(r#"You answered: {"colour":"red"}"#));
    assert!(text(&answer("login", json!({ "approve": true }), false).await).contains("logged in"));
    assert!(text(&answer("login", json!({ "approve": false }), true).await).contains("cannot go on"));
}

#[tokio::test]
async fn an_answer_without_a_pending_item_does_nothing() {
    let body = Content::data(&json!({ "approval_request_id": "appr_x", "approve": true }));
    let answer = Message::new(MessageType::McpApprovalResponse, Some(Role::User), vec![body]);
    let record = run_turn(&DemoUpstream::new(Duration::ZERO), &request(vec![answer]), &[]).await;
    assert_eq!(kinds(&record), ["message"]);
    assert!(text(&record).contains("did nothing"));
}

#[tokio::test]
async fn sessions_are_remembered_separately() {
    let agent = DemoUpstream::new(Duration::ZERO);
    run_turn(&agent, &request(vec![Message::user("blue is my colour")]), &[]).await;
    let record = run_turn(&agent, &request(vec![Message::user("history")]), &[]).await;
    assert!(text(&record).contains("message 2 of yours"), "{}", text(&record));
    assert!(text(&record).contains("The first was: blue is my colour"));
    let other = AgentRequest { session_id: Some("s2".to_owned()), ..request(vec![Message::user("history")]) };
    assert!(text(&run_turn(&agent, &other, &[]).await).contains("message 1 of yours"));
}

#[tokio::test]
async fn a_long_reply_is_paced_and_streamed() {
    let started = Instant::now();
    let record = run_text("long 3 20").await;
    assert_eq!(text(&record), "1 2 3 ");
    assert!(started.elapsed() >= Duration::from_millis(60));

    let agent = DemoUpstream::new(Duration::ZERO);
    let pending_item = request(vec![Message::user("long 100000 600000")]);
    let state = Json::null();
    let request = TurnRequest::new(&pending_item, &state, &[]);
    let mut conversation = agent.start(&request, SendOptions::default()).expect("the demo agent always responds");
    conversation.begin().await.expect("no network");

    // The frames before the first delta arrive at once; the rest is not awaited.
    for _ in 0..3 {
        conversation.chunk().await.expect("no network").expect("a frame");
    }
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(text(&run_text("long 20000 0").await).split_whitespace().count(), 20_000);
}

/// A client's view of a run: the data of each frame that is JSON.
fn streamed<A: ProtocolAdapter>(path: &str, body: &Value, record: &Record) -> Vec<Value> {
    let mounted = A::mount(&testkit::mount("/at", &["demo"]), A::Options::default()).expect("the options are valid");
    let (endpoint, _) = testkit::endpoint(&mounted, "POST", path).expect("an endpoint");
    let mut exchange = (endpoint.open)();
    ClientRequest::post(path, body.to_string().as_bytes()).decode(&mut *exchange).expect("a request");
    let mut out = Out::new();
    exchange.begin(TestRun::new(record).view(), &mut out);
    for step in record.steps(0) {
        exchange.encode(step, &mut out);
    }
    let text = String::from_utf8(out.body.to_vec()).expect("UTF-8");
    text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

/// The run of a word, ended.
async fn ended(word: &str) -> Record {
    let mut record = run_text(word).await;
    record.finish_run(End::Completed);
    record
}

/// The texts at a place of the frames that have it, joined.
fn joined(frames: &[Value], pointer: &str) -> String {
    frames.iter().filter_map(|frame| frame.pointer(pointer)?.as_str()).collect()
}

/// The opaque value that goes with reasoning.
const OPAQUE: &str = "dGhlIGRlbW8gYWdlbnQgdGhvdWdodCB0aGlz";
const SIGNED: &str = "I sign what I think, so that I know it again.";

#[tokio::test]
async fn an_anthropic_client_sees_every_form_of_reasoning() {
    let body = json!({
        "model": "demo", "max_tokens": 100, "stream": true, "thinking": { "type": "adaptive" },
        "messages": [{ "role": "user", "content": "hi" }],
    });
    let blocks = |frames: &[Value]| -> Vec<String> {
        frames.iter().filter_map(|frame| Some(frame.pointer("/content_block/type")?.as_str()?.to_owned())).collect()
    };
    let of = |record: &Record| streamed::<AnthropicMessages>("/v1/messages", &body, record);

    let frames = of(&ended("signed").await);
    assert_eq!(blocks(&frames), ["thinking", "text"]);
    assert_eq!(joined(&frames, "/delta/thinking"), SIGNED);
    assert_eq!(joined(&frames, "/delta/signature"), OPAQUE);

    let frames = of(&ended("redacted").await);
    assert_eq!(blocks(&frames), ["redacted_thinking", "text"]);
    assert_eq!(joined(&frames, "/content_block/data"), OPAQUE);

    let thought = joined(&of(&ended("summary").await), "/delta/thinking");
    assert!(thought.contains("Reading the question") && thought.contains("in two parts."), "{thought}");

    let frames = of(&ended("interleaved").await);
    let shown = blocks(&frames);
    assert_eq!(shown.iter().filter(|kind| *kind == "thinking").count(), 2, "{shown:?}");
    assert_eq!((shown.first().map(String::as_str), shown.last().map(String::as_str)), (Some("thinking"), Some("text")));
}

#[tokio::test]
async fn an_ag_ui_client_sees_every_form_of_reasoning() {
    let body = json!({
        "threadId": "t", "runId": "r", "protocolVersion": "1.0",
        "messages": [{ "id": "u", "role": "user", "content": "hi" }],
    });
    let reasoning = |frames: &[Value]| -> Vec<String> {
        let kinds = frames.iter().filter_map(|frame| frame["type"].as_str());
        kinds.filter(|kind| kind.starts_with("REASONING_") && !kind.ends_with("CONTENT")).map(str::to_owned).collect()
    };
    let of = |record: &Record| streamed::<AgUi>("", &body, record);
    let thoughts = |frames: &[Value]| -> Vec<Value> {
        frames.iter().filter(|frame| frame["type"] == "REASONING_MESSAGE_CONTENT").cloned().collect()
    };
    let opaque = [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_END",
    ];

    let frames = of(&ended("signed").await);
    assert_eq!(
        (reasoning(&frames).as_slice(), joined(&thoughts(&frames), "/delta").as_str()),
        (&opaque.map(str::to_owned)[..], SIGNED)
    );
    assert_eq!(joined(&frames, "/encryptedValue"), OPAQUE);

    let frames = of(&ended("redacted").await);
    assert_eq!((reasoning(&frames).as_slice(), thoughts(&frames).len()), (&opaque.map(str::to_owned)[..], 0));
    assert_eq!(joined(&frames, "/encryptedValue"), OPAQUE);

    let thought = joined(&thoughts(&of(&ended("summary").await)), "/delta");
    assert!(thought.contains("Reading the question") && thought.contains("in two parts."), "{thought}");

    let frames = of(&ended("interleaved").await);
    let brackets = ["REASONING_START", "TOOL_CALL_START", "TOOL_CALL_RESULT", "TEXT_MESSAGE_START", "RUN_FINISHED"];
    let order: Vec<&str> =
        frames.iter().filter_map(|frame| frame["type"].as_str()).filter(|kind| brackets.contains(kind)).collect();
    let expected = [brackets[0], brackets[1], brackets[2], brackets[0], brackets[3], brackets[4]];
    assert_eq!(order, expected);
}

#[tokio::test]
async fn a_chat_completions_client_sees_the_text_of_every_form_of_reasoning() {
    let body = json!({ "model": "demo", "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let mut seen = Vec::new();
    for word in ["signed", "redacted", "summary", "interleaved"] {
        let frames = streamed::<ChatCompletions>("/chat/completions", &body, &ended(word).await);
        assert!(!joined(&frames, "/choices/0/delta/content").is_empty(), "{word}");
        seen.push(joined(&frames, "/choices/0/delta/reasoning_content"));
    }
    assert_eq!((seen[0].as_str(), seen[1].as_str()), (SIGNED, ""));
    assert!(seen[2].contains("Reading the question") && seen[2].contains("in two parts."), "{seen:?}");
    assert_eq!(seen[3], "Whether a coat is needed depends on the weather. I look.\n\nIt is sunny, so it is not.");
}
