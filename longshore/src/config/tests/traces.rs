//! Who is told of turns.

use longshore_otlp::Headers;

use super::*;

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/otlp");

#[test]
fn nobody_is_told_unless_a_collector_is_named() {
    assert!(Given::default().plan().traces.is_none());
    let others: &[_] = &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b"), ("OTEL_SERVICE_NAME", "x")];
    assert!(Given { variables: others, ..Given::default() }.plan().traces.is_none());
}

#[test]
fn a_collector_is_told_all_of_it_by_the_name_of_the_gateway() {
    let traces = Given { variables: &[ENDPOINT], ..Given::default() }.plan().traces.unwrap();
    assert_eq!(traces.endpoint.as_str(), "http://127.0.0.1:4318/otlp");
    assert_eq!(traces.headers, Headers::default());
    assert_eq!((traces.service_name.as_str(), traces.sample_ratio.to_bits()), ("longshore", 1_f64.to_bits()));
}

#[test]
fn what_it_is_told_is_set_in_every_layer() {
    let variables: &[_] = &[
        ENDPOINT,
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret"),
        ("OTEL_SERVICE_NAME", "harbour"),
        ("LONGSHORE_TRACE_SAMPLE_RATIO", "0.25"),
    ];
    let file = "[trace]\notlp_endpoint = \"http://127.0.0.1:4318/otlp\"\notlp_headers = \"api-key=s3cret\"\n\
                service_name = \"harbour\"\nsample_ratio = 0.25\n";
    for given in [Given { variables, ..Given::default() }, Given { file, ..Given::default() }] {
        let traces = given.plan().traces.unwrap();
        assert_eq!(Some(traces.headers), Headers::parse("api-key=s3cret"));
        let set = (traces.service_name.as_str(), traces.sample_ratio.to_bits());
        assert_eq!(set, ("harbour", 0.25_f64.to_bits()));
    }
    for whole in ["0", "1"] {
        let file = format!("[trace]\notlp_endpoint = \"http://host\"\nsample_ratio = {whole}\n");
        let traces = Given { file: &file, ..Given::default() }.plan().traces.unwrap();
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
    let headers = "OTEL_EXPORTER_OTLP_HEADERS (trace.otlp_headers): is no list of headers such as api-key=...,x-tenant=...";
    assert_eq!(variables(&[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]), [headers]);
}
