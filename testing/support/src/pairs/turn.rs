//! A request that says something, in each protocol: the same for every test that sends one over all of them.

use serde_json::Value;

use crate::gateway::Gateway;
use crate::http::{self, Exchange, Response};

/// A request with a body of JSON.
#[derive(Clone, Debug)]
pub struct Turn {
    pub path: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
}

impl Turn {
    pub fn new(path: &'static str, body: Value) -> Self {
        Self { path, headers: Vec::new(), body }
    }

    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub fn with_headers(self, headers: &[(&'static str, &str)]) -> Self {
        headers.iter().fold(self, |turn, (name, value)| turn.with_header(name, value))
    }

    /// The headers as requests take them.
    pub fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The bytes of the request over HTTP/1.1.
    pub fn bytes(&self) -> Vec<u8> {
        http::request("POST", self.path, &self.headers(), self.body.to_string().as_bytes())
    }

    /// Sends it and returns the connection.
    pub async fn open(&self, gateway: &Gateway) -> Exchange {
        gateway.open("POST", self.path, &self.headers(), self.body.to_string().as_bytes()).await
    }

    /// Sends it and reads the answer.
    pub async fn send(&self, gateway: &Gateway) -> Response {
        self.open(gateway).await.response().await
    }
}
