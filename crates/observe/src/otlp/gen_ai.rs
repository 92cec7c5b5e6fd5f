//! The metrics of the GenAI conventions, as cumulative histograms.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics,
};
use prost::Message as _;

use super::value::{Attributes, Origin};
use crate::conventions as names;
use crate::metrics::{Distribution, GenAiMetrics, TurnSeries};
use interlingua_base::clock;

/// The request for everything that was counted. `None`: nothing was.
pub(super) fn encode(origin: &Origin, metrics: &GenAiMetrics) -> Option<Bytes> {
    let series = metrics.series();
    if series.is_empty() {
        return None;
    }

    let (start, now) = (metrics.since().saturating_mul(1_000_000), clock::now().saturating_mul(1_000_000));
    let point = |distribution: &Distribution, attributes: Attributes| HistogramDataPoint {
        attributes: attributes.done(),
        start_time_unix_nano: start,
        time_unix_nano: now.max(start),
        count: distribution.count(),
        sum: Some(distribution.sum()),
        bucket_counts: distribution.counts().to_vec(),
        explicit_bounds: distribution.bounds().to_vec(),
        min: Some(distribution.min()),
        max: Some(distribution.max()),
        ..HistogramDataPoint::default()
    };
    let used = |distribution: &Distribution| distribution.count() > 0;

    let durations = series
        .iter()
        .filter(|series| used(&series.duration))
        .map(|series| point(&series.duration, attributes(series).some_text(names::ERROR_TYPE, series.error)));
    let chunks = series.iter().filter(|series| used(&series.first_chunk));
    let chunks = chunks.map(|series| point(&series.first_chunk, attributes(series)));
    let tokens = series.iter().flat_map(|series| {
        let both = [(&series.input_tokens, "input"), (&series.output_tokens, "output")];
        both.map(|(tokens, kind)| used(tokens).then(|| point(tokens, attributes(series).text(names::TOKEN_TYPE, kind))))
    });

    let metrics = [
        metric(names::INVOKE_AGENT_DURATION, "s", "How long agents were worked with", durations.collect()),
        metric(names::TIME_TO_FIRST_CHUNK, "s", "How long agents took to their first event", chunks.collect()),
        metric(names::TOKEN_USAGE, "{token}", "Tokens that agents reported", tokens.flatten().collect()),
    ];
    let scope_metrics = vec![ScopeMetrics {
        scope: Origin::scope(),
        metrics: metrics.into_iter().flatten().collect(),
        ..ScopeMetrics::default()
    }];
    let resource_metrics =
        vec![ResourceMetrics { resource: origin.resource(), scope_metrics, ..ResourceMetrics::default() }];
    Some(ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into())
}

fn attributes(series: &TurnSeries) -> Attributes {
    Attributes::default()
        .text(names::OPERATION_NAME, names::INVOKE_AGENT)
        .text(names::PROVIDER_NAME, &series.provider)
        .text(names::AGENT_NAME, &series.agent)
}

fn metric(name: &str, unit: &str, description: &str, data_points: Vec<HistogramDataPoint>) -> Option<Metric> {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    (!data_points.is_empty()).then(|| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: description.to_owned(),
        data: Some(Data::Histogram(Histogram { data_points, aggregation_temporality })),
        ..Metric::default()
    })
}
