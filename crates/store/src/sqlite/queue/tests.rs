use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

fn queue() -> Queue<String> {
    Queue::new(StoreThread::Lists, Arc::new(Metrics::new("test")))
}

fn owner(name: &str) -> Owner {
    Owner::Of(Principal::new(name))
}

/// Pushes as many jobs, named after their owner and their place, as there is room for.
fn fill(queue: &Queue<String>, name: &str, jobs: usize) {
    for place in 0..jobs {
        let push = queue.push(owner(name), format!("{name}{place}"));
        push.now_or_never().expect("there is room").expect("it is open");
    }
}

fn take(queue: &Queue<String>, most: usize) -> Vec<String> {
    let mut jobs = Vec::new();
    assert!(queue.take(most, |_| 1, &mut jobs));
    jobs
}

#[test]
fn each_owner_has_its_turn_and_each_keeps_its_order() {
    let queue = queue();
    fill(&queue, "a", 4);
    fill(&queue, "b", 1);
    fill(&queue, "c", 2);
    queue.push(Owner::Gateway, "own".to_owned()).now_or_never().unwrap().unwrap();
    assert_eq!(take(&queue, 3), ["a0", "b0", "c0"]);
    // Who comes meanwhile is among them.
    fill(&queue, "bb", 1);
    assert_eq!(take(&queue, 9), ["own", "a1", "bb0", "c1", "a2", "a3"]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn the_turn_goes_on_where_it_was_also_when_that_owner_has_nothing_more() {
    let queue = queue();
    fill(&queue, "b", 1);
    assert_eq!(take(&queue, 9), ["b0"]);
    fill(&queue, "a", 1);
    fill(&queue, "c", 1);
    assert_eq!(take(&queue, 1), ["c0"]);
    fill(&queue, "c", 1);
    assert_eq!(take(&queue, 9), ["a0", "c0"]);
}

#[test]
fn what_is_heavy_leaves_room_for_little_else() {
    let queue = queue();
    fill(&queue, "a", 5);
    let mut jobs = Vec::new();
    for expected in [2, 2, 1] {
        jobs.clear();
        assert!(queue.take(4, |_| 3, &mut jobs));
        assert_eq!(jobs.len(), expected);
    }
}

#[test]
fn one_owner_cannot_fill_the_queue() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    let mut late = queue.push(owner("a"), "late".to_owned()).boxed();
    assert!((&mut late).now_or_never().is_none());
    assert_eq!(queue.outside(&owner("a")), 1);
    fill(&queue, "b", 1);
    assert_eq!(take(&queue, 2), ["a0", "b0"]);
    late.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.waiting(), QUEUE_OF_OWNER);
}

#[test]
fn those_who_wait_outside_are_let_in_in_turn() {
    let queue = queue();
    for name in ["a", "b", "c", "d"] {
        fill(&queue, name, QUEUE / 4);
    }
    let mut many = join_all((0..5).map(|place| queue.push(owner("e"), format!("e{place}"))));
    assert!((&mut many).now_or_never().is_none());
    let mut one = queue.push(owner("f"), "f0".to_owned()).boxed();
    assert!((&mut one).now_or_never().is_none());
    // Nobody goes past those who were there before.
    assert!(queue.push(owner("e"), "e5".to_owned()).now_or_never().is_none());
    assert_eq!(take(&queue, 2).len(), 2);
    // One place for each of them.
    assert!((&mut many).now_or_never().is_none());
    one.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.waiting(), QUEUE);
    let rest = take(&queue, QUEUE);
    assert_eq!(rest.iter().filter(|job| job.starts_with('e')).count(), 1);
    assert!(rest.contains(&"f0".to_owned()));
    many.now_or_never().expect("there is room");
    assert_eq!(take(&queue, 9), ["e1", "e2", "e3", "e4"]);
    assert!(queue.lock().lanes.is_empty());
}

