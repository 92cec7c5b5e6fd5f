//! HAProxy in front of several gateways that share a server.
//!
//! Not here: its configuration, which is that of `examples/replicas`.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::server::{free_port, write_private};
use crate::supervisor::{Supervisor, words};
use crate::{binaries, folder};

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Where the configuration of the example listens.
const LISTEN: &str = "bind :8080";

/// A load balancer. Dropping it stops it.
#[derive(Debug)]
pub struct Balancer {
    /// Where it listens.
    pub address: SocketAddr,
    _running: Supervisor,
}

impl Balancer {
    /// Starts a balancer, which is installed with apt if it is missing. Of the configuration the port is changed to a
    /// free one, and each of these texts to the one beside it: `servers` are addresses as they are written, and as they
    /// are here.
    ///
    /// # Errors
    /// It cannot be installed, or does not start, or something to change is not in the configuration.
    pub fn start(configuration: &str, servers: &[(&str, SocketAddr)]) -> Result<Self> {
        let program = binaries::program("haproxy", "haproxy")?;
        let (folder, port) = (folder::create()?, free_port()?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut changed = configuration.to_owned();
        let changes = servers.iter().map(|(written, server)| ((*written).to_owned(), server.to_string()));
        for (from, to) in changes.chain([(LISTEN.to_owned(), format!("bind {address}"))]) {
            ensure!(changed.contains(&from), "the configuration has no {from:?}");
            changed = changed.replace(&from, &to);
        }
        let path = folder.join("haproxy.cfg");
        write_private(&path, changed.as_bytes())?;

        let arguments = ["-db".to_owned(), "-f".to_owned(), path.display().to_string()];
        let running = Supervisor::start(&folder, "KILL", &words(&program, &arguments)?)?;
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline {
                bail!("HAProxy does not start: {}", std::fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Self { address, _running: running })
    }
}
