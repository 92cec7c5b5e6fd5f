//! The agent from docs/extending/agents.md, run unchanged and called through the gateway, since it is the starting
//! point for custom agents. Not here: misbehaving agents (`tests/behaviour`).

use interlingua_testing_support as support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::process::{Process, run};

/// The agent process. It is killed when it is dropped.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_readme_agent_is_reached_through_the_gateway() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let source = include_str!("../examples/smallest-agent/agent.py").replace("8090", &port.to_string());
    let python = Command::new("python3").arg("-").stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut agent = Agent(python.expect("the tests need python3"));
    let mut program = agent.0.stdin.take().expect("it reads its program");
    program.write_all(source.as_bytes()).expect("it reads its program");
    drop(program);

    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "the agent does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }

    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[agents.friday]\n\
         upstream = {{ protocol = \"agent-api\", url = \"http://127.0.0.1:{port}/process\" }}\n\
         [[routes]]\nprotocol = \"agent-api\"\npath = \"/agents/{{agent}}\"\n"
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let gateway = Process::start(folder.path());

    let url = format!("http://{}/agents/friday", gateway.address);
    for _ in 0..2 {
        let called = run(folder.path(), &["call", &url, "hello there"]);
        assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
        assert_eq!(String::from_utf8_lossy(&called.stdout).trim(), "You said: hello there");
    }
    let probed = run(folder.path(), &["probe", "friday"]);
    let said = String::from_utf8_lossy(&probed.stdout);
    assert!(probed.status.success() && said.contains("note") && !said.contains("problem"), "{said}");
    drop(agent);
}
