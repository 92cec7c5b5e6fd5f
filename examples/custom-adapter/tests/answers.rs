//! The protocol adapter alone, without a server: requests to calls, and records to text.
//!
//! The scripts of the testkit cover what agents can do; each new script is a new case here.

use interlingua_core::call::Target;
use interlingua_core::exchange::{Exchange, Flow, Mounted};
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::MessageStart;
use interlingua_core::{Call, Fault, FaultKind, Out, ProtocolAdapter, Record, Reply, Thread};
use interlingua_core_testkit::{self as testkit, RUN, TestRun, laws};

fn mounted(thoughts: bool) -> Mounted {
    let mount = testkit::mount("/plain/demo", &["demo"]);
    custom_adapter::Plain::mount(&mount, custom_adapter::Options { thoughts }).expect("the mount has one agent")
}

fn open(mounted: &Mounted, path: &str) -> Box<dyn Exchange> {
    let found = mounted.endpoints.iter().find(|endpoint| endpoint.path == path);
    (found.expect("the endpoint exists").open)()
}

fn ask(exchange: &mut dyn Exchange, media: &str, body: &[u8], query: &str) -> Result<Call, Fault> {
    let request = testkit::ClientRequest {
        query,
        headers: &[("content-type", media)],
        params: &[("id".to_owned(), RUN.to_prefixed("answer_"))],
        body,
        base_url: "http://gateway/plain/demo",
        ..testkit::ClientRequest::new("POST", "/plain/demo/ask")
    };
    request.decode(exchange)
}

/// The stream of `POST /ask`, with the agent's questions at its end.
fn streamed(record: &Record, thoughts: bool) -> String {
    let (mut exchange, mut out, run) = (open(&mounted(thoughts), "/ask"), Out::new(), TestRun::new(record));
    let text = laws::encode(&mut *exchange, run.view());
    exchange.pause(run.view(), &mut out);
    text + &String::from_utf8_lossy(&out.body)
}

/// The response of `GET /answers/{id}`: status and text.
fn fetched(record: &Record, thoughts: bool) -> (u16, String) {
    let (mut exchange, mut out) = (open(&mounted(thoughts), "/answers/{id}"), Out::new());
    exchange.reply(Reply::Run(TestRun::new(record).view()), &mut out).expect("the reply is a run");
    (out.head.status, String::from_utf8(out.body.to_vec()).expect("text"))
}

#[test]
fn a_question_is_the_body_and_the_query_names_its_session() {
    let mounted = mounted(false);
    let parse = |body: &[u8], query| match ask(&mut *open(&mounted, "/ask"), "text/plain", body, query) {
        Ok(Call::Run(call)) => (call.request.input[0].text(), call.thread, call.id),
        other => panic!("not a question: {other:?}"),
    };

    assert_eq!(parse("grüß dich".as_bytes(), ""), ("grüß dich".to_owned(), Thread::New, Some(RUN)));
    let in_session = ("hi".to_owned(), Thread::Session("s 1".to_owned()), Some(RUN));
    assert_eq!(parse(b"hi", "session=s%201"), in_session);
}

#[test]
fn a_fault_is_a_line_with_the_name_of_the_field() {
    let mounted = mounted(false);
    let error_line = |body: &[u8], query| {
        let (mut exchange, mut out) = (open(&mounted, "/ask"), Out::new());
        let fault = ask(&mut *exchange, "text/plain", body, query).expect_err("the request is invalid");
        exchange.fail(&fault, &mut out);
        (out.head.status, String::from_utf8(out.body.to_vec()).expect("text"))
    };

    let lines = [error_line(b"  \n", ""), error_line(b"\xff", ""), error_line(b"yes", "answers=x")];
    let lines = lines.map(|(status, line)| format!("{status} {line}"));
    assert_eq!(
        lines.concat(),
        "\
400 error: INVALID_PARAMETER: must not be empty (at question)
400 error: MALFORMED_REQUEST: the body is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0
400 error: INVALID_PARAMETER: an answer needs the session of the question (at session)
"
    );
}

#[test]
fn the_id_in_the_response_header_fetches_the_answer() {
    let mounted = mounted(false);
    let mut exchange = open(&mounted, "/ask");
    ask(&mut *exchange, "text/plain", b"hi", "").expect("a question");
    let mut out = Out::new();
    exchange.head(&mut out.head);
    assert_eq!(out.head.get("answer-id"), Some(RUN.to_prefixed("answer_").as_str()));

    let call = ask(&mut *open(&mounted, "/answers/{id}"), "", b"", "").expect("an id");
    assert!(matches!(call, Call::Fetch(Target::Run(RUN))), "{call:?}");
}

/// The text of the scripts for which this protocol has rules of its own.
#[test]
fn an_answer_consists_of_paragraphs() {
    for (script, text) in [
        ("greeting", "Hello, world!\n"),
        ("reasoning_before", "(thinking) Let me think.\n\nIt is 42.\n"),
        ("overlapping_messages", "a1 a2\n\nb1 b2\n"),
        ("refusal", "I cannot help.\n"),
        ("image_url", "[image]\n"),
        ("corrected", "Helo wrld\n\nHello world\n"),
        ("plugin", "I look it up.\n\nIt is 18 C and sunny.\n"),
        ("failure_before_output", "[failed: MODEL_QUOTA_EXCEEDED: the quota is used up]\n"),
        ("failure_after_output", "Partial answer\n\n[failed: MODEL_TIMEOUT: the model took too long]\n"),
        ("broken_off", "First, this.\n\nThen th\n\n[failed: UPSTREAM_TRUNCATED: the agent broke off its answer]\n"),
        ("incomplete", "Cut sho\n\n[incomplete: max_output_tokens: the limit is reached]\n"),
        ("empty", ""),
    ] {
        assert_eq!(streamed(&testkit::script(script).record(), true), text, "{script}");
    }
}

#[test]
fn reasoning_is_sent_if_the_option_is_set() {
    let record = testkit::script("reasoning_before").record();
    assert!(streamed(&record, true).starts_with("(thinking) "));
    let quiet = streamed(&record, false);
    assert!(!quiet.contains("(thinking)"), "{quiet}");
    assert!(streamed(&record, true).ends_with(&format!("\n\n{quiet}")), "the remaining text is the same");
}

/// The rule for every encoder, which makes it possible to resume a broken stream.
#[test]
fn a_replay_equals_the_stream() {
    for script in testkit::scripts() {
        laws::replay_equals_live(|| open(&mounted(true), "/ask"), &script);
    }
}

#[test]
fn a_fetched_answer_equals_the_stream() {
    for script in testkit::scripts() {
        let record = script.record();
        assert_eq!(fetched(&record, true), (200, streamed(&record, true)), "{}", script.name);
    }
}

#[test]
fn an_incomplete_answer_can_be_interrupted_and_fetched() {
    let mut record = testkit::started();
    let message = record.start_message(MessageStart::new("", MessageType::Message, Role::Assistant));
    let content = record.start_content(message, ContentType::Text, None);
    record.push(message, content, "so far");

    let (mut exchange, mut out) = (open(&mounted(false), "/ask"), Out::new());
    record.steps(0).for_each(|step| assert_eq!(exchange.encode(step, &mut out), Flow::More));
    exchange.interrupt(&Fault::new(FaultKind::ShuttingDown, "the gateway is shutting down"), &mut out);
    let interrupted = "so far\n\n[interrupted: GATEWAY_SHUTTING_DOWN: the gateway is shutting down]\n";
    assert_eq!(String::from_utf8_lossy(&out.body), interrupted);
    assert_eq!(fetched(&record, false), (202, "so far".to_owned()));
}
