//! One call on a real connection.

use std::sync::Arc;
use std::time::Duration;

use longshore_outbound::{ErrorKind, RetryAfter, Timeouts, Trust};
use longshore_testkit::certificates::Authority;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::fixture::{
    Fixture, impatient_for_body, impatient_for_response, on_loopback, post, public, read_request, receiver,
};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn trust() -> Trust {
    Trust::new(None).unwrap()
}

#[tokio::test]
async fn a_request_has_its_headers_and_body_and_no_other_framing() {
    let (address, requests) = receiver(&[OK]).await;
    let outbound = on_loopback(trust(), Timeouts::default());
    let url = format!("http://{address}/hook?token=t#fragment");
    let mut post = post(&url);
    for (name, value) in [("content-type", "application/json"), ("x-a2a-notification-token", "t")] {
        post.headers.insert(name, value.parse().unwrap());
    }
    // Headers that the caller may have set, and that must be replaced.
    for (name, value) in
        [("content-length", "99"), ("transfer-encoding", "chunked"), ("host", "evil.example")]
    {
        post.headers.insert(name, value.parse().unwrap());
    }
    let answer = outbound.post(post).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.retry_after), (200, None));
    let request = requests.lock().unwrap()[0].1.to_lowercase();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    assert_eq!((lines.remove(0), body), ("post /hook?token=t http/1.1", "{\"a\":1}"));
    lines.sort_unstable();
    let (host, agent) =
        (format!("host: {address}"), concat!("user-agent: longshore/", env!("CARGO_PKG_VERSION")));
    let expected =
        ["content-length: 7", "content-type: application/json", &host, agent, "x-a2a-notification-token: t"];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn any_status_is_an_answer_and_a_redirect_is_not_followed() {
    let (other, not_called) = receiver(&[OK]).await;
    let redirect: &'static str =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{other}/\r\ncontent-length: 0\r\n\r\n")
            .leak();
    let (address, _) = receiver(&[
        redirect,
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: soon\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
    ])
    .await;
    let outbound = on_loopback(trust(), Timeouts::default());
    let url = format!("http://{address}/");
    let wait = Some(RetryAfter::Wait(Duration::from_secs(7)));
    for expected in [(307, None), (429, wait), (503, None), (204, None)] {
        let answer = outbound.post(post(&url)).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.retry_after), expected);
    }
    assert!(not_called.lock().unwrap().is_empty(), "the redirect was followed");
}

#[tokio::test]
async fn a_connection_is_used_again_until_the_receiver_closes_it() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (address, requests) = receiver(&[OK, OK, closing, OK]).await;
    let outbound = on_loopback(trust(), Timeouts::default());
    for _ in 0..4 {
        outbound.post(post(&format!("http://{address}/"))).await.unwrap();
    }
    let connections: Vec<usize> =
        requests.lock().unwrap().iter().map(|(connection, _)| *connection).collect();
    assert_eq!(connections, [1, 1, 1, 2]);
}

/// A connection is not reused for another name at the same address, because that name may have another certificate.
#[tokio::test]
async fn a_connection_belongs_to_one_name() {
    let (address, _) = receiver(&[OK, OK, OK]).await;
    let fixture = Fixture::new(public(), Some(address));
    for name in ["a.example", "b.example"] {
        fixture.names.add(name, &[&["8.8.8.8"]]);
    }
    for (name, dialled) in [("a.example", 1), ("a.example", 1), ("b.example", 2)] {
        fixture.outbound.post(post(&format!("http://{name}/"))).await.unwrap();
        assert_eq!(fixture.dialled().len(), dialled, "{name}");
    }
}

#[tokio::test]
async fn each_failure_has_its_kind_and_a_text_without_secrets() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (hangs_up, _) = receiver(&[""]).await;
    let (half, _) = receiver(&["HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-le"]).await;
    let (garbage, _) = receiver(&["SSH-2.0-OpenSSH_9.6\r\n\r\n"]).await;
    let outbound = on_loopback(trust(), Timeouts::default());
    let cases = [
        (format!("http://{closed}"), ErrorKind::Connect),
        (format!("http://{hangs_up}"), ErrorKind::Closed),
        (format!("http://{half}"), ErrorKind::Closed),
        (format!("http://{garbage}"), ErrorKind::InvalidResponse),
        ("http://unknown.example".to_owned(), ErrorKind::Dns),
        ("http://10.0.0.1".to_owned(), ErrorKind::Refused),
    ];
    for (url, expected) in cases {
        let url = format!("{url}/secret-path?token=secret-token");
        let mut post = post(&url);
        post.headers.insert("authorization", "Bearer secret-credential".parse().unwrap());
        let error = outbound.post(post).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert_eq!((error.kind(), shown.contains("secret")), (expected, false), "{url}: {shown}");
    }
}

#[tokio::test]
async fn a_receiver_that_never_answers_is_left_after_the_timeout() {
    let (address, requests) = receiver(&[]).await;
    let outbound = on_loopback(trust(), impatient_for_response());
    for expected in 1..=2 {
        let error = outbound.post(post(&format!("http://{address}/"))).await.unwrap_err();
        assert_eq!((error.kind(), requests.lock().unwrap().len()), (ErrorKind::Timeout, expected), "{error}");
    }
}

/// A receiver that sends a status has the event. Its body cannot delay the delivery for longer than the timeout.
#[tokio::test]
async fn a_body_that_is_slow_long_or_cut_off_changes_nothing() {
    let long: &'static str = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(200_000)).leak();
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nslow",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 100\r\n\r\ncut off",
        long,
    ] {
        let (address, requests) = receiver(&[answer]).await;
        let outbound = on_loopback(trust(), impatient_for_body());
        let status = outbound.post(post(&format!("http://{address}/"))).await.unwrap().status;
        assert_eq!((status.as_u16(), requests.lock().unwrap().len()), (200, 1));
    }
}

#[tokio::test]
async fn a_certificate_must_be_of_a_trusted_authority() {
    let authority = Authority::new("Receivers");
    let identity = authority.server();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if read_request(&mut stream).await.is_some() {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                    .await
                    .unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    let trusting = Trust::new(Some(&authority.certificate)).unwrap();
    let timeouts = Timeouts::default();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{port}/");
        let answer = on_loopback(trusting.clone(), timeouts).post(post(&url)).await.unwrap();
        assert_eq!(answer.status.as_u16(), 200);
        let error = on_loopback(trust(), timeouts).post(post(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    }
}

#[test]
fn a_file_without_a_certificate_is_refused() {
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for text in ["", "nonsense", broken] {
        Trust::new(Some(text)).unwrap_err();
    }
}
