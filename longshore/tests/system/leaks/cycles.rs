//! Requests of all kinds that are interrupted in all ways, as a seed decides.

use std::collections::BTreeMap;
use std::ops::Range;

use futures_util::stream::{self, StreamExt};
use longshore_testkit::chaos::{ClientProtocol, ClientRequest, Transport};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};

use crate::leaks::connection::{Disconnect, is_refused_by_grpc, with_connection_close};
use crate::leaks::fixture::Fixture;

/// How many requests run at the same time.
const AT_ONCE: usize = 16;

/// What a client requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RequestKind {
    /// The stream of a new task, which runs and ends whether a client reads it or not.
    NewTask,
    /// The stream of a running task, by sending its message again.
    SendAgain,
    Subscribe,
    /// A subscription with `Last-Event-ID`.
    Resume,
    Http2Subscribe,
    /// The whole log of an ended task, which is long.
    Replay,
    Get,
    /// A new task, with an answer at its end.
    SendAndWait,
    /// A part of the request head.
    TornHead,
    /// A part of the request body.
    TornBody,
}

impl RequestKind {
    /// Each kind with its weight.
    const ALL: [(Self, u64); 10] = [
        (Self::NewTask, 3),
        (Self::SendAgain, 3),
        (Self::Subscribe, 3),
        (Self::Resume, 3),
        (Self::Http2Subscribe, 1),
        (Self::Replay, 2),
        (Self::Get, 1),
        (Self::SendAndWait, 1),
        (Self::TornHead, 1),
        (Self::TornBody, 1),
    ];

    fn is_stream(self) -> bool {
        matches!(self, Self::NewTask | Self::SendAgain | Self::Subscribe | Self::Resume | Self::Replay)
    }

    /// Whether the answer has an end.
    fn ends(self) -> bool {
        matches!(self, Self::NewTask | Self::Replay | Self::Get | Self::SendAndWait)
    }
}

/// How often each kind of request and disconnect occurred.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) cycles: BTreeMap<(RequestKind, &'static str), u64>,
    pub(crate) disconnects: BTreeMap<Disconnect, u64>,
    /// Unexpected answers.
    pub(crate) unexpected: Vec<String>,
}

impl Tally {
    /// Fails on unexpected answers, and unless every kind of request was made over every binding.
    pub(crate) fn check(&self) {
        assert!(self.unexpected.is_empty(), "{:#?}", self.unexpected);
        assert_eq!(self.disconnects.len(), 5, "{self:#?}");
        // Only one version of REST makes requests over HTTP/2.
        assert_eq!(
            self.cycles.len(),
            (RequestKind::ALL.len() - 1) * ClientProtocol::EVERY.len() + 1,
            "{self:#?}"
        );
    }
}

/// Makes the requests of these numbers, several at a time. Calls `each` after every request.
pub(crate) async fn run(
    fixture: &Fixture,
    seed: u64,
    numbers: Range<u64>,
    tally: &mut Tally,
    mut each: impl FnMut(u64),
) {
    let mut done = stream::iter(numbers).map(|number| cycle(fixture, seed, number)).buffer_unordered(AT_ONCE);
    let mut count = 0;
    while let Some((kind, speaker, disconnect, unexpected)) = done.next().await {
        *tally.cycles.entry((kind, speaker.name())).or_default() += 1;
        *tally.disconnects.entry(disconnect).or_default() += 1;
        tally.unexpected.extend(unexpected);
        count += 1;
        each(count);
    }
}

/// Each client makes requests of every kind, as often as their weights say. Neighbours make different ones.
fn choose(number: u64) -> (RequestKind, ClientProtocol) {
    let clients = ClientProtocol::EVERY.len() as u64;
    let speaker = ClientProtocol::EVERY[usize::try_from(number % clients).expect("a small number")];
    let mut place = (number / clients + number % clients * 7)
        % RequestKind::ALL.iter().map(|(_, weight)| weight).sum::<u64>();
    for (kind, weight) in RequestKind::ALL {
        if place < weight {
            let is_http2 = kind == RequestKind::Http2Subscribe;
            return (kind, if is_http2 { ClientProtocol::ALL[1] } else { speaker });
        }
        place -= weight;
    }
    unreachable!("the place is below the sum of the weights")
}

