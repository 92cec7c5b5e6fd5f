//! A PostgreSQL server, its databases, and what can happen to it.
//!
//! Not here: finding its programs ([`crate::binaries`]), and that it never outlives the process (`supervisor`).

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::binaries::Binaries;
use crate::folder;
use crate::supervisor::{Supervisor, words};

/// The administrator of every server, who needs no password.
pub const ADMIN: &str = "postgres";

/// Time that a server has to start. After a crash it first replays its log.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Other processes may take the port between finding it and listening on it.
const START_ATTEMPTS: u32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Settings of every server. Autovacuum stays on: figures without it are wrong.
const SETTINGS: [(&str, &str); 8] = [
    ("listen_addresses", "'127.0.0.1'"),
    ("unix_socket_directories", "''"),
    ("max_connections", "200"),
    ("shared_buffers", "'64MB'"),
    ("dynamic_shared_memory_type", "mmap"),
    ("wal_level", "replica"),
    ("log_line_prefix", "'%m [%p] %q%a '"),
    ("lc_messages", "'C'"),
];

/// Settings of a server that loses everything when the machine crashes, but not when only the server does.
const FAST: [(&str, &str); 4] =
    [("fsync", "off"), ("full_page_writes", "off"), ("max_wal_size", "'256MB'"), ("autovacuum_naptime", "'10s'")];

/// Settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    durable: bool,
    disk: Option<u32>,
    settings: Vec<(String, String)>,
    access: Vec<String>,
    files: Vec<(String, Vec<u8>)>,
}

impl Options {
    /// Without waiting for the disk: for tests that do not measure and switch nothing off.
    #[must_use]
    pub fn fast() -> Self {
        Self::default()
    }

    /// Settings of production: every commit is on the disk.
    #[must_use]
    pub fn durable() -> Self {
        Self { durable: true, ..Self::default() }
    }

    /// Gives its tables a disk of their own with this much free space, in MiB: when it is full, statements fail. Its
    /// log of changes stays on the other disk. Such a server cannot be started again once it was stopped. Needs Linux
    /// and root.
    #[must_use]
    pub fn small_disk(mut self, mebibytes: u32) -> Self {
        self.disk = Some(mebibytes);
        self
    }

    /// Adds a line to `postgresql.conf`. The value is written as it is: texts need quotes.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a line to `pg_hba.conf`, before the one that lets everyone in without a password.
    #[must_use]
    pub fn access(mut self, line: &str) -> Self {
        self.access.push(line.to_owned());
        self
    }

    /// Adds a file to the data folder, readable by the server alone.
    #[must_use]
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.push((name.to_owned(), content.to_owned()));
        self
    }

    /// Offers TLS with this certificate and key, in PEM.
    #[must_use]
    pub fn tls(self, certificate: &str, key: &str) -> Self {
        let files = self.file("server.crt", certificate.as_bytes()).file("server.key", key.as_bytes());
        files.setting("ssl", "on")
    }
}

/// A server. Dropping it stops it and deletes its folder.
#[derive(Debug)]
pub struct Server {
    pub(crate) binaries: &'static Binaries,
    pub(crate) folder: PathBuf,
    port: u16,
    disk: Option<u32>,
    running: Mutex<Option<Supervisor>>,
    databases: AtomicU64,
}

/// A database of a server. It is deleted when it is dropped.
#[derive(Debug)]
pub struct Database<'a> {
    server: &'a Server,
    /// Its name.
    pub name: String,
}

impl Server {
    /// Starts a new, empty server.
    ///
    /// # Errors
    /// There is no PostgreSQL, with advice; or it does not start, with its log.
    pub fn start(options: &Options) -> Result<Self> {
        let binaries = Binaries::installed()?;
        let folder = folder::create()?;
        copy(&template(binaries)?, &folder.join("data"))?;
        Self::configured(binaries, folder, options)
    }

    /// Starts a server whose data folder is complete except for its settings.
    pub(crate) fn configured(binaries: &'static Binaries, folder: PathBuf, options: &Options) -> Result<Self> {
        let data = folder.join("data");
        let mut settings = String::new();
        let fast: &[(&str, &str)] = if options.durable { &[] } else { &FAST };
        for (name, value) in SETTINGS.iter().chain(fast) {
            writeln!(settings, "{name} = {value}")?;
        }
        for (name, value) in &options.settings {
            writeln!(settings, "{name} = {value}")?;
        }
        append(&data.join("postgresql.conf"), &settings)?;

        let everyone = "host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust".to_owned();
        let access: Vec<String> = options.access.iter().cloned().chain([everyone]).collect();
        write_private(&data.join("pg_hba.conf"), (access.join("\n") + "\n").as_bytes())?;
        for (name, content) in &options.files {
            write_private(&data.join(name), content)?;
        }

        let mut server = Self {
            binaries,
            folder,
            port: 0,
            disk: options.disk,
            running: Mutex::new(None),
            databases: AtomicU64::new(0),
        };
        for attempt in 1.. {
            server.port = free_port()?;
            match server.resume_service() {
                Err(error) if attempt == START_ATTEMPTS || !format!("{error:#}").contains("in use") => {
                    return Err(error);
                }
                Err(_) => {}
                Ok(()) => break,
            }
        }
        Ok(server)
    }

