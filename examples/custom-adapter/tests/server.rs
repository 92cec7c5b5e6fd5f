//! The protocol in the gateway: the example configuration, a real server on a free port, and the demo agent.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use custom_adapter::Plain;
use interlingua::Gateway;
use tokio::sync::oneshot;

/// A test that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway on its own thread, stopped when it is dropped.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let (started, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let gateway = Gateway::builtin().serve::<Plain>();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
            let (mut settings, _) = gateway.load(&file).unwrap_or_else(|error| panic!("{}", error.render(false)));
            settings.server.listen = ([127, 0, 0, 1], 0).into();
            actix_web::rt::System::new().block_on(async {
                let running = gateway.start(&settings).await.expect("a free port");
                started.send(running.address).expect("the test waits for it");
                let stopped = async { _ = stopped.await };
                running.run(stopped).await.expect("it serves until it is stopped");
            });
        });

        let address = address.recv_timeout(TIMEOUT).expect("the server listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends one request and returns the complete response: its head in lower case, and its body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut connection = TcpStream::connect(self.address).expect("the server listens");
        connection.set_read_timeout(Some(TIMEOUT)).expect("a socket has timeouts");
        let length = body.len();
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("the server reads");

        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("the answer is text, and ends");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");

        let head = head.to_ascii_lowercase();
        let chunked = head.contains("transfer-encoding: chunked");
        (head, if chunked { decode_chunks(body) } else { body.to_owned() })
    }
}

/// Decodes a chunked body: each chunk follows a line with its length (RFC 9112, section 7.1).
fn decode_chunks(mut body: &str) -> String {
    let mut decoded = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(length, 16).expect("a length is hexadecimal");
        if length == 0 {
            return decoded;
        }
        decoded.push_str(&rest[..length]);
        body = rest[length..].strip_prefix("\r\n").expect("a chunk ends with its line");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server thread panicked");
        }
    }
}

/// The value of a response header.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name} in {head}"))
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).expect("an answer has a status")
}

#[test]
fn an_answer_streams_as_text_and_can_be_fetched_again() {
    let server = Server::start();
    let (head, answer) = server.ask("POST", "/plain/demo/ask", "reasoning hello there");
    assert_eq!(status(&head), "200");
    assert_eq!(header(&head, "content-type"), "text/plain; charset=utf-8");
    assert!(answer.starts_with("(thinking) "), "{answer}");
    assert!(answer.contains("\n\nYou said: hello there\n"), "{answer}");

    let path = format!("/plain/demo/answers/{}", header(&head, "answer-id"));
    let (head, again) = server.ask("GET", &path, "");
    assert_eq!((status(&head), again), ("200", answer));
}

#[test]
fn a_session_keeps_its_history() {
    let server = Server::start();
    server.ask("POST", "/plain/demo/ask?session=s1", "echo one");
    let (_, second) = server.ask("POST", "/plain/demo/ask?session=s1", "history");
    assert_eq!(
        second,
        "This is message 2 of yours in this session. The first was: echo one The one before this was: echo one\n"
    );
}

/// The id behind `answers=` in the question of the demo agent.
fn asked(answer: &str) -> &str {
    let (_, id) = answer.split_once(" — answer with session=s1 answers=").expect("the agent asks");
    id.strip_suffix("]\n").expect("the question ends the answer")
}

#[test]
fn a_question_of_the_agent_is_answered_with_a_word() {
    let server = Server::start();
    for (word, outcome) in [("yes", "The mail was sent"), ("no", "not")] {
        let (_, question) = server.ask("POST", "/plain/demo/ask?session=s1", "approval");
        let id = asked(&question).to_owned();
        let (head, line) = server.ask("POST", "/plain/demo/ask?session=s1", "something else");
        assert_eq!(status(&head), "409");
        assert!(line.starts_with("error: SESSION_WAITING"), "{line}");

        let (head, answer) = server.ask("POST", &format!("/plain/demo/ask?session=s1&answers={id}"), word);
        assert_eq!(status(&head), "200", "{answer}");
        assert!(answer.contains(outcome), "{word}: {answer}");
    }

    let (head, line) = server.ask("POST", "/plain/demo/ask?answers=x", "yes");
    assert_eq!(status(&head), "400");
    assert!(line.ends_with("(at session)\n"), "{line}");
}

#[test]
fn a_failed_answer_ends_with_the_error() {
    let server = Server::start();
    let (head, line) = server.ask("POST", "/plain/demo/ask", "fail");
    assert_eq!(status(&head), "200", "the agent failed after the first words");
    assert!(line.contains("but\n\n[failed: MODEL_EXECUTION_FAILED"), "{line}");
}

#[test]
fn an_empty_question_is_refused_with_a_status() {
    let server = Server::start();
    let (head, line) = server.ask("POST", "/plain/demo/ask", " ");
    assert_eq!((status(&head), line.as_str()), ("400", "error: INVALID_PARAMETER: must not be empty (at question)\n"));
}

#[test]
fn unknown_resources_are_errors_in_text() {
    let server = Server::start();
    for (method, path, expected, line) in [
        ("GET", "/plain/demo/answers/nothing", "404", "error: RESOURCE_NOT_FOUND: answer 'nothing' not found\n"),
        ("GET", "/plain/demo/else", "404", "error: PATH_NOT_FOUND: no endpoint at '/plain/demo/else'\n"),
        ("GET", "/plain/demo/ask", "405", "error: METHOD_NOT_ALLOWED: 'GET' is not a method of '/plain/demo/ask'\n"),
    ] {
        let (head, body) = server.ask(method, path, "");
        assert_eq!((status(&head), body.as_str()), (expected, line), "{path}");
    }
}

#[test]
fn a_run_of_this_protocol_can_be_fetched_over_other_routes_of_its_agent() {
    let server = Server::start();
    let (head, _) = server.ask("POST", "/plain/demo/ask", "echo hello");
    let id = header(&head, "answer-id").to_owned();

    let (head, run) = server.ask("GET", &format!("/agents/demo/runs/{id}"), "");
    assert_eq!(status(&head), "200");
    assert!(run.contains(r#""text":"hello""#), "{run}");
}

#[test]
fn a_misspelled_option_is_reported_with_a_suggestion() {
    let gateway = Gateway::builtin().serve::<Plain>();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
    let source = std::fs::read_to_string(&file).expect("the file is there").replace("thoughts", "toughts");
    let env =
        interlingua::config::Env { env: &|_| None, file: &|_, _| unreachable!("nothing is named"), mode: &|_| None };
    let result = interlingua::config::read(&source, &file, &gateway.protocols(), &env);

    let message = result.expect_err("there is no such option").render(false);
    assert!(message.contains("did you mean \"thoughts\"?"), "{message}");
}
