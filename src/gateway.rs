//! Assembles a gateway: protocols, settings, store, engine, server.

mod admin;
mod agent_protocols;
mod live;
mod prepare;
mod rates;
mod stop;
mod stores;
mod upstreams;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::{ArcSwap, ArcSwapOption};
use interlingua_core::call::{ATTACHMENTS, AgentCard, CLAIMS};
use interlingua_core::capability::ClientCapabilities;
use interlingua_core::connector::{Connector, UpstreamAdapter};
use interlingua_core::exchange::{Mount, Mounted};
use interlingua_core::server_signs::ServerSigns;
use interlingua_core::{AuthScheme, Owner, ProtocolAdapter};
use url::Url;

pub use self::live::LiveParts;
pub(crate) use self::prepare::NamedSources;

use self::live::SharedTime;
use self::rates::RouteRates;
use self::upstreams::http_settings;
use interlingua_admin::AdminServer;
use interlingua_base::clock;
use interlingua_base::ports::WebhookClient;
use interlingua_base::tls::SharedTls;
use interlingua_callers::{Callers, Usage, jwks};
use interlingua_config::{
    self as config, ClientProtocol, ConnectorCheck, EndpointPattern, Env, JwksSource, JwtIssuer, Methods, Origins,
    Protocols, Settings, UpstreamProtocol,
};
use interlingua_engine::{self as engine, Engine, RouteAgents, Scope};
use interlingua_observe::metrics::Metrics;
use interlingua_observe::{Action, AuditEntry, forward_logs};
use interlingua_server::{self as server, ServedRoute};
use interlingua_store::{OwnerBounds, OwnerBoundsOf, Retention, Store, StoreError};
use interlingua_upstream::demo::Demo;
use interlingua_upstream::http::{Endpoint, HttpUpstream};
use interlingua_upstream::jwks::HttpJwksFetcher;
use interlingua_upstream::push::HttpWebhookClient;
use interlingua_upstream::{ForwardedHeaders, InProcessAgent, OwnListeners, Upstream};

/// Time that the store has to close. Together with the engine's time after the drain, this stays within the promised
/// five seconds.
const STORE_CLOSE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Time that collectors and logs have to accept the last records; less than the store has.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The name of a gateway without `public_url` in the tokens that it signs.
const DEFAULT_ISSUER: &str = "interlingua";
/// The maximum time to wait for the first event of an agent before a streamed response starts without it.
const MAX_FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// A builder for a gateway: the protocols it supports.
///
/// ```no_run
/// // All built-in protocols:
/// let gateway = interlingua::Gateway::builtin();
/// // A binary with its own protocol adds `.serve::<MyProtocol>()`, and ends with:
/// std::process::exit(gateway.main());
/// ```
#[derive(Clone)]
pub struct Gateway {
    clients: Vec<ClientEntry>,
    upstreams: Vec<UpstreamEntry>,
    /// Instead of the one that is configured.
    store: Option<Arc<dyn Store>>,
    /// Empty until the gateway is started.
    own_listeners: OwnListeners,
}

#[derive(Clone)]
struct ClientEntry {
    name: &'static str,
    declared: ClientProtocol,
    capabilities: fn() -> ClientCapabilities,
    mount: fn(&Mount, &config::Options) -> Result<Mounted, String>,
}

/// Opens the way to an agent. The other arguments are the gateway's name in tokens for agents, and its listeners.
type OpenUpstream = fn(&config::Agent, &str, &OwnListeners) -> Result<Arc<dyn Upstream>, String>;

#[derive(Clone)]
struct UpstreamEntry {
    name: &'static str,
    signs: ServerSigns,
    declared: UpstreamProtocol,
    open: OpenUpstream,
}

/// A gateway that is listening.
pub struct Running {
    /// The address it listens on.
    pub address: SocketAddr,
    parts: LiveParts,
    store: Arc<dyn Store>,
    server: server::Listening,
    /// Bound, and not served yet.
    admin_listener: Option<TcpListener>,
    admin: Option<AdminServer>,
    /// For the console, which shows runs in the canonical model.
    agent_api: interlingua_admin::MountFor,
}

