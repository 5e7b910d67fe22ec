//! Lists tasks and asks, and prints or cancels one task.

use longshore_client::{Listing, Task, TaskState};

use super::answer::Ask;
use super::exit::{Code, Failure};
use super::printer::{Printer, Style};
use super::render::{Renderer, print_json};
use super::target;
use crate::cli::client::{ListAsks, ListTasks, OneTask, OutputFormat};
use crate::output;

/// The longest text of a task in a list, in characters.
const MAX_SUMMARY: usize = 60;

/// The most waiting tasks that are listed.
const MAX_ASKS: u32 = 100;

/// `longshore tasks list`.
pub(crate) async fn tasks(options: &ListTasks) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let listing = Listing {
        context_id: options.context.clone(),
        page_size: Some(options.limit),
        history: Some(1),
        state: None,
        page_token: None,
    };
    let page = agent.client.list(&listing).await?;
    match options.output {
        OutputFormat::Json => print_json(&page.tasks),
        OutputFormat::Jsonl => page.tasks.iter().for_each(print_json),
        OutputFormat::Text => {
            let mut printer = Printer::new();
            if page.tasks.is_empty() {
                printer.line(Style::Plain, "There are no tasks.");
            }
            let width = page.tasks.iter().map(|task| task.id.chars().count()).max().unwrap_or_default();
            for task in &page.tasks {
                let state = task.status.state.map_or("unknown", TaskState::as_str);
                let time = task.status.timestamp.as_deref().unwrap_or_default();
                let time = time.split_once('.').map_or(time, |(seconds, _)| seconds);
                let line = format!("{:width$}  {state:14}  {time:19}  {}", task.id, summary(task));
                printer.answer(&format!("{}\n", line.trim_end()));
            }
            if page.next_page_token.is_some() {
                let total = page.total.map(|total| format!(" of {total}")).unwrap_or_default();
                let text = format!(
                    "These are the newest {}{total} tasks. --limit shows more, up to 100.",
                    page.tasks.len()
                );
                printer.line(Style::Dim, &text);
            }
        }
    }
    Ok(Code::Completed)
}

/// `longshore tasks get`.
pub(crate) async fn get(options: &OneTask) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let task = agent.client.get(&options.task).await?;
    show(&task, options.output);
    Ok(Code::Completed)
}

/// `longshore tasks cancel`.
pub(crate) async fn cancel(options: &OneTask) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let task = agent.client.cancel(&options.task).await?;
    if options.output == OutputFormat::Text {
        let state = task.status.state.map_or("unknown", TaskState::as_str);
        Printer::new().line(Style::Plain, &format!("The task {} is {state}.", task.id));
    } else {
        print_json(&task);
    }
    Ok(Code::Completed)
}

/// `longshore asks list`.
pub(crate) async fn asks(options: &ListAsks) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let listing =
        Listing { state: Some(TaskState::InputRequired), page_size: Some(MAX_ASKS), ..Listing::default() };
    let mut tasks = agent.client.list(&listing).await?.tasks;
    // Filter here too, because not every agent filters by state.
    tasks.retain(|task| task.status.state == Some(TaskState::InputRequired));
    match options.output {
        OutputFormat::Json => print_json(&tasks),
        OutputFormat::Jsonl => tasks.iter().for_each(print_json),
        OutputFormat::Text => {
            let mut printer = Printer::new();
            if tasks.is_empty() {
                printer.line(Style::Plain, "No task waits for an answer.");
            }
            for (task, ask) in tasks.iter().filter_map(|task| Some((task, Ask::of(task)?))) {
                let options: Vec<&str> = ask.options.iter().map(|(id, _)| id.as_str()).collect();
                printer.answer(&format!("{}  {}\n", task.id, ask.text.replace('\n', "\n    ")));
                if !options.is_empty() {
                    printer.answer(&format!("  answers: {}\n", options.join(", ")));
                }
                printer.answer(&format!("  to answer: {}\n", ask.command(task, &agent.flags)));
            }
        }
    }
    Ok(Code::Completed)
}

/// Prints a task in its current state.
fn show(task: &Task, format: OutputFormat) {
    if format == OutputFormat::Text {
        let mut renderer = Renderer::new(format);
        renderer.event(&longshore_client::Event::Task(task.clone()));
        renderer.printer.end_answer();
        renderer.printer.end_aside();
        if let Some(ask) = Ask::of(task) {
            renderer.printer.line(Style::Ask, &ask.text);
        }
        let state = task.status.state.map_or("unknown", super::words::word);
        renderer.printer.line(Style::Dim, &format!("state: {state} · context: {}", task.context_id));
    } else {
        print_json(task);
    }
}

/// A short line about a task: its status message, or else its first message.
fn summary(task: &Task) -> String {
    let message = task.status.message.as_ref().or(task.history.first());
    let text = message.map(longshore_client::Message::text).unwrap_or_default();
    let text = super::words::without_advice(&text);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    output::harmless_line(&line).chars().take(MAX_SUMMARY).collect()
}
