//! Connections of the store in PostgreSQL: encrypted or not, to one of several hosts, through poolers. Not here: the
//! forms of URLs, which are tested with their parser.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use interlingua::store::{Claim, Health, Postgres, PostgresOptions, Signal, Store, StoreError};
use interlingua_core::call::RunState;
use interlingua_core::event::End;
use interlingua_testing_postgres::{Options, PoolMode, Pooler, Proxy, Server, database};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::contract::open_run;
use crate::live::{ActiveRun, RunSpec, id};

fn open(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let options = PostgresOptions { readers: 1, ..crate::postgres_options(url) };
    Ok(Arc::new(Postgres::open(&options)?))
}

fn refusal(url: &str) -> String {
    open(url).err().unwrap_or_else(|| panic!("{url} was accepted")).to_string()
}

/// An authority in PEM, and a certificate of it for a name, with its key.
fn certificates(name: &str) -> (String, String, String) {
    let mut of_authority = CertificateParams::new(Vec::new()).unwrap();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authority = of_authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(of_authority, authority_key);
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (authority.pem(), certificate.pem(), key.serialize_pem())
}

#[test]
fn the_certificate_of_the_database_is_judged_as_the_url_says() {
    let (authority, certificate, key) = certificates("localhost");
    let (stranger, ..) = certificates("localhost");
    let access = ["hostssl all all 127.0.0.1/32 trust", "host all all 127.0.0.1/32 reject"];
    let options = access.iter().fold(Options::fast().tls(&certificate, &key), |options, line| options.access(line));
    let server = Server::start(&options).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        std::fs::write(folder.path().join(name), content).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (ours, theirs) = (file("ours.pem", &authority), file("theirs.pem", &stranger));
    let url =
        |host: &str, query: &str| format!("postgres://postgres@{host}:{}/postgres?{query}", server.address().port());

    for (host, query) in [
        ("localhost", "sslmode=require".to_owned()),
        ("localhost", String::new()),
        ("localhost", format!("sslmode=verify-full&sslrootcert={ours}")),
        ("localhost", format!("sslrootcert={ours}")),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ours}")),
        ("127.0.0.1", format!("sslmode=require&sslrootcert={ours}")),
    ] {
        let opened = open(&url(host, &query));
        assert!(opened.is_ok(), "{host} {query}: {:?}", opened.err());
    }
    for (host, query, reason) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={ours}"), "not valid for name"),
        ("127.0.0.1", format!("sslrootcert={ours}"), "not valid for name"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={theirs}"), "invalid peer certificate"),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={theirs}"), "invalid peer certificate"),
        ("localhost", "sslmode=verify-full".to_owned(), "UnknownIssuer"),
        ("localhost", "sslmode=disable".to_owned(), "pg_hba.conf"),
        ("localhost", "sslmode=verify-full&sslrootcert=/no/such".to_owned(), "/no/such"),
        ("localhost", "sslmode=verify-ca".to_owned(), "sslrootcert"),
    ] {
        let refused = refusal(&url(host, &query));
        assert!(refused.contains(reason), "{host} {query}: {refused}");
    }
}

#[tokio::test]
async fn certificate_files_are_read_again_for_new_connections() {
    let (authority, certificate, key) = certificates("localhost");
    let (stranger, ..) = certificates("localhost");
    let server = Server::start(&Options::fast().tls(&certificate, &key)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, &authority).unwrap();
    let port = server.address().port();
    let url = format!("postgres://postgres@localhost:{port}/postgres?sslrootcert={}", file.display());
    let store = open(&url).unwrap();
    let cut = || {
        let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'interlingua'";
        server.sql("postgres", others).unwrap();
    };
    let is_good = |store: &Arc<dyn Store>| matches!(store.health(), Health::Good);

    for broken in [stranger, "-----BEGIN CERTIFICATE-----".to_owned()] {
        // A file that cannot be read is as it was; another authority is another authority.
        let is_readable = broken.contains("END");
        std::fs::write(&file, broken).unwrap();
        cut();
        let began = Instant::now();
        while is_good(&store) && began.elapsed() < Duration::from_secs(6) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(is_good(&store), !is_readable, "{:?}", store.health());

        std::fs::write(&file, &authority).unwrap();
        let began = Instant::now();
        while !is_good(&store) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", store.health());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        store.flush().await.unwrap();
    }
}

#[tokio::test]
async fn a_pooler_that_comes_later_is_noticed() {
    let database = database();
    let pooler = Pooler::start(database.server(), PoolMode::Transaction).unwrap();
    let proxy = Proxy::start(database.server().address()).unwrap();
    let (one, other) = (open(&database.url_at(proxy.address)).unwrap(), open(&database.url()).unwrap());
    let run = open_run(&one, &RunSpec::default(), RunState::Running, 3).await;
    proxy.lead_to(pooler.address);
    proxy.cut();
    // Notifications are missed for some seconds; then signals are looked for often.
    tokio::time::sleep(Duration::from_secs(12)).await;

    let mut signals = one.signals();
    let mut slowest = Duration::ZERO;
    for _ in 0..8 {
        let began = Instant::now();
        other.signal(id(1), Signal::Cancel).await.unwrap();
        let signal = tokio::time::timeout(Duration::from_secs(5), signals.recv()).await.unwrap();
        assert_eq!(signal, Some((id(1), Signal::Cancel)));
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < Duration::from_millis(900), "without notifications they would take a second: {slowest:?}");
    run.end(End::Completed);
    one.settle(&run.journal()).await.unwrap();
}

