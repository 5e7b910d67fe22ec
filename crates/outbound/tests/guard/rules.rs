//! The rules with which an operator allows and forbids URLs.

use longshore_outbound::{ErrorKind, Guard, HostRule, Refusal, Rules};

use crate::fixture::{Fixture, post, public};

fn hosts(names: &[&str]) -> Vec<HostRule> {
    names.iter().map(|name| HostRule::parse(name).unwrap()).collect()
}

#[test]
fn the_default_is_https_to_web_ports_and_high_ports() {
    let guard = Guard::new(Rules::default());
    let cases = [
        ("https://hooks.example.com/", None),
        ("https://hooks.example.com:8443/", None),
        ("http://hooks.example.com/", Some(Refusal::Scheme)),
        ("https://hooks.example.com:22/", Some(Refusal::Port)),
        ("https://hooks.example.com:1023/", Some(Refusal::Port)),
        ("https://8.8.8.8/", None),
        ("https://[2606:4700:4700::1111]/", None),
    ];
    for (url, expected) in cases {
        assert_eq!(guard.read(url).err(), expected, "{url}");
    }
}

#[test]
fn a_list_of_hosts_excludes_all_others() {
    let guard = Guard::new(Rules { hosts: hosts(&["*.example.com"]), ..public() });
    let cases = [
        ("https://hooks.example.com/", None),
        ("https://example.com/", Some(Refusal::Host)),
        ("https://hooks.example.com.evil.example/", Some(Refusal::Host)),
        ("https://8.8.8.8/", Some(Refusal::Host)),
    ];
    for (url, expected) in cases {
        assert_eq!(guard.read(url).err(), expected, "{url}");
    }
}

#[tokio::test]
async fn an_internal_host_may_have_a_private_address_but_no_metadata_address() {
    let rules = Rules { internal_hosts: hosts(&["hooks.internal", "*.corp.example"]), ..public() };
    let fixture = Fixture::new(rules, None);
    let cases: &[(&str, &str, bool)] = &[
        ("hooks.internal", "10.1.2.3", true),
        ("hooks.internal", "127.0.0.1", true),
        ("hooks.internal", "fd00::7", true),
        ("a.corp.example", "100.64.0.1", true),
        ("a.corp.example", "8.8.8.8", true),
        ("hooks.internal", "169.254.169.254", false),
        ("a.corp.example", "100.100.100.200", false),
        ("a.corp.example", "fd00:ec2::254", false),
        ("a.corp.example", "fd20:ce::254", false),
        ("hooks.internal", "fe80::1", false),
        ("hooks.internal", "0.0.0.0", false),
        ("hooks.internal", "::ffff:10.1.2.3", false),
        ("other.internal", "10.1.2.3", false),
        ("other.internal", "8.8.8.8", false),
        ("other.example", "10.1.2.3", false),
    ];
    for (host, address, is_called) in cases {
        fixture.names.add(host, &[&[address]]);
        let error = fixture.outbound.post(post(&format!("http://{host}:8080/"))).await.unwrap_err();
        let expected = if *is_called { ErrorKind::Connect } else { ErrorKind::Refused };
        assert_eq!(error.kind(), expected, "{host} at {address}: {error}");
    }
    assert_eq!(fixture.dialled().len(), cases.iter().filter(|(.., is_called)| *is_called).count());
}

#[tokio::test]
async fn an_internal_network_may_be_called_by_address_and_by_any_name() {
    let networks = ["10.1.0.0/16", "127.0.0.0/8"].map(|network| network.parse().unwrap()).to_vec();
    let fixture = Fixture::new(Rules { internal_networks: networks, ..public() }, None);
    fixture.names.add("localhost", &[&["127.0.0.1"]]);
    fixture.names.add("metadata", &[&["169.254.169.254"]]);
    fixture.names.add("intranet", &[&["8.8.8.8"]]);
    fixture.names.add("hooks.example", &[&["10.1.255.1"]]);
    fixture.names.add("mixed.example", &[&["10.1.0.1", "10.2.0.1"]]);
    let cases = [
        ("http://10.1.2.3/", ErrorKind::Connect),
        ("http://10.2.0.1/", ErrorKind::Refused),
        ("http://localhost:9000/", ErrorKind::Connect),
        ("http://[::1]/", ErrorKind::Refused),
        ("http://[::ffff:127.0.0.1]/", ErrorKind::Refused),
        ("http://hooks.example/", ErrorKind::Connect),
        ("http://mixed.example/", ErrorKind::Refused),
        ("http://metadata/", ErrorKind::Refused),
        ("http://intranet/", ErrorKind::Refused),
        ("http://unknown/", ErrorKind::Dns),
    ];
    for (url, expected) in cases {
        let error = fixture.outbound.post(post(url)).await.unwrap_err();
        assert_eq!(error.kind(), expected, "{url}: {error}");
    }
}

#[test]
fn a_refusal_does_not_tell_which_names_and_addresses_exist() {
    let texts = [Refusal::LocalName, Refusal::Address("private"), Refusal::Address("loopback")];
    let texts: std::collections::BTreeSet<String> = texts.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1);
}
