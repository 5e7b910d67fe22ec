//! `longshore tasks notify`: registers, lists and removes webhooks of a task.

use longshore_client::PushConfig;

use super::exit::{Code, Failure};
use super::printer::{Printer, Style};
use super::render::print_json;
use super::target;
use crate::cli::client::{NotifyTask, OutputFormat};

pub(crate) async fn notify(options: &NotifyTask) -> Result<Code, Failure> {
    let agent = target::find(&options.target, None).await?;
    let (client, task) = (&agent.client, options.task.as_str());
    let mut printer = Printer::new();
    if let Some(id) = &options.remove {
        client.delete_push(task, id).await?;
        printer.line(Style::Plain, &format!("The webhook {id} is removed."));
        return Ok(Code::Completed);
    }
    let webhooks = match &options.webhook {
        Some(url) => {
            let token = options.webhook_token_file.as_deref().map(target::secret_in).transpose()?;
            let webhook = PushConfig { token, ..PushConfig::new(task, url.as_str()) };
            vec![client.create_push(&webhook).await?]
        }
        None => client.pushes(task).await?,
    };
    let json = |webhook: &PushConfig| serde_json::json!({"taskId": webhook.task_id, "id": webhook.id, "url": webhook.url});
    match options.output {
        OutputFormat::Json => print_json(&webhooks.iter().map(json).collect::<Vec<_>>()),
        OutputFormat::Jsonl => webhooks.iter().for_each(|webhook| print_json(&json(webhook))),
        OutputFormat::Text => {
            if webhooks.is_empty() {
                printer.line(Style::Plain, "The task has no webhooks.");
            }
            for PushConfig { id, url, .. } in &webhooks {
                printer.answer(&format!("{id}  {url}\n"));
            }
        }
    }
    Ok(Code::Completed)
}
