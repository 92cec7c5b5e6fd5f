//! The properties of the harness that tests and fault scenarios rely on: servers start, fail in the requested way, and
//! leave nothing behind.

// An error here fails the test.
#![allow(clippy::unwrap_used)]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use interlingua_testing_postgres::{Direction, Options, PoolMode, Pooler, Proxy, Server, database};

#[test]
fn every_test_has_a_database_of_its_own() {
    let (one, other) = (database(), database());
    one.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (7)").unwrap();
    assert_eq!(one.sql("SELECT n FROM t").unwrap(), "7");
    assert!(other.sql("SELECT n FROM t").is_err());
    // Upper case first: that is bytewise, and no language sorts like it.
    assert_eq!(one.sql("SELECT 'B' < 'a' COLLATE \"C\"").unwrap(), "t");
}

#[test]
fn committed_data_survives_a_crash() {
    let server = Server::start(&Options::durable()).unwrap();
    server.sql("postgres", "CREATE TABLE t AS SELECT 7 AS n").unwrap();
    server.crash().unwrap();
    assert!(TcpStream::connect(server.address()).is_err());
    server.resume_service().unwrap();
    assert_eq!(server.sql("postgres", "SELECT n FROM t").unwrap(), "7");
    assert!(server.log().contains("automatic recovery"), "{}", server.log());
    server.shut_down().unwrap();
    server.resume_service().unwrap();
    assert_eq!(server.sql("postgres", "SELECT n FROM t").unwrap(), "7");
}

#[test]
fn a_paused_server_answers_nothing_and_then_everything() {
    let server = Server::start(&Options::fast()).unwrap();
    server.pause().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.sql("postgres", "SELECT 7"));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        server.unpause().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), "7");
    });
}

#[test]
fn a_paused_server_is_stopped_and_deleted_too() {
    let server = Server::start(&Options::fast()).unwrap();
    let address = server.address();
    server.pause().unwrap();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_synchronous_standby_takes_over_with_every_commit() {
    let primary = Server::start(&Options::durable()).unwrap();
    let standby = primary.standby(&Options::durable(), true).unwrap();
    primary.sql("postgres", "CREATE TABLE t AS SELECT 7 AS n").unwrap();
    assert!(standby.sql("postgres", "DELETE FROM t").is_err());
    primary.crash().unwrap();
    standby.promote().unwrap();
    standby.sql("postgres", "INSERT INTO t VALUES (8)").unwrap();
    assert_eq!(standby.sql("postgres", "SELECT sum(n) FROM t").unwrap(), "15");
}

#[test]
fn a_full_disk_fails_statements_and_can_be_freed() {
    // Elsewhere there is no such disk.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = Server::start(&Options::fast().small_disk(20)).unwrap();
    server
        .sql("postgres", "CREATE TABLE filler (bytes bytea); ALTER TABLE filler ALTER bytes SET STORAGE EXTERNAL")
        .unwrap();
    let fill = "INSERT INTO filler SELECT convert_to(repeat('x', 1000000), 'UTF8') FROM generate_series(1, 50)";
    let error = server.sql("postgres", fill).unwrap_err();
    assert!(format!("{error:#}").contains("No space left on device"), "{error:#}");
    // Truncating would need space itself.
    server.sql("postgres", "DROP TABLE filler").unwrap();
    server.sql("postgres", "CREATE TABLE t AS SELECT 7 AS n").unwrap();
}

#[test]
fn a_pooler_passes_queries_on() {
    let server = Server::start(&Options::fast()).unwrap();
    let database = server.database().unwrap();
    let pooler = Pooler::start(&server, PoolMode::Transaction).unwrap();
    let url = database.url_at(pooler.address);
    let psql = interlingua_testing_postgres::binaries::Binaries::installed().unwrap().program("psql");
    let output = Command::new(psql).args([&url, "-Atc", "SELECT 7"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "7\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// A server that echoes.
fn echo() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepting = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for mut stream in accepting.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    listener
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream
}

/// The bytes that arrive before the client's time limit.
fn read(stream: &mut TcpStream, count: usize) -> Option<usize> {
    let mut buffer = vec![0; count];
    stream.read(&mut buffer).ok()
}

#[test]
fn stalled_connections_stay_open_and_lose_nothing() {
    let echo = echo();
    let proxy = Proxy::start(echo.local_addr().unwrap()).unwrap();
    let mut stream = client(&proxy);
    for direction in [Direction::ToServer, Direction::ToClient] {
        proxy.stall(direction);
        stream.write_all(b"abc").unwrap();
        assert_eq!(read(&mut stream, 3), None, "{direction:?}");
        proxy.flow();
        assert_eq!(read(&mut stream, 3), Some(3), "{direction:?}");
    }
    assert_eq!(proxy.passed(Direction::ToServer), 6);
}

#[test]
fn connections_are_cut_at_the_byte() {
    let echo = echo();
    let proxy = Proxy::start(echo.local_addr().unwrap()).unwrap();
    let mut stream = client(&proxy);
    proxy.cut_after(Direction::ToServer, 2);
    stream.write_all(b"abc").unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while read(&mut stream, 8) != Some(0) {
        assert!(Instant::now() < deadline, "the connection is open");
    }
    assert_eq!(proxy.passed(Direction::ToServer), 2);

    // New connections work, until they are refused.
    let mut stream = client(&proxy);
    stream.write_all(b"abc").unwrap();
    assert_eq!(read(&mut stream, 3), Some(3));
    proxy.refuse();
    assert_eq!(read(&mut stream, 3), Some(0));
    assert_eq!(read(&mut client(&proxy), 3), Some(0));
    proxy.accept();
    let mut stream = client(&proxy);
    stream.write_all(b"abc").unwrap();
    assert_eq!(read(&mut stream, 3), Some(3));
}

/// Not a test of its own: the process that the next one kills.
#[test]
fn a_process_with_a_server() {
    if std::env::var_os("HARNESS_VICTIM").is_some() {
        let server = Server::start(&Options::fast()).unwrap();
        println!("\nport {}", server.address().port());
        std::thread::sleep(Duration::from_secs(60));
    }
}

#[test]
fn a_killed_process_leaves_no_server_behind() {
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "a_process_with_a_server", "--nocapture"]).env("HARNESS_VICTIM", "1");
    let mut victim = victim.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut output = std::io::BufReader::new(victim.stdout.take().unwrap());
    let mut line = String::new();
    let port: u16 = loop {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut output, &mut line).unwrap() > 0);
        if let Some(port) = line.trim().strip_prefix("port ") {
            break port.parse().unwrap();
        }
    };
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    let id = victim.id();
    victim.kill().unwrap();
    victim.wait().unwrap();

    let folder = |base: PathBuf| base.join(format!("postgres/{id}-0"));
    let folders = std::env::current_exe().unwrap().ancestors().map(PathBuf::from).map(folder).collect::<Vec<_>>();
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_ok() || folders.iter().any(|folder| folder.exists()) {
        assert!(Instant::now() < deadline, "the server still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}
