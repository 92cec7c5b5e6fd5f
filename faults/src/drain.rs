//! SIGTERM with a thousand open streams: each continues during the grace period, the remaining ones end in their
//! protocol, the whole takes no longer than the drain and five seconds, and an idle gateway exits within a second.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::check::Check;
use crate::gateway::{Gateway, ROUTES};
use crate::{Rig, http};

const STREAMS: usize = 1000;
/// Idle connections of the gateway that has nothing to do.
const IDLE: usize = 200;
/// Streams wait for little: a thread each needs little.
const STACK: usize = 128 * 1024;

/// The first word of a stream in any of the protocols.
const WORDS: [&str; 3] = ["\"delta\":true", "output_text.delta", "artifactUpdate"];

/// The end of a stream, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    Failed,
    /// Without an end in its protocol.
    Cut,
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let mut checks = nothing_to_do(rig)?;
    // 60 words, 100 ms apart, and a grace that is longer.
    checks.extend(streams(rig, "inside the grace", 20, "long 60 100", End::Completed)?);
    // A grace that is shorter: each ends as failed.
    checks.extend(streams(rig, "beyond the grace", 2, "long 600 100", End::Failed)?);
    Ok(checks)
}

fn nothing_to_do(rig: &Rig) -> Result<Vec<Check>> {
    let mut gateway = Gateway::start(rig, &configuration(30))?;
    let connections = (0..IDLE).map(|_| idle(gateway.address)).collect::<Result<Vec<_>>>()?;
    let stopped = gateway.stop(Duration::from_secs(40))?.as_secs_f64();
    drop(connections);
    Ok(vec![Check::at_most("nothing to do: SIGTERM to exit", stopped, 1.0, "s")])
}

fn configuration(drain: u64) -> String {
    let limits = "limits = { connections_per_address = 20000 }";
    format!(
        "[server]\nlisten = \"{{{{listen}}}}\"\ndrain = \"{drain}s\"\n{limits}\n\
         [store]\nkind = \"sqlite\"\npath = \"gateway.db\"\n{ROUTES}"
    )
}

/// A connection that was used and is kept open.
fn idle(address: SocketAddr) -> Result<TcpStream> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    ensure!(connection.read(&mut [0; 4096])? > 0, "no answer");
    Ok(connection)
}

/// A thousand streams of three protocols, and a signal once all of them have begun.
fn streams(rig: &Rig, name: &str, drain: u64, words: &str, expected: End) -> Result<Vec<Check>> {
    let mut gateway = Gateway::start(rig, &configuration(drain))?;
    let (address, begun) = (gateway.address, AtomicUsize::new(0));
    let requests = requests(words);
    let named = |what: &str| format!("{name}: {what}");
    let (ends, stopped, late) = thread::scope(|scope| -> Result<_> {
        let streams: Vec<_> = (0..STREAMS)
            .map(|number| {
                let (request, begun) = (&requests[number % requests.len()], &begun);
                let work = move || follow(address, request, begun);
                Ok(thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work)?)
            })
            .collect::<Result<_>>()?;
        let started = Instant::now();
        while begun.load(Ordering::Relaxed) < STREAMS && started.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(10));
        }

        let late = scope.spawn(move || refused_while_draining(address));
        let stopped = gateway.stop(Duration::from_secs(drain + 20))?;
        let ends: Vec<_> = streams.into_iter().map(|stream| stream.join().unwrap_or(End::Cut)).collect();
        Ok((ends, stopped.as_secs_f64(), late.join().unwrap_or(false)))
    })?;

    let count = |end| ends.iter().filter(|one| **one == end).count() as f64;
    let others = STREAMS as f64 - count(expected) - count(End::Cut);
    Ok(vec![
        Check::at_least(named("streams open at SIGTERM"), begun.into_inner() as f64, STREAMS as f64, ""),
        Check::at_most(named("streams cut"), count(End::Cut), 0.0, ""),
        Check::at_most(named(&format!("streams not {expected:?}")), others, 0.0, ""),
        Check::at_least(named("new runs are refused with Retry-After"), f64::from(u8::from(late)), 1.0, ""),
        Check::at_most(named("SIGTERM to exit"), stopped, drain as f64 + 5.0, "s"),
    ])
}

fn requests(words: &str) -> [Vec<u8>; 3] {
    let native = format!(r#"{{"input":[{{"role":"user","content":"{words}"}}]}}"#);
    let responses = format!(r#"{{"model":"demo","stream":true,"input":"{words}"}}"#);
    let a2a = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"{words}"}}]}}}}}}"#
    );
    [
        http::request("POST", "/agents/demo/process", &[], &native),
        http::request("POST", "/v1/responses", &[], &responses),
        http::request("POST", "/a2a/demo", &[("A2A-Version", "1.0")], &a2a),
    ]
}

/// Reads a stream to its end. Only its tail is kept.
fn follow(address: SocketAddr, request: &[u8], begun: &AtomicUsize) -> End {
    let read = || -> Result<End> {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(Duration::from_secs(60)))?;
        connection.write_all(request)?;
        let (mut tail, mut buffer, mut is_first) = (Vec::new(), [0; 4096], true);
        loop {
            let count = connection.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            tail.extend_from_slice(&buffer[..count]);
            // The first word, not only the head.
            let is_word = |tail: &[u8]| WORDS.iter().any(|word| String::from_utf8_lossy(tail).contains(word));
            if is_first && is_word(&tail) {
                is_first = false;
                begun.fetch_add(1, Ordering::Relaxed);
            }
            if tail.len() > 64 * 1024 {
                tail.drain(..32 * 1024);
            }
        }

        let text = String::from_utf8_lossy(&tail);
        let is_whole = text.ends_with("\r\n0\r\n\r\n");
        // Responses ends with a mark of its own.
        let last = text.rsplit("data: ").find(|frame| !frame.starts_with("[DONE]")).context("no frame")?;
        let says = |words: [&str; 3]| is_whole && words.iter().any(|word| last.contains(word));
        Ok(if says(["GATEWAY_SHUTTING_DOWN", "TASK_STATE_FAILED", "response.failed"]) {
            End::Failed
        } else if says(["\"status\":\"completed\"", "TASK_STATE_COMPLETED", "response.completed"]) {
            End::Completed
        } else {
            End::Cut
        })
    };
    read().unwrap_or(End::Cut)
}

/// Whether a run that comes during the drain is refused with 503 and `Retry-After`.
fn refused_while_draining(address: SocketAddr) -> bool {
    thread::sleep(Duration::from_millis(500));
    let request = http::request("POST", "/agents/demo/process", &[], r#"{"input":[{"role":"user","content":"hi"}]}"#);
    let mut connection = match TcpStream::connect(address) {
        Ok(connection) => connection,
        Err(_) => return false,
    };
    let (sent, mut text) = (connection.write_all(&request), String::new());
    let _ = connection.set_read_timeout(Some(Duration::from_secs(5)));
    let _ = connection.read_to_string(&mut text);
    sent.is_ok() && text.starts_with("HTTP/1.1 503") && text.to_lowercase().contains("retry-after:")
}
