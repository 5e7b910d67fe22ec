//! Reads the settings for the export of traces.

use longshore_otlp::Headers;
use secrecy::ExposeSecret as _;
use url::Url;

use super::problem::Problem;
use super::read::Reader;
use super::table;

#[derive(Clone, PartialEq, Debug)]
pub struct Traces {
    pub endpoint: Url,
    pub headers: Headers,
    pub service_name: String,
    /// The fraction of traces that are exported, from 0 to 1.
    pub sample_ratio: f64,
}

/// Reads the settings. `None`: no collector is configured, or a problem was added to the reader.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Traces> {
    let endpoint = reader.url(&table::OTLP_ENDPOINT);
    let headers = headers(reader);
    let service_name = reader.text(&table::SERVICE_NAME);
    let sample_ratio = reader.ratio(&table::SAMPLE_RATIO);
    Some(Traces {
        endpoint: endpoint?,
        headers: headers?,
        service_name: service_name?,
        sample_ratio: sample_ratio?,
    })
}

fn headers(reader: &mut Reader<'_>) -> Option<Headers> {
    let Some(text) = reader.secret(&table::OTLP_HEADERS) else { return Some(Headers::default()) };
    let headers = Headers::parse(text.expose_secret());
    if headers.is_none()
        && let Some(written) = reader.written(&table::OTLP_HEADERS)
    {
        let reason = "is not a list of headers such as api-key=...,x-tenant=...";
        reader.problem(Problem::rule(&written.source, &table::OTLP_HEADERS, reason));
    }
    headers
}