async fn cycle(
    fixture: &Fixture,
    seed: u64,
    number: u64,
) -> (RequestKind, ClientProtocol, Disconnect, Option<String>) {
    // Neighbouring numbers must give unrelated random choices.
    let mut rng = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let (kind, speaker) = choose(number);
    let (target, task) = (&fixture.target, &fixture.live_of(speaker).0);
    // The connection of these clients stays open after the answer.
    let stays_open = matches!(speaker.transport, Transport::WebSocket | Transport::Grpc);
    let ends = kind.ends() && !stays_open;
    let disconnects = [
        Disconnect::AfterAnswer,
        Disconnect::Fin,
        Disconnect::Reset,
        Disconnect::HalfClose,
        Disconnect::Stall,
    ];
    let disconnect = disconnects[rng.random_range(usize::from(!ends)..disconnects.len())];
    let message = || speaker.message(&format!("{seed}-{number}"), "look", None, None);
    let resumed = rng.random_range(1..40_u64).to_string();
    let plain = |spelled: ClientRequest| target.request(speaker, &spelled, None);
    let request = match kind {
        RequestKind::NewTask => plain(speaker.stream(&message())),
        RequestKind::SendAgain => plain(speaker.stream(&fixture.message_again(speaker))),
        RequestKind::Subscribe => plain(speaker.subscribe(task)),
        RequestKind::Resume => target.request(speaker, &speaker.subscribe(task), Some(&resumed)),
        RequestKind::Http2Subscribe => {
            target.http2_request(speaker, &ClientRequest { verb: "GET", ..speaker.subscribe(task) }, None)
        }
        RequestKind::Replay => target.request(speaker, &speaker.subscribe(&fixture.long), Some("0")),
        RequestKind::Get => plain(speaker.get(task)),
        RequestKind::SendAndWait | RequestKind::TornHead | RequestKind::TornBody => {
            plain(speaker.send_and_wait(&message()))
        }
    };
    let request = truncate(kind, request, &mut rng);
    // Without this the gateway would keep the connection open after the answer.
    let request = if ends { with_connection_close(&request) } else { request };
    let after = match kind {
        // There is no answer.
        RequestKind::TornHead | RequestKind::TornBody => 0,
        // A client of HTTP/2 gets no more than its window, and after the answer nothing comes.
        RequestKind::Replay if stays_open => rng.random_range(0..30_000),
        RequestKind::Replay if disconnect != Disconnect::Stall => rng.random_range(0..200_000),
        // Less than each answer has: nothing comes after it.
        RequestKind::NewTask if stays_open => rng.random_range(0..1_000),
        RequestKind::Get | RequestKind::SendAndWait if stays_open => rng.random_range(0..100),
        // Some clients leave with unread bytes, and some before there are any.
        RequestKind::Get | RequestKind::SendAndWait => rng.random_range(0..500),
        _ => rng.random_range(0..4_000),
    };
    let answer = target.send_and_disconnect(speaker.transport, &request, after, disconnect).await;
    (kind, speaker, disconnect, unexpected_answer(kind, speaker, disconnect, &answer))
}

fn truncate(kind: RequestKind, mut request: Vec<u8>, rng: &mut StdRng) -> Vec<u8> {
    let head = request.windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(request.len());
    match kind {
        RequestKind::TornHead => request.truncate(rng.random_range(0..head)),
        RequestKind::TornBody => request.truncate(rng.random_range(head + 4..request.len())),
        _ => {}
    }
    request
}

/// Describes an unexpected answer, as far as it was read.
fn unexpected_answer(
    kind: RequestKind,
    speaker: ClientProtocol,
    disconnect: Disconnect,
    answer: &[u8],
) -> Option<String> {
    if matches!(kind, RequestKind::TornHead | RequestKind::TornBody | RequestKind::Http2Subscribe) {
        return None;
    }
    if speaker.transport == Transport::Grpc {
        return (is_refused_by_grpc(answer) == Some(true))
            .then(|| format!("{kind:?} of {} is refused: {answer:?}", speaker.name()));
    }
    let answer = String::from_utf8_lossy(answer);
    let (head, is_whole) = answer.split_once("\r\n\r\n").map_or((&*answer, false), |(head, _)| (head, true));
    let is_websocket = speaker.transport == Transport::WebSocket;
    let begins = if is_websocket { "HTTP/1.1 101 Switching Protocols\r\n" } else { "HTTP/1.1 200 OK\r\n" };
    let is_good = head.starts_with(begins) || begins.starts_with(head);
    let is_right = if is_websocket {
        !answer.contains("\"error\":")
    } else {
        !is_whole || !kind.is_stream() || head.contains("content-type: text/event-stream")
    };
    // The end of a chunked answer, or of a whole one.
    let has_end =
        disconnect != Disconnect::AfterAnswer || answer.ends_with("\r\n0\r\n\r\n") || answer.ends_with('}');
    (!is_good || !is_right || !has_end)
        .then(|| format!("{kind:?} of {}, {disconnect:?}: {answer}", speaker.name()))
}
