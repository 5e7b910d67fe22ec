//! Tries a real agent by hand: the handshake, and one turn for each prompt, in one session.
//!
//! ```text
//! cargo run -p longshore-agent-acp --example try_agent -- DIRECTORY ANSWER "qwen --acp" PROMPT...
//! ```
//!
//! ANSWER answers the permission requests: `once`, `reject`, `cancel` (stops the turn), or the id or name of an option. A prompt
//! that begins with `!` is stopped at its first text. The prompt `RESTART` starts the agent again and opens the session again. The
//! agent gets the whole environment of this program.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Duration;

use longshore_agent_acp::connection::Limits;
use longshore_agent_acp::content::PromptBlock;
use longshore_agent_acp::launch::{Running, launch};
use longshore_agent_acp::process::ProcessConfig;
use longshore_agent_acp::turn::Turn;
use longshore_engine::Tasks;
use longshore_model::{AgentEvent, Answer, Error, ErrorKind, PromptId, Result, SessionId};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, answer, command, prompts @ ..] = arguments.as_slice() else {
        return Err(Error::new(
            ErrorKind::InvalidParams,
            "Usage: try_agent DIRECTORY ANSWER COMMAND-LINE PROMPT...",
        ));
    };
    let mut words = command.split_whitespace();
    let config = ProcessConfig {
        arguments: words.clone().skip(1).map(Into::into).collect(),
        environment: std::env::vars_os().collect(),
        ..ProcessConfig::new(words.next().unwrap_or_default(), directory)
    };
    let tasks = Tasks::new();
    let mut agent = start(&config, &tasks).await?;
    let opened = agent
        .connection
        .new_session(directory, &[])
        .await
        .map_err(|cause| cause.into_error("open a session"))?;
    let session = SessionId::parse(&opened.id).map_err(Error::internal)?;
    println!("session {session}: {:?}", agent.connection.facts(session.as_str()));
    for (number, prompt) in prompts.iter().enumerate() {
        println!("--- {prompt}");
        if prompt == "RESTART" {
            println!("the agent ended: {:?}", agent.end().await);
            agent = start(&config, &tasks).await?;
            let opened = agent.connection.reopen_session(session.as_str(), directory, &[]).await;
            println!(
                "opened again: {:?}",
                opened.map_err(|cause| cause.into_error("open the session again"))?.replay
            );
            continue;
        }
        let id = PromptId::parse(&format!("prompt-{number}")).map_err(Error::internal)?;
        let text = prompt.trim_start_matches('!');
        let blocks = [PromptBlock::Text { text: text.to_owned() }];
        let turn = Turn::start(&agent.connection, session.clone(), &id, &blocks);
        follow(turn.map_err(|cause| cause.into_error("take the prompt"))?, answer, text.len() < prompt.len())
            .await?;
    }
    println!("counted: {:?}", agent.connection.counted());
    println!("the agent ended: {:?}", agent.end().await);
    let _ = tokio::time::timeout(Duration::from_secs(5), tasks.stop()).await;
    Ok(())
}

async fn start(config: &ProcessConfig, tasks: &Tasks) -> Result<Running> {
    let agent = launch(config, Limits::default(), tasks).await?;
    println!("{:?}", agent.about);
    Ok(agent)
}

async fn follow(mut turn: Turn, answer: &str, stop_at_text: bool) -> Result<()> {
    while let Some(events) = turn.next().await {
        for event in events {
            println!("{event:?}");
            let is_stopped = match &event {
                AgentEvent::Text { .. } => stop_at_text,
                AgentEvent::Asked(_) => answer == "cancel",
                _ => false,
            };
            if is_stopped {
                turn.cancel().map_err(|cause| cause.into_error("stop"))?;
            } else if let AgentEvent::Asked(ask) = &event {
                turn.reply(&ask.request_id, &Answer::permission(answer, None))?;
            }
        }
    }
    println!("not translated: {:?}", turn.translator().unmapped());
    Ok(())
}
