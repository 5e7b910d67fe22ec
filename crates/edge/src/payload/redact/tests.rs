use super::*;

#[test]
fn a_member_with_the_name_of_a_secret_is_not_told() {
    for name in [
        "api_key",
        "apiKey",
        "x-api-key",
        "X_API_KEY",
        "authorization",
        "Proxy-Authorization",
        "bearer",
        "cookie",
        "Set-Cookie",
        "credentials",
        "awsCredential",
        "password",
        "db passwd",
        "passwörd-password",
        "client_secret",
        "token",
        "accessToken",
        "private_key",
    ] {
        for value in ["\"hunter2\"", "[\"hunter2\"]", "{\"a\":{\"b\":\"hunter2\"}}", "42", "null"] {
            let body = format!("{{\"x\":[{{\"{name}\":{value},\"kept\":1}}]}}");
            let expected = format!("{{\"x\":[{{\"{name}\":\"[redacted]\",\"kept\":1}}]}}");
            assert_eq!(json(body.as_bytes()).unwrap(), expected);
        }
    }
    // Also when the name is written with escapes.
    assert_eq!(json(br#"{"pass\u0077ord":"hunter2"}"#).unwrap(), r#"{"password":"[redacted]"}"#);
    for name in ["messageId", "text", "key", "author", "pass", "parts"] {
        let body = format!("{{\"{name}\":\"hunter2\"}}");
        assert_eq!(json(body.as_bytes()).unwrap(), body);
    }
}

#[test]
fn a_text_keeps_everything_but_the_secrets_in_it() {
    let cases = [
        ("a plain text, with (signs) and https://example.com/x?y=1", None),
        ("the token is in my head; no password today", None),
        ("sk-1 is no key", None),
        ("use sk-abcdefghijkl now", Some("use [redacted] now")),
        ("(key=AKIAABCDEFGHIJKL)", Some("([redacted])")),
        ("ghp_0123456789abcdef.", Some("[redacted]")),
        ("Bearer hunter2", Some("Bearer [redacted]")),
        ("-H 'Authorization: Bearer hunter2' x", Some("-H 'Authorization: [redacted]' x")),
        ("-H 'Authorization: Basic aHVudGVyMg=='", Some("-H 'Authorization: [redacted]'")),
        (r#"-H \"Authorization: Token hunter2\" x"#, Some(r#"-H \"Authorization: [redacted]\" x"#)),
        ("Authorization: Token hunter2\nHost: a", Some("Authorization: [redacted]\nHost: a")),
        ("authorization=Bearer hunter2", Some("authorization=[redacted]")),
        ("Authorization: Digest username=\"me\", response=\"hunter2\"", Some("Authorization: [redacted]")),
        ("Cookie: a=1; session=hunter2\nrest", Some("Cookie: [redacted]\nrest")),
        ("curl --token hunter2 https://a.example", Some("curl --token [redacted] https://a.example")),
        ("x --db-password 'correct horse' y", Some("x --db-password '[redacted]' y")),
        ("x --password=hunter2 y", Some("x --password=[redacted] y")),
        ("PASSWORD=\"correct horse\" run", Some("PASSWORD=\"[redacted]\" run")),
        ("PASSWORD=hunt;er(2) run", Some("PASSWORD=[redacted] run")),
        ("password: correct horse\nrest", Some("password: [redacted]\nrest")),
        (r#"{"password":"correct horse \"battery\"","a":1}"#, Some(r#"{"password":"[redacted]","a":1}"#)),
        (r#"{\"password\":\"correct horse\",\"a\":1}"#, Some(r#"{\"password\":\"[redacted]\",\"a\":1}"#)),
        (r#"{"token": 42, "a": 1}"#, Some(r#"{"token": [redacted], "a": 1}"#)),
        (
            "{\"credentials\": {\n\"x\": [\"hunter2\"]}, \"a\": 1}",
            Some("{\"credentials\": [redacted], \"a\": 1}"),
        ),
        ("my secret:", None),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nb",
            Some("a\n[redacted]\nb"),
        ),
        ("a -----BEGIN PRIVATE KEY-----\\nhunter2", Some("a [redacted]")),
        ("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", None),
        ("x-api-key: hunter2", Some("x-api-key: [redacted]")),
        ("PASSWORD=hunter2 run", Some("PASSWORD=[redacted] run")),
        ("password = hunter2", Some("password = [redacted]")),
        (
            "https://a.example/?access_token=hunter2&x=1",
            Some("https://a.example/?access_token=[redacted]&x=1"),
        ),
        ("https://me:hunter2@a.example/x", Some("https://[redacted]@a.example/x")),
        ("postgres://hunter2@db", Some("postgres://[redacted]@db")),
        (r#"{"api_key":"hunter2","a":1}"#, Some(r#"{"api_key":"[redacted]","a":1}"#)),
        (r#"{\"api_key\": \"hunter2\"}"#, Some(r#"{\"api_key\": \"[redacted]\"}"#)),
        ("secret:\nhunter2\nrest", Some("secret:\n[redacted]\nrest")),
        // Before the name: a URL with a password, or a key.
        (
            "https://me:hunter2@registry.example/my-secret-app:latest",
            Some("https://[redacted]@registry.example/my-secret-app:[redacted]"),
        ),
        (
            "git clone https://me:hunter2@token.example:8443/x.git",
            Some("git clone https://[redacted]@token.example:[redacted]"),
        ),
        ("https://token:hunter2@a.example/x y", Some("https://[redacted]@a.example/x y")),
        ("https://a:mytoken1:hunter2@b.example/", Some("https://[redacted]@b.example/")),
        ("https://me:hun(t;er2@a.example/x", Some("https://[redacted]@a.example/x")),
        ("password=postgres://me:hunter2@db/x y", Some("password=[redacted] y")),
        ("sk-abcdefghijklmnop/token=x", Some("[redacted]=[redacted]")),
        // Strings of a shell that are written together.
        (r#"-H 'X-Api-Key: '"hunter2""#, Some("-H 'X-Api-Key: [redacted]")),
        (r#"-H "Authorization: Bearer "hunter2"#, Some(r#"-H "Authorization: [redacted]"#)),
        (r#"-H "X-Token: \"hunter2\"" x"#, Some(r#"-H "X-Token: [redacted]" x"#)),
        ("{'x': 'token: hunter2', 'y': 1}", Some("{'x': 'token: [redacted]")),
        ("PASSWORD='a'hunter2 run", Some("PASSWORD=[redacted] run")),
        ("PASSWORD=a'hunter2 b' run", Some("PASSWORD=[redacted] run")),
        ("PASSWORD=\"a\"'hunter2' run", Some("PASSWORD=[redacted] run")),
        ("x --password 'a'\"hunter2\" run", Some("x --password [redacted] run")),
        ("password=$(echo hunter2) run", Some("password=[redacted] run")),
        ("password=\"$(echo \"hunter2\")\" run", Some("password=[redacted] run")),
        ("password=`echo hunter2` run", Some("password=`[redacted]` run")),
        ("PASSWORD=a\\ hunter2 run", Some("PASSWORD=[redacted] run")),
        ("password=f(\"a\", 'hunter2') run", Some("password=[redacted] run")),
        ("password=(hunter2\nrest", Some("password=[redacted]\nrest")),
        ("x \"PASSWORD=hunter2\" \"y\"", Some("x \"PASSWORD=[redacted]\" \"y\"")),
        (r#"x \"PASSWORD=hunter2\" \"y\""#, Some(r#"x \"PASSWORD=[redacted]\" \"y\""#)),
        ("sh -c \"x PASSWORD=hunter2\" y", Some("sh -c \"x PASSWORD=[redacted]\" y")),
        ("password = \"\"\"\nhunter2\n\"\"\"\nrest", Some("password = [redacted]\nrest")),
        (r#"{"token": "a" + "hunter2"}"#, Some(r#"{"token": [redacted]"#)),
        // Blocks of YAML.
        ("password: |\n  hunter2\n\n  hunter2\nrest", Some("password: [redacted]\nrest")),
        ("a:\n  password: >-\n    hunter2\n  b: 1", Some("a:\n  password: [redacted]\n  b: 1")),
        ("+a: 1\n+password: |\n+  hunter2\n+b: 1", Some("+a: 1\n+password: [redacted]\n+b: 1")),
        ("password: !!binary |2-\r\n  hunter2\r\nrest", Some("password: [redacted]\r\nrest")),
        ("credentials:\n  user: me\n  x: hunter2\nrest", Some("credentials:\n  [redacted]\nrest")),
        ("tokens:\n- a\n- hunter2\nrest", Some("tokens:\n[redacted]\nrest")),
        ("secrets: {\n  x: 'hunter2'\n}\nrest", Some("secrets: [redacted]\nrest")),
        ("\"password\": |\n  hunter2\nrest", Some("\"password\": [redacted]\nrest")),
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----\nb",
            Some("[redacted]\nb"),
        ),
        // Brackets within strings.
        (r#"{"credentials": {"x": "}hunter2"}}"#, Some(r#"{"credentials": [redacted]}"#)),
        (r#"{\"credentials\": {\"x\": \"}hunter2\"}}"#, Some(r#"{\"credentials\": [redacted]}"#)),
        (r#"{"credentials": {"x": "\"}hunter2"}, "a": 1}"#, Some(r#"{"credentials": [redacted], "a": 1}"#)),
    ];
    let wrong = |(text, expected): &&(&str, Option<&str>)| masked(text) != expected.unwrap_or(text);
    let wrong: Vec<_> = cases.iter().filter(wrong).map(|(text, _)| (text, masked(text))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (text, expected) in cases {
        let body = serde_json::json!({"parts": [{"text": text}]}).to_string();
        let expected = serde_json::json!({"parts": [{"text": expected.unwrap_or(text)}]}).to_string();
        assert_eq!(json(body.as_bytes()).unwrap(), expected);
    }
    assert_eq!(json(br#"{"sk-abcdefghijkl":1,"b":2}"#).unwrap(), r#"{"[redacted]":1,"b":2}"#);
}

#[test]
fn what_is_no_json_is_not_written() {
    for body in ["", "{", "hunter2", "{\"a\":1} x", "\u{0}"] {
        assert_eq!(json(body.as_bytes()), None, "{body}");
    }
    assert_eq!(json(&"[".repeat(100_000).into_bytes()), None);
}