    /// The address it listens on, which stays the same when it is restarted.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of a database for the administrator.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url(self.address(), database)
    }

    /// Creates an empty database.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn database(&self) -> Result<Database<'_>> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test{number}");
        self.sql(ADMIN, &format!("CREATE DATABASE {name}"))?;
        Ok(Database { server: self, name })
    }

    /// Runs SQL as the administrator with `psql`, and returns its rows, one per line, the columns separated by `|`.
    ///
    /// # Errors
    /// The server's message.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = folder::command(self.binaries.program("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--dbname"]);
        let output = psql.arg(self.url(database)).args(["--command", sql]).output()?;
        succeeded("psql", output)
    }

    /// Runs a script of SQL as the administrator. Its length has no limit.
    ///
    /// # Errors
    /// The server's message.
    pub fn load(&self, database: &str, script: &str) -> Result<()> {
        use std::io::Write as _;
        let mut psql = folder::command(self.binaries.program("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname"]).arg(self.url(database));
        let mut running =
            psql.args(["--file", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut input = running.stdin.take().context("psql has no input")?;
        // If psql has ended, its message says more than the broken pipe.
        let written = input.write_all(script.as_bytes());
        drop(input);
        succeeded("psql", running.wait_with_output()?)?;
        Ok(written?)
    }

    /// Dumps a schema with its rows as plain SQL, which servers of every supported version can load.
    ///
    /// # Errors
    /// The message of `pg_dump`.
    pub fn dump(&self, database: &str, schema: &str) -> Result<String> {
        let mut command = folder::command(self.binaries.program("pg_dump"));
        command.args(["--no-owner", "--no-privileges", "--schema", schema]).arg(self.url(database));
        let dump = succeeded("pg_dump", command.output()?)?;
        // Settings ahead of the schema depend on the version of pg_dump. These are all that the rest relies on.
        let settings = "SET client_encoding = 'UTF8';\nSET standard_conforming_strings = on;\n\
                        SET check_function_bodies = false;\nSELECT pg_catalog.set_config('search_path', '', false);\n\n";
        let start = dump.find("CREATE SCHEMA").context("the dump has no schema")?;
        let lines =
            dump[start..].lines().filter(|line| !line.starts_with("\\unrestrict") && !line.starts_with("SET default_"));
        Ok(settings.to_owned() + &lines.map(|line| format!("{line}\n")).collect::<String>())
    }

    /// Everything it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Stops the server like a crash, without writing; committed data is on the disk.
    ///
    /// # Errors
    /// It is not running.
    pub fn crash(&self) -> Result<()> {
        self.stop("QUIT")
    }

    /// Stops it in an orderly way: clients are disconnected.
    ///
    /// # Errors
    /// It is not running.
    pub fn shut_down(&self) -> Result<()> {
        self.stop("INT")
    }

    fn stop(&self, signal: &str) -> Result<()> {
        self.running().take().context("the server is not running")?.stop(signal)
    }

    /// Starts it again after [`Server::crash`] or [`Server::shut_down`], and waits until it accepts connections.
    ///
    /// # Errors
    /// It does not start, with its log.
    pub fn resume_service(&self) -> Result<()> {
        let postgres = self.binaries.program("postgres");
        let data = self.folder.join("data").to_str().context("the folder is not UTF-8")?.to_owned();
        let logged = self.log().len();
        // The id of an earlier process must not be taken for this one's.
        let _ = std::fs::remove_file(self.pid_file());
        let arguments = ["-D".to_owned(), data, "-p".to_owned(), self.port.to_string()];
        let supervisor = match self.disk {
            None => Supervisor::start(&self.folder, "QUIT", &words(&postgres, &arguments)?)?,
            Some(mebibytes) => Supervisor::start_on_disk(&self.folder, mebibytes, &words(&postgres, &arguments)?)?,
        };

        let deadline = Instant::now() + START_LIMIT;
        while !self.is_ready() {
            let log = self.log();
            let log = log.get(logged..).unwrap_or_default();
            if log.contains("FATAL:  could not") || log.contains("PANIC:") || Instant::now() > deadline {
                supervisor.stop("QUIT")?;
                bail!("PostgreSQL does not start; its log:\n{log}");
            }
            thread::sleep(POLL_INTERVAL);
        }
        *self.running() = Some(supervisor);
        Ok(())
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("data/postmaster.pid")
    }

    /// Whether `pg_ctl` reports it as ready.
    fn is_ready(&self) -> bool {
        let lines = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        lines.lines().nth(7).is_some_and(|status| matches!(status.trim(), "ready" | "standby"))
    }

    /// Stops all of its processes, as on a machine that is suspended: connections stay open, and nothing is answered.
    ///
    /// # Errors
    /// It is not running.
    pub fn pause(&self) -> Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// Ends [`Server::pause`].
    ///
    /// # Errors
    /// It is not running.
    pub fn unpause(&self) -> Result<()> {
        self.signal_all(Signal::CONT)
    }

    fn signal_all(&self, signal: Signal) -> Result<()> {
        let server = self.running().as_ref().context("the server is not running")?.server;
        // First the parent, so that it starts no further children.
        kill_process(server, signal)?;
        for child in children(server)? {
            let _ = kill_process(child, signal);
        }
        Ok(())
    }

    /// The ids of its processes and the CPU time that they have used so far.
    ///
    /// # Errors
    /// It is not running, or the system has no `/proc`.
    pub fn cpu_time(&self) -> Result<Duration> {
        let server = self.running().as_ref().context("the server is not running")?.server;
        let mut ticks = 0;
        for pid in children(server)?.into_iter().chain([server]) {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
            // The name, which is in parentheses, may contain spaces. A parent also counts the children it has reaped.
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let times = fields.skip(11).take(if pid == server { 4 } else { 2 });
            ticks += times.filter_map(|time| time.parse::<u64>().ok()).sum::<u64>();
        }
        // The kernel counts in hundredths of a second on all systems that Rust supports.
        Ok(Duration::from_millis(ticks * 10))
    }

    fn running(&self) -> MutexGuard<'_, Option<Supervisor>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A paused one would end only when its processes are killed, after 5 s.
        let _ = self.unpause();
        let was_running = self.running().take();
        drop(was_running);
        // Of a server that was stopped.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Database<'_> {
    /// Its URL for the administrator.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its URL through something that listens on another address.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr) -> String {
        url(address, &self.name)
    }

    /// See [`Server::sql`].
    ///
    /// # Errors
    /// The server's message.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.server.sql(&self.name, sql)
    }

    /// See [`Server::load`].
    ///
    /// # Errors
    /// The server's message.
    pub fn load(&self, script: &str) -> Result<()> {
        self.server.load(&self.name, script)
    }

    /// See [`Server::dump`].
    ///
    /// # Errors
    /// The message of `pg_dump`.
    pub fn dump(&self, schema: &str) -> Result<String> {
        self.server.dump(&self.name, schema)
    }

    /// The server it is on.
    #[must_use]
    pub fn server(&self) -> &Server {
        self.server
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // A stopped server is deleted with all of its databases.
        if self.server.running().is_some() {
            let _ = self.server.sql(ADMIN, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        }
    }
}