impl Gateway {
    /// A gateway without protocols, except for the demo agent.
    #[must_use]
    pub fn empty() -> Self {
        let own_listeners = OwnListeners::default();
        Self { clients: Vec::new(), upstreams: Vec::new(), store: None, own_listeners }.in_process::<Demo>()
    }

    /// Adds a protocol for clients, replacing one of the same name.
    #[must_use]
    pub fn serve<P: ProtocolAdapter>(mut self) -> Self {
        fn mount<P: ProtocolAdapter>(mount: &Mount, options: &config::Options) -> Result<Mounted, String> {
            P::mount(mount, options.copy::<P::Options>().ok_or("invalid options")?)
        }

        let declared = ClientProtocol::new::<P::Options>(P::NAME)
            .schema(P::options_schema())
            .capabilities(|options| P::capabilities(&options.copy::<P::Options>().unwrap_or_default()))
            .try_mount(|configured| {
                let mounted = mount::<P>(&core_mount(configured, &[]), &configured.route.options)?;
                Ok(mounted.endpoints.iter().map(EndpointPattern::from).collect())
            });
        self.clients.retain(|client| client.name != P::NAME);
        let capabilities = || P::capabilities(&P::Options::default());
        self.clients.push(ClientEntry { name: P::NAME, declared, capabilities, mount: mount::<P> });
        self
    }

    /// Adds a protocol for agents, replacing one of the same name.
    #[must_use]
    pub fn upstream<U: UpstreamAdapter>(self) -> Self {
        fn connect<U: UpstreamAdapter>(
            url: Option<&Url>,
            options: &config::Options,
        ) -> Result<Box<dyn Connector>, String> {
            U::connect(url.map_or("", Url::as_str), options.copy::<U::Options>().ok_or("invalid options")?)
        }
        fn open<U: UpstreamAdapter>(
            agent: &config::Agent,
            issuer: &str,
            own_listeners: &OwnListeners,
        ) -> Result<Arc<dyn Upstream>, String> {
            let endpoints = agent.upstream.endpoints.iter().map(|endpoint| {
                let connector = connect::<U>(Some(&endpoint.url), &agent.upstream.options)?;
                Ok(Endpoint { connector, url: Some(endpoint.url.clone()), weight: endpoint.weight })
            });
            let settings = http_settings(agent, issuer, own_listeners);
            Ok(Arc::new(HttpUpstream::new(endpoints.collect::<Result<_, String>>()?, settings)?))
        }

        let declared = UpstreamProtocol::new::<U::Options>(U::NAME)
            .products(U::SIGNS.products)
            .schema(U::options_schema())
            .try_connect(|url, options| {
                let connector = connect::<U>(url, options)?;
                Ok(ConnectorCheck { capabilities: connector.capabilities(), warnings: connector.warnings() })
            });
        self.register(UpstreamEntry { name: U::NAME, signs: U::SIGNS, declared, open: open::<U> })
    }

    /// Adds an agent that is part of the gateway, replacing a protocol of the same name.
    #[must_use]
    pub fn in_process<A: InProcessAgent>(self) -> Self {
        fn open<A: InProcessAgent>(options: &config::Options) -> Result<Arc<dyn Upstream>, String> {
            Ok(A::open(options.copy::<A::Options>().ok_or("invalid options")?))
        }

        let declared = UpstreamProtocol::new::<A::Options>(A::NAME).schema(A::options_schema()).built_in().try_connect(
            |_, options| Ok(ConnectorCheck { capabilities: open::<A>(options)?.capabilities(), warnings: Vec::new() }),
        );
        self.register(UpstreamEntry {
            name: A::NAME,
            signs: ServerSigns::NONE,
            declared,
            open: |agent, _, _| open::<A>(&agent.upstream.options),
        })
    }

    /// Keeps everything in this store instead of the one that is configured; of `[store]` only `retention` applies
    /// then. Each of several gateways needs a replica of its own ([`Coordination`](interlingua_store::Coordination)).
    #[must_use]
    pub fn with_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    fn register(mut self, entry: UpstreamEntry) -> Self {
        self.upstreams.retain(|upstream| upstream.name != entry.name);
        self.upstreams.push(entry);
        self
    }

