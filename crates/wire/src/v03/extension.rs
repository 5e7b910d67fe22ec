//! The JSON-RPC methods of the extensions. Parameters and results are those of 1.0; here nobody has to activate anything,
//! and errors have the shape of this line.

use longshore_model::Result;

use crate::extension::Activated;
pub use crate::v1::extension::{Call, METHODS, Method, answered, asks};

/// The call of these parameters.
pub fn read(method: &Method, params: &str) -> Result<Call> {
    method.read(params, Activated::ALL)
}

#[cfg(test)]
mod tests {
    use longshore_model::ErrorKind;

    use super::*;
    use crate::jsonrpc::Id;
    use crate::v03::error;

    #[test]
    fn no_method_has_to_be_activated() {
        for method in &METHODS {
            // The parameters are looked at, so the door is open.
            let refused = read(method, r#"{"nonsense":1}"#).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidParams, "{}", method.name);
        }
        assert!(read(&METHODS[3], "{}").is_ok());
    }

    #[test]
    fn a_refusal_has_the_shape_of_this_line() {
        for (params, expected) in [
            (r#"{"reply":"once"}"#, r#"{"type":"MISSING_FIELD","field":"request_id"}"#),
            (r#"{"request_id":"p","reply":"maybe"}"#, r#"{"type":"INVALID_FIELD","field":"reply"}"#),
            (r#"{"request_id":"p","reply":"once","x":1}"#, r#"{"type":"INVALID_FIELD","field":"x"}"#),
            ("[]", r#"{"type":"INVALID_PARAMS"}"#),
        ] {
            let refused = read(&METHODS[0], params).unwrap_err();
            let written = error::jsonrpc(&Id::Null, &refused);
            let written = str::from_utf8(&written).unwrap();
            assert!(written.ends_with(&format!("\"data\":{expected}}}}}")), "{params}: {written}");
        }
    }
}
