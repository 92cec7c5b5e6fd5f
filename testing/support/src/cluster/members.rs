//! Several gateways over one store, with the same agents: in this process, or in processes of their own.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use interlingua_testing_postgres::Database;
use serde_json::Value;

use super::gateway::{GatewayProcess, answers};
use super::store::{SharedStore, URL_FILE};
use super::stream::Frame;
use crate::gateway::{Gateway, JSON, builder};
use crate::http::{Exchange, Response};
use crate::process;
use crate::replicas::{Hub, Replica};

/// Connections of each gateway to the database.
const CONNECTIONS: u32 = 4;

/// Sent with every request of a [`Member`]. Only A2A reads it.
const VERSION: (&str, &str) = ("a2a-version", "1.0");

pub struct Cluster {
    store: SharedStore,
    lease: Duration,
    agents: String,
}

impl Cluster {
    /// Around a hub with a file. `agents`: the configuration without the tables `server` and `store`.
    pub fn on_hub(lease: Duration, agents: String) -> Self {
        Self { store: SharedStore::Hub(Hub::on_file(lease)), lease, agents }
    }

    /// Around a new database.
    pub fn on_database(lease: Duration, agents: String) -> Self {
        Self { store: SharedStore::Database(interlingua_testing_postgres::database()), lease, agents }
    }

    /// # Panics
    /// If the store is a database.
    pub fn hub(&self) -> &Arc<Hub> {
        match &self.store {
            SharedStore::Hub(hub) => hub,
            SharedStore::Database(_) => panic!("the gateways share a database"),
        }
    }

    /// # Panics
    /// If the store is a hub.
    pub fn database(&self) -> &Database<'static> {
        match &self.store {
            SharedStore::Database(database) => database,
            SharedStore::Hub(_) => panic!("the gateways share a hub"),
        }
    }

    /// The configuration of a gateway, without the table `server`. Writes the URL of the database into the folder.
    pub fn config(&self, folder: &Path) -> String {
        format!("[store]\n{}{}", self.store.keys(folder, self.lease, CONNECTIONS), self.agents)
    }

    /// One more gateway in this process.
    pub async fn gateway(&self) -> Gateway {
        self.start(self.store.join(builder())).await
    }

    async fn start(&self, gateway: interlingua::Gateway) -> Gateway {
        let folder = tempfile::tempdir().expect("a folder");
        let config = self.config(folder.path());
        Gateway::one_in_folder(gateway, &config, folder.path().to_owned()).await.owning(folder)
    }

    /// One more gateway in this process, on a replica of the hub.
    pub async fn member(&self) -> Member {
        let replica = self.hub().join();
        let gateway = self.start(builder().with_store(Arc::clone(&replica) as _)).await;
        Member { replica, gateway }
    }

    /// One more gateway in a process of its own.
    pub fn process(&self) -> GatewayProcess {
        self.process_through(&self.database().url())
    }

    /// The same with another URL of the database.
    pub fn process_through(&self, url: &str) -> GatewayProcess {
        let folder = tempfile::tempdir().expect("a folder");
        let server = "[server]\nlisten = \"{{listen}}\"\nallowed_hosts = [\"gateway\", \"x\"]\n";
        let config = format!("{server}{}", self.config(folder.path()));
        std::fs::write(folder.path().join(URL_FILE), url).expect("a file");
        let started = GatewayProcess::start_in(process::path_of_binary(), folder, &config, answers);
        started.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

/// A gateway in this process, and its replica of the hub.
pub struct Member {
    pub replica: Arc<Replica>,
    gateway: Gateway,
}

impl Member {
    pub async fn get(&self, path: &str) -> Response {
        self.open("GET", path, &[VERSION], b"").await.response().await
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.open("DELETE", path, &[VERSION], b"").await.response().await
    }

    pub async fn start_post(&self, path: &str, body: &Value) -> Exchange {
        self.open("POST", path, &[JSON, &[VERSION]].concat(), body.to_string().as_bytes()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Response {
        self.start_post(path, body).await.response().await
    }

    /// The ids of all runs of the agent `demo`.
    pub async fn runs(&self) -> Vec<String> {
        let listed = self.get("/agents/demo/runs?limit=100").await.json();
        let runs = listed["data"].as_array().unwrap_or_else(|| panic!("a list: {listed}"));
        runs.iter().map(|run| run["id"].as_str().expect("an id").to_owned()).collect()
    }

    pub async fn run(&self, id: &str) -> Value {
        self.find_run(id).await.unwrap_or_else(|| panic!("run {id} is not found"))
    }

    /// `None`: the run does not exist.
    pub async fn find_run(&self, id: &str) -> Option<Value> {
        let answer = self.get(&format!("/agents/demo/runs/{id}")).await;
        if answer.status == 404 {
            return None;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        Some(answer.json())
    }

    /// All events of a run, up to its end.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        self.frames(id).await.iter().map(Frame::value).collect()
    }

    /// The same as they were sent.
    pub async fn frames(&self, id: &str) -> Vec<Frame> {
        let mut stream = self.open("GET", &format!("/agents/demo/runs/{id}/events"), &[], b"").await;
        let mut frames = Vec::new();
        while let Some(event) = stream.event().await {
            frames.extend(Frame::parse(&event));
        }
        frames
    }
}

impl Deref for Member {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}
