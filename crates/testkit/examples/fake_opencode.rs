//! The fake OpenCode as a program, for tests that are not written in Rust.
//!
//! The program prints `url` and `directory` to standard output and ends when its standard input does, so that it never outlives
//! the process that started it. Prompts take these turns one after the other, which together show everything that a stream can
//! contain.

use std::io::Write as _;

use longshore_testkit::fake_opencode::{FakeOpenCode, Tool, Turn};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

fn turns() -> Vec<Turn> {
    let read = Tool::new("read", json!({"filePath": "chart.png"}), "Image read successfully");
    vec![
        Turn::new().reasoning("The harbour is small.", 2).text("It has one pier.", 3),
        Turn::new().tool(Tool::bash("ls", "README.md\n")).text("One file.", 2),
        Turn::new()
            .tool(read.handing("chart.png", "image/png", b"\x89PNG not a picture"))
            .text("A chart.", 1),
        Turn::new()
            .text("Half ", 1)
            .error("APIError", &json!({"message": "Overloaded", "isRetryable": false})),
        Turn::new().guarded_tool(Tool::bash("rm README.md", "")).text("Gone.", 1),
        Turn::new()
            .tool(Tool::new("read", json!({"filePath": "nope"}), "").failing("File not found"))
            .text("No such file.", 1),
        Turn::new().abandoned("It ha", 1).text("It has two piers.", 2),
    ]
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let fake = FakeOpenCode::start();
    fake.answer_others_with(turns());
    let mut stdout = std::io::stdout();
    writeln!(stdout, "directory {}", fake.directory())?;
    writeln!(stdout, "url {}", fake.url())?;
    stdout.flush()?;
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}
