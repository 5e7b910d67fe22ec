use longshore_model::card::CardExtension;

use super::*;
use crate::opencode;

/// The card entries of an OpenCode gateway.
pub(crate) fn declared(extensions: &[Extension]) -> Vec<CardExtension> {
    extensions.iter().map(|extension| declared_for(&opencode::SURFACE, *extension)).collect()
}

const BINDING: &str = "urn:opencode-a2a:extension:session-binding:v1";
const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";
const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

#[test]
fn the_table_is_in_the_order_of_the_enum_and_every_uri_is_unique() {
    let mut uris = std::collections::HashSet::new();
    for (index, row) in TABLE.iter().enumerate() {
        assert_eq!(row.extension as usize, index, "{:?}", row.extension);
        let documented = row.fragments.iter().map(|fragment| format!("{DOCUMENT}{fragment}"));
        let spellings = [row.uri].into_iter().chain(row.oldest).map(str::to_owned).chain(documented);
        for uri in spellings {
            assert_eq!(Extension::parse(&uri), Some(row.extension), "{uri}");
            assert!(uris.insert(uri.clone()), "{uri} names two extensions");
        }
    }
    assert_eq!(uris.len(), 12 + 11 + 8);
    assert!(
        Extension::PUBLIC.is_sorted_by_key(|extension| *extension as usize),
        "PUBLIC is in the order of the table"
    );
}

#[test]
fn only_the_uris_of_the_table_are_recognised() {
    let other_document = DOCUMENT.replace("main", "dev") + "#shared-stream-hints-v1";
    for uri in ["", "session-binding", "urn:a2a:", "#shared-stream-hints-v1", DOCUMENT, &other_document] {
        assert_eq!(Extension::parse(uri), None, "{uri}");
    }
    assert_eq!(Extension::parse(&HINTS.to_uppercase()), None);
    assert_eq!(Extension::parse(&HINTS.replace(":v1", ":v2")), None);
}

#[test]
fn headers_are_comma_separated_lists() {
    let listed = format!("{HINTS} ,  {BINDING}");
    let documented = format!("{DOCUMENT}#shared-session-binding-v1");
    let cases: [(&[&str], &[Extension]); 9] = [
        (&[], &[]),
        (&[""], &[]),
        (&[" , ,,"], &[]),
        (&["urn:x", "https://example.com/ext"], &[]),
        (&[BINDING], &[Extension::SessionBinding]),
        (&[&listed], &[Extension::SessionBinding, Extension::StreamHints]),
        (&[RECOVERY, "urn:x,urn:a2a:stream-hints"], &[Extension::StreamHints, Extension::InterruptRecovery]),
        (&[BINDING, BINDING, &listed], &[Extension::SessionBinding, Extension::StreamHints]),
        (&[&documented], &[Extension::SessionBinding]),
    ];
    for (values, expected) in cases {
        let activated = Activated::from_header(values.iter().copied());
        assert_eq!(activated, expected.iter().copied().collect(), "{values:?}");
        // The expected value: in the order of the card, without duplicates, with the URIs of 1.0 because no others were requested.
        let echoed: Vec<&str> = expected.iter().map(|extension| extension.uri()).collect();
        assert_eq!(activated.to_header([]).unwrap_or_default(), echoed.join(","), "{values:?}");
    }
}

#[test]
fn a_response_names_an_extension_as_the_request_did() {
    let documented = format!("{DOCUMENT}#shared-session-binding-v1");
    let both: Activated = [Extension::SessionBinding, Extension::StreamHints].into_iter().collect();
    for (values, expected) in [
        (vec![HINTS, BINDING], format!("{BINDING},{HINTS}")),
        (vec!["urn:a2a:stream-hints, urn:x", &documented], format!("{documented},urn:a2a:stream-hints")),
        // If a caller uses two URIs of an extension, the first one counts.
        (vec![&documented, HINTS, BINDING], format!("{documented},{HINTS}")),
    ] {
        assert_eq!(both.to_header(values), Some(expected));
    }
    assert_eq!(Activated::NONE.to_header([HINTS]), None);
}

#[test]
fn each_metadata_key_has_its_extension() {
    for extension in TABLE.iter().map(|row| row.extension) {
        let activated: Activated = [extension].into_iter().collect();
        let shown = [
            activated.shows_session(),
            activated.shows_stream(),
            activated.shows_interrupt(),
            activated.shows_thinking_details(),
            activated.shows_tool_details(),
        ];
        let expected = [
            Extension::SessionBinding,
            Extension::StreamHints,
            Extension::InteractiveInterrupt,
            Extension::ThinkingExposure,
            Extension::ArtifactMetadata,
        ];
        assert_eq!(shown, expected.map(|expected| expected == extension), "{extension:?}");
        // 0.3 clients do not know the fields of `iac-code`.
        let is_of_iac_code = shown[3] || shown[4];
        assert_eq!(Activated::SHOWN_IN_V03.contains(extension), !is_of_iac_code, "{extension:?}");
    }
}

