//! Counts requests for the metrics.

use longshore_meter::label::{Answered, Binding, Limit, ProtocolVersion as VersionLabel};
use longshore_meter::{Label, Metrics};
use longshore_model::ErrorKind;
use longshore_wire::surface::OPERATIONS;

use crate::reply::Response;
use crate::response_format::{Encoding, ResponseFormat};
use crate::version::ProtocolVersion;

/// The kind of the error in a response. The response carries it as an extension to the code that counts it.
#[derive(Clone, Copy, Debug)]
struct ResponseError(ErrorKind);

/// Records the kind of the error in a response.
pub(crate) fn note_error(response: &mut Response, kind: ErrorKind) {
    response.extensions_mut().insert(ResponseError(kind));
}

/// The kind of the error in a response. `None`: the response is no error.
pub(crate) fn error_of(response: &Response) -> Option<ErrorKind> {
    response.extensions().get().map(|ResponseError(kind)| *kind)
}

/// The name under which all extension methods are counted. `longshore_control_calls_total` counts each of them.
pub(crate) const EXTENSION: &str = "extension";

/// The name under which requests are counted that call no operation, or were refused before their operation was known.
pub(crate) const OTHER: &str = "other";

/// Sets the names of the operations that are counted.
pub(crate) fn set_names(metrics: &Metrics) {
    let operations = OPERATIONS.iter().map(|operation| operation.method.as_str());
    metrics.http_requests.set_names(operations.chain([EXTENSION, OTHER]));
}

/// Counts a response. `operation`: the version and binding of the request, or `None` if it was no operation. `name`: one of the
/// names that `set_names` has set.
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

/// The label of an error kind in the metrics. A test checks that every kind has a label.
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
