//! PgBouncer in front of a server.
//!
//! Not here: what works through it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::server::{ADMIN, Server, free_port, write_private};
use crate::supervisor::{Supervisor, words};
use crate::{binaries, folder};

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// For how long a client keeps a connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// For the whole connection: every feature works.
    Session,
    /// For one transaction: no notifications, and nothing else that belongs to a session.
    Transaction,
}

/// A pooler. Dropping it stops it.
#[derive(Debug)]
pub struct Pooler {
    /// Where it listens.
    pub address: SocketAddr,
    _running: Supervisor,
}

impl Pooler {
    /// Starts a pooler, which is installed with apt if it is missing.
    ///
    /// # Errors
    /// It cannot be installed, or does not start.
    pub fn start(server: &Server, mode: PoolMode) -> Result<Self> {
        let program = binaries::program("pgbouncer", "pgbouncer")?;
        let (folder, port) = (folder::create()?, free_port()?);
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let database = server.address();
        let settings = format!(
            "[databases]\n* = host={} port={} user={ADMIN}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n\
             max_client_conn = 500\ndefault_pool_size = 20\nserver_tls_sslmode = disable\n",
            database.ip(),
            database.port()
        );
        let path = folder.join("pgbouncer.ini");
        write_private(&path, settings.as_bytes())?;

        let path = path.to_str().context("the folder is not UTF-8")?.to_owned();
        let running = Supervisor::start(&folder, "KILL", &words(&program, &[path])?)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                bail!("PgBouncer does not start: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Self { address, _running: running })
    }
}
