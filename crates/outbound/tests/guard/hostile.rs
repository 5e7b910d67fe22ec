//! Spellings of URLs that lead, or could lead, to a service that only this machine or its network can reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_outbound::{ErrorKind, Guard, Outbound, Timeouts, Trust};
use tokio::net::TcpListener;

use crate::fixture::{Fixture, post, public};

/// Spellings of this machine. `{port}` is replaced by the port of a listener.
const LOOPBACK: &[&str] = &[
    "http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}",
    "HTTP://127.0.0.1:{port}/",
    "http://127.0.0.2:{port}/",
    "http://127.1.2.3:{port}/",
    "http://127.255.255.254:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://LocalHost:{port}/",
    "http://localhost.:{port}/",
    "http://localhost..:{port}/",
    "http://.localhost:{port}/",
    "http://a.localhost:{port}/",
    "http://localhost.localdomain:{port}/",
    "http://ip6-localhost:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.0.0.1..:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://127.1.:{port}/",
    "http://2130706433:{port}/",
    "http://2130706433.:{port}/",
    "http://02130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0x7f000001:{port}/",
    "http://0X7F000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0x7f.0x0.0x0.0x1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.1:{port}/",
    "http://0177.0x0.0.1:{port}/",
    "http://0000177.0.0.01:{port}/",
    "http://127.0.0.01:{port}/",
    "http://127.0.0.0x1:{port}/",
    "http://127.000.000.001:{port}/",
    "http://0127.0.0.1:{port}/",
    "http://6425673729:{port}/",
    "http://127.0.0.257:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0.0:{port}/",
    "http://0x0:{port}/",
    "http://00.00.00.00:{port}/",
    "http://0.0.0.1:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000:0000:0000:0000:0000:0000:0000:0001]:{port}/",
    "http://[::0.0.0.1]:{port}/",
    "http://[0::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[::FFFF:7F00:0001]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[::7f00:1]:{port}/",
    "http://[::ffff:0:127.0.0.1]:{port}/",
    "http://[::ffff:0.0.0.0]:{port}/",
    "http://[::1%25lo]:{port}/",
    "http://[::1%lo]:{port}/",
    "http://[::1%251]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://[64:ff9b::127.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::]:{port}/",
    "http://127.0.0.1%00.example.com:{port}/",
    "http://127%2e0%2e0%2e1:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http://%6c%6f%63alhost:{port}/",
    "http://localhost%00:{port}/",
    "http://localhost%2e:{port}/",
    "http://localhost%20:{port}/",
    "http://localhost%09:{port}/",
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://user:pass@127.0.0.1:{port}/",
    "http://@127.0.0.1:{port}/",
    "http://:@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@example.com/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://example.com%40127.0.0.1:{port}/",
    "http://example.com#@127.0.0.1:{port}/\\",
    "http:\\\\127.0.0.1:{port}\\",
    "http:/\\127.0.0.1:{port}/",
    "http:127.0.0.1:{port}/",
    "http:/127.0.0.1:{port}/",
    "http:///127.0.0.1:{port}/",
    "http:////127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    "127.0.0.1:{port}",
    " http://127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/ ",
    "\thttp://127.0.0.1:{port}/",
    "ht\ntp://127.0.0.1:{port}/",
    "http://127.0.\t0.1:{port}/",
    "http://127.0.0.1\r\n:{port}/",
    "http://127.0.0.1:{port}/\r\nX-Injected: 1",
    "http://local\u{0}host:{port}/",
    "http://127。0。0。1:{port}/",
    "http://127．0．0．1:{port}/",
    "http://１２７.０.０.１:{port}/",
    "http://①②⑦.0.0.1:{port}/",
    "http://⑫7.0.0.1:{port}/",
    "http://ｌｏｃａｌｈｏｓｔ:{port}/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/",
    "http://loca\u{ad}lhost:{port}/",
    "http://local\u{200b}host:{port}/",
    "http://LOCALHO\u{17f}T:{port}/",
    "http://0x7f.0.0.1:0{port}/",
    "http://127.0.0.1:+{port}/",
    "http://127.0.0.1:/",
    "http://localtest.me:{port}/",
    "http://127.0.0.1.nip.io:{port}/",
    "http://7f000001.nip.io:{port}/",
];

/// Other addresses and names that are no public host, and texts that are no URL.
const OTHERS: &[&str] = &[
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254./latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://0xa9.0xfe.0xa9.0xfe/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::a9fe:a9fe]/",
    "http://169.254.170.2/v2/credentials",
    "http://100.100.100.200/latest/meta-data/",
    "http://168.63.129.16/machine",
    "http://192.0.0.192/opc/v1/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata/",
    "http://instance-data/",
    "http://kubernetes.default.svc.cluster.local/",
    "http://kubernetes/",
    "http://printer.local/",
    "http://router.lan/",
    "http://nas.home.arpa/",
    "http://intranet.corp/",
    "http://example.onion/",
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://012.0.0.1/",
    "http://167772161/",
    "http://0xa000001/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://192.168.257/",
    "http://3232235521/",
    "http://0xc0a80001/",
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://192.0.2.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://198.18.0.1/",
    "http://198.19.255.255/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fc00::1]/",
    "http://[fdff:ffff::1]/",
    "http://[fec0::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[febf::1]/",
    "http://[ff02::1]/",
    "http://[100::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[2001:2::1]/",
    "http://[2001:10::1]/",
    "http://[5f00::1]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[2606:4700::5efe:a00:1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://134744072/",
    "http://8.8.2056/",
    "http://010.8.8.8/",
    "http://8.8.8.8./",
    "http://hooks.example.com./",
    "http://hooks..example.com/",
    "http://bücher.example/",
    "http://xn--/",
    "http://user@hooks.example.com/",
    "http://hooks.example.com:0/",
    "http://hooks.example.com:99999/",
    "http://hooks.example.com:/",
    "http://hooks.example.com:080/",
    "http://hooks.example.com:80:80/",
    "http://hooks,example.com/",
    "http://hooks.example.com;a/",
    "http://{hooks}.example.com/",
    "http://hooks.example.com|/",
    "http://[::1/",
    "http://::1/",
    "http://[127.0.0.1]/",
    "http://[v1.127]/",
    "http:///",
    "http://",
    "http://?",
    "https://#",
    "",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "file://hooks.example.com/etc/passwd",
    "gopher://hooks.example.com:6379/_FLUSHALL",
    "dict://hooks.example.com:11211/stat",
    "unix:///run/docker.sock",
    "data:text/plain,hello",
    "javascript:alert(1)",
    "jar:http://hooks.example.com!/",
    "ws://hooks.example.com/",
];

