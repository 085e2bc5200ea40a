//! A strict reader of OpenMetrics 1.0.0, written from its specification alone.

use std::collections::{BTreeMap, BTreeSet};

/// Samples by name and sorted labels.
pub(super) type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads an exposition; panics where it is not of OpenMetrics.
pub(super) fn read(text: &str) -> Samples {
    let body = text.strip_suffix("# EOF\n").expect("it ends with EOF");
    assert!(!body.contains("# EOF"));
    let (mut samples, mut families) = (Samples::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let (word, rest) = comment.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            if word == "TYPE" {
                assert!(families.insert(name.to_owned()), "{name} is in two pieces");
                (family, kind) = (name.to_owned(), value.to_owned());
            }
            assert!(["TYPE", "UNIT", "HELP"].contains(&word) && name == family, "{line}");
            assert!(word != "UNIT" || name.ends_with(&format!("_{value}")), "{line}");
            continue;
        }
        let (name, labels, value) = sample(line);
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other}"),
        };
        assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{line} in {family}");
        assert!(kind == "gauge" || value >= 0.0, "{line}");
        assert!(samples.insert((name, labels), value).is_none(), "{line} is there twice");
    }
    check_histograms(&samples);
    samples
}

/// Reads a line: name, labels, value.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name_len = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap();
    let (name, mut rest) = line.split_at(name_len);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let (mut value, mut chars) = (String::new(), behind.char_indices());
            let end = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, other) => value.push(other),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &behind[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    (name.to_owned(), labels, value.parse().unwrap_or_else(|_| panic!("{line}")))
}

/// Buckets are cumulative, and the last is the count.
fn check_histograms(samples: &Samples) {
    let mut buckets: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), count) in samples {
        if let Some(family) = name.strip_suffix("_bucket") {
            let bound = labels["le"].replace("+Inf", "inf").parse().unwrap();
            buckets.entry(family).or_default().push((bound, *count));
        }
    }
    for (family, mut of_family) in buckets {
        of_family.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(of_family.is_sorted_by(|a, b| a.1 <= b.1), "{of_family:?}");
        let (bound, count) = of_family[of_family.len() - 1];
        assert!(bound.is_infinite());
        assert_eq!(samples[&(format!("{family}_count"), BTreeMap::new())], count);
        assert!(samples.contains_key(&(format!("{family}_sum"), BTreeMap::new())));
    }
}
