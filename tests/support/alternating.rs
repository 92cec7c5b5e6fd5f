//! Two gateways on one database that look like one: each connection goes to the next of them. With
//! `INTERLINGUA_TEST_REPLICAS` in the environment, tests that ask for a store in memory get this instead:
//!
//! ```text
//! INTERLINGUA_TEST_REPLICAS=1 cargo test --test behaviour
//! ```
//!
//! Not here: tests that are about several gateways (`tests/replicas`).

#![allow(dead_code, unreachable_pub, reason = "each test binary uses only part of it")]

use std::net::SocketAddr;
use std::path::Path;

use interlingua_testing_postgres::Database;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// The file with the URL of the database, in the folder of the configuration.
const URL_FILE: &str = "url-of-the-test-database";

/// True if tests get two gateways instead of one.
pub fn is_on() -> bool {
    std::env::var_os("INTERLINGUA_TEST_REPLICAS").is_some()
}

/// The same configuration with a new database, unless it has a file as its store.
pub fn with_database(source: &str, folder: &Path) -> Option<(String, Database<'static>)> {
    if source.contains("kind = \"sqlite\"") || source.contains("kind = \"postgres\"") {
        return None;
    }
    let database = interlingua_testing_postgres::database();
    std::fs::write(folder.join(URL_FILE), database.url()).expect("a file");
    let store = format!("kind = \"postgres\"\nurl = {{ file = \"{URL_FILE}\" }}\nlease = \"3s\"\nconnections = 3\n");
    let replaced = if source.contains("kind = \"memory\"") {
        source.replacen("kind = \"memory\"", store.trim_end(), 1)
    } else {
        format!("{source}\n[store]\n{store}")
    };
    Some((replaced, database))
}

/// Listens, and passes each connection on to the next gateway. Ends with the process of the tests.
pub fn front(gateways: [SocketAddr; 2]) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener can be non-blocking");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener of this runtime");
            for gateway in gateways.into_iter().cycle() {
                let Ok((mut client, _)) = listener.accept().await else { return };
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(gateway).await else { return };
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    });
    address
}
