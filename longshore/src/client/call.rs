//! `longshore call`.

use super::exit::{Code, Failure};
use super::follow::follow;
use super::{message, target};
use crate::cli::client::Call;

pub(crate) async fn call(options: &Call) -> Result<Code, Failure> {
    let (place, text) = match options.words.as_slice() {
        [url, text] => (Some(url.as_str()), text.as_str()),
        [text] => (None, text.as_str()),
        _ => {
            return Err(Failure::usage(
                "give the text to send, and before it the URL of the agent if it is not the gateway here",
            ));
        }
    };
    let agent = target::find(&options.target, place).await?;
    let message = message::build(options, text, &agent).await?;
    follow(&agent, &options.following, agent.client.stream(message)).await
}
