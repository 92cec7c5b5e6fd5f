//! A run with many deltas of one text, for benchmarks of encoders.
//!
//! Not here: measuring, which is the library's that the benchmark uses.

use super::{TestRun, started};
use interlingua_core::event::End;
use interlingua_core::exchange::Exchange;
use interlingua_core::json::Extra;
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::out::Out;
use interlingua_core::run::{CallHead, MessageEnd, MessageStart, Record};

/// Texts of deltas: one token, more of them, and what JSON escapes.
pub const DELTA_TEXTS: [&str; 3] = [" token", "a sentence of forty-two bytes, no escapes.", "say \"yes\", then \"no\""];

/// A run with [`DeltaRun::DELTAS`] deltas after a first one, which opens whatever the protocol opens for them.
#[derive(Debug)]
pub struct DeltaRun {
    /// The record. It has not ended.
    pub record: Record,
}

impl DeltaRun {
    /// Number of measured deltas.
    pub const DELTAS: u64 = 1000;

    /// Deltas of a text, or of the arguments of a call with the id `call_1` of the function `f`.
    #[must_use]
    pub fn new(kind: MessageType, text: &str) -> Self {
        let mut record = started();
        let is_call = kind == MessageType::FunctionCall;
        let message = record.start_message(MessageStart::new("", kind, Role::Assistant));
        let head = CallHead { call_id: "call_1".to_owned(), name: "f".to_owned(), server_label: None };
        let content = if is_call { ContentType::Data } else { ContentType::Text };
        let content = record.start_content(message, content, is_call.then_some(head));
        for _ in 0..=Self::DELTAS {
            record.push(message, content, text);
        }
        Self { record }
    }

    fn first(&self) -> u64 {
        self.record.len() - Self::DELTAS
    }

    /// Encodes what comes before the deltas that are measured. The output is empty afterwards, and has room for them.
    #[must_use]
    pub fn begin(&self, exchange: &mut dyn Exchange) -> Out {
        let mut out = Out::new();
        exchange.begin(TestRun::new(&self.record).view(), &mut out);
        self.encode_range(0, self.first(), exchange, &mut out);
        out.body.clear();
        out.body.reserve(1 << 20);
        out
    }

    /// Encodes the deltas.
    pub fn encode(&self, exchange: &mut dyn Exchange, out: &mut Out) {
        self.encode_range(self.first(), self.record.len(), exchange, out);
    }

    /// Encodes the steps from one sequence number to before another.
    fn encode_range(&self, from: u64, to: u64, exchange: &mut dyn Exchange, out: &mut Out) {
        for sequence in from..to {
            if let Some(step) = self.record.step(sequence) {
                exchange.encode(step, out);
            }
        }
    }

    /// The record when the run is complete.
    #[must_use]
    pub fn ended(self) -> Record {
        let mut record = self.record;
        record.finish_content(0, 0, None, Extra::new());
        record.finish_message(0, MessageEnd::new(End::Completed));
        record.close(End::Completed, None);
        record
    }
}
