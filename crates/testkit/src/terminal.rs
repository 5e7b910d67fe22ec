//! A program on a pseudo-terminal, as a person sees it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// How long the program may show nothing new.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    output: mpsc::Receiver<String>,
    shown: String,
}

impl Terminal {
    /// Everything that was shown so far.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Starts a command on a new terminal, with the type `xterm`.
    pub fn start(mut command: Command) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the system has pseudo-terminals");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("the terminal is ours");
        let name = ptsname(&master, Vec::new()).expect("the terminal has a name");
        let slave = || -> OwnedFd {
            rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
                .expect("the terminal can be opened")
        };
        let child = command
            .env("TERM", "xterm")
            .stdin(Stdio::from(slave()))
            .stdout(Stdio::from(slave()))
            .stderr(Stdio::from(slave()))
            .spawn()
            .expect("the program can be started");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("a file can be read twice");
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

    /// Reads until this text is shown.
    pub fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let more = self.output.recv_timeout(PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("{text:?} is not shown: {:?}", self.shown));
            self.shown.push_str(&more);
        }
    }

    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the program reads");
    }

    /// Everything that was shown, and the exit code.
    pub fn end(mut self) -> (String, Option<i32>) {
        while let Ok(more) = self.output.recv_timeout(PATIENCE) {
            self.shown.push_str(&more);
        }
        (self.shown.clone(), self.child.wait().expect("the program ends").code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
