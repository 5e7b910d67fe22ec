//! What is public besides the card: liveness.

use crate::support::Gateway;

#[tokio::test]
async fn liveness_needs_no_credential_and_says_nothing() {
    let gateway = Gateway::echoing().await;
    for verb in ["GET", "HEAD"] {
        let alive = gateway.call(verb, "/livez").header("authorization", "").send().await;
        assert_eq!((alive.status.as_u16(), alive.body.len()), (200, 0));
    }
    gateway.stop().await;
}
