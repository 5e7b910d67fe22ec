//! Turns without tools. The replays of recordings in `tests/system` have every kind of reply and error.

use crate::harness::Harness;

pub(crate) async fn replies_and_provider_errors_end_as_opencode_reports(harness: &Harness) {
    let text = harness.play("scn:text n=6").await;
    text.ended("COMPLETED", "").has(&[("text", "anchor  ballast buoy ca capstan cargo c chart c ")]);

    let reported = harness.play("scn:text n=4 text=\"  kept as it is:\\n\\ttabs, ümläute, 🚢  \"").await;
    reported.ended("COMPLETED", "").has(&[("text", "  kept as it is:\n\ttabs, ümläute, 🚢  ")]);

    let reasoned = harness.play("scn:reason rn=2 n=3").await;
    reasoned.ended("COMPLETED", "").has(&[
        ("reasoning", "Thought 1 of 2. Thought 2 of 2. "),
        ("text", "After some thought: the tide turns at six."),
    ]);

    let long = harness.play("scn:long n=2000 size=16 delay=0").await;
    long.ended("COMPLETED", "");
    assert_eq!(long.text().len(), 32_000, "the long reply is not whole");

    let refused = harness.play("scn:http status=500 retry_after_ms=1").await;
    refused.ended("FAILED", "provider failed (status 500)").has(&[]);
    let class = &refused.error_metadata()["type"];
    assert_eq!(class, "UPSTREAM_SERVER_ERROR", "{:#?}", refused.frames.last());

    // The provider answers after a while. The task does not show the retries.
    let recovers = harness.play("scn:http status=429 times=2 retry_after_ms=50").await;
    recovers.ended("COMPLETED", "").has(&[("text", "This attempt went well.")]);
}
