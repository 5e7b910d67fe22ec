//! The first request after the banner: OpenCode has loaded everything by then.

use longshore_testkit::chaos::measured::report;
use tokio::time::{Duration, Instant};

use crate::client::message;
use crate::frames::state_of;
use crate::harness::Harness;

const STARTS: usize = 3;

/// How long the first request may take on an idle machine.
const ALLOWED: Duration = Duration::from_secs(1);

/// A loaded machine slows both requests, so the first one is compared with the next.
#[tokio::test(flavor = "multi_thread")]
async fn campaign_the_first_request_after_the_banner_is_as_quick_as_the_next() {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let harness = Harness::demo().await;
        let sessions = harness.opencode.sessions().await;
        assert!(sessions.is_empty(), "a session was left behind: {sessions:?}");
        let mut requests = Vec::new();
        for text in ["Say hello.", "Say hello again."] {
            let begun = Instant::now();
            let task = harness.client.send(&message(text)).await;
            requests.push(begun.elapsed());
            assert_eq!(state_of(&task), "COMPLETED", "{task:#}");
        }
        times.push((requests[0], requests[1]));
    }
    let shown: Vec<String> = times
        .iter()
        .map(|(first, next)| format!("{:.2} s, then {:.2} s", first.as_secs_f64(), next.as_secs_f64()))
        .collect();
    let done = format!("{STARTS} fresh starts with the demo model, two blocking requests after each banner");
    report(done, shown.join("; ")).expect("a row can be written");
    for (first, next) in times {
        assert!(first <= next + ALLOWED, "{first:?}, then {next:?}");
    }
}