#[test]
fn the_public_extensions_are_declared() {
    let declared: Vec<String> = declared(&Extension::PUBLIC)
        .into_iter()
        .map(|declared| format!("{} {}\n  {:?}", declared.uri, declared.description, declared.params))
        .collect();
    insta::assert_snapshot!(declared.join("\n"));
}

#[test]
fn only_exposed_internals_are_declared() {
    for (raw_thinking, tool_trace, expected) in [
        (true, true, Some(r#"{"enabledTypes":["raw_thinking","tool_trace"]}"#)),
        (true, false, Some(r#"{"enabledTypes":["raw_thinking"]}"#)),
        (false, true, Some(r#"{"enabledTypes":["tool_trace"]}"#)),
        (false, false, None),
    ] {
        let exposure = Exposure { raw_thinking, tool_trace };
        let entry = declared_exposure(exposure);
        let params = entry.as_ref().and_then(|entry| entry.params.as_ref());
        assert_eq!(params.map(longshore_model::Json::get), expected, "{exposure:?}");
        assert!(entry.is_none_or(|entry| entry.uri == "urn:iac-code:a2a:thinking-exposure:v1"));
        assert_eq!(exposure.and(Exposure::default()), exposure);
        assert_eq!(Exposure::default().and(exposure), exposure);
    }
    let files = declared(&[Extension::ArtifactMetadata]);
    assert_eq!((files[0].uri.as_str(), &files[0].params), ("urn:iac-code:a2a:artifact-metadata:v1", &None));
}

#[test]
fn required_extensions_are_marked_and_checked() {
    let required = [Extension::StreamHints, Extension::InteractiveInterrupt];
    let mut entries = declared(&Extension::PUBLIC);
    mark_required(&mut entries, &required);
    let marks: Vec<bool> = entries.iter().map(|entry| entry.required).collect();
    assert_eq!(marks, [false, false, true, true]);

    let all: Activated = required.into_iter().collect();
    for (activated, required, missing) in [
        (Activated::NONE, &[][..], &[][..]),
        (all, &required, &[]),
        (
            [HINTS, BINDING].iter().filter_map(|uri| Extension::parse(uri)).collect(),
            &required,
            &required[1..],
        ),
        (Activated::NONE, &required, &required),
    ] {
        let checked = check_required(activated, required);
        assert_eq!(checked.is_ok(), missing.is_empty(), "{activated:?}");
        if let Err(error) = checked {
            assert_eq!(error.kind(), ErrorKind::ExtensionRequired);
            for extension in Extension::PUBLIC {
                let is_missing = missing.contains(&extension);
                assert_eq!(error.message().contains(extension.uri()), is_missing, "{error}");
            }
            let uris: Vec<&str> = missing.iter().map(|extension| extension.uri()).collect();
            let expected = ("requiredExtensions".to_owned(), serde_json::to_string(&uris).unwrap());
            let requested: Vec<&str> = activated.iter().map(Extension::uri).collect();
            let requested = ("requestedExtensions".to_owned(), serde_json::to_string(&requested).unwrap());
            assert_eq!(error.details(), [expected, requested, ("header".to_owned(), HEADER.to_owned())]);
        }
    }
}

#[test]
fn every_extension_has_a_uri_of_its_own_in_0_3() {
    let names: std::collections::HashSet<String> =
        TABLE.iter().map(|row| row.extension.uri_v03().into_owned()).collect();
    assert_eq!(names.len(), TABLE.len());
    for row in &TABLE {
        assert_eq!(Extension::parse(&row.extension.uri_v03()), Some(row.extension));
        assert!(Activated::ALL.contains(row.extension));
    }
}

#[test]
fn other_parameters_stay_in_0_3() {
    let mut entry = declared(&[Extension::ModelSelection]).remove(0);
    entry.params = longshore_model::Json::parse(r#"{"notes":["a"],"applies_to_methods":["SendMessage"]}"#);
    let older = as_of_v03(&entry);
    let expected = r#"{"notes":["a"],"applies_to_methods":["message/send","message/stream"]}"#;
    assert_eq!(older.params.unwrap().get(), expected);
    entry.params = None;
    assert_eq!(as_of_v03(&entry).params, None);
    // An unknown extension is not changed.
    entry.uri = "urn:example:x".to_owned();
    assert_eq!(as_of_v03(&entry), entry);
}
