//! Both text formats: OpenMetrics as the library writes it, and the older one of Prometheus, which is made from it.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// The format that an `Accept` header asks for: OpenMetrics if it is named, else that of Prometheus.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let named = accept.is_some_and(|accept| accept.to_ascii_lowercase().contains("application/openmetrics-text"));
        if named { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Its media type, for `Content-Type`.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// OpenMetrics text in the format of Prometheus. There, units and the end are not reported, and the name of a counter
/// ends with `_total` everywhere.
pub(super) fn to_prometheus(text: &str) -> String {
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }

        let described = ["# HELP ", "# TYPE "].into_iter().find_map(|start| Some((start, line.strip_prefix(start)?)));
        match described.and_then(|(start, rest)| Some((start, rest.split_once(' ')?))) {
            Some((start, (name, rest))) if counters.contains(&name) => {
                out.push_str(start);
                out.push_str(name);
                out.push_str("_total ");
                out.push_str(rest);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_renamed_and_only_they() {
        let text = "# HELP a A.\n# TYPE a counter\na_total{l=\"# HELP a \\n\"} 1\n# HELP b_seconds B.\n\
            # TYPE b_seconds histogram\n# UNIT b_seconds seconds\nb_seconds_sum 1.0\n# EOF\n";
        let expected = "# HELP a_total A.\n# TYPE a_total counter\na_total{l=\"# HELP a \\n\"} 1\n\
            # HELP b_seconds B.\n# TYPE b_seconds histogram\nb_seconds_sum 1.0\n";
        assert_eq!(to_prometheus(text), expected);
    }

    #[test]
    fn openmetrics_has_to_be_asked_for() {
        let asked = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        assert_eq!(Format::accepted(Some(asked)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("text/plain")), Format::Prometheus);
        assert_eq!(Format::accepted(None), Format::Prometheus);
    }
}