fn url(address: SocketAddr, database: &str) -> String {
    format!("postgres://{ADMIN}@{address}/{database}?sslmode=disable")
}

/// An initialised data folder of this version, made once per target folder.
fn template(binaries: &Binaries) -> Result<PathBuf> {
    let base = folder::base()?;
    let made = base.join(format!("template-{}", binaries.version));
    let lock = File::create(base.join("template.lock"))?;
    lock.lock()?;
    if made.exists() {
        return Ok(made);
    }

    let draft = base.join("template-draft");
    // Texts are compared as in English: a query that relies on bytewise order without saying so fails its test.
    let locales: [&[&str]; 2] =
        [&["--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"], &["--no-locale"]];
    let mut last = None;
    for locale in locales {
        let _ = std::fs::remove_dir_all(&draft);
        let mut initdb = folder::command(binaries.program("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--username", ADMIN, "--pgdata"]);
        match succeeded("initdb", initdb.arg(&draft).args(locale).output()?) {
            Ok(_) => {
                std::fs::rename(&draft, &made)?;
                return Ok(made);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.context("no locale was tried")?)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let output = folder::command("cp").args(["-R", "-p"]).args([from, to]).output()?;
    succeeded("cp", output).map(drop)
}

/// The output of a program that has succeeded.
pub(crate) fn succeeded(name: &str, output: Output) -> Result<String> {
    if !output.status.success() {
        bail!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn append(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut file = File::options().append(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// Writes a file that belongs to the user of the servers, as private keys must.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    folder::give(path)
}

/// A port that nothing listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The children of a process, from `/proc`.
fn children(parent: Pid) -> Result<Vec<Pid>> {
    let entries = std::fs::read_dir("/proc").context("this system has no /proc")?;
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |id: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.nth(1).and_then(|id| id.parse().ok()).and_then(Pid::from_raw) == Some(parent)
    };
    Ok(ids.filter(is_child).filter_map(Pid::from_raw).collect())
}