#[test]
fn the_next_host_is_used_if_one_does_not_answer_or_is_read_only() {
    let (server, standby) = (Server::start(&Options::fast()).unwrap(), Server::start(&Options::fast()).unwrap());
    standby.sql("postgres", "ALTER SYSTEM SET default_transaction_read_only = on").unwrap();
    standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead_port = dead.local_addr().unwrap().port();
    drop(dead);
    let hosts = format!("127.0.0.1:{dead_port},{},{}", standby.address(), server.address());
    open(&format!("postgres://postgres@{hosts}/postgres?sslmode=disable")).unwrap();
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'interlingua'";
    assert_eq!((server.sql("postgres", schemas), standby.sql("postgres", schemas)).0.unwrap(), "1");
    assert_eq!(standby.sql("postgres", schemas).unwrap(), "0");
}

#[test]
fn a_host_that_accepts_and_says_nothing_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let began = Instant::now();
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", silent.local_addr().unwrap());
    let checked = Postgres::check(&crate::postgres_options(&url)).unwrap_err().to_string();
    assert!(checked.contains("does not answer"), "{checked}");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_check_names_the_right_that_is_missing() {
    let server = Server::start(&Options::fast()).unwrap();
    open(&format!("postgres://postgres@{}/postgres?sslmode=disable", server.address())).unwrap();
    let sql = |sql: &str| server.sql("postgres", sql).unwrap();
    let options = crate::postgres_options(&format!("postgres://writer@{}/postgres?sslmode=disable", server.address()));
    let check = || Postgres::check(&options);
    sql("CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA interlingua TO writer;
         GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA interlingua TO writer");
    let refused = check().unwrap_err().to_string();
    assert!(refused.contains("no right to UPDATE"), "{refused}");
    sql("GRANT UPDATE ON ALL TABLES IN SCHEMA interlingua TO writer");
    let refused = check().unwrap_err().to_string();
    assert!(refused.contains("no right to USAGE versions"), "{refused}");
    sql("GRANT USAGE ON ALL SEQUENCES IN SCHEMA interlingua TO writer");
    check().unwrap();
}

#[test]
fn the_url_is_never_in_an_error() {
    for url in
        ["postgres://u:s3cret@h/d?sslmode=odd", "postgres://u:s3cr@et@h/d", "u:s3cret", "postgres://u:s3cret@:x/d"]
    {
        let refused = refusal(url);
        assert!(!refused.contains("cret") && !refused.contains("s3cr"), "{refused}");
    }
}

#[tokio::test]
async fn replicas_work_through_a_pooler_that_gives_each_transaction_another_session() {
    let database = database();
    let pooler = Pooler::start(database.server(), PoolMode::Transaction).unwrap();
    let url = database.url_at(pooler.address);
    let (one, other) = (open(&url).unwrap(), open(&url).unwrap());

    // Followed elsewhere, though no one can notify.
    let run = open_run(&one, &RunSpec::default(), RunState::Running, 5).await;
    let from = run.stored().record.len();
    let mut updates = other.follow(id(1), from).expect("other processes write runs");
    updates.next().await.unwrap().unwrap();
    let (mut latencies, mut followed) = (Vec::new(), from);
    // From the second on its holder knows that it is followed.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for _ in 0..20 {
        let began = Instant::now();
        run.append(&*one, "more");
        while followed < run.stored().record.len() {
            let update = updates.next().await.unwrap().unwrap();
            followed += update.lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        latencies.push(began.elapsed());
    }
    latencies.sort_unstable();
    assert!(latencies[10] < Duration::from_millis(200), "{latencies:?}");

    // Signals, turns, and the end.
    let mut signals = one.signals();
    other.signal(id(1), Signal::Cancel).await.unwrap();
    let signal = tokio::time::timeout(Duration::from_secs(5), signals.recv()).await.unwrap();
    assert_eq!(signal, Some((id(1), Signal::Cancel)));
    let first = one.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    let second = other.turns().queue_turn("s", None, 9).await.unwrap().unwrap();
    one.turns().leave_turn(first).await.unwrap();
    other.turns().wait_for_turn(&second).await.unwrap();
    run.end(End::Completed);
    one.settle(&run.journal()).await.unwrap();
    assert_eq!(other.load(id(1)).await.unwrap().unwrap().record, run.stored().record);

    // Nothing stays in sessions that other clients get next.
    let sessions = || database.server().sql("postgres", "SELECT count(*) FROM pg_stat_activity").unwrap();
    assert!(!sessions().is_empty());
    let mut psql = Vec::new();
    for _ in 0..5 {
        let shown = pooled_sql(&url, "SHOW lock_timeout").await;
        psql.push(shown);
    }
    assert_eq!(psql, ["0"; 5]);
    for number in 2..40_u64 {
        let run = ActiveRun::numbered(number.into());
        one.open(&run.journal(), Claim::New).await.unwrap();
    }
    one.close().await.unwrap();
}

/// A statement of another client.
async fn pooled_sql(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let driven = tokio::spawn(connection);
    let rows = client.simple_query(sql).await.unwrap();
    let row = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    drop(client);
    driven.await.unwrap().unwrap();
    row.unwrap()
}

#[tokio::test]
async fn connections_keep_their_settings() {
    let database = database();
    let pooler = Pooler::start(database.server(), PoolMode::Session).unwrap();
    for url in [database.url(), database.url_at(pooler.address)] {
        let store = open(&url).unwrap();
        // A lock that another session has is not waited for without end.
        let (holder, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
        let driven = tokio::spawn(connection);
        holder.batch_execute("BEGIN; LOCK TABLE interlingua.leases").await.unwrap();
        let began = Instant::now();
        let lease = store.lease("l", "one", Duration::from_secs(9)).await;
        assert!(matches!(lease, Err(StoreError::Unavailable { .. })), "{lease:?}");
        assert!((1..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        drop(holder);
        let _ = driven.await;
        store.close().await.unwrap();
    }
}
