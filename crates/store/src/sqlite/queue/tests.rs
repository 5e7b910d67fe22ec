use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

fn queue() -> Queue<String> {
    Queue::new(StoreThread::Lists, Arc::new(Metrics::new("test")))
}

fn owner(name: &str) -> Owner {
    Owner::Principal(Principal::new(name))
}

/// Queues jobs that are named after their owner and number. There must be room for them.
fn fill(queue: &Queue<String>, name: &str, jobs: usize) {
    for number in 0..jobs {
        let push = queue.push(owner(name), format!("{name}{number}"));
        push.now_or_never().expect("there is room").expect("it is open");
    }
}

fn take(queue: &Queue<String>, most: usize) -> Vec<String> {
    let mut jobs = Vec::new();
    assert!(queue.take(most, |_| 1, &mut jobs));
    jobs
}

#[test]
fn owners_are_served_in_turn_and_each_in_its_order() {
    let queue = queue();
    fill(&queue, "a", 4);
    fill(&queue, "b", 1);
    fill(&queue, "c", 2);
    queue.push(Owner::Gateway, "own".to_owned()).now_or_never().unwrap().unwrap();
    assert_eq!(take(&queue, 3), ["a0", "b0", "c0"]);
    // An owner that arrives later takes its turn too.
    fill(&queue, "bb", 1);
    assert_eq!(take(&queue, 9), ["own", "a1", "bb0", "c1", "a2", "a3"]);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn the_turn_continues_after_an_owner_without_jobs() {
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
fn heavy_jobs_limit_the_size_of_a_group() {
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
    assert_eq!(queue.waiters(&owner("a")), 1);
    fill(&queue, "b", 1);
    assert_eq!(take(&queue, 2), ["a0", "b0"]);
    late.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.waiting(), QUEUE_OF_OWNER);
}

#[test]
fn waiters_get_slots_in_turn() {
    let queue = queue();
    for name in ["a", "b", "c", "d"] {
        fill(&queue, name, QUEUE / 4);
    }
    let mut many = join_all((0..5).map(|number| queue.push(owner("e"), format!("e{number}"))));
    assert!((&mut many).now_or_never().is_none());
    let mut one = queue.push(owner("f"), "f0".to_owned()).boxed();
    assert!((&mut one).now_or_never().is_none());
    // No new job overtakes the waiters.
    assert!(queue.push(owner("e"), "e5".to_owned()).now_or_never().is_none());
    assert_eq!(take(&queue, 2).len(), 2);
    // The two free slots went to one waiter of each owner.
    assert!((&mut many).now_or_never().is_none());
    one.now_or_never().expect("there is room").unwrap();
    assert_eq!(queue.waiting(), QUEUE);
    let rest = take(&queue, QUEUE);
    assert_eq!(rest.iter().filter(|job| job.starts_with('e')).count(), 1);
    assert!(rest.contains(&"f0".to_owned()));
    many.now_or_never().expect("there is room");
    assert_eq!(take(&queue, 9), ["e1", "e2", "e3", "e4"]);
    assert!(queue.lock().owners.is_empty());
}

#[test]
fn an_unused_slot_goes_to_the_next_waiter() {
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
    assert_eq!((state.slots, state.owners.len()), (0, 0));
}

#[test]
fn waiters_that_have_gone_are_removed() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    for _ in 0..10_000 {
        assert!(queue.push(owner("a"), String::new()).now_or_never().is_none());
    }
    assert!(queue.waiters(&owner("a")) < 100);
}

#[test]
fn many_waiters_that_leave_at_once_are_skipped() {
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
    assert_eq!((state.slots, state.owners.len()), (0, 0));
}

#[test]
fn an_owner_without_jobs_or_waiters_is_removed() {
    let queue = queue();
    for name in ["a", "b", "c", "d"] {
        fill(&queue, name, QUEUE_OF_OWNER);
    }
    // The owner has no queued job, so the thread never takes one of it.
    assert!(queue.push(owner("e"), String::new()).now_or_never().is_none());
    assert_eq!(take(&queue, QUEUE).len(), QUEUE);
    let state = queue.lock();
    assert_eq!((state.slots, state.owners.len()), (0, 0));
}

#[test]
fn waiting_jobs_are_taken_after_the_queue_is_closed() {
    let queue = queue();
    fill(&queue, "a", QUEUE_OF_OWNER);
    let mut waiters = queue.push(owner("a"), "waiters".to_owned()).boxed();
    assert!((&mut waiters).now_or_never().is_none());
    queue.close();
    assert!(waiters.now_or_never().expect("the wait ends").is_err());
    assert!(queue.push(owner("b"), "late".to_owned()).now_or_never().unwrap().is_err());
    assert_eq!(take(&queue, QUEUE).len(), QUEUE_OF_OWNER);
    assert!(!queue.take(1, |_| 1, &mut Vec::new()));
}

#[test]
fn waiting_jobs_are_dropped_when_the_thread_is_gone() {
    let queue = queue();
    let (job, waits) = oneshot::channel::<()>();
    let jobs: Queue<oneshot::Sender<()>> = Queue::new(StoreThread::Quick, queue.0.metrics.clone());
    jobs.push(Owner::Gateway, job).now_or_never().unwrap().unwrap();
    drop(jobs.abandon_on_drop());
    waits.now_or_never().expect("the wait ends").unwrap_err();
    assert_eq!(queue.0.metrics.store_queue_depth.of(StoreThread::Quick).get(), 0);
    assert!(!jobs.take(1, |_| 1, &mut Vec::new()));
}

#[test]
fn a_sleeping_thread_is_woken() {
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
            // The thread sleeps again only if it was woken for the last jobs.
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
