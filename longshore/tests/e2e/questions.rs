//! Questions: answered, answered with several choices and own words, and put aside.

use crate::asking::{Answer, By};
use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_and_put_aside() {
    let harness = Harness::demo().await;
    for by in By::ALL {
        let prompt = format!("scn:question q=\"Which way, {by:?}?\" options=\"Left|Right\" scn:text n=2");
        let asked = format!("The agent asks: Which way, {by:?}? (Left, Right)");
        let played = harness.play_asking(&prompt, by, &[(&asked, Answer::Choose(&[&["Right"]]))]).await;
        played.ended("COMPLETED", "").has(&[("tool:question", "completed"), ("text", "anchor  ballast ")]);
        let heard = played.call("question")["output"].as_str().unwrap_or_default().to_owned();
        assert!(heard.contains("Right") && !heard.contains("Left"), "{by:?}: the agent heard {heard:?}");

        let prompt = format!(
            "scn:question q=\"Which sails, {by:?}?\" options=\"Jib|Main|Mizzen\" n=2 multiple=1 scn:text n=2"
        );
        let asked = format!("Which sails, {by:?}? 1 (Jib, Main, Mizzen) Which sails, {by:?}? 2");
        let chosen = Answer::Choose(&[&["Jib", "Mizzen"], &["none of these today"]]);
        let played = harness.play_asking(&prompt, by, &[(&asked, chosen)]).await;
        played.ended("COMPLETED", "");
        let heard = played.call("question")["output"].as_str().unwrap_or_default().to_owned();
        assert!(
            heard.contains("Jib, Mizzen") && heard.contains("none of these today") && !heard.contains("Main"),
            "{by:?}: the agent heard {heard:?}"
        );

        let prompt = format!("scn:question q=\"May I ask, {by:?}?\" scn:text n=2");
        let asked = format!("May I ask, {by:?}?");
        let played = harness.play_asking(&prompt, by, &[(&asked, Answer::Dismiss)]).await;
        played.ended("FAILED", "dismissed this question").has(&[("tool:question", "error")]);
    }
}
