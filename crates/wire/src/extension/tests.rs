use super::*;

const BINDING: &str = "urn:opencode-a2a:extension:session-binding:v1";
const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";
const RECOVERY: &str = "urn:opencode-a2a:extension:interrupt-recovery:v1";

#[test]
fn the_table_stands_in_the_order_of_the_names() {
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
    assert_eq!(uris.len(), 10 + 11 + 8);
    assert!(Extension::PUBLIC.is_sorted_by_key(|extension| *extension as usize), "in the order of the table");
}

#[test]
fn what_is_no_uri_of_the_table_names_nothing() {
    let other_document = DOCUMENT.replace("main", "dev") + "#shared-stream-hints-v1";
    for uri in ["", "session-binding", "urn:a2a:", "#shared-stream-hints-v1", DOCUMENT, &other_document] {
        assert_eq!(Extension::parse(uri), None, "{uri}");
    }
    assert_eq!(Extension::parse(&HINTS.to_uppercase()), None);
    assert_eq!(Extension::parse(&HINTS.replace(":v1", ":v2")), None);
}

#[test]
fn headers_are_lists_in_lists() {
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
        let activated = Activated::of_header(values.iter().copied());
        assert_eq!(activated, expected.iter().copied().collect(), "{values:?}");
        // In the order of the card, each once, by the name of the 1.0 line.
        let echoed: Vec<&str> = expected.iter().map(|extension| extension.uri()).collect();
        assert_eq!(activated.to_header().unwrap_or_default(), echoed.join(","), "{values:?}");
    }
}

#[test]
fn each_key_of_the_metadata_has_its_extension() {
    for extension in TABLE.iter().map(|row| row.extension) {
        let activated: Activated = [extension].into_iter().collect();
        let shown = (activated.shows_session(), activated.shows_stream(), activated.shows_interrupt());
        let expected = (
            extension == Extension::SessionBinding,
            extension == Extension::StreamHints,
            extension == Extension::InteractiveInterrupt,
        );
        assert_eq!(shown, expected, "{extension:?}");
        let is_public = Extension::PUBLIC.contains(&extension);
        assert_eq!(activated.among(&Extension::PUBLIC) != Activated::NONE, is_public, "{extension:?}");
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