    /// The protocols, as declared to the configuration.
    #[must_use]
    pub fn protocols(&self) -> Protocols {
        let mut protocols = Protocols::new();
        for client in &self.clients {
            protocols = protocols.client(client.declared.clone());
        }
        for upstream in &self.upstreams {
            protocols = protocols.upstream(upstream.declared.clone());
        }

        protocols
    }

    /// The capabilities of the client protocols with their default options, in the order they were added.
    #[must_use]
    pub fn client_capabilities(&self) -> Vec<(&'static str, ClientCapabilities)> {
        self.clients.iter().map(|client| (client.name, (client.capabilities)())).collect()
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// All errors and warnings of the file.
    pub fn load(&self, path: &Path) -> Result<(Settings, config::Diagnostics), config::Diagnostics> {
        config::load(path, &self.protocols(), &Env::process())
    }

    /// Example shell commands for a mount, with the placeholder `{url}`.
    pub(crate) fn curl(&self, configured: &config::Mount) -> Vec<String> {
        self.mount(configured).map_or_else(Vec::new, |mounted| mounted.console.curl)
    }

    /// Path of a mount as people read it. Clients of a protocol with agent cards resolve the card's path against the
    /// URL, so it ends with a slash.
    pub(crate) fn shown_path(&self, configured: &config::Mount) -> String {
        let has_card = self.mount(configured).is_some_and(|mounted| mounted.announced_url.is_some());
        if has_card { format!("{}/", configured.path.trim_end_matches('/')) } else { configured.path.clone() }
    }

    /// The endpoints of a mount that need no credentials even if its route does, as method and path. `is_first`: the
    /// mount is the first one of its protocol, which has some at the root of the host too.
    pub(crate) fn public_endpoints(&self, configured: &config::Mount, is_first: bool) -> Vec<String> {
        let base = configured.path.trim_end_matches('/');
        let endpoints = self.mount(configured).map_or_else(Vec::new, |mounted| mounted.endpoints);
        let mut listed = Vec::new();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.public) {
            let method = endpoint.method.as_str();
            listed.push(format!("{method} {base}{}", endpoint.path));
            if is_first && endpoint.at_root && !base.is_empty() {
                listed.push(format!("{method} {}", endpoint.path));
            }
            if endpoint.before_mount && !base.is_empty() {
                listed.push(format!("{method} {}{base}", endpoint.path));
            }
        }
        listed
    }

    fn mount(&self, configured: &config::Mount) -> Option<Mounted> {
        let client = self.clients.iter().find(|client| client.name == configured.protocol())?;
        (client.mount)(&core_mount(configured, &[]), &configured.route.options).ok()
    }

