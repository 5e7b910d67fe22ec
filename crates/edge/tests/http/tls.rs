//! TLS: what a client may negotiate, client certificates, reloads, and clients that do not cooperate.

use std::sync::Arc;
use std::time::Duration;

use longshore_edge::{CertificateMatch, Credential, EdgeConfig, Listeners, Tls, TlsError};
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_testkit::certificates::{Authority, Identity};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::rustls::version;

use crate::support::log_lines::LogLines;
use crate::support::route::{Route, TlsClient, parts, tls, tls_with_clients};
use crate::support::{ADA, BOB, Events, Gateway, PATIENCE, credentials_builder, message};

async fn gateway(tls: Tls, configure: impl FnOnce(&mut EdgeConfig)) -> Gateway {
    let listeners = Listeners { tls: Some(tls), ..Listeners::default() };
    Gateway::manual_listening(listeners, configure).await
}

/// Sends a message that the agent keeps working on. Returns the task's id.
async fn task_of_ada(gateway: &Gateway, route: &Route) -> String {
    let body = json!({"message": message("m1", "go"), "configuration": {"returnImmediately": true}});
    let answer = gateway.call("POST", "/message:send").json(&body).over(route).send().await;
    answer.json()["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_chooses_the_version_and_the_protocol() {
    let authority = Authority::new("test");
    let gateway = gateway(tls(&authority.server()), |_| {}).await;
    let cases: [(&[&str], Option<&str>, bool); 4] = [
        (&["h2", "http/1.1"], Some("h2"), true),
        (&["http/1.1"], Some("http/1.1"), false),
        // A client that offers no protocol.
        (&[], None, false),
        (&[], None, true),
    ];
    for version in [&version::TLS13, &version::TLS12] {
        for (offered, chosen, http2) in cases {
            let client = TlsClient::new(&authority, None, &[version], offered);
            let stream = client.connect(TcpStream::connect(gateway.address).await.unwrap()).await.unwrap();
            let connection = stream.get_ref().1;
            assert_eq!(connection.protocol_version(), Some(version.version));
            assert_eq!(connection.alpn_protocol(), chosen.map(str::as_bytes), "{offered:?}");
            let route = Route::Tls(gateway.address, client);
            let call = gateway.call("GET", "/tasks").over(&route);
            let answer = if http2 { call.http2() } else { call }.send().await;
            assert_eq!(answer.status.as_u16(), 200, "{offered:?}");
        }
    }
    let client = TlsClient::new(&authority, None, &[&version::TLS13], &["h3"]);
    let refused = client.connect(TcpStream::connect(gateway.address).await.unwrap()).await;
    assert!(refused.is_err(), "the gateway serves no protocol that the client offers");
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_certificate_is_a_credential_of_its_principal_only() {
    let (authority, clients) = (Authority::new("test"), Authority::new("clients"));
    let [ada, bob, renewed, nobody, both] = [
        clients.client(&["spiffe://test/ada"]),
        clients.client(&[]),
        clients.client(&["Ada.Example.COM"]),
        clients.client(&["carl.example.com"]),
        clients.client(&["ada.example.com", "bob.example.com"]),
    ];
    let digest: Vec<String> = Sha256::digest(bob.der()).iter().map(|byte| format!("{byte:02X}")).collect();
    let credentials = [
        (CertificateMatch::name("spiffe://test/ada"), "ada"),
        (CertificateMatch::name("ada.example.com"), "ada"),
        (CertificateMatch::name("bob.example.com"), "bob"),
        (CertificateMatch::fingerprint(&digest.join(":")), "bob"),
    ];
    let credentials = credentials.into_iter().fold(credentials_builder(), |builder, (known, principal)| {
        builder.with(Credential::certificate(&known.unwrap(), principal))
    });
    let tls = tls_with_clients(&authority.server(), &clients, false);
    let gateway = gateway(tls, |config| config.credentials = credentials.build().unwrap()).await;
    let presenting = |identity| Route::Tls(gateway.address, TlsClient::presenting(&authority, identity));
    let without = Route::Tls(gateway.address, TlsClient::trusting(&authority));
    let task = task_of_ada(&gateway, &without).await;
    // The certificate, the header, and the status of a request for ada's task.
    let cases: [(&Route, &str, u16); 12] = [
        (&without, "", 401),
        (&without, "Bearer wrong", 401),
        (&without, ADA, 200),
        (&without, BOB, 404),
        (&presenting(&ada), "", 200),
        (&presenting(&renewed), "", 200),
        (&presenting(&bob), "", 404),
        // A valid certificate that no credential names.
        (&presenting(&nobody), "", 401),
        (&presenting(&nobody), ADA, 200),
        // The names belong to two principals.
        (&presenting(&both), "", 401),
        // A header counts alone.
        (&presenting(&ada), "Bearer wrong", 401),
        (&presenting(&ada), BOB, 404),
    ];
    for (index, (route, header, expected)) in cases.into_iter().enumerate() {
        let call = gateway.call("GET", &format!("/tasks/{task}")).header("authorization", header);
        for call in [call.clone(), call.http2()] {
            let answer = call.over(route).send().await;
            assert_eq!(answer.status.as_u16(), expected, "case {index}: {:?}", answer.body);
            if expected == 401 {
                assert!(answer.header("www-authenticate").contains("ClientCertificate"), "case {index}");
            }
        }
    }
    gateway.stop().await;
}

/// Whether the handshake succeeds, and a request after it: in TLS 1.3 a client learns only then that its certificate was refused.
async fn is_served(gateway: &Gateway, client: &TlsClient) -> bool {
    let Ok(mut stream) = client.connect(TcpStream::connect(gateway.address).await.unwrap()).await else {
        return false;
    };
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let mut answer = Vec::new();
    let exchange = async {
        stream.write_all(request).await?;
        stream.read_to_end(&mut answer).await
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("an answer or a refusal").is_ok()
}

#[tokio::test]
async fn an_expired_or_foreign_client_certificate_is_refused_and_a_missing_one_if_it_is_required() {
    let (authority, clients) = (Authority::new("test"), Authority::new("clients"));
    let server = authority.server();
    let [valid, expired] = [clients.client(&["a.example.com"]), clients.expired_client(&["a.example.com"])];
    // The name of the authority is right, and the key is not.
    let foreign = Authority::new("clients").client(&["a.example.com"]);
    // A certificate of a server is not one of a client.
    let of_server = clients.server();
    for is_required in [false, true] {
        let gateway = gateway(tls_with_clients(&server, &clients, is_required), |_| {}).await;
        let cases: [(Option<&Identity>, bool); 5] = [
            (Some(&valid), true),
            (Some(&expired), false),
            (Some(&foreign), false),
            (Some(&of_server), false),
            (None, !is_required),
        ];
        for (index, (identity, expected)) in cases.into_iter().enumerate() {
            for version in [&version::TLS13, &version::TLS12] {
                let client = TlsClient::new(&authority, identity, &[version], &[]);
                assert_eq!(is_served(&gateway, &client).await, expected, "case {index}");
            }
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_reload_drops_none_of_100_streams_and_new_connections_use_the_new_certificate() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let state = tls(&old.server());
    let mut gateway = gateway(state.clone(), |_| {}).await;
    let route = Route::Tls(gateway.address, TlsClient::trusting(&old));
    let task = task_of_ada(&gateway, &route).await;
    let turn = gateway.turns.recv().await.unwrap();
    let mut streams = Vec::new();
    for number in 0..100 {
        let call = gateway.call("GET", &format!("/tasks/{task}:subscribe")).over(&route);
        let mut events = if number % 2 == 0 { call } else { call.http2() }.stream().await;
        events.next().await.unwrap();
        streams.push(events);
    }

    let other = new.server();
    let mixed = Identity { key: old.server().key, ..other.clone() };
    let broken = Identity { certificate: "no certificate".to_owned(), ..other.clone() };
    let refused = |identity: &Identity| state.replace(&parts(identity, &identity.key.clone().into()));
    assert_eq!(refused(&mixed), Err(TlsError::Mismatch));
    assert!(matches!(refused(&broken), Err(TlsError::Certificate(_))));
    assert!(is_served(&gateway, &TlsClient::trusting(&old)).await, "the old certificate stays in use");
    assert_eq!(refused(&other), Ok(()));
    assert!(is_served(&gateway, &TlsClient::trusting(&new)).await);
    assert!(!is_served(&gateway, &TlsClient::trusting(&old)).await);

    turn.say("b1", "Still here.").await;
    for events in &mut streams {
        assert!(events.next().await.unwrap().raw.contains("Still here."));
    }
    turn.complete().await;
    for events in &mut streams {
        let last = events.rest().await.pop().unwrap();
        assert_eq!(last.data["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    gateway.stop().await;
}

/// Handshakes that stop in the middle hold connections, but only until the timeout, and only until others need them.
#[tokio::test]
async fn unfinished_handshakes_keep_nobody_out_and_end() {
    let authority = Authority::new("test");
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let gateway = gateway(tls(&authority.server()), |config| {
        config.limits.connections = 8;
        config.header_timeout = Duration::from_secs(1);
        config.metrics = counted;
    })
    .await;
    let _lines = LogLines::begin();
    let route = Route::Tls(gateway.address, TlsClient::trusting(&authority));
    let mut hanging = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        // The beginning of a ClientHello. The oldest connections may be closed by now.
        let _ = stream.write_all(&[0x16, 3, 1, 1, 0, 1, 0]).await;
        hanging.push(stream);
        if number % 8 == 0 {
            let answer = gateway.call("GET", "/tasks").over(&route).send().await;
            assert_eq!(answer.status.as_u16(), 200);
        }
    }
    assert!(metrics.connections.get() <= 8, "{}", metrics.connections.get());
    assert!(metrics.refused.of(Limit::Connections).get() > 0);
    for mut stream in hanging {
        let mut bytes = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is closed");
    }
    gateway.stop().await;
}

/// More than all buffers between a gateway and a client together.
const PIECES: usize = 80;
const PIECE: usize = 64 * 1024;

#[tokio::test]
async fn a_client_that_takes_no_byte_is_disconnected() {
    let authority = Authority::new("test");
    let metrics = Arc::new(Metrics::new("1"));
    let counted = Arc::clone(&metrics);
    let mut gateway = gateway(tls(&authority.server()), |config| {
        config.write_timeout = Duration::from_millis(200);
        config.metrics = counted;
    })
    .await;
    let _lines = LogLines::begin();
    let client = TlsClient::trusting(&authority);
    for (number, http2) in [false, true].into_iter().enumerate() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let stream = client.connect(socket.connect(gateway.address).await.unwrap()).await.unwrap();
        let body = json!({"message": message(&format!("m{number}"), "go")});
        let call = gateway.call("POST", "/message:stream").json(&body);
        let stalled = if http2 { call.http2() } else { call }.exchange_on(Box::new(stream)).await;
        let turn = gateway.turns.recv().await.unwrap();
        for piece in 0..PIECES {
            turn.say(&format!("b{piece}"), &"x".repeat(PIECE)).await;
        }
        let ended = async {
            while metrics.stream_active.get() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the stalled stream ends");
        assert_eq!(metrics.refused.of(Limit::WriteTimeout).get(), number as u64 + 1);
        drop(stalled);
        turn.complete().await;
    }
    gateway.stop().await;
}

/// A client that is cut in the middle of a stream resumes on a new connection without a gap.
#[tokio::test]
async fn a_cut_stream_is_resumed() {
    let authority = Authority::new("test");
    let mut gateway = gateway(tls(&authority.server()), |_| {}).await;
    let route = Route::Tls(gateway.address, TlsClient::trusting(&authority));
    let task = task_of_ada(&gateway, &route).await;
    let turn = gateway.turns.recv().await.unwrap();
    let subscribe = gateway.call("GET", &format!("/tasks/{task}:subscribe")).over(&route);
    let mut events: Events = subscribe.clone().stream().await;
    turn.say("b1", "Before.").await;
    let mut last = events.next().await.unwrap();
    while !last.raw.contains("Before.") {
        last = events.next().await.unwrap();
    }
    drop(events);
    turn.say("b2", "Meanwhile.").await;
    let cursor = last.cursor.unwrap();
    let mut resumed = subscribe.header("last-event-id", &cursor).stream().await;
    let next = resumed.next().await.unwrap();
    assert_eq!(next.id, last.id.map(|id| id + 1));
    assert!(next.raw.contains("Meanwhile."), "{}", next.raw);
    turn.complete().await;
    resumed.rest().await;
    gateway.stop().await;
}
