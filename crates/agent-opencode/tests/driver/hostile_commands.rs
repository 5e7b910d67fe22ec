//! Commands of callers without the shell: nothing that a caller sends may run, whatever the template does with it.

use longshore_engine::port::{FileSource, InputFile, NativePrompts as _};
use longshore_model::{ErrorKind, NativePrompt};
use longshore_testkit::fake_opencode::Command;

use super::*;

const NAME: &str = "hostile";

/// Runs all arguments.
const RUNS: &str = "Look at !`git log $ARGUMENTS`";

/// What a caller sends with a command.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Arguments(&'static str),
    /// A file that no model accepts, so that its description becomes part of the arguments.
    FileName(&'static str),
    MediaType(&'static str),
    Url(&'static str),
    /// Its name is taken from the path.
    Path(&'static str),
    Text(&'static str),
}

use Sent::{Arguments, FileName, MediaType, Path, Text, Url};

impl Sent {
    fn command(self, may_run: bool) -> NativePrompt {
        let arguments = if let Arguments(arguments) = self { arguments } else { "" };
        NativePrompt::Command { name: NAME.to_owned(), arguments: arguments.to_owned(), may_run }
    }

    fn input(self) -> Vec<Input> {
        let mut file = InputFile {
            name: None,
            media_type: "application/zip".to_owned(),
            is_text: false,
            source: FileSource::Inline(vec![0, 255]),
            content: None,
        };
        match self {
            Arguments(_) => return Vec::new(),
            FileName(name) => file.name = Some(name.to_owned()),
            MediaType(media_type) => media_type.clone_into(&mut file.media_type),
            Url(url) => file.source = FileSource::Remote(url.to_owned()),
            Path(path) => file.source = FileSource::Workspace(PathBuf::from(path)),
            Text(name) => {
                (file.name, file.is_text) = (Some(name.to_owned()), true);
                file.source = FileSource::Inline(b"text".to_vec());
            }
        }
        vec![Input::File(file)]
    }

    async fn check(self, bench: &Bench, session: &Session) -> Result<()> {
        let (order, input) = (self.command(false), self.input());
        bench.agent.check_native_prompt(session, &order, &input, &PromptOptions::default()).await
    }

    async fn start(self, bench: &Bench, session: &Session, may_run: bool) -> Result<Turn> {
        let (prompt, order) = (new_prompt(), Some(self.command(may_run)));
        let request = request(session, &prompt, "", None);
        bench.agent.start_turn(TurnRequest { input: self.input(), order, ..request }).await
    }
}

/// A fake OpenCode that has the command with this template.
fn bench_with(template: &str, is_mcp: bool) -> Bench {
    let bench = Bench::new();
    set_template(&bench, template, is_mcp);
    bench
}

fn set_template(bench: &Bench, template: &str, is_mcp: bool) {
    bench.fake.project(|project| {
        let known = project.commands[0].clone();
        project.commands.retain(|command| command.name != NAME);
        project.commands.push(Command {
            name: NAME.to_owned(),
            template: template.to_owned(),
            is_mcp,
            ..known
        });
    });
}

fn sent_commands(bench: &Bench) -> usize {
    bench.fake.log().iter().filter(|it| it.method == "POST" && it.path.ends_with("/command")).count()
}

#[tokio::test]
async fn nothing_that_a_caller_sends_is_run() {
    let runs: Vec<Sent> = [
        "$(touch pwned)",
        "x; touch pwned; echo",
        "x && touch pwned",
        "x || touch pwned",
        "x | touch pwned",
        "x & touch pwned",
        "x > pwned",
        "${IFS}touch${IFS}pwned",
        "\\$(touch pwned)",
        "';touch pwned;'",
        "\";touch pwned;\"",
        "--output=pwned",
        "-c core.pager=touch",
        "x #",
        "x\ttouch pwned",
        "x\u{2028}touch pwned",
        "<(touch pwned)",
        "~",
        "*",
        "harmless.zip",
    ]
    .into_iter()
    .flat_map(|hostile| [Arguments(hostile), FileName(hostile)])
    .chain([
        Arguments(" "),
        Arguments("\n"),
        Arguments("x\ntouch pwned"),
        Arguments("$'x'"),
        Arguments("`touch pwned`"),
        FileName("x\r\ntouch pwned\n"),
        FileName("`touch pwned`"),
        FileName("/tmp/x; touch pwned"),
        MediaType("$(touch pwned)"),
        MediaType("a/b; touch pwned"),
        MediaType("a/`touch pwned`"),
        MediaType("application/zip"),
        Url("https://host/$(touch pwned)"),
        Url("https://host/;touch pwned"),
        Url("https://host/&touch${IFS}pwned"),
        Path("/w/$(touch pwned).zip"),
        Path("/w/x;touch pwned;/y.zip"),
    ])
    .collect();
    let templates: [(&str, bool, &[Sent]); 23] = [
        (RUNS, false, &runs),
        // The template of an MCP prompt is unknown.
        ("", true, &runs),
        ("!`git log $1`", false, &[Arguments("x"), FileName("$(touch pwned)")]),
        ("!`git log $2` $1", false, &[Arguments("x"), Arguments("x ;touch"), FileName("y")]),
        ("!`git log $5`", false, &[FileName("$(touch pwned)")]),
        ("!`git log '$ARGUMENTS'`", false, &[Arguments("'; touch pwned; '"), Arguments("x")]),
        ("!`ls`\n!`git log \"$ARGUMENTS\"`", false, &[Arguments("x"), FileName("x")]),
        // The arguments are text that is run.
        ("Review", false, &[Arguments("!`touch pwned`"), Arguments("x\n!`touch pwned`")]),
        ("Review $ARGUMENTS", false, &[Arguments("!`touch pwned`"), Arguments("`x` !`touch pwned`")]),
        ("Review $1", false, &[Arguments("'!`touch pwned`'"), Arguments("!`touch pwned`")]),
        // Template and arguments form the mark together.
        ("Now!$ARGUMENTS", false, &[Arguments("`touch pwned`")]),
        ("Now!$1", false, &[Arguments("`touch pwned`")]),
        ("$1$2", false, &[Arguments("! '`touch pwned`'")]),
        ("$2$1", false, &[Arguments("'`touch pwned`' !")]),
        ("$1`ls $2`", false, &[Arguments("! ;touch pwned")]),
        ("$1`ls` `$2`", false, &[Arguments("! x")]),
        ("`$ARGUMENTS` or `$ARGUMENTS`", false, &[Arguments("x; touch pwned #!")]),
        ("`$ARGUMENTS` and `x`", false, &[Url("https://host/x!")]),
        ("!`ls` $ARGUMENTS`", false, &[Arguments("!`touch pwned")]),
        // JavaScript's marks repeat the template before and after the arguments.
        ("`ls` $ARGUMENTS", false, &[Arguments("!$`")]),
        ("$ARGUMENTS`ls` x", false, &[Arguments("!$'")]),
        // A word is replaced once more.
        ("$1", false, &[Arguments("$ARGUMENTS !`touch pwned`"), Arguments("$ARGUMENTS`touch pwned`!")]),
        ("$1$ARGUMENTS", false, &[Arguments("!`touch$ARGUMENTS"), Arguments("x!`touch pwned`")]),
    ];
    for (template, is_mcp, sent) in templates {
        let bench = bench_with(template, is_mcp);
        let session = bench.session().await;
        for sent in sent {
            let field = if matches!(sent, Arguments(_)) { "request.arguments" } else { "request.parts" };
            let checked = sent.check(&bench, &session).await.map(drop);
            let started = sent.start(&bench, &session, false).await.map(drop);
            for (when, refused) in [("at the order", checked), ("at the start", started)] {
                let about = format!("{when}: {template} with {sent:?}");
                let refused = refused.expect_err(&about);
                assert_eq!(refused.kind(), ErrorKind::InvalidParams, "{about}");
                assert_eq!(refused.violations()[0].field, field, "{about}: {refused}");
                assert!(refused.violations()[0].description.contains("session_shell"), "{about}: {refused}");
            }
        }
        assert_eq!(sent_commands(&bench), 0, "{template}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn what_is_not_run_is_accepted() {
    let templates: [(&str, &[Sent]); 6] = [
        (RUNS, &[Arguments(""), Text("$(touch pwned)")]),
        ("!`git status` $ARGUMENTS", &[Arguments("$(x); y"), FileName("$(x)"), FileName("a!`b`@/etc/x.zip")]),
        ("!`git status $HOME` costs $5", &[Arguments("x; y")]),
        (
            "Review $ARGUMENTS",
            &[Arguments("`x`!"), Arguments("! `x`"), MediaType("a/b; c"), Url("https://h/x")],
        ),
        ("Review", &[Arguments("$ARGUMENTS $1 $'"), FileName("; x")]),
        ("$1`$2", &[Arguments("! x")]),
    ];
    for (template, sent) in templates {
        let bench = bench_with(template, false);
        let session = bench.session().await;
        for sent in sent {
            sent.check(&bench, &session)
                .await
                .unwrap_or_else(|error| panic!("{template} {sent:?}: {error:?}"));
        }
        bench.stop().await;
    }
}

/// OpenCode reads its commands again when its configuration changes. The operator may have taken the shell away.
#[tokio::test]
async fn a_command_that_would_run_now_is_noticed_at_the_start() {
    for shell in [false, true] {
        let bench = Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), |config| {
            config.rules.shell = shell;
        });
        set_template(&bench, "Review $ARGUMENTS", false);
        let (sent, session) = (Arguments("x"), bench.session().await);
        sent.check(&bench, &session).await.unwrap();
        set_template(&bench, RUNS, false);
        let refused = sent.start(&bench, &session, false).await.map(drop).unwrap_err();
        assert_eq!(refused.violations()[0].field, "request.arguments");
        bench.fake.queue(Script::new().text("Done.", 1));
        let may_run = sent.start(&bench, &session, true).await;
        assert_eq!(may_run.is_ok(), shell, "{may_run:?}");
        if let Ok(turn) = may_run {
            assert_eq!(outcome(&all(turn).await), "completed");
        }
        assert_eq!(sent_commands(&bench), usize::from(shell));
        bench.stop().await;
    }
}
