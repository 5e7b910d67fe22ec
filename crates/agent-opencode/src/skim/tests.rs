use longshore_testkit::fake_opencode::Recording;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::api::Head;

/// The facts that the parser reads from an event: its kind, its session, and the fields of a delta.
type Facts = (EventKind, String, Option<[String; 4]>);

fn by_parser(body: &[u8]) -> Option<Facts> {
    let head: Head<'_> = serde_json::from_slice(body).ok()?;
    let kind = EventKind::parse(&head.kind)?;
    let session = head.properties.session.as_ref()?.0.to_string();
    Some((kind, session, facts(&Event::parsed(kind, Bytes::copy_from_slice(body)))))
}

fn by_skimming(body: &[u8]) -> Option<Facts> {
    let skimmed = skim(body)?;
    let (kind, session) = (skimmed.kind, skimmed.session(body)?.to_owned());
    Some((kind, session, facts(&skimmed.event(Bytes::copy_from_slice(body)))))
}

fn facts(event: &Event) -> Option<[String; 4]> {
    let delta = event.delta()?.ok()?;
    Some([&delta.message, &delta.part, &delta.field, &delta.delta].map(ToString::to_string))
}

/// The same value with its fields in another order.
fn shuffled(value: &Value, turn: usize) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> =
                fields.iter().map(|(key, value)| (key.clone(), shuffled(value, turn))).collect();
            let by = turn % fields.len().max(1);
            fields.rotate_left(by);
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(|item| shuffled(item, turn)).collect(),
        other => other.clone(),
    }
}

#[test]
fn recorded_events_are_skimmed_as_they_are_parsed_in_any_order_of_their_fields() {
    let (mut skimmed, mut deltas, mut others) = (0, 0, 0);
    for name in Recording::names() {
        for event in Recording::load(&name).events() {
            let text = event.to_string();
            let expected = by_parser(text.as_bytes());
            let found = by_skimming(text.as_bytes());
            // The most frequent events never need the parser.
            let is_frequent = |facts: &Facts| match facts.0 {
                EventKind::PartDelta => facts.2.as_ref().is_some_and(|[_, _, field, _]| field == "text"),
                EventKind::PartUpdated | EventKind::MessageUpdated | EventKind::Status => true,
                _ => false,
            };
            if found.is_some() || expected.as_ref().is_some_and(is_frequent) {
                assert_eq!(found, expected, "{name}: {text}");
            }
            skimmed += usize::from(found.is_some());
            deltas += usize::from(found.is_some_and(|(_, _, delta)| delta.is_some()));
            for turn in 1..6 {
                let text = shuffled(event, turn).to_string();
                if let Some(found) = by_skimming(text.as_bytes()) {
                    assert_eq!(Some(found), by_parser(text.as_bytes()), "{name}: {text}");
                } else {
                    others += 1;
                }
            }
        }
    }
    assert!(skimmed > 1_000 && deltas > 300 && others > 1_000, "{skimmed} {deltas} {others}");
}

fn delta(text: &str) -> String {
    let properties = json!({"sessionID": "ses_1", "messageID": "msg_1", "partID": "prt_1", "field": "text", "delta": text});
    json!({"id": "evt_1", "type": "message.part.delta", "properties": properties}).to_string()
}

#[test]
fn text_with_and_without_escapes() {
    for (text, is_whole) in [
        ("", true),
        ("plain words ", true),
        ("é\u{1f600}", true),
        ("two\n\nlines", false),
        ("\"quoted\"", false),
        ("a backslash \\", false),
        ("\\\"", false),
        ("\u{1}", false),
    ] {
        let body = delta(text);
        let skimmed = skim(body.as_bytes()).unwrap();
        assert_eq!(
            (skimmed.is_whole(), skimmed.session(body.as_bytes())),
            (is_whole, Some("ses_1")),
            "{text:?}"
        );
        let event = skimmed.event(Bytes::from(body));
        let read = event.delta().unwrap().unwrap();
        assert_eq!(
            (&*read.message, &*read.part, &*read.field, &*read.delta),
            ("msg_1", "prt_1", "text", text)
        );
        assert!(event.is_json());
    }
}

#[test]
fn malformed_json_is_never_taken_for_a_whole_event() {
    let good = delta("two\nlines");
    let spoilt = [
        good.replace(r"two\nlines", r"two\xlines"),
        good.replace(r"two\nlines", "two\u{1}lines"),
        good.replace(r"two\nlines", r"two\"),
        good.replace(r"two\nlines", "two\"lines"),
        good.replace("ses_1", "ses\u{1}1"),
        good.replace("evt_1", "evt\u{7}"),
        good.replace("}}", "}"),
        format!("{good} "),
        format!("{good}}}"),
        good.replace("\"delta\":", "\"delta\":7,\"delta\":"),
        format!("{}{good}", &good[..40]),
        format!("{}{good}", &good[..good.len() - 4]),
    ];
    for body in spoilt {
        let Some(skimmed) = skim(body.as_bytes()) else { continue };
        assert!(!skimmed.is_whole(), "{body}");
        let event = skimmed.event(Bytes::from(body.clone()));
        let is_read = event.delta().is_some_and(|delta| delta.is_ok());
        assert_eq!(
            is_read && event.is_json(),
            by_parser(body.as_bytes()).is_some_and(|facts| facts.2.is_some()),
            "{body}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read_as_the_parser_reads_it(text in any::<String>()) {
        let body = delta(&text);
        prop_assert_eq!(by_skimming(body.as_bytes()), by_parser(body.as_bytes()));
        prop_assert_eq!(by_skimming(body.as_bytes()).and_then(|facts| facts.2).map(|[_, _, _, delta]| delta), Some(text));
    }

    /// Changes one byte. Then either the event is left to the parser, or both read the same facts.
    #[test]
    fn a_changed_byte_is_read_alike_by_skimming_and_by_the_parser(
        text in "[a-z \n\"\\\\é]{0,20}", at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut body = delta(&text).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        if let Some(skimmed) = skim(&body) {
            let is_whole = skimmed.is_whole();
            let event = skimmed.event(Bytes::from(body.clone()));
            let parsed = by_parser(&body);
            if is_whole || event.is_json() {
                prop_assert_eq!(by_skimming(&body), parsed);
            } else {
                prop_assert_eq!(parsed, None);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
        let mut body = delta("some words").into_bytes();
        body.truncate(cut.min(body.len()));
        body.extend(bytes);
        let _ = by_skimming(&body);
    }
}
