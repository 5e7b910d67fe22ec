//! The agent card of 0.3, and the one for clients of both versions.

use bytes::Bytes;
use longshore_model::card::Card;

use super::Dialect;
use crate::card::{self, CardVersions};

/// The card of this version alone. As the answer of REST its security schemes also have the shape of ProtoJSON, which some
/// clients look for there.
pub fn encode(card: &Card, dialect: Dialect) -> Bytes {
    let versions = match dialect {
        Dialect::Rpc => CardVersions::V03,
        Dialect::Rest => CardVersions::V03Rest,
    };
    card::encode(card, versions)
}

/// One card that clients of both versions take: each finds its own fields, and those of the other beside them. Only readers
/// who refuse what they do not know need the card of their line alone.
pub fn merged(card: &Card) -> Bytes {
    card::encode(card, CardVersions::Both)
}

#[cfg(test)]
mod tests {
    use a2a_pb::protojson::AgentCard;
    use serde_json::Value;

    use super::*;
    use crate::card::tests::card;
    use crate::extension::Extension;
    use crate::v1;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_card_with_everything_and_an_open_one() {
        let open = Card { extended: false, schemes: Vec::new(), extensions: Vec::new(), ..card() };
        for (name, bytes) in [
            ("pure", encode(&card(), Dialect::Rpc)),
            ("pure_open", encode(&open, Dialect::Rpc)),
            ("merged", merged(&card())),
            ("merged_open", merged(&open)),
        ] {
            insta::assert_snapshot!(name, str::from_utf8(&bytes).unwrap());
        }
    }

    /// What stands in one card and not in the other, or otherwise.
    fn lacks(whole: &Value, part: &Value, path: &str, missing: &mut Vec<String>) {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => {
                for (key, value) in part {
                    lacks(whole.get(key).unwrap_or(&Value::Null), value, &format!("{path}.{key}"), missing);
                }
            }
            // Lists of the merged card may have more entries.
            (Value::Array(whole), Value::Array(part)) => {
                for entry in part.iter().filter(|entry| !whole.contains(entry)) {
                    missing.push(format!("{path}[{entry}]"));
                }
            }
            _ if whole == part => {}
            _ => missing.push(path.to_owned()),
        }
    }

    #[test]
    fn the_merged_card_holds_both() {
        let both = value(&merged(&card()));
        let mut missing = Vec::new();
        lacks(&both, &value(&v1::card::encode(&card())), "", &mut missing);
        assert_eq!(missing, [""; 0]);
        let mut old = value(&encode(&card(), Dialect::Rest));
        // False is what an absent one reads as.
        old["capabilities"]["stateTransitionHistory"].take();
        for entry in old["capabilities"]["extensions"].as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("required");
        }
        lacks(&both, &old, "", &mut missing);
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn the_official_types_of_1_0_read_the_merged_card() {
        let theirs: AgentCard = serde_json::from_slice(&merged(&card())).unwrap();
        let interfaces = theirs.supported_interfaces.iter();
        let versions: Vec<&str> = interfaces.map(|interface| interface.protocol_version.as_str()).collect();
        assert_eq!(versions, ["1.0", "1.0", "0.3", "0.3"]);
        assert_eq!(theirs.capabilities.unwrap().extended_agent_card, Some(true));
        assert!(theirs.security_schemes.values().all(|scheme| scheme.scheme.is_some()));
    }

    #[test]
    fn an_extension_goes_by_the_names_of_the_lines() {
        let uris = |card: &Value| -> Vec<String> {
            let entries = card["capabilities"]["extensions"].as_array().unwrap();
            entries.iter().map(|entry| entry["uri"].as_str().unwrap().to_owned()).collect()
        };
        let old = Extension::PUBLIC.map(|extension| extension.uri_v03().into_owned());
        let new = Extension::PUBLIC.map(|extension| extension.uri().to_owned());
        assert_eq!(uris(&value(&encode(&card(), Dialect::Rpc))), old);
        assert_eq!(uris(&value(&merged(&card()))), [new, old].concat());

        // What has one name only is listed once.
        let mut exposed = card();
        exposed.extensions = crate::extension::declared(&[Extension::ThinkingExposure]);
        let expected = [Extension::ThinkingExposure.uri()];
        assert_eq!(uris(&value(&merged(&exposed))), expected);
        assert_eq!(uris(&value(&encode(&exposed, Dialect::Rest))), expected);
    }
}
