use longshore_model::Json;

use super::*;

#[test]
fn a_caller_must_accept_plain_text() {
    for (modes, is_good) in [
        (&[][..], true),
        (&["text/plain"], true),
        (&["TEXT/plain; charset=utf-8", "image/png"], true),
        (&["text/*"], true),
        (&["image/png", "*/*"], true),
        (&["*"], true),
        (&["application/json"], false),
        (&["text/markdown", "image/*"], false),
    ] {
        let modes = OutputModes::new(modes.iter().copied());
        let checked = check_output_modes(&modes);
        assert_eq!(checked.is_ok(), is_good, "{modes:?}");
        let Err(error) = checked else { continue };
        assert_eq!(error.kind(), ErrorKind::ContentTypeNotSupported);
        assert!(error.message().contains("text/plain"), "{error}");
        let details: Vec<&str> = error.details().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(details, ["acceptedOutputModes", "supportedOutputModes", "requiredOutputModes"]);
        let accepted = serde_json::to_string(&modes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(error.details()[0].1, accepted);
        assert_eq!(error.details()[2].1, r#"["text/plain"]"#);
    }
}

#[test]
fn each_part_is_kept_converted_or_dropped() {
    use Fate::{AsText, Dropped, Kept};
    let text = || PartContent::Text("x".to_owned());
    let data = || PartContent::Data(Json::parse("{}").unwrap());
    let raw = || PartContent::Raw(vec![1]);
    let url = || PartContent::Url("u".to_owned());
    for (content, media_type, modes, expected) in [
        (text(), None, &["text/plain"][..], Kept),
        (text(), None, &["text/*"], Kept),
        (text(), None, &["application/json"], Dropped),
        (text(), Some("text/markdown"), &["text/plain"], Dropped),
        (text(), Some("text/markdown; v=1"), &["text/markdown"], Kept),
        (data(), None, &["text/plain"], AsText),
        (data(), None, &["application/json"], Kept),
        (data(), None, &["image/png"], Dropped),
        (data(), Some("application/vnd.x+json"), &["application/json", "text/plain"], AsText),
        (data(), Some("application/vnd.x+json"), &["application/vnd.x+json"], Kept),
        (raw(), None, &["text/plain"], Dropped),
        (raw(), None, &["application/octet-stream"], Kept),
        (raw(), Some("image/png"), &["image/*"], Kept),
        (raw(), Some("image/png"), &["application/octet-stream"], Dropped),
        (url(), None, &["application/octet-stream"], Kept),
        (url(), Some("text/csv"), &["text/plain", "text/csv"], Kept),
        (url(), Some("text/csv"), &["text/plain"], Dropped),
        (url(), Some("no/such; \"thing"), &[], Kept),
    ] {
        let part = Part { media_type: media_type.map(str::to_owned), ..Part::new(content) };
        let modes = OutputModes::new(modes.iter().copied());
        assert_eq!(fate(&part, &modes), expected, "{part:?} for {modes:?}");
    }
}

#[test]
fn data_as_text_is_canonical() {
    for (json, expected) in [
        ("null", "null"),
        (r#"{"b":1,"a":{"d":[true,null],"c":""}}"#, r#"{"a":{"c":"","d":[true,null]},"b":1}"#),
        ("{ \"b\" : [ 1.50,\n2 ] , \"a\":{ } }", r#"{"a":{},"b":[1.50,2]}"#),
        ("[17000000000000000000001,1e2,-0.0]", "[17000000000000000000001,1e2,-0.0]"),
        (r#""é\u00e9 😀\/ \u0041""#, r#""\u00e9\u00e9 \ud83d\ude00/ A""#),
        (r#"{"é":1,"z":2}"#, r#"{"z":2,"\u00e9":1}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#""\n\t\"\\\u0000""#, r#""\n\t\"\\\u0000""#),
        // Half of a surrogate pair is valid in JSON, but is not valid text.
        (r#"["\ud800é"]"#, r#"["\ud800\u00e9"]"#),
    ] {
        assert_eq!(data_as_text(json), expected, "{json}");
    }
}

#[test]
fn deeply_nested_data_does_not_exhaust_the_stack() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(data_as_text(&deep), deep);
    let objects = |depth: usize| format!("{}0{}", r#"{"b":1,"a":"#.repeat(depth), "}".repeat(depth));
    let sorted = |depth: usize| format!("{}0{}", r#"{"a":"#.repeat(depth), r#","b":1}"#.repeat(depth));
    assert_eq!(data_as_text(&objects(120)), sorted(120));
    assert!(data_as_text(&objects(5000)).is_ascii());
}
