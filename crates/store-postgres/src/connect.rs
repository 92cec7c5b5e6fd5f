//! Connections to the database: opening, settings, and driving. Not here: the statements.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::config::Host;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

use super::database::{Database, Schema};
use super::error::{connect_error, store_error};
use super::options::PostgresOptions;
use super::target::{self, Tls};
use super::tls::Encryption;
use interlingua_base::clock;
use interlingua_store::StoreError;

/// Time that one address of the database has to accept a connection. Then the next address is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the rest of a connection: encryption, password, settings.
const ENTER_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time after which data that is not acknowledged ends a connection. Otherwise it is a third of a lease, so
/// that the lease can still be renewed over another one.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a notification. A notification is never sent through a pooler.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes connections. Clones find out the same.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    schema: Schema,
    tls: Option<Arc<Encryption>>,
    /// Settings of every connection: `SET` and a name and its value.
    settings: Arc<[(&'static str, String)]>,
    /// True if a pooler gives each transaction another session: nothing that belongs to a session can be used.
    is_pooled: Arc<AtomicBool>,
    open: Arc<AtomicUsize>,
}

impl Connector {
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        let unusable = |reason: String| StoreError::Unusable { reason: format!("the URL of the database {reason}") };
        let target = target::parse(&options.url).map_err(unusable)?;
        for (option, reason) in &target.ignored {
            tracing::info!("the option {option} in the URL of the database has no effect: {reason}");
        }
        let tls = match target.tls {
            Tls::Off => None,
            _ => Some(Arc::new(
                Encryption::new(target.clone(), &options.tls)
                    .map_err(|reason| StoreError::Unusable { reason: format!("TLS of the database: {reason}") })?,
            )),
        };

        let mut config = target.config;
        if target.tls == Tls::Unverified && !config.get_hosts().iter().all(is_loopback) {
            tracing::warn!("the certificate of the database is not verified: set sslmode=verify-full in its URL");
        }
        let lease = options.lease;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout((lease / 3).max(MIN_USER_TIMEOUT));
        }
        if config.get_application_name().is_none() {
            config.application_name("interlingua");
        }
        config
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(3))
            .keepalives_retries(3);
        let settings = [
            // A replica that is paused in the middle of a transaction does not keep its locks for longer than a lease.
            ("idle_in_transaction_session_timeout", lease.as_millis().to_string()),
            ("lock_timeout", "2000".to_owned()),
            ("statement_timeout", "30000".to_owned()),
            // Compiling pays off for none of the statements.
            ("jit", "off".to_owned()),
        ];
        Ok(Self {
            config,
            schema: Schema::new(&options.schema),
            tls,
            settings: Arc::new(settings),
            is_pooled: Arc::default(),
            open: Arc::default(),
        })
    }

    /// True if there is a pooler that gives each transaction another session.
    pub(super) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub(super) fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Finds out whether sessions stay what they are, by a notification: poolers accept to listen, and then pass
    /// nothing on.
    pub(super) async fn find_out_sessions(&self) -> Result<(), StoreError> {
        let sql = |error: tokio_postgres::Error| store_error(&error);
        let notices = Arc::new(Notices::default());
        let channel = format!("interlingua {}", clock::new_id().0);
        let listener = self.enter(Some(Arc::clone(&notices))).await?;
        let sender = self.enter(None).await?;
        listener.batch_verbatim(&format!("LISTEN \"{channel}\"")).await.map_err(sql)?;
        sender.rows("SELECT pg_notify($1, 'r')", &[(&channel, Type::TEXT)]).await.map_err(sql)?;
        let is_pooled = tokio::time::timeout(NOTICE_TIMEOUT, notices.runs.notified()).await.is_err();
        // A pooler passes a session on to the next client, where it would keep listening.
        let _ = listener.batch("UNLISTEN *").await;
        self.set_pooled(is_pooled);
        Ok(())
    }

    /// Whether there is a pooler that passes no notifications on. It may come and go while the process lives.
    pub(super) fn set_pooled(&self, is_pooled: bool) {
        let was_pooled = self.is_pooled.swap(is_pooled, Ordering::Relaxed);
        if is_pooled && !was_pooled {
            tracing::warn!("the database pooler passes no notifications on: this gateway polls for changes");
        }
        if was_pooled && !is_pooled {
            tracing::info!("notifications of the database arrive again: this gateway polls less often");
        }
    }

    /// A connection that is driven by a task of this runtime until it is dropped.
    pub(super) async fn connect(&self) -> Result<Database, StoreError> {
        self.connect_noticing(None).await
    }

    /// A connection whose notifications wake those who wait for them.
    pub(super) async fn connect_noticing(&self, noticed: Option<Arc<Notices>>) -> Result<Database, StoreError> {
        let database = self.enter(noticed).await?;
        if !self.is_pooled() {
            let set = self.set_all("SET", false);
            let set = tokio::time::timeout(ENTER_TIMEOUT, database.batch_verbatim(&set)).await;
            set.map_err(|_| no_answer())?.map_err(|error| store_error(&error))?;
        }
        Ok(database)
    }

    /// A connection without settings. They are not sent with the connection, since poolers refuse that; and through one
    /// they are set in each transaction, since another client gets the session after it.
    async fn enter(&self, noticed: Option<Arc<Notices>>) -> Result<Database, StoreError> {
        let given_up = Arc::new(Notify::new());
        let driven = Arc::clone(&given_up);
        let connecting = async {
            let Some(tls) = self.tls.as_ref().map(|tls| tls.current()) else {
                let (client, connection) = self.config.connect(NoTls).await?;
                drive(connection, driven, noticed, OpenConnection::new(&self.open));
                return Ok(client);
            };
            let (client, connection) = self.config.connect(tls).await?;
            drive(connection, driven, noticed, OpenConnection::new(&self.open));
            Ok(client)
        };
        let addresses = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).clamp(1, 10);
        let one = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        let timeout = one.saturating_mul(addresses).saturating_add(ENTER_TIMEOUT);
        let connected: Result<Result<Client, tokio_postgres::Error>, _> =
            tokio::time::timeout(timeout, connecting).await;
        match connected {
            Ok(Ok(client)) => Ok(Database::new(client, self.schema.clone(), self.begin(), given_up)),
            Ok(Err(error)) => Err(connect_error(&error)),
            Err(_) => Err(no_answer()),
        }
    }

    /// The statement that begins a transaction.
    fn begin(&self) -> String {
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        if self.is_pooled() { format!("{begin}; {}", self.set_all("SET LOCAL", true)) } else { begin.to_owned() }
    }

    fn set_all(&self, set: &str, is_local: bool) -> String {
        let settings = self.settings.iter().map(|(name, value)| format!("{set} {name} = {value}; "));
        // Confirmed data is on a disk. Stricter settings of the operator stay.
        settings.collect::<String>()
            + &format!(
                "SELECT set_config('synchronous_commit', 'on', {is_local})
                 WHERE current_setting('synchronous_commit') = 'off'"
            )
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable { reason: "the database does not answer".to_owned() }
}

