//! Tests of the agent's commands in messages: adding anything to a command needs the right to run a shell.

use longshore_engine::port::{ContentFacts, FileSource, InputFile};

use super::*;

/// A part of the message that the caller sends.
#[derive(Clone, Copy, Debug)]
enum Part {
    Text(&'static str),
    /// The content of a text file.
    TextFile(&'static str),
    /// The name of a file whose type the agent does not accept.
    FileName(&'static str),
    /// The name of an image, which the agent accepts.
    Picture(&'static str),
    /// The name of a file in the workspace.
    Workspace(&'static str),
    Remote(&'static str),
}

use Part::{FileName, Picture, Remote, Text, TextFile, Workspace};

impl Part {
    fn input(self) -> Input {
        let inline = |bytes: &str| FileSource::Inline(bytes.as_bytes().to_vec());
        let (name, media_type, is_text, source) = match self {
            Text(text) => return Input::Text(text.to_owned()),
            TextFile(content) => ("a.txt", "text/plain", true, inline(content)),
            FileName(name) => (name, "audio/wav", false, inline("wav")),
            Picture(name) => (name, "image/png", false, inline("png")),
            Workspace(name) => {
                (name, "text/plain", true, FileSource::Workspace(PathBuf::from("/w").join(name)))
            }
            Remote(url) => ("a", "text/html", true, FileSource::Remote(url.to_owned())),
        };
        let content = Some(ContentFacts { bytes: 3, sha256: [7; 32] });
        let (name, media_type) = (Some(name.to_owned()), media_type.to_owned());
        Input::File(InputFile { name, media_type, is_text, source, content })
    }
}

const COMMANDS: [&str; 5] = ["logs", "nested/run", "mcp:server:ask", "vibe:worktree", "Remember all"];

/// Messages that add something to a command.
const HOSTILE: &[&[Part]] = &[
    &[Text("/logs $(touch pwned)")],
    &[Text("/logs x; touch pwned; echo")],
    &[Text("/logs `touch pwned`")],
    &[Text("/logs --output=pwned")],
    &[Text("/logs harmless")],
    &[Text("/logs\tx")],
    &[Text("/logs\nx")],
    &[Text("/logs\r\nx")],
    &[Text("/logs\u{a0}x")],
    &[Text("/logs\u{2028}x")],
    &[Text("/logs\u{3000}x")],
    &[Text("/logs\u{b}x")],
    &[Text("/logs\u{1f}x")],
    &[Text("/logs\u{feff}x")],
    &[Text("/logs\u{200b}x")],
    &[Text("/logs\u{200b}")],
    &[Text(" /logs x")],
    &[Text("\n\n\t/logs x")],
    &[Text("\u{a0}\u{2003}/logs x")],
    &[Text("\u{feff}/logs x")],
    &[Text("\u{200b}\u{2060}/logs x")],
    &[Text("\u{0}/logs x")],
    &[Text("/ logs x")],
    &[Text("/\u{a0}logs x")],
    &[Text("//logs x")],
    &[Text("/LOGS x")],
    &[Text("/Logs x")],
    &[Text("/logs;touch pwned")],
    &[Text("/logs$(touch pwned)")],
    &[Text("/logs;touch${IFS}pwned")],
    &[Text("/logs:x y")],
    &[Text("/nested/run x")],
    &[Text("/mcp:server:ask x")],
    &[Text("/server:ask (MCP) x")],
    &[Text("/mcp__server__ask x")],
    &[Text("/plugin:logs x")],
    &[Text("/worktree x")],
    &[Text("/remember all x")],
    &[Text("/logs"), Text("x")],
    &[Text("/logs "), Text("$(touch pwned)")],
    &[Text("/"), Text("logs x")],
    &[Text("/lo"), Text("gs x")],
    &[Text("/lo"), Picture("a.png"), Text("gs x")],
    &[Text("/lo"), TextFile("gs x")],
    &[Text(" "), Text("/logs x")],
    &[Text("Please look."), Text("/logs x")],
    &[FileName("a.wav"), Text("/logs x")],
    &[Picture("a.png"), Text("/logs x")],
    &[Text("/logs"), FileName("$(touch pwned)")],
    &[Text("/logs"), Picture("$(touch pwned)")],
    &[Text("/logs"), Workspace("$(touch pwned)")],
    &[Text("/logs"), Remote("https://example.com/$(touch${IFS}pwned)")],
    &[Text("/logs "), TextFile("$(touch pwned)")],
    &[TextFile("/logs x")],
    &[Text("\n"), TextFile("/logs x")],
    &[TextFile("/logs x"), Text("Please look.")],
];

/// Messages that add nothing to a command.
const HARMLESS: &[&[Part]] = &[
    &[Text("/logs")],
    &[Text(" /logs\n")],
    &[Text("/Logs")],
    &[Text("/nested/run")],
    &[Text("/worktree")],
    &[Text("/etc/hosts is broken")],
    &[Text("/etc/hosts is broken"), Picture("a.png")],
    &[Text("/nested is a directory")],
    &[Text("/logs.txt is empty")],
    &[Text("/logs/today is empty")],
    &[Text("/logs-of-today are empty")],
    &[Text("/tmp is full"), FileName("$(touch pwned)")],
    &[Text("/ is full")],
    &[Text("/* a comment */")],
    &[Text("Run /logs x")],
    &[Text("logs x")],
    &[Text("Look:\n/logs x")],
    &[Text("Look at this."), TextFile("/logs\n/target\n")],
    &[TextFile("/target\n/logs\n")],
];

fn embeds() -> Value {
    let takes = json!({"embeddedContext": true, "image": true});
    json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true, "promptCapabilities": takes}})
}

fn named(commands: &[&str]) -> Value {
    let all = commands.iter().map(|name| json!({"name": name, "description": ""}));
    json!({"sessionUpdate": "available_commands_update", "availableCommands": all.collect::<Vec<_>>()})
}

impl Stage {
    /// Lets the agent name its commands in the session `s`.
    async fn name_commands(&mut self, commands: &[&str]) {
        self.peers[0].update("s", named(commands)).await;
        let known = || self.agent.facts()?.session?.commands;
        let is_told = |known: crate::schema::Commands| {
            known.entries.iter().map(|command| &*command.name).eq(commands.iter().copied())
        };
        while !known().is_some_and(is_told) {
            tokio::task::yield_now().await;
        }
    }

    fn check(&self, parts: &[Part], options: &PromptOptions) -> Result<()> {
        let input: Vec<Input> = parts.iter().copied().map(Part::input).collect();
        self.agent.check_input(&self.directory(), &input, options)
    }

    /// Starts a turn. If the agent gets the prompt, the test ends the turn.
    async fn run(&mut self, session: &Session, parts: &[Part], options: &PromptOptions) -> Result<()> {
        let input = parts.iter().copied().map(Part::input).collect();
        let request = TurnRequest { input, options: options.clone(), ..request(session, "") };
        let prompting = request.prompting.clone();
        let mut turn = match self.agent.start_turn(request).await {
            Ok(turn) => turn,
            Err(error) => {
                assert!(!prompting.has_begun(), "{parts:?}");
                return Err(error);
            }
        };
        let prompt = self.peers[0].get().await;
        self.peers[0].end(&prompt, "end_turn").await;
        assert_eq!(rest(&mut turn).await.1, completed(), "{parts:?}");
        Ok(())
    }
}

#[track_caller]
fn assert_refused(checked: Result<()>, parts: &[Part]) {
    let Err(error) = checked else { panic!("the agent may run {parts:?}") };
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{parts:?}: {error}");
    assert_eq!(error.violations()[0].field, "message.parts", "{parts:?}");
    assert!(error.violations()[0].description.contains("session_shell"), "{parts:?}: {error}");
}

#[tokio::test]
async fn what_a_caller_adds_to_a_command_is_refused() {
    let mut stage = stage_with(1, |config| config.shell = true);
    let session = stage.begin(embeds(), "s").await;
    stage.name_commands(&COMMANDS).await;
    let options = PromptOptions::default();
    for parts in HOSTILE {
        assert_refused(stage.check(parts, &options), parts);
        assert_refused(stage.run(&session, parts, &options).await, parts);
    }
    for parts in HARMLESS {
        stage.check(parts, &options).unwrap_or_else(|error| panic!("{parts:?}: {error}"));
        stage.run(&session, parts, &options).await.unwrap_or_else(|error| panic!("{parts:?}: {error}"));
    }
}

#[tokio::test(start_paused = true)]
async fn every_word_after_a_slash_may_be_a_command_until_the_agent_has_named_its_own() {
    let mut stage = stage_with(1, |config| config.shell = true);
    let session = stage.begin(embeds(), "s").await;
    let options = PromptOptions::default();
    let paths: [&[Part]; 2] = [&[Text("/etc/hosts is broken")], &[Text("/tmp is full")]];
    for parts in HOSTILE.iter().chain(&paths) {
        stage.check(parts, &options).unwrap_or_else(|error| panic!("{parts:?}: not known yet, but {error}"));
        assert_refused(stage.run(&session, parts, &options).await, parts);
    }
    for parts in [&[Text("/logs")][..], &[Text("/* a comment */")], &[Text("Hello.")]] {
        stage.run(&session, parts, &options).await.unwrap_or_else(|error| panic!("{parts:?}: {error}"));
    }
    // The agent names its commands while the turn waits for them.
    for (id, text, is_command) in [("a", "/tmp is full", false), ("b", "/logs x", true)] {
        let session = stage.open(id).await;
        let mut starting = Box::pin(stage.agent.start_turn(request(&session, text)));
        assert!(poll_once(&mut starting).await.is_none());
        stage.peers[0].update(id, named(&COMMANDS)).await;
        assert_eq!(starting.await.map(drop).is_err(), is_command, "{text}");
        if !is_command {
            stage.peers[0].get().await;
        }
    }
}

#[tokio::test]
async fn a_list_of_commands_that_is_not_whole_leaves_every_word_a_command() {
    let many = |description: usize| {
        let all =
            (0..600).map(|at| json!({"name": format!("c{at}"), "description": "x".repeat(description)}));
        json!(all.collect::<Vec<_>>())
    };
    let readable = json!({"name": "c0"});
    for (list, is_whole) in [
        (json!([readable]), true),
        (json!([]), true),
        (many(1), false),
        (many(1000), false),
        (json!([readable, {"name": "x".repeat(128 * 1024)}, {"name": "logs"}]), false),
        (json!([readable, {"name": 7}]), false),
        (json!({"logs": {}}), false),
        (Value::Null, false),
    ] {
        let mut stage = stage_with(1, |config| {
            config.shell = true;
            config.limits.line_bytes = 256 * 1024;
        });
        let session = stage.begin(embeds(), "s").await;
        stage.name_commands(&["c0"]).await;
        let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": list});
        let (mut turn, prompt) = stage.prompt(&session, "hello").await;
        stage.peers[0].update("s", update).await;
        stage.peers[0].end(&prompt, "end_turn").await;
        rest(&mut turn).await;
        let (parts, options) = (&[Text("/logs $(touch pwned)")], PromptOptions::default());
        stage.check(parts, &options).unwrap();
        let run = stage.run(&session, parts, &options).await;
        if is_whole {
            run.unwrap();
        } else {
            assert!(run.as_ref().unwrap_err().to_string().contains("has not named all"), "{run:?}");
            assert_refused(run, parts);
            stage.run(&session, &[Text("/logs")], &options).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_list_of_commands_has_that_of_others_in_its_directory() {
    let mut stage = stage_with(1, |config| config.shell = true);
    stage.begin(embeds(), "s").await;
    stage.name_commands(&COMMANDS).await;
    let session = stage.open("silent").await;
    let options = PromptOptions::default();
    stage.run(&session, &[Text("/tmp is full")], &options).await.unwrap();
    assert_refused(stage.run(&session, &[Text("/logs x")], &options).await, &[Text("/logs x")]);
}

#[tokio::test(start_paused = true)]
async fn a_first_list_of_commands_that_is_too_long_is_not_replaced_by_that_of_others() {
    let mut stage = stage_with(1, |config| {
        config.shell = true;
        config.limits.line_bytes = 64 * 1024;
    });
    stage.begin(embeds(), "s").await;
    stage.name_commands(&COMMANDS).await;
    let session = stage.open("long").await;
    let long = json!([{"name": "new"}, {"name": "x", "description": "x".repeat(128 * 1024)}]);
    let update = json!({"sessionUpdate": "available_commands_update", "availableCommands": long});
    stage.peers[0].update("long", update).await;
    let parts = &[Text("/new $(touch pwned)")];
    assert_refused(stage.run(&session, parts, &PromptOptions::default()).await, parts);
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_slash_does_not_wait_for_the_commands() {
    let mut stage = stage_with(1, |config| config.shell = true);
    let session = stage.begin(embeds(), "s").await;
    let begun = Instant::now();
    stage.run(&session, &[Text("Hello."), Text("How are you?")], &PromptOptions::default()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waits_for_commands_takes_no_room_of_others() {
    let mut stage = stage_with(1, |config| {
        config.shell = true;
        config.limits.unwritten_bytes = 64 * 1024;
        config.limits.start = Duration::from_secs(1);
    });
    let waiting = stage.begin(embeds(), "s").await;
    let other = stage.open("other").await;
    let long = "x".repeat(64 * 1024);
    let mut starting = Box::pin(stage.agent.start_turn(request(&waiting, &format!("/tmp {long}"))));
    assert!(poll_once(&mut starting).await.is_none());
    let (turn, prompt) = tokio::join!(stage.agent.start_turn(request(&other, &long)), stage.peers[0].get());
    assert_eq!(prompt["params"]["sessionId"], "other");
    turn.unwrap();
}

#[tokio::test]
async fn the_right_to_run_a_shell_comes_from_the_caller_and_from_the_operator() {
    for (may_run, shell) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut stage = stage_with(1, |config| config.shell = shell);
        let session = stage.begin(embeds(), "s").await;
        stage.name_commands(&COMMANDS).await;
        let options = PromptOptions { may_run, ..PromptOptions::default() };
        let parts = &[Text("/logs $(touch pwned)")];
        if may_run && shell {
            stage.check(parts, &options).unwrap();
            stage.run(&session, parts, &options).await.unwrap();
        } else {
            assert_refused(stage.check(parts, &options), parts);
            assert_refused(stage.run(&session, parts, &options).await, parts);
        }
    }
}

#[tokio::test]
async fn a_command_that_is_new_when_the_turn_begins_is_refused() {
    let mut stage = stage(1);
    let session = stage.begin(embeds(), "s").await;
    stage.name_commands(&["review"]).await;
    let (parts, options) = (&[Text("/logs $(touch pwned)")], PromptOptions::default());
    stage.check(parts, &options).unwrap();
    stage.name_commands(&COMMANDS).await;
    assert_refused(stage.run(&session, parts, &options).await, parts);
}
