//! A route without a gateway: its requests are sent to its exchanges, and prepared records replace the engine.

use std::sync::Arc;

use super::{ClientRequest, HttpResponse, NOW, TestRun, endpoint, mount, run_info};
use interlingua_core::answer::ALL_DECISIONS;
use interlingua_core::call::{AgentCard, Call, Reply, RunCall, RunInfo};
use interlingua_core::exchange::{Exchange, Flow, Mount, Mounted, ProtocolAdapter};
use interlingua_core::fault::Fault;
use interlingua_core::out::Out;
use interlingua_core::run::Record;

/// A mounted protocol with one agent, `demo`, which takes every decision.
pub struct TestRoute {
    /// The mounted protocol.
    pub mounted: Mounted,
    protocol: &'static str,
    main: &'static str,
}

impl TestRoute {
    /// Mounts a protocol. `main`: the path of the requests that start runs. `options`: JSON.
    ///
    /// # Panics
    /// If the options are refused.
    #[must_use]
    pub fn new<P: ProtocolAdapter>(path: &str, main: &'static str, options: &str) -> Self {
        let card = AgentCard { name: "demo".to_owned(), since: NOW, decisions: ALL_DECISIONS, ..AgentCard::default() };
        let mount = Mount { agents: vec![Arc::new(card)], ..mount(path, &[]) };
        let options: P::Options = serde_json::from_str(options).expect("options");
        let mounted = P::mount(&mount, options).expect("it can be mounted");
        Self { mounted, protocol: P::NAME, main }
    }

    /// Sends a request, to the fallback if no endpoint matches.
    #[must_use]
    pub fn send(&self, method: &str, path: &str, body: &str, headers: &[(&str, &str)]) -> SentRequest {
        let (mut exchange, params) = match endpoint(&self.mounted, method, path) {
            Some((endpoint, params)) => ((endpoint.open)(), params),
            None => ((self.mounted.fallback)(), Vec::new()),
        };
        let body = body.as_bytes();
        let request = ClientRequest { headers, params: &params, body, ..ClientRequest::new(method, path) };
        let outcome = request.decode(&mut *exchange);
        SentRequest { exchange, outcome, protocol: self.protocol }
    }

    /// Sends a request that starts a run.
    #[must_use]
    pub fn create(&self, body: &str) -> SentRequest {
        self.send("POST", self.main, body, &[])
    }
}

/// A sent request: its exchange, and the result of decoding.
pub struct SentRequest {
    /// The exchange.
    pub exchange: Box<dyn Exchange>,
    /// The result of decoding the request.
    pub outcome: Result<Call, Fault>,
    protocol: &'static str,
}

impl SentRequest {
    /// The run call for the engine.
    ///
    /// # Panics
    /// If it is another call, or none.
    #[must_use]
    pub fn run_call(&self) -> &RunCall {
        match &self.outcome {
            Ok(Call::Run(call)) => call,
            other => panic!("not a run call: {other:?}"),
        }
    }

    /// The run information that the engine would have.
    #[must_use]
    pub fn info(&self, record: &Record) -> RunInfo {
        let call = self.run_call();
        RunInfo {
            protocol: self.protocol.to_owned(),
            delivery: call.delivery,
            labels: call.labels.clone(),
            ..run_info(record)
        }
    }

    /// The error for a request that was refused by the engine with this fault, or while decoding.
    ///
    /// # Panics
    /// If there is no fault.
    pub fn fail(&mut self, fault: Option<&Fault>) -> HttpResponse {
        let own = self.outcome.as_ref().err().cloned();
        let fault = fault.or(own.as_ref()).expect("a fault");
        let mut out = Out::new();
        self.exchange.fail(fault, &mut out);
        HttpResponse::from_out(out)
    }

    /// The whole answer.
    ///
    /// # Panics
    /// The exchange has none.
    pub fn whole(&mut self, record: &Record) -> HttpResponse {
        let run = TestRun::with_info(record, self.info(record));
        self.reply(Reply::Run(run.view()))
    }

    /// The answer of a session that waits for an answer to this run's question.
    ///
    /// # Panics
    /// The exchange has none.
    pub fn waiting(&mut self, record: &Record) -> HttpResponse {
        let run = TestRun::with_info(record, self.info(record));
        self.reply(Reply::Waiting(run.view(), None))
    }

    fn reply(&mut self, reply: Reply<'_>) -> HttpResponse {
        let mut out = Out::new();
        self.exchange.reply(reply, &mut out).expect("an answer");
        HttpResponse::from_out(out)
    }

    /// The streamed answer.
    ///
    /// # Panics
    /// If steps follow its end.
    pub fn stream(&mut self, record: &Record) -> HttpResponse {
        let mut out = Out::new();
        let run = TestRun::with_info(record, self.info(record));
        self.exchange.head(&mut out.head);
        self.exchange.begin(run.view(), &mut out);
        let mut ended = false;
        for step in record.steps(0) {
            assert!(!ended, "a step after the end");
            ended = self.exchange.encode(step, &mut out) == Flow::Close;
        }
        HttpResponse::from_out(out)
    }
}
