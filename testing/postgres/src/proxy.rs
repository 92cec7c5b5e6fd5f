//! A TCP proxy whose connections can be cut, stalled and forgotten, one way or both ways, at once or after a number of
//! bytes.
//!
//! Not here: the traffic through it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// Bytes on their way through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients to the server.
    ToServer = 0,
    /// From the server to clients.
    ToClient = 1,
}

/// A proxy. Dropping it closes all of its connections.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    /// By direction: nothing passes, and connections stay open.
    stalled: [bool; 2],
    /// The number of connections so far.
    accepted: u64,
    /// So many of them, the first ones, are forgotten.
    forgotten: u64,
    /// New connections are closed at once.
    refusing: bool,
    delay: Duration,
    /// By direction: how many more bytes pass until all connections are cut.
    allowance: [Option<usize>; 2],
    /// By direction: how many bytes have passed.
    passed: [u64; 2],
    /// Open connections, both ends of each.
    open: Vec<(TcpStream, TcpStream)>,
    closed: bool,
}

impl Proxy {
    /// Starts a proxy in front of a server.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = State {
            server,
            stalled: [false; 2],
            accepted: 0,
            forgotten: 0,
            refusing: false,
            delay: Duration::ZERO,
            allowance: [None; 2],
            passed: [0; 2],
            open: Vec::new(),
            closed: false,
        };
        let shared = Arc::new(ProxyState { state: Mutex::new(state), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.lock().closed {
                    return;
                }
                let accepting = Arc::clone(&accepting);
                // Connecting may take time and must not hold up others.
                thread::spawn(move || accepting.serve(client));
            }
        });
        Ok(Self { address, shared })
    }

    /// Connections from now on lead to another server.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.change(|state| state.server = server);
    }

    /// Closes all connections. New ones are accepted.
    pub fn cut(&self) {
        self.shared.change(State::cut);
    }

    /// Closes all connections and every new one, until [`Proxy::accept`].
    pub fn refuse(&self) {
        self.shared.change(|state| {
            state.refusing = true;
            state.cut();
        });
    }

    /// Ends [`Proxy::refuse`].
    pub fn accept(&self) {
        self.shared.change(|state| state.refusing = false);
    }

    /// Lets nothing pass in a direction, in present and new connections, until [`Proxy::flow`]. No end notices
    /// anything.
    pub fn stall(&self, direction: Direction) {
        self.shared.change(|state| state.stalled[direction as usize] = true);
    }

    /// Lets nothing pass in present connections ever again, and no end notices anything; new ones are served. As a
    /// firewall does that has forgotten them.
    pub fn forget(&self) {
        self.shared.change(|state| state.forgotten = state.accepted);
    }

    /// Ends [`Proxy::stall`] in both directions: the held bytes arrive now.
    pub fn flow(&self) {
        self.shared.change(|state| state.stalled = [false; 2]);
    }

    /// Holds back everything for a time, in both directions.
    pub fn slow_down(&self, delay: Duration) {
        self.shared.change(|state| state.delay = delay);
    }

    /// Cuts all connections after this many more bytes in a direction, the last of which still arrives.
    pub fn cut_after(&self, direction: Direction, bytes: usize) {
        self.shared.change(|state| state.allowance[direction as usize] = Some(bytes));
    }

    /// The number of bytes that passed in a direction.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.shared.lock().passed[direction as usize]
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.change(|state| {
            state.closed = true;
            state.cut();
        });
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn cut(&mut self) {
        for (client, server) in self.open.drain(..) {
            // The other threads read the end of both.
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
        self.allowance = [None; 2];
    }
}

impl ProxyState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Passes on what one client and the server say, until one of them ends or the connection is cut.
    fn serve(self: Arc<Self>, client: TcpStream) {
        let (address, refusing) = {
            let state = self.lock();
            (state.server, state.refusing || state.closed)
        };
        if refusing {
            return;
        }
        let Ok(server) = TcpStream::connect(address) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let clone = |stream: &TcpStream| stream.try_clone();
        let (Ok(client_end), Ok(server_end)) = (clone(&client), clone(&server)) else { return };
        let (Ok(client_copy), Ok(server_copy)) = (clone(&client), clone(&server)) else { return };
        let number = {
            let mut state = self.lock();
            if state.refusing || state.closed {
                return;
            }
            state.open.push((client_end, server_end));
            state.accepted += 1;
            state.accepted
        };

        let back = Arc::clone(&self);
        let answering = thread::spawn(move || back.pass(number, server_copy, client_copy, Direction::ToClient));
        self.pass(number, client, server, Direction::ToServer);
        let _ = answering.join();
        // Of connections that have ended by themselves.
        self.lock().open.retain(|(client, _)| client.peer_addr().is_ok());
    }

    fn pass(&self, number: u64, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
        let index = direction as usize;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let (passing, is_last, delay) = self.take(number, index, read);
            thread::sleep(delay);
            if to.write_all(&buffer[..passing]).is_err() {
                break;
            }
            if is_last {
                self.change(State::cut);
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Read), to.shutdown(Shutdown::Write));
    }

    /// Waits until bytes may pass. Returns how many of them, whether the connection is then cut, and for how long they
    /// are held back.
    fn take(&self, number: u64, index: usize, read: usize) -> (usize, bool, Duration) {
        let state = self.lock();
        let waited = self
            .changed
            .wait_while(state, |state| (state.stalled[index] || number <= state.forgotten) && !state.closed);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let (passing, is_last) = match &mut state.allowance[index] {
            Some(left) if *left <= read => (*left, true),
            Some(left) => {
                *left -= read;
                (read, false)
            }
            None => (read, false),
        };
        state.passed[index] += u64::try_from(passing).unwrap_or(0);
        (passing, is_last, state.delay)
    }
}