    /// Opens the store, starts listening, and closes runs that the last process left open. Must be called in an actix
    /// system.
    ///
    /// # Errors
    /// If the store cannot be opened, or the listen address cannot be bound.
    pub async fn start(&self, settings: &Settings) -> anyhow::Result<Running> {
        settings.secrets.enforce();
        let metrics = Metrics::new();
        let store = match &self.store {
            Some(store) => Arc::clone(store),
            None => stores::open(settings, &metrics)?,
        };
        let agents = settings
            .agents
            .iter()
            .map(|agent| self.agent(agent, settings, &metrics, None))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let tls = settings.server.tls.clone().map(SharedTls::open).transpose().context("TLS")?.map(Arc::new);
        let admin_tls = settings.admin.as_ref().and_then(|admin| admin.tls.clone());
        let admin_tls =
            admin_tls.map(SharedTls::without_http2).transpose().context("TLS of the admin listener")?.map(Arc::new);
        let listener = listen(settings.server.listen)?;
        let admin_listener = settings.admin.as_ref().map(|admin| listen(admin.listen)).transpose()?;
        // Webhooks and cards of agents must not reach the gateway itself.
        let mut own_addresses = vec![listener.local_addr()?];
        own_addresses.extend(admin_listener.as_ref().and_then(|listener| listener.local_addr().ok()));
        self.own_listeners.set(own_addresses.clone());
        let webhooks = Arc::new(HttpWebhookClient::new(own_addresses));
        let callers = Callers::new(&settings.auth, &settings.callers, Arc::new(HttpJwksFetcher));
        let (routes, rates) = self.routes(settings, &callers, &RouteRates::default())?;
        let rules = retention_rules(settings, &routes, &callers);
        let webhooks = Arc::clone(&webhooks) as Arc<dyn WebhookClient>;
        let observer = live::open_logs(settings, &metrics, None)?;
        metrics.count_callers(settings.observe.caller_label);
        forward_logs(observer.otlp());
        let observer = Arc::new(ArcSwap::from_pointee(observer));
        let limits = limits(settings);
        let engine = Engine::new(agents, Arc::clone(&store), webhooks, rules, Arc::clone(&callers), limits, metrics);

        let recovered = match engine.recover().await {
            // A store behind a network is waited for: runs that others left are closed once it is reached.
            Err(StoreError::Unavailable { reason }) => {
                tracing::warn!(
                    reason,
                    "the store is unreachable at the start: the gateway waits for it and refuses new runs"
                );
                0
            }
            recovered => recovered?,
        };
        if recovered > 0 {
            tracing::warn!(runs = recovered, "the last process ended with active runs: they are closed as failed");
        }

        interlingua_config::public_url::log(
            routes.iter().filter_map(|route| Some((route.path.as_str(), route.mounted.announced_url.as_ref()?))),
            (settings.server.scheme(), listener.local_addr()?),
            !settings.server.trusted_proxies.is_empty(),
        );
        for route in &routes {
            for warning in &route.mounted.warnings {
                tracing::warn!(route = route.path, "{warning}");
            }
        }
        let server = server::listen(
            listener,
            engine.clone(),
            Arc::clone(&callers),
            server::Routes::build(routes).map_err(anyhow::Error::msg)?,
            server_settings(settings, tls.clone()),
            Arc::clone(&observer),
        )?;
        observer.load().audit(AuditEntry::new(Action::Started).detail(env!("CARGO_PKG_VERSION")));
        let admin_key = settings.admin.as_ref().and_then(|admin| admin.key);
        let parts = LiveParts {
            engine,
            observer,
            callers,
            routes: server.routes(),
            control: server.control(),
            shutdown_delay: SharedTime::new(settings.server.shutdown_delay),
            drain: SharedTime::new(settings.server.drain),
            admin_key: Arc::new(ArcSwapOption::from_pointee(admin_key)),
            rates: Arc::new(ArcSwap::from_pointee(rates)),
            tls,
            admin_tls,
            secrets: Arc::new(ArcSwap::from_pointee(settings.secrets.clone())),
            admin_access: Arc::new(ArcSwap::from_pointee(
                settings.admin.as_ref().map(|admin| admin.access).unwrap_or_default(),
            )),
        };
        let agent_api = self.mount_for("agent-api");
        Ok(Running { address: server.address, parts, store, server, admin_listener, admin: None, agent_api })
    }

    /// Mounts a protocol for any agent, with its default options.
    fn mount_for(&self, protocol: &str) -> interlingua_admin::MountFor {
        let mount = self.clients.iter().find(|client| client.name == protocol).map(|client| client.mount);
        Arc::new(move |agent| {
            let card = AgentCard { name: agent.to_owned(), ..AgentCard::default() };
            let place =
                Mount { path: String::new(), agents: vec![Arc::new(card)], public_url: None, schemes: Vec::new() };
            mount?(&place, &config::Options::default()).ok()
        })
    }

    /// The way to an agent, apart from any running gateway.
    pub(crate) fn open_upstream(
        &self,
        agent: &config::Agent,
        settings: &Settings,
    ) -> anyhow::Result<Arc<dyn Upstream>> {
        let entry = self.upstreams.iter().find(|entry| entry.name == agent.upstream.protocol);
        let entry = entry.ok_or_else(|| anyhow::anyhow!("unknown protocol '{}'", agent.upstream.protocol))?;
        let issuer = settings.server.public_url.as_deref().unwrap_or(DEFAULT_ISSUER);
        (entry.open)(agent, issuer, &self.own_listeners).map_err(anyhow::Error::msg)
    }

