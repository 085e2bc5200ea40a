//! The text of metrics: OpenMetrics 1.0.0, and the text format 0.0.4 of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::family::{Family, Kind, Metric};

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// Every format.
    pub(super) const ALL: [Self; 2] = [Self::OpenMetrics, Self::Prometheus];

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Chooses by the header `Accept`: OpenMetrics only where it is asked for by name and liked no less than plain text.
    pub(super) fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut is_known) = (1.0, true);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => {
                        is_known = ["1.0.0", "0.0.1", "0.0.4"].contains(&value.trim().trim_matches('"'))
                    }
                    _ => {}
                }
            }
            match name.as_str() {
                "application/openmetrics-text" if is_known => open = open.max(quality),
                "text/plain" | "text/*" if is_known => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }
}

/// The value of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

/// The upper bounds of a histogram's buckets in nanoseconds, and as seconds.
pub(super) const BOUNDS: [(u64, &str); 19] = [
    (1_000, "1e-06"),
    (2_000, "2e-06"),
    (5_000, "5e-06"),
    (10_000, "1e-05"),
    (20_000, "2e-05"),
    (50_000, "5e-05"),
    (100_000, "0.0001"),
    (200_000, "0.0002"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_000_000, "0.002"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (20_000_000, "0.02"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (1_000_000_000, "1.0"),
    (5_000_000_000, "5.0"),
    (10_000_000_000, "10.0"),
];

/// Times by bucket.
#[derive(Clone, PartialEq, Debug, Default)]
struct Times {
    /// The last is for times above all bounds.
    buckets: [u64; BOUNDS.len() + 1],
    sum_s: f64,
}

/// The samples of all families. Samples of equal name and labels are added.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Exposition {
    samples: BTreeMap<(Metric, String), Value>,
    times: Option<Times>,
}

impl Exposition {
    /// Adds a sample; `labels` are the values of the family's labels, in order.
    pub(super) fn add(&mut self, metric: Metric, labels: &[&str], value: Value) {
        let names = metric.family().labels;
        debug_assert_eq!(names.len(), labels.len(), "{metric:?}");
        let mut text = String::new();
        for (name, value) in names.iter().zip(labels) {
            text += if text.is_empty() { "{" } else { "," };
            text += name;
            text += "=\"";
            escape(value, &mut text);
            text.push('"');
        }
        text += if text.is_empty() { "" } else { "}" };
        let sum = self.samples.entry((metric, text)).or_insert(Value::Whole(0));
        *sum = match (*sum, value) {
            (Value::Whole(a), Value::Whole(b)) => Value::Whole(a.saturating_add(b)),
            (a, b) => Value::Real(a.real() + b.real()),
        };
    }

    pub(super) fn count(&mut self, metric: Metric, labels: &[&str], count: u64) {
        self.add(metric, labels, Value::Whole(count));
    }

    pub(super) fn real(&mut self, metric: Metric, labels: &[&str], value: f64) {
        self.add(metric, labels, Value::Real(value));
    }

    /// Adds times of packets to the histogram: nanoseconds, and the number of packets.
    pub(super) fn time(&mut self, (ns, packets): (u64, u64)) {
        let times = self.times.get_or_insert_default();
        times.buckets[BOUNDS.partition_point(|(bound, _)| *bound < ns)] += packets;
        times.sum_s += ns as f64 * 1e-9 * packets as f64;
    }

    /// Writes all samples.
    pub(super) fn text(&self, format: Format) -> String {
        let mut out = String::with_capacity(128 * (self.samples.len() + Metric::ALL.len()));
        for &metric in Metric::ALL {
            let of_metric =
                self.samples.range((metric, String::new())..).take_while(|((m, _), _)| *m == metric);
            let family = metric.family();
            let mut is_first = true;
            for ((_, labels), value) in of_metric {
                if std::mem::take(&mut is_first) {
                    head(&mut out, &family, format);
                }
                let (name, suffix) = (family.name, family.kind.suffix());
                _ = match value {
                    Value::Whole(value) => writeln!(out, "{name}{suffix}{labels} {value}"),
                    Value::Real(value) => writeln!(out, "{name}{suffix}{labels} {value}"),
                };
            }
            if let (Kind::Histogram, Some(times)) = (family.kind, &self.times) {
                head(&mut out, &family, format);
                histogram(&mut out, family.name, times);
            }
        }
        if format == Format::OpenMetrics {
            out += "# EOF\n";
        }
        out
    }
}

impl Value {
    fn real(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

/// Writes the lines before the samples of a family.
fn head(out: &mut String, family: &Family, format: Format) {
    let Family { kind, name, unit, help, .. } = family;
    _ = match format {
        Format::OpenMetrics => writeln!(out, "# TYPE {name} {}", kind.name()),
        // Names are those of samples there, and there is no info.
        Format::Prometheus => {
            let (suffix, kind) = (kind.suffix(), if *kind == Kind::Info { "gauge" } else { kind.name() });
            writeln!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")
        }
    };
    if format == Format::OpenMetrics {
        if !unit.is_empty() {
            _ = writeln!(out, "# UNIT {name} {unit}");
        }
        _ = writeln!(out, "# HELP {name} {help}");
    }
}

fn histogram(out: &mut String, name: &str, times: &Times) {
    let mut sum = 0;
    let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
    for (bound, packets) in bounds.zip(times.buckets) {
        sum += packets;
        _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {sum}");
    }
    _ = writeln!(out, "{name}_sum {}\n{name}_count {sum}", times.sum_s);
}

/// Writes the value of a label.
fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => *out += "\\\\",
            '"' => *out += "\\\"",
            '\n' => *out += "\\n",
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_have_the_samples_in_the_order_of_families() {
        let mut all = Exposition::default();
        all.count(Metric::PortReceivePackets, &["b", "2"], 7);
        all.count(Metric::PortReceivePackets, &["a\"\\\n", "1"], 1);
        all.count(Metric::PortReceivePackets, &["b", "2"], 3);
        all.count(Metric::Build, &["1.2"], 1);
        all.real(Metric::StartTime, &[], 1.5);
        assert_eq!(
            all.text(Format::OpenMetrics),
            "# TYPE flowlane_build info\n# HELP flowlane_build The version of Flowlane.\n\
             flowlane_build_info{version=\"1.2\"} 1\n\
             # TYPE process_start_time_seconds gauge\n# UNIT process_start_time_seconds seconds\n\
             # HELP process_start_time_seconds Unix time at which the switch started.\nprocess_start_time_seconds 1.5\n\
             # TYPE flowlane_port_receive_packets counter\n# UNIT flowlane_port_receive_packets packets\n\
             # HELP flowlane_port_receive_packets Packets received.\n\
             flowlane_port_receive_packets_total{port=\"a\\\"\\\\\\n\",number=\"1\"} 1\n\
             flowlane_port_receive_packets_total{port=\"b\",number=\"2\"} 10\n# EOF\n"
        );
        let plain = all.text(Format::Prometheus);
        assert!(plain.contains("# TYPE flowlane_port_receive_packets_total counter\n"), "{plain}");
        assert!(plain.contains("# TYPE flowlane_build_info gauge\n") && !plain.contains("EOF"), "{plain}");
    }

    #[test]
    fn times_are_counted_in_the_first_bucket_that_holds_them() {
        let mut all = Exposition::default();
        [(1_000, 2), (1_001, 3), (20_000_000_000, 1)].iter().for_each(|time| all.time(*time));
        let text = all.text(Format::OpenMetrics);
        for line in [
            "_bucket{le=\"1e-06\"} 2\n",
            "_bucket{le=\"2e-06\"} 5\n",
            "_bucket{le=\"10.0\"} 5\n",
            "_bucket{le=\"+Inf\"} 6\n",
            "_count 6\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        for (ns, text) in BOUNDS {
            assert_eq!((text.parse::<f64>().unwrap() * 1e9).round() as u64, ns);
        }
    }

    #[test]
    fn the_format_is_the_one_that_the_client_likes_better() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("text/plain, application/openmetrics-text", Format::OpenMetrics),
            ("text/plain, application/openmetrics-text;q=0.9", Format::Prometheus),
            ("application/openmetrics-text;version=9.0.0", Format::Prometheus),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            ("text/html,*/*;q=0.8", Format::Prometheus),
            ("", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
