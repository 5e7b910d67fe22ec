//! Counts requests for the metrics.

use longshore_meter::label::{Answered, Binding, Limit, ProtocolVersion as VersionLabel};
use longshore_meter::{Label, Metrics};
use longshore_model::ErrorKind;
use longshore_wire::surface::OPERATIONS;

use crate::reply::Response;
use crate::response_format::{Encoding, ResponseFormat};
use crate::version::ProtocolVersion;

/// The kind of the error in a response, carried in the response to the place where it is counted.
#[derive(Clone, Copy, Debug)]
struct ResponseError(ErrorKind);

/// Records the kind of the error in a response.
pub(crate) fn note_error(response: &mut Response, kind: ErrorKind) {
    response.extensions_mut().insert(ResponseError(kind));
}

/// The kind of the error in a response.
pub(crate) fn error_of(response: &Response) -> Option<ErrorKind> {
    response.extensions().get().map(|ResponseError(kind)| *kind)
}

/// In place of an operation: the methods of extensions. `longshore_control_calls_total` counts each of them.
pub(crate) const EXTENSION: &str = "extension";

/// In place of an operation: requests that call none, or that were refused before their operation was known.
pub(crate) const OTHER: &str = "other";

/// Names the operations that are counted.
pub(crate) fn set_names(metrics: &Metrics) {
    let operations = OPERATIONS.iter().map(|operation| operation.method.as_str());
    metrics.http_requests.set_names(operations.chain([EXTENSION, OTHER]));
}

/// Counts a response. `operation`: its version and binding, if the request was an operation. `name`: one of the names that
/// were set.
pub(crate) fn count_response(
    metrics: &Metrics,
    operation: Option<(ProtocolVersion, Binding)>,
    name: &str,
    response: &Response,
) {
    let (version, binding) = match operation {
        None => (VersionLabel::None, Binding::None),
        Some((ProtocolVersion::V1, binding)) => (VersionLabel::V1, binding),
        Some((ProtocolVersion::V03, binding)) => (VersionLabel::V03, binding),
    };
    let answered = error_of(response).map_or(Answered::Ok, label);
    if let Some(requests) = metrics.http_requests.of(name) {
        requests.of(version).of(binding).of(answered).increment();
    }
    if answered == Answered::BodyTooLarge {
        metrics.refused.of(Limit::MaxRequestBodyBytes).increment();
    }
}

/// The label of an HTTP binding.
pub(crate) fn binding(format: ResponseFormat) -> Binding {
    match format.encoding {
        Encoding::JsonRpc => Binding::JsonRpc,
        Encoding::Rest => Binding::Rest,
        Encoding::Grpc(_) => Binding::Grpc,
    }
}

/// A test checks that every kind has a label.
fn label(kind: ErrorKind) -> Answered {
    Answered::parse(kind.label()).unwrap_or(Answered::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_its_own_label() {
        for kind in ErrorKind::ALL {
            assert_eq!(Answered::VALUES[label(kind).index()], kind.label());
        }
        assert_eq!(Answered::VALUES.len(), ErrorKind::ALL.len() + 1);
    }
}
