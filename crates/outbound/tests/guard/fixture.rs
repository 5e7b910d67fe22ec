//! A resolver with scripted answers, a dialer that records addresses, and a receiver on a real socket.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use longshore_outbound::{
    BoxFuture, Dialer, Guard, Outbound, Post, Resolver, Rules, Scheme, TcpDialer, Timeouts, Trust,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A resolver with scripted answers. Each lookup of a name returns its next answer; the last one repeats. Other names have no
/// address.
#[derive(Debug, Default)]
pub(crate) struct PreparedNames(Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>);

impl PreparedNames {
    pub(crate) fn add(&self, name: &str, answers: &[&[&str]]) {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        self.0.lock().unwrap().insert(name.to_owned(), answers.iter().map(parse).collect());
    }
}

impl Resolver for PreparedNames {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let mut names = self.0.lock().unwrap();
        let answer = names.get_mut(host).and_then(|answers| {
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
        });
        let answer = answer.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(std::future::ready(answer))
    }
}

/// A dialer that records the address of each connection. It connects to `instead`, or refuses.
#[derive(Debug, Default)]
pub(crate) struct RecordingDialer {
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
    pub(crate) instead: Option<SocketAddr>,
}

impl Dialer for RecordingDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        self.dialled.lock().unwrap().push(address);
        let instead = self.instead;
        Box::pin(async move {
            let address = instead.ok_or(io::ErrorKind::ConnectionRefused)?;
            TcpStream::connect(address).await
        })
    }
}

/// An [`Outbound`] with a fake resolver and a fake dialer.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) outbound: Outbound,
    pub(crate) names: Arc<PreparedNames>,
    pub(crate) dialer: Arc<RecordingDialer>,
}

impl Fixture {
    pub(crate) fn new(rules: Rules, instead: Option<SocketAddr>) -> Self {
        let names = Arc::new(PreparedNames::default());
        let dialer = Arc::new(RecordingDialer { instead, ..RecordingDialer::default() });
        let outbound = Outbound::with(
            Guard::new(rules),
            Trust::new(None).unwrap(),
            Timeouts::default(),
            Arc::clone(&names) as Arc<dyn Resolver>,
            Arc::clone(&dialer) as Arc<dyn Dialer>,
        );
        Self { outbound, names, dialer }
    }

    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        self.dialer.dialled.lock().unwrap().clone()
    }
}

/// Rules that allow every scheme and port, but only the public Internet.
pub(crate) fn public() -> Rules {
    Rules { schemes: vec![Scheme::Https, Scheme::Http], ports: vec![1..=u16::MAX], ..Rules::default() }
}

/// Rules that also allow this machine.
pub(crate) fn with_loopback() -> Rules {
    let internal_networks = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap()).to_vec();
    Rules { internal_networks, ..public() }
}

/// An [`Outbound`] with real connections to receivers on this machine.
pub(crate) fn on_loopback(trust: Trust, timeouts: Timeouts) -> Outbound {
    let names = PreparedNames::default();
    names.add("localhost", &[&["127.0.0.1"]]);
    Outbound::with(Guard::new(with_loopback()), trust, timeouts, Arc::new(names), Arc::new(TcpDialer))
}

pub(crate) fn post(url: &str) -> Post<'_> {
    Post { url, headers: HeaderMap::new(), body: Bytes::from_static(b"{\"a\":1}") }
}

/// A short timeout for the response that never comes, and long ones for everything else.
pub(crate) fn impatient_for_response() -> Timeouts {
    Timeouts { response: SHORT, ..Timeouts::default() }
}

pub(crate) fn impatient_for_body() -> Timeouts {
    Timeouts { body: SHORT, ..Timeouts::default() }
}

const SHORT: Duration = Duration::from_millis(100);

/// A receiver that answers each request with the next text. An empty text closes the connection. After the last text, requests get
/// no answer. Returns the address, and the received requests with the numbers of their connections.
pub(crate) async fn receiver(answers: &[&'static str]) -> (SocketAddr, Arc<Mutex<Vec<(usize, String)>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    tokio::spawn(async move {
        for connection in 1.. {
            let Ok((mut stream, _)) = listener.accept().await else { break };
            let (seen, answers) = (Arc::clone(&seen), Arc::clone(&answers));
            tokio::spawn(async move {
                while let Some(request) = read_request(&mut stream).await {
                    seen.lock().unwrap().push((connection, request));
                    let answer = answers.lock().unwrap().pop_front();
                    let Some(answer) = answer else { continue };
                    let is_last = answer.is_empty() || answer.contains("connection: close");
                    if stream.write_all(answer.as_bytes()).await.is_err() || is_last {
                        break;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// Reads one request with a `Content-Length`. `None`: the connection has ended.
pub(crate) async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_lowercase().split_once("content-length: ").map(|(_, rest)| {
                rest.lines().next().unwrap_or_default().trim().parse::<usize>().unwrap_or_default()
            });
            if body.len() >= length.unwrap_or_default() {
                return Some(text.into_owned());
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}