#[test]
fn a_place_that_nobody_takes_goes_to_the_next() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    let mut gone = queue.push(owner("a"), "gone".to_owned()).boxed();
    let mut let_in_and_gone = queue.push(owner("a"), "let in".to_owned()).boxed();
    let mut stays = queue.push(owner("a"), "stays".to_owned()).boxed();
    for waits in [&mut gone, &mut let_in_and_gone, &mut stays] {
        assert!(waits.now_or_never().is_none());
    }
    drop(gone);
    assert_eq!(take(&queue, 1), ["a0"]);
    assert!((&mut stays).now_or_never().is_none());
    drop(let_in_and_gone);
    stays.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.waiting(), QUEUE_OF_OWNER);
    assert_eq!(take(&queue, QUEUE).len(), QUEUE_OF_OWNER);
    let state = queue.lock();
    assert_eq!((state.places, state.lanes.len()), (0, 0));
}

#[test]
fn those_who_have_gone_are_not_kept() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    for _ in 0..10_000 {
        assert!(queue.push(owner("a"), String::new()).now_or_never().is_none());
    }
    assert!(queue.outside(&owner("a")) < 100);
}

#[test]
fn a_crowd_that_leaves_at_once_is_passed_over() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    let mut crowd: Vec<_> = (0..100_000).map(|_| queue.push(owner("a"), String::new()).boxed()).collect();
    for waits in &mut crowd {
        assert!(waits.now_or_never().is_none());
    }
    let mut stays = queue.push(owner("a"), "stays".to_owned()).boxed();
    assert!((&mut stays).now_or_never().is_none());
    drop(crowd);
    assert_eq!(take(&queue, 1), ["a0"]);
    stays.now_or_never().expect("there is room").unwrap();
    assert_eq!(take(&queue, QUEUE).len(), QUEUE_OF_OWNER);
    let state = queue.lock();
    assert_eq!((state.places, state.lanes.len()), (0, 0));
}

#[test]
fn a_lane_of_which_all_have_gone_is_not_kept() {
    let queue = queue();
    for name in ["a", "b", "c", "d"] {
        fill(&queue, name, QUEUE_OF_OWNER);
    }
    // Its owner has no job inside, so that nothing of it is ever taken.
    assert!(queue.push(owner("e"), String::new()).now_or_never().is_none());
    assert_eq!(take(&queue, QUEUE).len(), QUEUE);
    let state = queue.lock();
    assert_eq!((state.places, state.lanes.len()), (0, 0));
}

#[test]
fn what_waits_is_still_taken_when_the_queue_is_closed() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    let mut outside = queue.push(owner("a"), "outside".to_owned()).boxed();
    assert!((&mut outside).now_or_never().is_none());
    queue.close();
    assert!(outside.now_or_never().expect("nobody is let in").is_err());
    assert!(queue.push(owner("b"), "late".to_owned()).now_or_never().unwrap().is_err());
    assert_eq!(take(&queue, QUEUE).len(), QUEUE_OF_OWNER);
    assert!(!queue.take(1, |_| 1, &mut Vec::new()));
}

#[test]
fn what_waits_is_dropped_when_the_thread_is_gone() {
    let queue = queue();
    let (job, waits) = oneshot::channel::<()>();
    let jobs: Queue<oneshot::Sender<()>> = Queue::new(StoreThread::Quick, queue.0.metrics.clone());
    jobs.push(Owner::Gateway, job).now_or_never().unwrap().unwrap();
    drop(jobs.abandoned_at_the_end());
    waits.now_or_never().expect("it is told").unwrap_err();
    assert_eq!(queue.0.metrics.store_queue_depth.of(StoreThread::Quick).get(), 0);
    assert!(!jobs.take(1, |_| 1, &mut Vec::new()));
}

#[test]
fn a_thread_that_sleeps_is_woken() {
    let queue = queue();
    let taken = std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            let (mut all, mut jobs) = (Vec::new(), Vec::new());
            while queue.take(2, |_| 1, &mut jobs) {
                all.append(&mut jobs);
            }
            all
        });
        for round in 0..100 {
            // It would never sleep again if it had not been woken for the last ones.
            while !queue.lock().is_idle {
                std::thread::yield_now();
            }
            assert_eq!(queue.waiting(), 0, "round {round}");
            fill(&queue, "a", 3);
        }
        queue.close();
        taking.join().unwrap()
    });
    assert_eq!(taken.len(), 300);
}
