//! The files of TLS are replaced again and again under load: by pairs that are right, and by every kind that is wrong.
//! No connection is refused for it, and new ones soon show the new certificate.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Rig;
use crate::check::Check;
use crate::gateway::{FAST_DEMO, Gateway};

/// Number of times that the files are replaced.
const ROTATIONS: usize = 20;
/// Time until a valid pair must be in use. The gateway reads the files every two seconds.
const SOON: Duration = Duration::from_secs(6);
const CLIENTS: usize = 8;

const HEAD: &str = r#"
[server]
listen = "{{listen}}"
tls = { cert = "cert.pem", key = "key.pem" }
"#;

/// Signs the certificates of the gateway.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Pair {
    cert: String,
    key: String,
    der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    pub(crate) fn pair(&self) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(Pair { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() })
    }

    /// A client that trusts it.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.as_ref().der().clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

impl Pair {
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join("cert.pem"), &self.cert)?;
        // Not at once, as no deployment does.
        thread::sleep(Duration::from_millis(20));
        Ok(fs::write(folder.join("key.pem"), &self.key)?)
    }
}

pub(crate) fn run(rig: &Rig) -> Result<Vec<Check>> {
    let (authority, folder) = (Authority::new()?, tempfile::tempdir()?);
    authority.pair()?.write(folder.path())?;
    let client = authority.client()?;
    let gateway =
        Gateway::start_in(rig, folder, &format!("{HEAD}{FAST_DEMO}"), |address| ask(address, &client).is_ok())?;
    let address = gateway.address;

    let (over, answered, failed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let story = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let counter = match ask(address, &client) {
                        Ok(_) => &answered,
                        Err(error) => {
                            eprintln!("certificates: {error:#}");
                            &failed
                        }
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let story = rotate(&gateway, &authority, &client);
        over.store(true, Ordering::Relaxed);
        story
    })?;

    Ok(vec![
        Check::at_least("requests, each by a connection of its own", number(&answered), 1000.0, ""),
        Check::at_most("… of them failed", number(&failed), 0.0, ""),
        Check::at_least("pairs put in force", story.taken as f64, (ROTATIONS - ROTATIONS / 2) as f64, ""),
        Check::at_most("slowest of them to be shown", story.slowest, SOON.as_secs_f64(), "s"),
        Check::at_most("wrong pairs shown", story.wrong as f64, 0.0, ""),
        Check::at_least("warnings of wrong pairs", gateway.log().matches("is kept").count() as f64, 5.0, ""),
    ])
}

fn number(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

#[derive(Default)]
struct Story {
    taken: usize,
    slowest: f64,
    wrong: usize,
}

fn rotate(gateway: &Gateway, authority: &Authority, client: &Arc<ClientConfig>) -> Result<Story> {
    let (folder, mut story, mut in_force) = (gateway.folder(), Story::default(), ask(gateway.address, client)?);
    for number in 0..ROTATIONS {
        let pair = authority.pair()?;
        if number % 2 == 0 {
            pair.write(folder)?;
            let started = Instant::now();
            while ask(gateway.address, client)? != pair.der && started.elapsed() < SOON * 2 {
                thread::sleep(Duration::from_millis(20));
            }
            story.slowest = story.slowest.max(started.elapsed().as_secs_f64());
            in_force = ask(gateway.address, client)?;
            story.taken += usize::from(in_force == pair.der);
            continue;
        }

        break_files(folder, &pair, number / 2)?;
        // It is read twice before it is reported.
        thread::sleep(SOON);
        story.wrong += usize::from(ask(gateway.address, client)? != in_force);
    }
    Ok(story)
}

/// Writes files that cannot be used.
fn break_files(folder: &Path, pair: &Pair, kind: usize) -> Result<()> {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    match kind % 6 {
        // The key of another certificate.
        0 => fs::write(key, &pair.key)?,
        1 => fs::write(cert, &pair.cert[..pair.cert.len() / 2])?,
        2 => fs::write(key, "")?,
        3 => fs::remove_file(cert)?,
        4 => fs::write(cert, vec![b'-'; 2 << 20])?,
        _ => fs::write(cert, [0xff; 1000])?,
    }
    Ok(())
}

/// One request by a connection of its own. Returns the certificate that the gateway has shown.
fn ask(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<Vec<u8>> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let connection = ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost")?)?;
    let mut stream = StreamOwned::new(connection, socket);
    let body = r#"{"stream":false,"input":[{"role":"user","content":"echo hello"}]}"#;
    let length = body.len();
    let host = format!("host: localhost:{}\r\nconnection: close\r\n", address.port());
    let media = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    stream.write_all(format!("POST /agents/demo/process HTTP/1.1\r\n{host}{media}\r\n{body}").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(text.starts_with("HTTP/1.1 200"), "{text:.200}");
    let shown = stream.conn.peer_certificates().and_then(|chain| chain.first()).context("no certificate")?;
    Ok(shown.to_vec())
}
