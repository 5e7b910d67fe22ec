//! The export of traces.

use longshore_otlp::Headers;

use super::*;

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/otlp");

#[test]
fn no_traces_are_sent_without_an_endpoint() {
    assert!(Sources::default().plan().traces.is_none());
    let others: &[_] = &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b"), ("OTEL_SERVICE_NAME", "x")];
    assert!(Sources { variables: others, ..Sources::default() }.plan().traces.is_none());
}

#[test]
fn by_default_all_turns_are_sent_under_the_name_longshore() {
    let traces = Sources { variables: &[ENDPOINT], ..Sources::default() }.plan().traces.unwrap();
    assert_eq!(traces.endpoint.as_str(), "http://127.0.0.1:4318/otlp");
    assert_eq!(traces.headers, Headers::default());
    assert_eq!((traces.service_name.as_str(), traces.sample_ratio.to_bits()), ("longshore", 1_f64.to_bits()));
}

#[test]
fn the_trace_settings_are_read_from_every_source() {
    let variables: &[_] = &[
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret"),
        ("OTEL_SERVICE_NAME", "harbour"),
        ("LONGSHORE_TRACE_SAMPLE_RATIO", "0.25"),
    ];
    let file = "[trace]\notlp_endpoint = \"http://127.0.0.1:4318/otlp\"\notlp_headers = \"api-key=s3cret\"\n\
                service_name = \"harbour\"\nsample_ratio = 0.25\n";
    for sources in [Sources { variables, ..Sources::default() }, Sources { file, ..Sources::default() }] {
        let traces = sources.plan().traces.unwrap();
        assert_eq!(Some(traces.headers), Headers::parse("api-key=s3cret"));
        let set = (traces.service_name.as_str(), traces.sample_ratio.to_bits());
        assert_eq!(set, ("harbour", 0.25_f64.to_bits()));
    }
    for whole in ["0", "1"] {
        let file = format!("[trace]\notlp_endpoint = \"http://host\"\nsample_ratio = {whole}\n");
        let traces = Sources { file: &file, ..Sources::default() }.plan().traces.unwrap();
        assert_eq!(traces.sample_ratio.to_string(), whole);
    }
}

#[test]
fn a_wrong_value_is_refused_and_a_secret_is_not_shown() {
    let ratio = "LONGSHORE_TRACE_SAMPLE_RATIO (trace.sample_ratio): \"1.5\" is not allowed; it takes a number from 0 to 1";
    assert_eq!(variables(&[("LONGSHORE_TRACE_SAMPLE_RATIO", "1.5")]), [ratio]);
    for wrong in ["NaN", "-0.1", "half"] {
        assert_eq!(variables(&[("LONGSHORE_TRACE_SAMPLE_RATIO", wrong)]).len(), 1, "{wrong}");
    }
    let headers = "OTEL_EXPORTER_OTLP_HEADERS (trace.otlp_headers): is not a list of headers such as api-key=...,x-tenant=...";
    assert_eq!(variables(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]), [headers]);
}