/// True if nothing leaves this machine.
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// The receivers of other replicas' notifications.
#[derive(Default)]
pub(super) struct Notices {
    /// Places in lines for turns were given up.
    pub(super) turns: Notify,
    /// Runs that are followed have changed.
    pub(super) runs: Notify,
    /// Only lines of other replicas have arrived.
    pub(super) lines: Notify,
    /// Signals were sent, or runs are followed.
    pub(super) signals: Notify,
    /// A notification of any replica that is only sent to see whether it arrives.
    pub(super) probes: Notify,
    /// The connection was lost.
    pub(super) lost: Notify,
}

impl Notices {
    /// The channel of all replicas of a schema.
    pub(super) fn channel(schema: &str) -> String {
        format!("interlingua {schema}")
    }

    fn notice(&self, payload: &str) {
        for kind in payload.chars() {
            match kind {
                // One task looks for all, and may be looking at this moment.
                't' => self.turns.notify_one(),
                'r' => self.runs.notify_one(),
                'l' => self.lines.notify_one(),
                's' => self.signals.notify_one(),
                'p' => self.probes.notify_one(),
                _ => {}
            }
        }
    }
}

/// Counts one connection until it is dropped.
struct OpenConnection(Arc<AtomicUsize>);

impl OpenConnection {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Drives a connection until it is dropped, lost, or given up.
fn drive<S, T>(
    mut connection: Connection<S, T>,
    given_up: Arc<Notify>,
    noticed: Option<Arc<Notices>>,
    open: OpenConnection,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let _open = open;
        loop {
            let message = tokio::select! {
                message = poll_fn(|context| connection.poll_message(context)) => message,
                () = given_up.notified() => None,
            };
            match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    if let Some(noticed) = &noticed {
                        noticed.notice(notification.payload());
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        drop(connection);
        if let Some(noticed) = &noticed {
            noticed.lost.notify_one();
        }
    });
}
