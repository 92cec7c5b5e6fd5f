//! Small parts of OTLP messages: attributes, the resource, and what collectors answer. Every text is masked.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use crate::conventions::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};
use interlingua_base::clock;
use interlingua_base::secrets;

/// The origin of telemetry.
pub(super) struct Origin {
    resource: Resource,
}

impl Origin {
    pub(super) fn new(service_name: String) -> Self {
        let attributes = Attributes::default()
            .text(SERVICE_NAME, &service_name)
            .text(SERVICE_VERSION, env!("CARGO_PKG_VERSION"))
            .text(SERVICE_INSTANCE_ID, &clock::new_id().to_string());
        Self { resource: Resource { attributes: attributes.done(), ..Resource::default() } }
    }

    pub(super) fn resource(&self) -> Option<Resource> {
        Some(self.resource.clone())
    }

    pub(super) fn scope() -> Option<InstrumentationScope> {
        Some(InstrumentationScope {
            name: "interlingua".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        })
    }
}

/// Attributes under construction.
#[derive(Default)]
pub(super) struct Attributes(Vec<KeyValue>);

impl Attributes {
    /// Adds a text, unless it is empty.
    pub(super) fn text(self, key: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.any(key, text(value)) }
    }

    /// Adds a text, if there is one.
    pub(super) fn some_text(self, key: &str, value: Option<&str>) -> Self {
        self.text(key, value.unwrap_or_default())
    }

    /// Adds a number.
    pub(super) fn number(self, key: &str, value: u64) -> Self {
        self.any(key, number(value))
    }

    /// Adds what is true.
    pub(super) fn flag(self, key: &str, value: bool) -> Self {
        if value { self.any(key, AnyValue { value: Some(Value::BoolValue(true)) }) } else { self }
    }

    /// Adds a list of one text.
    pub(super) fn texts(self, key: &str, value: &str) -> Self {
        self.any(key, AnyValue { value: Some(Value::ArrayValue(ArrayValue { values: vec![text(value)] })) })
    }

    /// Adds any value.
    pub(super) fn any(mut self, key: &str, value: AnyValue) -> Self {
        self.0.push(KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() });
        self
    }

    pub(super) fn done(self) -> Vec<KeyValue> {
        self.0
    }
}

/// A text, masked.
pub(super) fn text(value: &str) -> AnyValue {
    AnyValue { value: Some(Value::StringValue(secrets::mask(value).into_owned())) }
}

pub(super) fn number(value: u64) -> AnyValue {
    AnyValue { value: Some(Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX))) }
}

/// The number of items that a collector rejected. The responses of all signals have the same form.
pub(super) fn rejected(response: &[u8]) -> u64 {
    let response = ExportTraceServiceResponse::decode(response).unwrap_or_default();
    response.partial_success.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0))
}