    /// Creates an agent. `running`: the current agent of this name, whose counters continue.
    fn agent(
        &self,
        agent: &config::Agent,
        settings: &Settings,
        metrics: &Arc<Metrics>,
        running: Option<&engine::Agent>,
    ) -> anyhow::Result<Arc<engine::Agent>> {
        let upstream = self.open_upstream(agent, settings)?;
        let usage = running.map_or_else(|| Arc::new(Usage::shared(agent.limits)), |running| Arc::clone(&running.usage));
        if let Some(watching) = upstream.watch() {
            // The task ends when the agent is dropped.
            tokio::task::spawn_local(watching);
        }
        Ok(Arc::new(engine::Agent {
            name: agent.name.clone(),
            protocol: agent.upstream.protocol.as_str().into(),
            card: card(agent),
            upstream,
            protocol_events: settings.reads_protocol_events(&agent.name).into(),
            history: match agent.history {
                config::History::Gateway => engine::History::Gateway,
                config::History::Upstream => engine::History::Upstream,
            },
            history_limit: engine::HistoryLimit { turns: agent.history_limit.turns, bytes: agent.history_limit.bytes },
            queue_turns: agent.parallel_turns == config::ParallelTurns::Queue,
            max_run_bytes: agent.max_run_bytes,
            usage,
            metrics: metrics.agent(&agent.name),
        }))
    }

    /// The routing table of these settings, to [replace](server::SharedRoutes::replace) that of a running gateway. The
    /// agents of the routes must be those that the gateway was started with.
    ///
    /// # Errors
    /// What the check of the configuration rejects.
    pub fn build_routes(&self, settings: &Settings) -> anyhow::Result<server::Routes> {
        let (routes, _) = self.routes(settings, &Callers::anonymous_only(), &RouteRates::default())?;
        server::Routes::build(routes).map_err(anyhow::Error::msg)
    }

    /// The routes, and the rates of those that have one. `running`: the rates in force until now.
    fn routes(
        &self,
        settings: &Settings,
        callers: &Callers,
        running: &RouteRates,
    ) -> anyhow::Result<(Vec<ServedRoute>, RouteRates)> {
        let mut routes: Vec<ServedRoute> = Vec::new();
        let mut rates = RouteRates::default();
        for configured in settings.mounts() {
            let rate = rates.limiter(&configured.route, running);
            let client = self.clients.iter().find(|client| client.name == configured.protocol());
            let client = client.ok_or_else(|| anyhow::anyhow!("unknown protocol '{}'", configured.protocol()))?;

            let mount = core_mount(&configured, &settings.auth.jwt);
            let mut mounted = (client.mount)(&mount, &configured.route.options).map_err(anyhow::Error::msg)?;
            let any_origin = if mounted.cors.any_origin { Origins::Any } else { Origins::default() };
            routes.push(ServedRoute {
                scope: Scope {
                    owner: Owner::anonymous(),
                    caller: callers.anonymous(),
                    path: mount.path.as_str().into(),
                    trace: None,
                    request: None,
                    forwarded: ForwardedHeaders::named(
                        configured.agents.iter().flat_map(|agent| &agent.upstream.forward).map(String::as_str),
                    ),
                    connection: None,
                    agents: RouteAgents::new(mount.agents.clone()),
                    protocol: client.name,
                    push: mounted.runs.push.take().map(Arc::new),
                    route: mounted.runs.retention.map(|_| configured.route.path.as_str().into()),
                    detach: configured
                        .route
                        .on_disconnect
                        .map_or(mounted.runs.detaches, |handling| handling == config::OnDisconnect::Detach),
                    first_event_timeout: if configured.route.heartbeat.is_zero() {
                        MAX_FIRST_EVENT_TIMEOUT
                    } else {
                        configured.route.heartbeat.min(MAX_FIRST_EVENT_TIMEOUT)
                    },
                },
                heartbeat: configured.route.heartbeat,
                auth: configured.route.auth,
                rate,
                partition: (!configured.route.shared_sessions).then(|| mount.path.clone()),
                cors: configured.route.cors.clone().unwrap_or(any_origin),
                path: mount.path,
                mounted,
            });
        }

        Ok((routes, rates))
    }
}

