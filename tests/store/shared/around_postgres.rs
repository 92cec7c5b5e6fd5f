//! Processes that share a real database, each with a connection of its own that can be held up and cut. Time passes as
//! it does, so leases are short. Not here: the rules (the other modules), and what the store does beyond them
//! (`crate::postgres`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use interlingua::store::{Postgres, PostgresOptions, Signal, Store};
use interlingua_testing_postgres::{Database, Direction, Proxy};

use super::{Fabric, Process, ProcessFaults};
use crate::live::id;

/// Short, since tests wait for it; long compared to what a busy machine takes to renew one.
const LEASE: Duration = Duration::from_secs(2);

/// Number of a process's connections for reading.
const READERS: usize = 2;

/// Processes that share a database.
pub(crate) struct AroundPostgres {
    database: Database<'static>,
    processes: Mutex<Vec<LinkedStore>>,
}

/// The store of a process, with its link.
type LinkedStore = (Arc<dyn Store>, Arc<Link>);

/// A process's connection to the database.
struct Link {
    proxy: Proxy,
    is_up: AtomicBool,
}

impl AroundPostgres {
    pub(crate) fn new() -> Self {
        Self { database: interlingua_testing_postgres::database(), processes: Mutex::default() }
    }

    async fn join_linked(&self) -> Process {
        let proxy = Proxy::start(self.database.server().address()).unwrap();
        let store = open(self.database.url_at(proxy.address)).await;
        // Connections are made when they are needed: one that stands still before would not get any.
        for _ in 0..READERS {
            store.get("c", "none").await.unwrap();
        }
        let link = Arc::new(Link { proxy, is_up: AtomicBool::new(true) });
        self.processes.lock().unwrap().push((Arc::clone(&store), Arc::clone(&link)));
        Process { store, fate: link }
    }
}

/// Opening blocks.
async fn open(url: String) -> Arc<dyn Store> {
    let options = PostgresOptions { lease: LEASE, readers: READERS, ..crate::postgres_options(&url) };
    let opened = tokio::task::spawn_blocking(move || Postgres::open(&options));
    Arc::new(opened.await.unwrap().unwrap())
}

impl Fabric for AroundPostgres {
    fn lease(&self) -> Duration {
        LEASE
    }

    fn join(&self) -> BoxFuture<'_, Process> {
        Box::pin(async { self.join_linked().await })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // A little more: the lease of one that has renewed it at this moment is over, too.
            tokio::time::sleep(time + Duration::from_millis(20)).await;

            // All connected processes have been seen by now, on any machine: every write renews the lease.
            let processes = self.processes.lock().unwrap().clone();
            let reachable = processes.iter().filter(|(_, link)| link.is_up.load(Ordering::SeqCst));
            let _ = join_all(reachable.map(|(store, _)| store.signal(id(u128::MAX), Signal::Cancel))).await;
        })
    }
}

impl ProcessFaults for Link {
    fn pause(&self) {
        self.is_up.store(false, Ordering::SeqCst);
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.proxy.stall(direction);
        }
    }

    fn resume(&self) {
        self.proxy.flow();
        self.is_up.store(true, Ordering::SeqCst);
    }

    fn cut_off(&self) {
        self.is_up.store(false, Ordering::SeqCst);
        self.proxy.refuse();
    }

    fn reconnect(&self) {
        self.proxy.accept();
        self.is_up.store(true, Ordering::SeqCst);
    }

    fn kill(&self) {
        self.cut_off();
    }
}
