//! Calls to a store in PostgreSQL while the database is away or does not answer, and the lease while the database is
//! there. Not here: connections that are cut in the middle of a flush (`postgres_cuts`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use interlingua::store::{Claim, Expect, PostgresOptions, Store, StoreError};
use interlingua_core::event::End;
use interlingua_testing_postgres::{Options, Proxy, Server};

use crate::live::ActiveRun;

async fn open(url: &str, lease: Duration) -> Arc<dyn Store> {
    let options = PostgresOptions { lease, ..crate::postgres_options(url) };
    let opened = tokio::task::spawn_blocking(move || interlingua::store::Postgres::open(&options));
    Arc::new(opened.await.unwrap().unwrap())
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn more_than_the_database_can_lock_at_once_is_written_after_an_outage() {
    const TURNS: usize = 6000;
    // Room for some hundred locks.
    let options = Options::fast().setting("max_connections", "20").setting("max_locks_per_transaction", "10");
    let server = Server::start(&options).unwrap();
    let proxy = Proxy::start(server.address()).unwrap();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address);
    let store = open(&url, Duration::from_secs(20)).await;
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), Claim::New).await.unwrap();
    run.start();
    let mut tickets = Vec::new();
    for turn in 0..100 {
        tickets.push(store.turns().queue_turn(&format!("left {turn}"), None, 9).await.unwrap().unwrap());
    }

    proxy.refuse();
    let written: Vec<_> = (0..TURNS)
        .map(|turn| store.put("sessions", &turn.to_string(), Bytes::from_static(b"v"), Expect::Absent, 1))
        .collect();
    let left: Vec<_> = tickets.into_iter().map(|ticket| store.turns().leave_turn(ticket)).collect();
    // After all that.
    let last = store.put("sessions", "0", Bytes::from_static(b"last"), Expect::Any, 2);
    run.append(&*store, "word ");
    proxy.accept();

    let limit = Duration::from_secs(60);
    let written = tokio::time::timeout(limit, join_all(written)).await.expect("all is written");
    assert!(written.into_iter().all(|written| written.unwrap().is_ok()), "each of them once");
    assert!(join_all(left).await.into_iter().all(|left| left.is_ok()));
    last.await.unwrap().unwrap();
    assert_eq!(store.get("sessions", "0").await.unwrap().unwrap().value, "last", "in the order of the calls");
    let sql = |sql: &str| server.sql("postgres", sql).unwrap();
    assert_eq!(sql("SELECT count(*) FROM interlingua.documents"), TURNS.to_string());
    assert_eq!(sql("SELECT count(*) FROM interlingua.tickets"), "0");
    run.end(End::Completed);
    store.settle(&run.journal()).await.unwrap();
    assert!(!run.is_lost());
    assert_eq!(sql("SELECT string_agg(state, ',') FROM interlingua.replicas"), "active", "it is the one it was");
}

#[tokio::test]
async fn writes_of_a_fenced_replica_are_dropped() {
    let database = interlingua_testing_postgres::database();
    let store = open(&database.url(), Duration::from_secs(20)).await;
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), Claim::New).await.unwrap();
    run.start();
    let first = store.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    // Joining again takes time, during which callers continue as before.
    database
        .sql(
            "CREATE FUNCTION public.slowly() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
             CREATE TRIGGER slowly BEFORE INSERT ON interlingua.replicas FOR EACH ROW EXECUTE FUNCTION public.slowly();
             UPDATE interlingua.replicas SET state = 'fenced'",
        )
        .unwrap();
    run.append(&*store, "word ");
    until("it is fenced", || run.is_lost()).await;
    let late = store.put("sessions", "s", Bytes::from_static(b"late"), Expect::Any, 1);
    let left = store.turns().leave_turn(first);
    let (late, left) = tokio::join!(late, left);
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    assert!(matches!(left, Err(StoreError::Fenced)), "{left:?}");
    assert!(store.get("sessions", "s").await.unwrap().is_none());
    store.put("sessions", "s", Bytes::from_static(b"new"), Expect::Absent, 1).await.unwrap().unwrap();
}

#[tokio::test]
async fn reads_use_the_next_host_if_the_first_refuses_connections() {
    let database = interlingua_testing_postgres::database();
    // Its queue of connections is full, so that it does not answer new ones at all.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = socket.listen(0).unwrap();
    let address = silent.local_addr().unwrap();
    let filling: Vec<_> =
        (0..4).map_while(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()).collect();
    assert!(filling.len() < 4, "the queue is not full");

    let hosts = format!("{address},{}", database.server().address());
    let url = format!("postgres://postgres@{hosts}/{}?sslmode=disable", database.name);
    let store = open(&url, Duration::from_secs(60)).await;
    store.put("c", "k", Bytes::from_static(b"v"), Expect::Absent, 1).await.unwrap().unwrap();
    let began = Instant::now();
    while store.get("c", "k").await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never read");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_forgotten_on_the_way_does_not_cost_the_lease() {
    const LEASE: Duration = Duration::from_secs(6);
    let database = interlingua_testing_postgres::database();
    let proxy = Proxy::start(database.server().address()).unwrap();
    let store = open(&database.url_at(proxy.address), LEASE).await;
    let other = open(&database.url(), LEASE).await;
    let run = ActiveRun::numbered(1);
    store.open(&run.journal(), Claim::New).await.unwrap();
    run.start();
    // From now on the other one may say that this one is lost.
    tokio::time::sleep(LEASE + Duration::from_millis(500)).await;

    proxy.forget();
    run.append(&*store, "word ");
    let began = Instant::now();
    while run.durable() < run.stored().record.len() || began.elapsed() < LEASE + Duration::from_secs(1) {
        assert_eq!(other.recover().await.unwrap(), [], "after {:?}", began.elapsed());
        assert!(!run.is_lost() && began.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let active = "SELECT count(*) FROM interlingua.replicas WHERE state = 'active'";
    assert_eq!(database.sql(active).unwrap(), "2", "each is the one it was");
}