impl Running {
    /// Serves until `stop` resolves, and for the delay of the configuration. Then accepts no new runs, lets active runs
    /// end, and closes the store.
    ///
    /// # Errors
    /// Errors of the server and of the store.
    pub async fn run(self, stop: impl Future<Output = ()> + 'static) -> anyhow::Result<()> {
        let Self { parts, store, server, admin, .. } = self;
        let (engine, observer) = (parts.engine.clone(), Arc::clone(&parts.observer));
        let watch = tokio::task::spawn_local(Arc::clone(&parts.callers).watch());
        let housekeeping = tokio::task::spawn_local(engine.clone().housekeeping());
        let watching: Vec<_> = [parts.tls.clone(), parts.admin_tls.clone()]
            .into_iter()
            .flatten()
            .map(|tls| tokio::task::spawn_local(tls.watch()))
            .collect();
        let (drained, is_drained) = tokio::sync::oneshot::channel();
        let stopping = stop::stop_in_order(stop, parts, engine, server.stopper());
        tokio::task::spawn_local(async move {
            stopping.await;
            let _ = drained.send(());
        });
        let served = tokio::select! {
            served = server.run() => served,
            Ok(()) = is_drained => Ok(()),
        };

        housekeeping.abort();
        for watching in watching {
            watching.abort();
        }
        watch.abort();
        // The last to go, so that operators see the gateway drain.
        if let Some(admin) = admin {
            admin.stop().await;
        }
        let logs = observer.load_full();
        logs.audit(AuditEntry::new(Action::Stopped));
        let flushed = tokio::task::spawn_blocking(move || {
            forward_logs(None);
            logs.flush(FLUSH_TIMEOUT);
        });
        let closing = async { tokio::join!(store.close(), flushed).0 };
        match tokio::time::timeout(STORE_CLOSE_TIMEOUT, closing).await {
            Ok(closed) => closed?,
            Err(_) => {
                tracing::error!("the store did not close in time: unwritten data is lost");
                // Dropping the store would wait for it.
                std::mem::forget(store);
            }
        }

        served?;
        Ok(())
    }

    /// The parts that a reload replaces.
    #[must_use]
    pub fn parts(&self) -> LiveParts {
        self.parts.clone()
    }

    /// A handle that replaces the routes while the gateway is running.
    #[must_use]
    pub fn routes(&self) -> server::SharedRoutes {
        self.server.routes()
    }

    /// The TLS of the listener, which can be reloaded. `None` without TLS.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<SharedTls>> {
        self.parts.tls.clone()
    }

    /// The engine, for tests.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.parts.engine
    }
}

fn server_settings(settings: &Settings, tls: Option<Arc<SharedTls>>) -> server::Settings {
    server::Settings {
        workers: settings.server.workers,
        max_body: settings.server.max_body,
        timeouts: settings.server.timeouts,
        limits: settings.server.limits,
        public_url: settings.server.public_url.clone(),
        trusted_proxies: settings.server.trusted_proxies.clone(),
        forwarded: settings.server.forwarded,
        hosts: server::AllowedHosts::new(
            settings.server.allowed_hosts.as_deref(),
            settings.server.public_url.as_deref(),
            settings.server.listen.ip(),
        ),
        tls,
        certificates: settings.auth.certificates.clone(),
    }
}

