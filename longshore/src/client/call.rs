//! `longshore call`.

use super::exit::{Code, Failure};
use super::follow::follow;
use super::{message, target};
use crate::cli::client::Call;

pub(crate) async fn call(options: &Call) -> Result<Code, Failure> {
    let (place, text) = match options.words.as_slice() {
        [text] if is_url(text) => {
            return Err(Failure::usage("give the text to send, behind the URL of the agent"));
        }
        [text] => (None, text.as_str()),
        [url, text] if is_url(url) => (Some(url.as_str()), text.as_str()),
        [] => {
            return Err(Failure::usage(
                "give the text to send: longshore call \"What does this project do?\"",
            ));
        }
        [first, ..] => {
            let text = format!(
                "put the text in quotes: longshore call \"several words\". If {first} is the address of an agent, it must begin with \
                 http:// or https://"
            );
            return Err(Failure::usage(text));
        }
    };
    let agent = target::find(&options.target, place).await?;
    let message = message::build(options, text, &agent).await?;
    follow(&agent, &options.following, agent.client.stream(message)).await
}

fn is_url(word: &str) -> bool {
    word.starts_with("http://") || word.starts_with("https://")
}
