use longshore_wire::extension::Exposure;

use super::*;

fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

fn registry() -> Credentials {
    Credentials::builder()
        .bearer(secret("tok-ada"), "ada")
        .bearer(secret("tok-bob"), "bob")
        .basic("carl", secret("pass:word"))
        .api_key(secret("key-dora"), "dora")
        .build()
        .unwrap()
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    headers
}

fn basic(pair: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode(pair))
}

#[test]
fn each_local_user_has_one_principal_with_its_rights() {
    let with = |users: &[(u32, &str, Rights)]| {
        let mut builder = Credentials::builder().bearer(secret("tok-ada"), "ada");
        for (user, principal, rights) in users {
            builder = builder.local_user(*user, principal, rights.clone());
        }
        builder.build()
    };
    let users =
        [(1, "ada", Rights::of_owner()), (2, "bob", Rights::default()), (1, "ada", Rights::of_owner())];
    let known = with(&users).unwrap();
    for (user, principal, rights) in &users {
        let expected = Caller { principal: Principal::new(principal), rights: rights.clone() };
        assert_eq!(known.of_local_user(*user).as_deref(), Some(&expected));
    }
    assert_eq!(known.of_local_user(3), None);
    for other in [(2, "ada", Rights::default()), (2, "bob", Rights::of_owner())] {
        let error = with(&[users[1].clone(), other]).unwrap_err().to_string();
        assert!(error.starts_with("the user 2 is listed twice"), "{error}");
    }
}

