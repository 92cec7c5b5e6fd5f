//! A host of `interlingua mcp`: starts the command, writes lines to it and reads its output.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::support::http::with_timeout;
use super::support::process::binary;
use super::support::upstream::{ReceivedRequest, Reply};

/// A running command. It is killed when it is dropped.
pub(super) struct Host {
    child: Child,
    input: Option<ChildStdin>,
    output: mpsc::UnboundedReceiver<String>,
    problems: mpsc::UnboundedReceiver<String>,
}

/// The end of a command.
pub(super) struct HostEnd {
    pub(super) status: ExitStatus,
    /// The messages that were not read before.
    pub(super) messages: Vec<Value>,
    pub(super) problems: Vec<String>,
}

impl Host {
    pub(super) fn start(url: &str) -> Self {
        Self::start_with(url, &[], &[])
    }

    /// Starts the command with arguments and variables.
    pub(super) fn start_with(url: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = binary(&std::env::temp_dir());
        command.args(["mcp", "--url", url]).args(arguments).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let input = child.stdin.take();
        let output = lines(child.stdout.take().expect("its output is read"));
        let problems = lines(child.stderr.take().expect("its errors are read"));
        Self { child, input, output, problems }
    }

    /// Sends a message as one line.
    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes());
    }

    pub(super) fn send_line(&mut self, line: &[u8]) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(line).and_then(|()| input.write_all(b"\n")).expect("the command reads");
    }

    /// The next message. Each line of the output has to be one.
    pub(super) async fn message(&mut self) -> Value {
        let line = with_timeout("a message", self.output.recv()).await.expect("the command runs");
        parse(&line)
    }

    /// The next line about a problem.
    pub(super) async fn problem(&mut self) -> String {
        with_timeout("a problem", self.problems.recv()).await.expect("the command runs")
    }

    /// Stops reading the output, as a host that has ended.
    pub(super) fn close_output(&mut self) {
        self.output.close();
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the signal can be sent");
    }

    /// Closes the input and waits for the end of the command.
    pub(super) async fn end(mut self) -> HostEnd {
        drop(self.input.take());
        self.wait().await
    }

    /// Waits for the end of the command.
    pub(super) async fn wait(mut self) -> HostEnd {
        let (mut messages, mut problems) = (Vec::new(), Vec::new());
        with_timeout("the command to end", async {
            while let Some(line) = self.output.recv().await {
                messages.push(parse(&line));
            }
            while let Some(line) = self.problems.recv().await {
                problems.push(line);
            }
        })
        .await;
        let status = self.child.wait().expect("the command has ended");
        HostEnd { status, messages, problems }
    }
}

impl HostEnd {
    /// Expects an end without problems and without further messages.
    pub(super) fn expect_silence(&self) {
        let found = (self.status.code(), self.messages.as_slice(), self.problems.as_slice());
        assert_eq!(found, (Some(0), &[][..], &[][..]));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Value {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
    assert_eq!(message["jsonrpc"], "2.0", "{line}");
    message
}

/// The lines of a stream, read on a thread of its own until no one wants them.
fn lines(stream: impl Read + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            if sender.send(line.expect("the output is text")).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The method of a received message. Empty for responses and for requests without a body.
pub(super) fn method(request: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    body["method"].as_str().unwrap_or_default().to_owned()
}

/// The method of HTTP and the method of the message: `POST ping`.
pub(super) fn kind(request: &ReceivedRequest) -> String {
    format!("{} {}", request.method, method(request)).trim().to_owned()
}

/// A header of a request.
pub(super) fn header<'a>(request: &'a ReceivedRequest, name: &str) -> Option<&'a str> {
    request.headers.get(name).map(String::as_str)
}

/// A JSON document as the answer.
pub(super) fn document(body: &Value) -> Reply {
    Reply::complete(200, &[("content-type", "application/json")], body.to_string())
}

/// The answer to a notification.
pub(super) fn accepted() -> Reply {
    Reply::complete(202, &[], "")
}

/// The result `{ "ok": tag }` for the request with this body.
pub(super) fn result(request: &ReceivedRequest, tag: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": { "ok": tag } })
}
