//! `longshore call` on a terminal: colours, and answers at the prompt.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use longshore_testkit::fake_opencode::{Tool, Turn};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::fixture::{Fixture, eventful};

/// How long the program may show nothing new.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program on a pseudo-terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    output: mpsc::Receiver<String>,
    shown: String,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = || -> OwnedFd {
            rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap()
        };
        let child = command
            .env("TERM", "xterm")
            .stdin(Stdio::from(slave()))
            .stdout(Stdio::from(slave()))
            .stderr(Stdio::from(slave()))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().unwrap();
        // A screenful each; a program that shows more waits until the test reads.
        let (sender, output) = mpsc::sync_channel(256);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the program has ended.
            while let Ok(count) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                if count == 0 || sender.send(text).is_err() {
                    return;
                }
            }
        });
        // The child has its own copies of the slave now.
        drop(command);
        Self { child, keyboard, output, shown: String::new() }
    }

    fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            match self.output.recv_timeout(PATIENCE) {
                Ok(more) => self.shown.push_str(&more),
                Err(_) => panic!("{text:?} is not shown: {:?}", self.shown),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Everything that was shown, and the exit code.
    fn end(mut self) -> (String, Option<i32>) {
        while let Ok(more) = self.output.recv_timeout(PATIENCE) {
            self.shown.push_str(&more);
        }
        (self.shown.clone(), self.child.wait().unwrap().code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_answered_at_the_prompt() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new().guarded_tool(Tool::bash("touch guarded", "ok")).text("Done it.", 1).finish("stop")
    });
    let command = fixture.command(&["call", "ask"]);
    let (shown, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(command);
        terminal.wait_for("> ");
        assert!(terminal.shown.contains("touch guarded"), "{}", terminal.shown);
        assert!(terminal.shown.contains("1. once (allow once)"), "{}", terminal.shown);
        terminal.types("1\n");
        terminal.wait_for("completed");
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown.matches("Done it.").count(), 1, "{shown}");
    assert!(shown.contains("\x1b[32m✓ bash touch guarded"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_agent_refuses_is_asked_for_again() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new().guarded_tool(Tool::bash("touch guarded", "ok")).text("Done it.", 1).finish("stop")
    });
    let command = fixture.command(&["call", "ask"]);
    let (shown, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(command);
        terminal.wait_for("> ");
        terminal.types("perhaps\n");
        terminal.wait_for("must be once, always or reject");
        terminal.types("once\n");
        terminal.wait_for("completed");
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_dimmed_and_diffs_are_coloured_unless_no_color_is_set() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| eventful());
    for no_color in [false, true] {
        let mut command = fixture.command(&["call", "Do it."]);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let (shown, code) =
            tokio::task::spawn_blocking(move || Terminal::start(command).end()).await.unwrap();
        assert_eq!(code, Some(0), "{shown}");
        for coloured in ["\x1b[2mI think", "\x1b[31m  -two", "\x1b[32m  +three", "\x1b[31m✗ bash"] {
            assert_eq!(shown.contains(coloured), !no_color, "{coloured:?} in {shown:?}");
        }
        for plain in ["I think", "-two", "+three", "The second line."] {
            assert!(shown.contains(plain), "{plain} in {shown:?}");
        }
    }
}