#[test]
fn each_scheme_finds_its_principal() {
    type Given<'a> = &'a [(&'a str, &'a str)];

    let carl = basic(b"carl:pass:word");
    let cases: &[(Given<'_>, Option<&str>)] = &[
        (&[("authorization", "Bearer tok-ada")], Some("ada")),
        (&[("authorization", "bEARER   tok-bob ")], Some("bob")),
        (&[("authorization", &carl)], Some("carl")),
        (&[("authorization", &carl.replace("Basic", "bAsIc"))], Some("carl")),
        (&[("x-api-key", "key-dora")], Some("dora")),
        (&[], None),
        (&[("authorization", "")], None),
        (&[("authorization", "Bearer")], None),
        (&[("authorization", "Bearer ")], None),
        (&[("authorization", "Bearer tok-eve")], None),
        (&[("authorization", "Bearer tok-ada x")], None),
        (&[("authorization", "tok-ada")], None),
        (&[("authorization", "Digest tok-ada")], None),
        // A secret of one scheme is not valid for another.
        (&[("authorization", "Bearer key-dora")], None),
        (&[("x-api-key", "tok-ada")], None),
        (&[("authorization", "Bearer carl:pass:word")], None),
        (&[("authorization", &basic(b"carl:wrong"))], None),
        (&[("authorization", &basic(b"carl:"))], None),
        (&[("authorization", &basic(b":pass:word"))], None),
        (&[("authorization", &basic(b"carl"))], None),
        (&[("authorization", &basic(b"carl:\xff"))], None),
        (&[("authorization", "Basic !!!")], None),
        (&[("x-api-key", "")], None),
        // A header that occurs twice is malformed.
        (&[("authorization", "Bearer tok-ada"), ("authorization", "Bearer tok-bob")], None),
        (&[("x-api-key", "key-dora"), ("x-api-key", "key-dora")], None),
        // If there is an `Authorization` header, only that header decides.
        (&[("authorization", "Bearer tok-ada"), ("x-api-key", "key-dora")], Some("ada")),
        (&[("authorization", "Bearer tok-ada"), ("x-api-key", "wrong")], Some("ada")),
        (&[("authorization", "Bearer wrong"), ("x-api-key", "key-dora")], None),
    ];
    let registry = registry();
    for (given, expected) in cases {
        let found = registry.authenticate(&headers(given)).ok();
        assert_eq!(found.as_ref().map(|caller| caller.principal.as_str()), *expected, "{given:?}");
    }
}

#[test]
fn the_challenge_lists_the_configured_schemes() {
    assert_eq!(registry().challenge(), "Bearer, Basic realm=\"longshore\", ApiKey");
    let keys = Credentials::builder().api_key(secret("k"), "p").build().unwrap();
    assert_eq!((keys.challenge().as_str(), keys.schemes()), ("ApiKey", vec![AuthScheme::ApiKey]));
}

#[test]
fn no_secret_is_printed() {
    let builder = Credentials::builder().bearer(secret("tok-ada"), "ada");
    let printed = format!("{builder:?} {:?}", registry());
    for hidden in ["tok-", "pass", "key-"] {
        assert!(!printed.contains(hidden), "{printed}");
    }
}

#[test]
fn an_invalid_credential_is_refused() {
    let cases = [
        (Credentials::builder(), "credentials needs at least one that is enabled"),
        (Credentials::builder().bearer(secret(""), "a"), "credential 1 has an empty secret"),
        (Credentials::builder().bearer(secret(" t"), "a"), "credential 1 has white space around its secret"),
        (Credentials::builder().bearer(secret("t"), ""), "credential 1 has an empty principal"),
        (
            Credentials::builder().basic("a:b", secret("t")),
            "credential 1 has a ':' in its username, which basic authentication cannot carry",
        ),
        (
            Credentials::builder().bearer(secret("t"), "a").bearer(secret("t"), "b"),
            "credential 2 has the same secret as another principal's; give each a secret of its own",
        ),
        (
            Credentials::builder()
                .bearer(secret("t"), "a")
                .with(Credential::bearer(secret("t"), "a").with_rights(Rights::of_owner())),
            "credential 2 has the same secret as another one with other rights; keep one of them",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(builder.build().unwrap_err().to_string(), expected);
    }
    // A credential that is configured twice is one credential.
    Credentials::builder().bearer(secret("t"), "a").bearer(secret("t"), "a").build().unwrap();
}

#[test]
fn a_caller_has_the_rights_of_its_credential() {
    use Capability::{Operator, SessionClaim, SessionDelete, SessionShare, SessionShell, WorkspaceMutation};

    let named = Rights {
        capabilities: [SessionClaim].into_iter().collect(),
        exposure: Some(Exposure { raw_thinking: false, tool_trace: true }),
        credential_id: Some("ci-1".to_owned()),
    };
    let registry = Credentials::builder()
        .bearer(secret("plain"), "p")
        .with(Credential::bearer(secret("owner"), "p").with_rights(Rights::of_owner()))
        .with(Credential::bearer(secret("named"), "p").with_rights(named.clone()))
        .basic("carl", secret("pw"))
        .api_key(secret("key"), "k")
        .build()
        .unwrap();
    let carl = basic(b"carl:pw");
    let cases: [((&str, &str), &[Capability]); 5] = [
        (("authorization", "Bearer plain"), &[]),
        (
            ("authorization", "Bearer owner"),
            &[SessionShell, WorkspaceMutation, SessionClaim, SessionShare, SessionDelete, Operator],
        ),
        (("authorization", "Bearer named"), &[SessionClaim]),
        (("authorization", &carl), &[SessionShell, WorkspaceMutation]),
        (("x-api-key", "key"), &[]),
    ];
    for (given, expected) in cases {
        let caller = registry.authenticate(&headers(&[given])).unwrap();
        let held: Vec<Capability> = Capability::ALL.into_iter().filter(|it| caller.may(*it)).collect();
        assert_eq!(held, expected, "{given:?}");
    }
    let caller = registry.authenticate(&headers(&[("authorization", "Bearer named")])).unwrap();
    assert_eq!(caller.rights, named);
}

#[test]
fn names_of_capabilities_parse_back() {
    for capability in Capability::ALL {
        assert_eq!(Capability::parse(capability.as_str()), Some(capability));
    }
    for word in ["", "Operator", "session-claim", "all", "*"] {
        assert_eq!(Capability::parse(word), None, "{word:?}");
    }
}
