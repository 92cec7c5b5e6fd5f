//! The protocol in the gateway: the shipped configuration, a real server on a port of its own, the demo agent behind it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use custom_adapter::Plain;
use interlingua::Gateway;
use tokio::sync::oneshot;

/// Nothing here takes long; a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A gateway on a thread of its own, stopped when it is dropped.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let (listening, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let gateway = Gateway::builtin().serve::<Plain>();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
            let (mut settings, _) = gateway.load(&file).unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
            settings.server.listen = ([127, 0, 0, 1], 0).into();
            actix_web::rt::System::new().block_on(async {
                let running = gateway.start(&settings).await.expect("a free port");
                listening.send(running.address).expect("the test waits for it");
                let stopped = async { _ = stopped.await };
                running.run(stopped).await.expect("it serves until it is stopped");
            });
        });
        let address = address.recv_timeout(PATIENCE).expect("the server listens");
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    /// One request, and the whole answer: its head in lower case, and its body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut connection = TcpStream::connect(self.address).expect("the server listens");
        connection.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
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
        (head, if chunked { unchunked(body) } else { body.to_owned() })
    }
}

/// The body that came in chunks, each after a line with its length (RFC 9112, section 7.1).
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("a chunk has a length");
        let length = usize::from_str_radix(length, 16).expect("a length is hexadecimal");
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
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
            panic!("the server has failed");
        }
    }
}

/// A header of an answer.
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
fn a_session_is_remembered() {
    let server = Server::start();
    server.ask("POST", "/plain/demo/ask?session=s1", "echo one");
    let (_, second) = server.ask("POST", "/plain/demo/ask?session=s1", "history");
    assert_eq!(
        second,
        "This is message 2 of yours in this session. The first was: echo one The one before this was: echo one\n"
    );
}

#[test]
fn an_agent_that_fails_says_so_in_the_last_line() {
    let server = Server::start();
    let (head, line) = server.ask("POST", "/plain/demo/ask", "fail");
    assert_eq!(status(&head), "200", "it failed after some words");
    assert!(line.contains("but\n\n[failed: MODEL_EXECUTION_FAILED"), "{line}");
}

#[test]
fn a_question_without_words_is_refused_with_a_status() {
    let server = Server::start();
    let (head, line) = server.ask("POST", "/plain/demo/ask", " ");
    assert_eq!((status(&head), line.as_str()), ("400", "error: INVALID_PARAMETER: must not be empty (at question)\n"));
}

#[test]
fn what_is_not_there_is_an_error_in_text() {
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
fn a_run_begun_here_is_known_to_the_other_routes_of_its_agent() {
    let server = Server::start();
    let (head, _) = server.ask("POST", "/plain/demo/ask", "echo hello");
    let id = header(&head, "answer-id").to_owned();
    let (head, native) = server.ask("GET", &format!("/agents/demo/runs/{id}"), "");
    assert_eq!(status(&head), "200");
    assert!(native.contains(r#""text":"hello""#), "{native}");
}

#[test]
fn a_misspelled_option_is_pointed_at() {
    let gateway = Gateway::builtin().serve::<Plain>();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("gateway.toml");
    let source = std::fs::read_to_string(&file).expect("the file is there").replace("thoughts", "toughts");
    let surroundings = interlingua::config::Env { env: &|_| None, file: &|_, _| unreachable!("nothing is named") };
    let wrong = interlingua::config::read(&source, &file, &gateway.protocols(), &surroundings);
    let told = wrong.expect_err("there is no such option").render(false);
    assert!(told.contains("did you mean \"thoughts\"?"), "{told}");
}
