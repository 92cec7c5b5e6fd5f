//! Unused connections of a thread, by host and port.
//!
//! A connection belongs to the runtime that opened it. Only that runtime's tasks take it from the pool, and a task of it
//! closes connections that no one used for a while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, sleep};

use super::link::Link;

/// Time that an unused connection is kept: less than the five seconds after which common servers close it, so that a
/// request rarely uses a connection that is being closed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Number of unused connections that a thread keeps for one host.
pub(crate) const POOL_SIZE: usize = 64;
/// Interval at which connections are closed that were unused for too long.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// The pool of this thread, and its runtime: tests have several one after the other.
    static POOL: RefCell<Option<(Id, Arc<IdlePool>)>> = const { RefCell::new(None) };
}

/// Unused connections.
#[derive(Debug, Default)]
pub(super) struct IdlePool(Mutex<Idle>);

#[derive(Debug, Default)]
struct Idle {
    /// The connection that was used last is at the end.
    by_authority: HashMap<Arc<str>, Vec<(Box<Link>, Instant)>>,
    /// A task closes old connections.
    is_swept: bool,
}

impl IdlePool {
    /// The pool of this thread.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(super) fn of_thread() -> Arc<Self> {
        let runtime = Handle::current().id();
        POOL.with_borrow_mut(|pool| match pool {
            Some((id, pool)) if *id == runtime => Arc::clone(pool),
            _ => Arc::clone(&pool.insert((runtime, Arc::default())).1),
        })
    }

    /// An open connection that is not used.
    pub(super) fn take(&self, authority: &str) -> Option<Box<Link>> {
        let mut idle = self.lock();
        let connections = idle.by_authority.get_mut(authority)?;
        while let Some((mut link, since)) = connections.pop() {
            if since.elapsed() >= IDLE_TIMEOUT {
                // All others are older.
                connections.clear();
                return None;
            }
            // Needs no system call while nothing happened.
            if link.is_idle() {
                return Some(link);
            }
        }
        None
    }

    fn put(self: &Arc<Self>, authority: &Arc<str>, link: Box<Link>) {
        let mut idle = self.lock();
        let connections = idle.by_authority.entry(Arc::clone(authority)).or_default();
        if connections.len() >= POOL_SIZE {
            return;
        }
        connections.push((link, Instant::now()));
        if !idle.is_swept
            && let Ok(runtime) = Handle::try_current()
        {
            idle.is_swept = true;
            let pool = Arc::clone(self);
            runtime.spawn(async move {
                while pool.sweep() {
                    sleep(SWEEP_INTERVAL).await;
                }
            });
        }
    }

    /// Closes connections that were unused for too long. Returns false if no connection is left: the task ends, and the
    /// next unused connection starts another one.
    fn sweep(&self) -> bool {
        let mut idle = self.lock();
        idle.by_authority.retain(|_, connections| {
            connections.retain(|(_, since)| since.elapsed() < IDLE_TIMEOUT);
            !connections.is_empty()
        });
        idle.is_swept = !idle.by_authority.is_empty();
        idle.is_swept
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool that a connection returns to.
#[derive(Clone, Debug)]
pub(super) struct Reuse {
    pub(super) pool: Arc<IdlePool>,
    pub(super) authority: Arc<str>,
}

impl Reuse {
    pub(super) fn put(self, link: Box<Link>) {
        self.pool.put(&self.authority, link);
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::yield_now;

    use super::*;

    async fn pair(listener: &TcpListener) -> (Box<Link>, TcpStream) {
        let address = listener.local_addr().expect("an address");
        let (client, server) = tokio::join!(TcpStream::connect(address), listener.accept());
        let link = Link::handshake(client.expect("a connection")).await.expect("a connection");
        (link, server.expect("a connection").0)
    }

    #[tokio::test]
    async fn a_connection_is_used_again_while_it_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let pool = IdlePool::of_thread();
        assert!(Arc::ptr_eq(&pool, &IdlePool::of_thread()));
        let authority: Arc<str> = "agent:80".into();

        let (first, mut of_first) = pair(&listener).await;
        let (second, of_second) = pair(&listener).await;
        let known = ptr::from_ref(&*first).addr();
        pool.put(&authority, first);
        pool.put(&authority, second);
        assert!(pool.take("other:80").is_none());

        // The second one was used last, and its server has closed it. The runtime learns of the end later.
        drop(of_second);
        let first = loop {
            let link = pool.take(&authority).expect("the first connection");
            if ptr::from_ref(&*link).addr() == known {
                break link;
            }
            pool.put(&authority, link);
            yield_now().await;
        };
        pool.put(&authority, first);

        // An answer without a request.
        of_first.write_all(b"HTTP/1.1 408 Timeout\r\n\r\n").await.expect("open");
        while let Some(link) = pool.take(&authority) {
            pool.put(&authority, link);
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_when_it_was_not_used_for_a_while() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let pool = IdlePool::of_thread();
        let authority: Arc<str> = "agent:80".into();
        let (client, server) = pair(&listener).await;
        pool.put(&authority, client);
        assert!(pool.lock().is_swept);

        sleep(IDLE_TIMEOUT + SWEEP_INTERVAL * 2).await;
        assert!(!pool.lock().is_swept && pool.lock().by_authority.is_empty());
        server.readable().await.expect("its end");
        assert_eq!(server.try_read(&mut [0]).expect("its end"), 0);

        let (client, _server) = pair(&listener).await;
        pool.put(&authority, client);
        tokio::time::advance(IDLE_TIMEOUT).await;
        assert!(pool.take(&authority).is_none());
    }
}