/// The retention rules: those of the settings for all runs, and those of routes for their own runs.
fn retention_rules(settings: &Settings, mounts: &[ServedRoute], callers: &Arc<Callers>) -> engine::RetentionRules {
    let mut retention = Retention {
        age: settings.store.retention.age,
        runs: settings.store.retention.runs,
        documents: settings.store.retention.runs,
        bytes: settings.store.retention.bytes,
        collections: ["sessions", "asked", "branches", "spent", CLAIMS, engine::OPEN_ITEMS].map(str::to_owned).to_vec(),
        parts: vec![("entries".to_owned(), "sessions".to_owned())],
        routes: Vec::new(),
        attached: vec![ATTACHMENTS.to_owned(), engine::PUSHED.to_owned()],
        bounds: owner_bounds(callers),
    };
    let mut scopes = Vec::new();
    for ServedRoute { scope, mounted, .. } in mounts {
        if let (Some(route), Some(keep)) = (&scope.route, mounted.runs.retention) {
            // A route with `{agent}` in its path has one mount per agent.
            if !retention.routes.iter().any(|(known, _)| **known == **route) {
                retention.routes.push((route.to_string(), keep));
            }
            scopes.push(scope.clone());
        }
        let collection = scope.push.as_ref().map(|notifiers| notifiers.collection.to_owned());
        retention.attached.extend(collection.filter(|collection| !retention.attached.contains(collection)));
    }

    engine::RetentionRules { retention, scopes }
}

/// Limits of the stored data of single callers.
fn owner_bounds(callers: &Arc<Callers>) -> OwnerBoundsOf {
    let callers = Arc::clone(callers);
    OwnerBoundsOf::new(move |base_key| {
        let limits = callers.limits_of(base_key);
        OwnerBounds {
            runs: limits.stored_runs.unwrap_or(u64::MAX),
            route_runs: limits.tasks.unwrap_or(u64::MAX),
            documents: limits.conversations.unwrap_or(u64::MAX),
            bytes: limits.stored.unwrap_or(u64::MAX),
        }
    })
}

/// Bounds of what the engine holds for all callers together.
fn limits(settings: &Settings) -> engine::Limits {
    let limits = settings.server.limits;
    engine::Limits {
        runs: limits.runs,
        queued_turns: limits.queued_turns,
        receivers: limits.receivers,
        pushes: limits.pushes,
        page: limits.page as u64,
        unread: limits.unread,
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = socket(address).with_context(|| format!("cannot listen on {address}"))?;
    Ok(socket)
}

fn socket(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn card(agent: &config::Agent) -> Arc<AgentCard> {
    Arc::new(AgentCard {
        name: agent.name.clone(),
        description: agent.description.clone().unwrap_or_default(),
        version: agent.version.clone().unwrap_or_default(),
        server_label: agent.server_label.clone().unwrap_or_else(|| agent.name.clone()),
        since: clock::now(),
        decisions: agent.upstream.capabilities.decisions,
        input_media: agent.upstream.capabilities.input_media,
    })
}

/// `issuers`: those of tokens, for routes that accept tokens.
fn core_mount(configured: &config::Mount, issuers: &[JwtIssuer]) -> Mount {
    let path = configured.path.trim_end_matches('/').to_owned();
    Mount {
        public_url: configured.route.public_url.as_ref().map(|url| format!("{url}{path}")),
        schemes: auth_schemes(configured.route.auth, issuers),
        agents: configured.agents.iter().map(|agent| card(agent)).collect(),
        path,
    }
}

/// The ways for callers of a route to prove who they are, as protocols announce them.
fn auth_schemes(methods: Methods, issuers: &[JwtIssuer]) -> Vec<AuthScheme> {
    let mut schemes = Vec::new();
    if methods.keys {
        schemes.push(AuthScheme::ApiKey);
    }
    if methods.keys || methods.jwt {
        schemes.push(AuthScheme::Bearer { jwt_only: !methods.keys });
    }
    if methods.jwt {
        // Clients can find their way to a token only where the issuer publishes how.
        let discovered = issuers.iter().filter(|issuer| issuer.jwks == JwksSource::Discovery);
        let urls = discovered.filter_map(|issuer| jwks::discovery_url(&issuer.issuer).ok());
        schemes.extend(urls.map(|url| AuthScheme::OpenId { url: url.into() }));
        schemes.extend(
            issuers
                .iter()
                .map(|issuer| AuthScheme::Issuer { issuer: issuer.issuer.clone(), audiences: issuer.audience.clone() }),
        );
    }
    if methods.certificates {
        schemes.push(AuthScheme::Certificate);
    }
    schemes
}
