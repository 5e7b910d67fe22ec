use std::convert::Infallible;

use longshore_model::Principal;

use super::*;
use crate::Limits;
use crate::limits::Bodies;

const LIMITS: BodyLimits = BodyLimits { max_bytes: 1024 * 1024, timeout: Duration::from_secs(30) };

/// A message with `length` bytes after its prefix.
fn message(length: u8) -> Vec<u8> {
    [&[0, 0, 0, 0, length][..], &vec![1; length.into()]].concat()
}

/// The body of a call that sends these pieces and then nothing. Each piece comes the given number of seconds after the one before.
fn body(pieces: Vec<(u64, Vec<u8>)>, bodies: &Arc<Bodies>) -> GrpcBody {
    let pieces = stream::iter(pieces).then(|(seconds, piece)| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from(piece)))
    });
    let body = StreamBody::new(Box::pin(pieces.chain(stream::pending())));
    limited(body, LIMITS, bodies.begin(&Principal::new("ada")))
}

/// How many frames arrive, why the body then fails, and after how many seconds.
async fn read(mut body: GrpcBody) -> (usize, String, u64) {
    let (mut frames, begin) = (0, Instant::now());
    loop {
        let next = tokio::time::timeout(Duration::from_hours(9), body.frame()).await;
        match next.expect("the body ends").expect("the body fails") {
            Ok(_) => frames += 1,
            Err(error) => return (frames, error.to_string(), begin.elapsed().as_secs()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_message_of_a_conversation_and_its_end_must_come_in_time() {
    let bodies = Bodies::new(&Limits::default(), Arc::default());
    let drip = || message(20).into_iter().map(|byte| (11, vec![byte]));
    let halves = [&message(3)[..], &message(3)[..5]].concat();
    // The pieces, how many of them are accepted, and after how many seconds the body fails.
    let cases = [
        (vec![], 0, 30),
        (drip().collect(), 3, 41),
        (vec![(1, message(3))], 1, 301),
        (vec![(1, message(3)), (200, message(0)), (200, message(1))], 3, 701),
        (vec![(1, message(3))].into_iter().chain(drip()).collect(), 4, 42),
        (vec![(1, message(3)), (20, halves)], 2, 51),
    ];
    for (pieces, taken, seconds) in cases {
        let shown = format!("{pieces:?}");
        assert_eq!(read(body(pieces, &bodies)).await, (taken, LATE.to_owned(), seconds), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_not_whole_share_the_limit_of_all_bodies() {
    let limits = Limits { body_bytes: 4 * 16 * 1024 + 200, ..Limits::default() };
    let bodies = Bodies::new(&limits, Arc::default());
    let begun = || vec![(1, message(100)), (1, message(90)[..50].to_vec())];
    let mut first = [body(begun(), &bodies), body(begun(), &bodies)];
    for body in &mut first {
        for _ in 0..2 {
            body.frame().await.unwrap().unwrap();
        }
    }
    let refused = read(body(begun(), &bodies)).await;
    assert_eq!(refused, (1, "Too many request bodies are arriving. Try again later.".to_owned(), 2));
    drop(first);
    assert_eq!(read(body(begun(), &bodies)).await.1, LATE);
}
