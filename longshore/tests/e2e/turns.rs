//! Turns without tools: how each kind of reply and each error of a provider ends.

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

    harness.play("scn:empty").await.ended("COMPLETED", "").has(&[]);

    let cut = harness.play("scn:finish reason=length n=2").await;
    cut.ended("COMPLETED", "length limit").has(&[("text", "anchor  ballast ")]);
    harness.play("scn:finish reason=content_filter n=2").await.ended("FAILED", "content filter");

    let long = harness.play("scn:long n=2000 size=16 delay=0").await;
    long.ended("COMPLETED", "");
    assert_eq!(long.text().len(), 32_000, "the long reply is not whole");

    let refusals = [
        ("scn:http status=400", "did not accept the request (status 400)", "UPSTREAM_BAD_REQUEST"),
        (
            "scn:http status=429 retry_after_ms=1",
            "quota or rate limit is used up (status 429)",
            "UPSTREAM_QUOTA_EXCEEDED",
        ),
        ("scn:http status=500 retry_after_ms=1", "provider failed (status 500)", "UPSTREAM_SERVER_ERROR"),
    ];
    for (prompt, words, class) in refusals {
        let refused = harness.play(prompt).await;
        refused.ended("FAILED", words).has(&[]);
        assert_eq!(refused.error_metadata()["type"], class, "{prompt}: {:#?}", refused.frames.last());
    }

    // The provider answers after a while. The task does not show the retries.
    let recovers = harness.play("scn:http status=429 times=2 retry_after_ms=50").await;
    recovers.ended("COMPLETED", "").has(&[("text", "This attempt went well.")]);

    let garbage = harness.play("scn:badjson after=2").await;
    garbage.ended("FAILED", "could not complete the turn");
}
