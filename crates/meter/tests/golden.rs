//! Names, kinds, labels and help texts that dashboards and alerts depend on. A change here breaks dashboards of users.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use longshore_meter::label::{AbortOutcome, Answered, Binding, Call, CallOutcome, ProtocolVersion};
use longshore_meter::{FAMILIES, Kind, Labels, Metrics};

fn page(metrics: &Metrics) -> String {
    let mut text = String::new();
    metrics.render(&mut text);
    text
}

fn labels(first: Option<&'static Labels>) -> impl Iterator<Item = &'static Labels> {
    std::iter::successors(first, |label| label.inner)
}

#[test]
fn the_page_of_a_fresh_gateway() {
    insta::assert_snapshot!(page(&Metrics::new("0.0.0")));
}

#[test]
fn every_metric_with_all_label_values() {
    let mut table = String::new();
    for family in FAMILIES {
        writeln!(table, "{} {}", family.schema.kind, family.name).unwrap();
        writeln!(table, "    {}", family.help).unwrap();
        for label in labels(family.schema.labels) {
            writeln!(table, "    {}: {}", label.name, label.values.join(" ")).unwrap();
        }
        if !family.schema.bounds.is_empty() {
            writeln!(table, "    bounds: {:?}", family.schema.bounds).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn series_that_are_shown_when_they_are_used() {
    let metrics = Metrics::new("0.0.0");
    metrics.control_calls.set_names(["opencode.sessions.get", "opencode.sessions.fork"]);
    metrics.http_requests.set_names(["GetTask", "other"]);
    let fresh = page(&metrics);
    let requests = |operation: &str| metrics.http_requests.of(operation).unwrap();
    requests("GetTask").of(ProtocolVersion::V1).of(Binding::JsonRpc).of(Answered::Ok).add(12);
    requests("other").of(ProtocolVersion::None).of(Binding::None).of(Answered::Unauthenticated).increment();
    metrics.control_calls.of("opencode.sessions.fork").unwrap().of(CallOutcome::NotFound).increment();
    metrics.opencode_request.of(Call::Prompt).observe(Duration::from_micros(2_600));
    metrics.cancel_duration.of(AbortOutcome::Success).set(Duration::from_micros(12_345));
    metrics.interrupt_oldest_age.set(Duration::from_secs(90));
    let used = page(&metrics);
    let fresh: BTreeSet<_> = fresh.lines().collect();
    let more: Vec<_> = used.lines().filter(|line| !fresh.contains(line)).collect();
    insta::assert_snapshot!(more.join("\n"));
}

#[test]
fn every_name_is_valid_for_prometheus_and_has_the_suffix_of_its_kind() {
    let mut names = BTreeSet::new();
    for family in FAMILIES {
        let name = family.name;
        assert!(names.insert(name), "{name} is declared twice");
        assert!(is_name(name), "{name}");
        assert_eq!(family.schema.kind == Kind::Counter, name.ends_with("_total"), "{name}");
        assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{name}: {}", family.help);
        let mut own = BTreeSet::new();
        for label in labels(family.schema.labels) {
            assert!(
                is_name(label.name) && label.name != "le" && own.insert(label.name),
                "{name}: {}",
                label.name
            );
            let values: BTreeSet<_> = label.values.iter().collect();
            assert_eq!(values.len(), label.values.len(), "{name}: a value of {} is listed twice", label.name);
        }
    }
    // The suffixed names of a histogram must not be the names of other metrics.
    for family in FAMILIES.iter().filter(|family| family.schema.kind == Kind::Histogram) {
        for suffix in ["_bucket", "_sum", "_count"] {
            let name = format!("{}{suffix}", family.name);
            assert!(!names.contains(name.as_str()), "{name} means two things");
        }
    }
}

#[test]
fn every_sample_on_the_page_belongs_to_the_metric_above_it() {
    let page = page(&Metrics::new("1\"\\\n"));
    let mut families = FAMILIES.iter();
    let mut name = "";
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let family = families.next().unwrap();
            name = family.name;
            assert_eq!(help, format!("{name} {}", family.help));
            assert_eq!(lines.next().unwrap(), format!("# TYPE {name} {}", family.schema.kind));
            continue;
        }
        let rest = line.strip_prefix(name).unwrap_or_else(|| panic!("{line} is below {name}"));
        let (series, value) = rest.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(series.is_empty() || series.contains('{') == series.ends_with('}'), "{line}");
    }
    assert!(families.next().is_none());
    assert!(page.ends_with("longshore_build_info{version=\"1\\\"\\\\\\n\"} 1\n"));
}

fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    name.bytes().next().is_some_and(letter) && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}
