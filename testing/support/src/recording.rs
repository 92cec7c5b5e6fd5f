//! A connector that only records: for tests of the way to an agent, whatever the agent means.

use std::sync::{Arc, Mutex};

use interlingua_core::agent_api::Frame;
use interlingua_core::agent_event::AgentEvent;
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::{AgentTurn, Connector, EventSink, HttpRequest, Next, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::{Fault, sse};

/// A connector that posts to a URL and records every frame.
pub struct RecordingConnector {
    pub url: String,
    pub frames: Arc<Mutex<Vec<String>>>,
}

impl Connector for RecordingConnector {
    fn capabilities(&self) -> UpstreamCapabilities {
        UpstreamCapabilities::default()
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        let body = serde_json::to_vec(request.request).expect("a request is JSON");
        let request_id = serde_json::to_vec(&request.request.session_id).expect("an id is JSON");
        Ok(Box::new(RecordingTurn {
            request: Some(HttpRequest::post(&self.url, body).with_header("x-both", "protocol")),
            cancel: HttpRequest::post(self.url.replace("/process", "/stop"), request_id),
            frames: Arc::clone(&self.frames),
        }))
    }
}

struct RecordingTurn {
    request: Option<HttpRequest>,
    cancel: HttpRequest,
    frames: Arc<Mutex<Vec<String>>>,
}

impl RecordingTurn {
    fn record(&self, data: &[u8]) {
        self.frames.lock().expect("no turn panics").push(String::from_utf8_lossy(data).into_owned());
    }
}

impl AgentTurn for RecordingTurn {
    fn next(&mut self, _: Millis) -> Result<Next, Fault> {
        Ok(self.request.take().map_or(Next::Finished, Next::Send))
    }

    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.record(frame.data);
        Frame::parse(frame.data).map_or(Ok(()), |frame| sink.emit(&frame.event()))
    }

    fn on_body(&mut self, body: &[u8], _: &mut dyn EventSink) -> Result<(), Fault> {
        self.record(b"whole");
        self.record(body);
        Ok(())
    }

    fn cancel(&self) -> Option<HttpRequest> {
        Some(self.cancel.clone())
    }
}

/// Takes events and forgets them.
pub struct NullSink;

impl EventSink for NullSink {
    fn emit(&mut self, _: &AgentEvent<'_>) -> Result<(), Fault> {
        Ok(())
    }
}
