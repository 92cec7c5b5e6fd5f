//! Every ambiguous form of HTTP/1.1 that the behaviour tests know, against the shipped binary: no request is served
//! twice, none runs the agent twice, and no hidden request is served.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::check::Check;
use crate::forms::{self, Form};
use crate::gateway::Gateway;
use crate::server::{self, Server};
use crate::{Rig, frames, http};

/// Time of silence after which a form counts as answered.
const SILENCE: Duration = Duration::from_millis(700);
/// Forms at the same time.
const CLIENTS: usize = 24;

const FILE: &str = r#"
[server]
listen = "{{listen}}"
allowed_hosts = ["localhost"]

[store]
kind = "memory"

[agents.friday.upstream]
protocol = "agent-api"
url = "{url}"

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let runs: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let seen = Arc::clone(&runs);
    let agent = Server::start(move |request, connection| {
        let body = String::from_utf8_lossy(&request.body);
        let mark = body.find("form-").and_then(|at| body.get(at..at + 9)).unwrap_or("another").to_owned();
        *seen.lock().unwrap_or_else(PoisonError::into_inner).entry(mark).or_default() += 1;
        server::answer(connection, "200 OK", "application/json", frames::whole().as_bytes())
    })?;
    let gateway = Gateway::start(rig, &FILE.replace("{url}", &agent.url("/process")))?;
    let forms = forms::all();
    let (next, misread, served) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(form) = forms.get(number) else { return };
                    let received = answers(gateway.address, form, number);
                    if form.is_misread(number, &received) {
                        eprintln!("framing: {}: {received:.600}", form.name);
                        misread.fetch_add(1, Ordering::Relaxed);
                    }
                    if form.bytes.starts_with(b"POST") && received.starts_with("HTTP/1.1 200") {
                        eprintln!("framing, served: {}", form.name);
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });

    // The same request, as every reader understands it.
    let body = format!(r#"{{"input":[{{"role":"user","content":"{}"}}],"stream":false}}"#, forms::mark(9999));
    let clear = http::request("POST", "/agents/friday/process", &[], &body);
    let clear = String::from_utf8_lossy(&clear).replace("host: 127.0.0.1", "host: localhost");
    let control = http::send(gateway.address, clear.as_bytes())?.status;

    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    let of_form = |number: usize| runs.get(&forms::mark(number)).copied().unwrap_or(0);
    let twice = (0..forms.len()).filter(|number| of_form(*number) > 1).count();
    let once = (0..forms.len()).filter(|number| of_form(*number) == 1).count();
    let others = runs.get("another").copied().unwrap_or(0);
    let works = control == 200 && of_form(9999) == 1;
    Ok(vec![
        Check::at_least("ambiguous forms", forms.len() as f64, 200.0, ""),
        Check::at_most("… whose hidden or next request was served twice", misread.into_inner() as f64, 0.0, ""),
        Check::at_most("… that ran the agent twice", twice as f64, 0.0, ""),
        Check::at_most("… that ran the agent once", once as f64, 0.0, ""),
        Check::at_most("… served as if they were clear", served.into_inner() as f64, 0.0, ""),
        Check::at_most("other runs", others as f64, 0.0, ""),
        Check::at_least("the clear form is served once", f64::from(u8::from(works)), 1.0, ""),
    ])
}

/// All answers of the gateway to a form and to the request after it.
fn answers(address: SocketAddr, form: &Form, number: usize) -> String {
    let mut received = Vec::new();
    let mut exchange = || -> std::io::Result<()> {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(SILENCE))?;
        // The gateway may refuse and close before it has read everything.
        let _ = connection.write_all(&form.with_canary(number));
        connection.read_to_end(&mut received)?;
        Ok(())
    };
    // What came before an error counts.
    let _ = exchange();
    String::from_utf8_lossy(&received).into_owned()
}
