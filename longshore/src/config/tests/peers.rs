//! `[[peers]]` and `[calls]`.

use longshore_client::{Binding, Credential};
use secrecy::ExposeSecret as _;

use super::Sources;

const PEER: &str = "[[peers]]\nname = \"b\"\nurl = \"https://b.example.com\"\n";

#[test]
fn without_peers_and_urls_the_agent_calls_nobody() {
    assert!(Sources::default().load().unwrap().plan.peers.is_none());
    let checked = Sources { file: "[calls]\nallow_urls = true\n", ..Sources::default() }.load().unwrap();
    let peers = checked.plan.peers.unwrap();
    assert!(peers.peers.is_empty() && peers.urls.is_some());
}

#[test]
fn a_peer_has_the_settings_of_its_table_and_the_defaults_for_the_rest() {
    let file = format!(
        "[calls]\nmax_asks = 3\n{PEER}bindings = [\"GRPC\", \"rest\"]\nversion = \"1.0\"\ncall_timeout = 60\nmodel_answers = false\n\
         bearer_token_env = \"TOKEN_OF_B\"\n"
    );
    let sources = Sources { file: &file, variables: &[("TOKEN_OF_B", "planted-b")], ..Sources::default() };
    let peers = sources.load().unwrap().plan.peers.unwrap();
    let [peer] = peers.peers.as_slice() else { panic!("{peers:?}") };
    assert_eq!((peer.name.as_str(), peer.url.as_str()), ("b", "https://b.example.com/"));
    assert_eq!(peer.settings.bindings, [Binding::Grpc, Binding::Rest]);
    assert_eq!((peer.limits.duration.as_secs(), peer.limits.asks), (60, 3));
    assert_eq!((peer.limits.result_bytes, peer.model_answers), (131_072, false));
    let Some(Credential::Bearer(token)) = &peer.settings.credential else { panic!("{peer:?}") };
    assert_eq!(token.expose_secret(), "planted-b");
    assert!(!format!("{peer:?}").contains("planted"));
}

#[test]
fn the_default_credential_is_only_for_allowed_hosts() {
    for (hosts, is_sent) in [("*.example.com", true), ("b.example.org", false), ("", false)] {
        let given = [("A2A_CLIENT_BEARER_TOKEN", "planted"), ("A2A_CLIENT_ALLOWED_HOSTS", hosts)];
        let checked = Sources { file: PEER, variables: &given, ..Sources::default() }.load().unwrap();
        let peers = checked.plan.peers.unwrap();
        assert_eq!(peers.peers[0].settings.credential.is_some(), is_sent, "{hosts}");
        let warned = checked.warnings.iter().any(|warning| warning.contains("the peer b gets no credential"));
        assert_eq!(warned, !is_sent, "{hosts}: {:?}", checked.warnings);
    }
}

#[test]
fn variables_of_other_programs_are_no_problem_without_peers() {
    for (name, value) in [
        ("A2A_CLIENT_ALLOWED_HOSTS", "*"),
        ("A2A_CLIENT_ALLOWED_HOSTS", "localhost:8001"),
        ("A2A_CLIENT_ALLOWED_HOSTS", "[::1]"),
        ("A2A_CLIENT_ALLOWED_HOSTS", "http://b.example.com"),
        ("A2A_CLIENT_ALLOW_PRIVATE_HOSTS", "perhaps"),
    ] {
        let given = [(name, value)];
        let checked = Sources { variables: &given, ..Sources::default() }.load().unwrap();
        assert!(checked.plan.peers.is_none());
        assert!(
            checked.warnings.iter().any(|warning| warning.contains(name)),
            "{value}: {:?}",
            checked.warnings
        );
        let problems = Sources { file: PEER, variables: &given, ..Sources::default() }.load().unwrap_err();
        assert!(problems.to_string().contains(name), "{value}: {problems}");
    }
}

#[test]
fn wrong_peers_are_problems_that_show_no_secret() {
    for (entry, expected) in [
        ("[[peers]]\nurl = \"https://b\"\n", "(peers[0].name): is required"),
        ("[[peers]]\nname = \"b\"\nurl = \"ftp://b\"\n", "(peers[0].url): must be an http or https URL"),
        ("[[peers]]\nname = \"b\"\nurl = \"https://ada:planted@b\"\n", "without a user name"),
        ("[[peers]]\nname = \"a b\"\nurl = \"https://b\"\n", "must be at most 40 letters"),
        (&format!("{PEER}colour = 1\n"), "(peers[0].colour): there is no such field"),
        (&format!("{PEER}{PEER}"), "(peers[1].name): names two peers"),
        (&format!("{PEER}basic_auth = \"planted\"\n"), "must be user:password"),
        (&format!("{PEER}api_key_env = \"NOT_SET\"\n"), "names a variable that is not set"),
        (&format!("{PEER}bindings = [\"planes\"]\n"), "must be a list of JSONRPC"),
        (&format!("{PEER}max_result_bytes = 0\n"), "must be a whole number, 1 or more"),
        ("[calls]\nallow_urls = true\nallowed_hosts = [\"a b\"]\n", "is not a host name"),
    ] {
        let problems = Sources { file: entry, ..Sources::default() }.load().unwrap_err().to_string();
        assert!(problems.contains(expected) && !problems.contains("planted"), "{entry}: {problems}");
    }
}