/// Names that anybody can register and resolve to an address of this machine or its network.
const NAMES: &[(&str, &[&str])] = &[
    ("localtest.me", &["127.0.0.1"]),
    ("127.0.0.1.nip.io", &["127.0.0.1"]),
    ("7f000001.nip.io", &["127.0.0.1"]),
    ("localhost", &["127.0.0.1", "::1"]),
    ("a.localhost", &["127.0.0.1"]),
    ("ip6-localhost", &["::1"]),
    ("localhost.localdomain", &["127.0.0.1"]),
    // An attacker gains nothing here, but the name is refused even with a public address.
    ("metadata", &["8.8.8.8"]),
    ("metadata.google.internal", &["169.254.169.254"]),
];

#[tokio::test]
async fn every_hostile_spelling_is_refused_before_a_connection_is_tried() {
    let fixture = Fixture::new(public(), None);
    for (name, addresses) in NAMES {
        fixture.names.add(name, &[addresses]);
    }
    let urls: Vec<String> = LOOPBACK.iter().chain(OTHERS).map(|url| url.replace("{port}", "8080")).collect();
    let different: std::collections::BTreeSet<&String> = urls.iter().collect();
    assert!(different.len() == urls.len() && urls.len() >= 150, "{} of {}", different.len(), urls.len());
    let mut accepted = Vec::new();
    for url in &urls {
        // Registration and call must give the same result.
        let is_refused = fixture.outbound.check(url).await.is_err();
        let called = fixture.outbound.post(post(url)).await;
        if !is_refused || called.map_err(|error| error.kind()) != Err(ErrorKind::Refused) {
            accepted.push(url);
        }
    }
    assert!(accepted.is_empty(), "not refused: {accepted:#?}");
    assert_eq!(fixture.dialled(), [], "a refused URL was dialled");
}

/// Uses the system's resolver and real connections: no call arrives at a listener on this machine, over IPv4 or IPv6.
#[tokio::test]
async fn no_loopback_spelling_reaches_a_listener_on_this_machine() {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // A machine without IPv6 has no IPv6 listener.
    let listener6 = TcpListener::bind(("::1", port)).await.ok();
    let arrived = Arc::new(AtomicUsize::new(0));
    for listener in [Some(listener), listener6].into_iter().flatten() {
        let arrived = Arc::clone(&arrived);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                arrived.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let outbound = Outbound::new(Guard::new(public()), Trust::new(None).unwrap(), Timeouts::default());
    for url in LOOPBACK.iter().filter(|url| !url.contains("nip.io") && !url.contains("localtest.me")) {
        let url = url.replace("{port}", &port.to_string());
        let error = outbound.post(post(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error}");
    }
    // A real connection shows that the listener would have noticed one.
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    while arrived.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(arrived.load(Ordering::SeqCst), 1);
}

/// The name resolves to a public address when it is checked, and to a private one when it is called.
#[tokio::test]
async fn an_answer_of_the_resolver_that_changes_is_refused_before_a_connection_is_tried() {
    for private in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1", "::ffff:127.0.0.1", "fd00:ec2::254"] {
        let fixture = Fixture::new(public(), None);
        fixture.names.add("rebind.example", &[&["8.8.8.8"], &[private]]);
        fixture.outbound.check("http://rebind.example/").await.unwrap();
        let error = fixture.outbound.post(post("http://rebind.example/")).await.unwrap_err();
        assert_eq!((error.kind(), fixture.dialled()), (ErrorKind::Refused, vec![]), "{private}");
    }
}

/// A call resolves the name once, and connects to the address from that answer.
#[tokio::test]
async fn a_call_connects_to_the_checked_address_without_a_second_question() {
    let fixture = Fixture::new(public(), None);
    fixture.names.add("rebind.example", &[&["8.8.8.8"], &["127.0.0.1"]]);
    let error = fixture.outbound.post(post("http://rebind.example/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert_eq!(fixture.dialled(), ["8.8.8.8:80".parse().unwrap()]);
}

#[tokio::test]
async fn one_private_address_among_public_ones_refuses_them_all() {
    let fixture = Fixture::new(public(), None);
    fixture.names.add("mixed.example", &[&["8.8.8.8", "10.0.0.1"]]);
    let error = fixture.outbound.post(post("http://mixed.example/")).await.unwrap_err();
    assert_eq!((error.kind(), fixture.dialled()), (ErrorKind::Refused, vec![]));
}

#[tokio::test]
async fn a_name_without_an_address_is_accepted_at_the_registration_and_fails_at_the_call() {
    let fixture = Fixture::new(public(), None);
    fixture.outbound.check("https://later.example/").await.unwrap();
    let error = fixture.outbound.post(post("https://later.example/")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Dns, true));
}
