//! Tries a real agent by hand, as the gateway serves it: one turn for each prompt, in one session.
//!
//! ```text
//! cargo run -p longshore-agent-acp --example try_agent -- DIRECTORY ANSWER "qwen --acp" PROMPT...
//! ```
//!
//! ANSWER answers the permission requests: `once`, `reject` or `cancel` (stops the turn). A prompt that begins with `!` is stopped at
//! its first text. The prompt `RESTART` starts the agent again, as a new gateway would. The agent gets the whole environment of this
//! program.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Duration;

use longshore_agent_acp::process::ProcessConfig;
use longshore_agent_acp::{AcpAgent, AcpConfig};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent as _, Input, NewSession, Prompting, Session, TurnRequest};
use longshore_model::{AgentEvent, Answer, Error, ErrorKind, PromptId, PromptOptions, Result, TaskId};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, answer, command, prompts @ ..] = arguments.as_slice() else {
        return Err(Error::new(
            ErrorKind::InvalidParams,
            "Usage: try_agent DIRECTORY ANSWER COMMAND-LINE PROMPT...",
        ));
    };
    let tasks = Tasks::new();
    let start = || AcpAgent::new(config(directory, command), &tasks);
    let mut agent = start();
    println!("{:?}", agent.start().await?);
    let session = agent.open_session(NewSession { directory: directory.clone(), title: None }).await?;
    println!("session {}: {:?}", session.id, agent.facts());
    for prompt in prompts {
        println!("--- {prompt}");
        if prompt == "RESTART" {
            agent.stop().await;
            agent = start();
        } else {
            // After a death of the agent.
            agent.until_back().await;
            turn(&agent, &session, prompt, answer).await?;
        }
    }
    agent.stop().await;
    let _ = tokio::time::timeout(Duration::from_secs(5), tasks.stop()).await;
    Ok(())
}

fn config(directory: &str, command: &str) -> AcpConfig {
    let mut words = command.split_whitespace();
    AcpConfig {
        cancel_patience: Duration::from_secs(10),
        ..AcpConfig::new(
            command,
            ProcessConfig {
                arguments: words.clone().skip(1).map(Into::into).collect(),
                environment: std::env::vars_os().collect(),
                ..ProcessConfig::new(words.next().unwrap_or_default(), directory)
            },
            directory,
        )
    }
}

async fn turn(agent: &AcpAgent, session: &Session, prompt: &str, answer: &str) -> Result<()> {
    let text = prompt.trim_start_matches('!');
    let mut is_to_stop = text.len() < prompt.len();
    let request = TurnRequest {
        task: TaskId::parse("tried").map_err(Error::internal)?,
        session: session.clone(),
        prompt: new_prompt(),
        input: vec![Input::Text(text.to_owned())],
        options: PromptOptions::default(),
        order: None,
        is_adopted: false,
        resume: None,
        prompting: Prompting::default(),
        trace: None,
    };
    let mut turn = agent.start_turn(request).await?;
    while let Some(event) = turn.events.recv().await {
        println!("{event:?}");
        match event {
            AgentEvent::Text { .. } if std::mem::take(&mut is_to_stop) => agent.cancel(session).await?,
            AgentEvent::Asked(_) if answer == "cancel" => agent.cancel(session).await?,
            AgentEvent::Asked(ask) => {
                agent.reply(session, &ask, &Answer::permission(answer, None)).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// An id such as the engine makes.
fn new_prompt() -> PromptId {
    PromptId::parse(&uuid::Uuid::now_v7().to_string()).expect("a UUID is an id")
}
