//! Counts requests for the metrics.

use longshore_meter::label::{Answered, Binding, Limit, ProtocolVersion as VersionLabel};
use longshore_meter::{Label, Metrics};
use longshore_model::ErrorKind;

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

/// Counts a response. `format`: the format of the operation, if the request was an operation.
pub(crate) fn count_response(metrics: &Metrics, format: Option<ResponseFormat>, response: &Response) {
    let (version, binding) = match format {
        None => (VersionLabel::None, Binding::None),
        Some(ResponseFormat { version, encoding }) => (
            match version {
                ProtocolVersion::V1 => VersionLabel::V1,
                ProtocolVersion::V03 => VersionLabel::V03,
            },
            match encoding {
                Encoding::JsonRpc => Binding::JsonRpc,
                Encoding::Rest => Binding::Rest,
                Encoding::Grpc(_) => Binding::Grpc,
            },
        ),
    };
    let answered = error_of(response).map_or(Answered::Ok, label);
    metrics.http_requests.of(version).of(binding).of(answered).increment();
    if answered == Answered::BodyTooLarge {
        metrics.refused.of(Limit::MaxRequestBodyBytes).increment();
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
