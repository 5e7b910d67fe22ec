//! Checks the names in native prompts, and sends notes: native prompts that expect no response.

use longshore_engine::port::{Input, Session};
use longshore_engine::to_control_error;
use longshore_model::{Error, NativePrompt, NativePromptPart, PromptOptions, Result, Subtask};

use super::references::{Bounds, SentCommand};
use super::{ForPurpose as _, Purpose};
use crate::OpenCode;
use crate::catalog::{Fields, LOOKUP, Unverified};
use crate::prompt::PromptDraft;

/// The field with the name of a command.
const COMMAND: &str = "request.command";

impl Fields<'static> {
    /// The fields of a native prompt.
    pub(crate) const OF_NATIVE_PROMPT: Self = Self {
        model: "request.model",
        provider: "request.model",
        agent: "request.agent",
        variant: "request.variant",
        system: "request.system",
    };
}

impl OpenCode {
    pub(super) async fn check_prompt(
        &self,
        session: &Session,
        native: &NativePrompt,
        input: &[Input],
        options: &PromptOptions,
    ) -> Result<()> {
        let (catalog, at) = (&self.access.catalog, session.directory.as_str());
        let (rules, fields) = (&self.access.rules, Fields::OF_NATIVE_PROMPT);
        rules.check(options, fields)?;
        catalog.check(at, options, &rules.defaults, fields, Unverified::Refuse).await?;
        let barred = catalog.barred_agents(&self.for_callers, at, rules).await.for_purpose(LOOKUP)?;
        let bounds = Bounds {
            root: &self.access.root,
            directory: at,
            protected: &self.access.protected,
            barred_agents: &barred,
        };
        match native {
            NativePrompt::Command { name, arguments, may_run } => {
                let command = catalog.check_command(at, name, COMMAND).await?;
                rules.check_command(&command, COMMAND)?;
                let template = &command.template();
                let sent = self.sent_arguments(session, native, input, options).await?;
                let (written, sent) = (arguments.as_str(), sent.as_deref().unwrap_or(arguments));
                bounds.check_command(SentCommand { template, written, sent, may_run: *may_run }).await
            }
            NativePrompt::Prompt { parts, .. } => {
                for (position, part) in parts.iter().enumerate() {
                    match part {
                        NativePromptPart::Content => {}
                        NativePromptPart::Agent(name) => {
                            let field = format!("request.parts[{position}].name");
                            rules.check_agent(name, &field)?;
                            catalog.check_agent(at, name, &field, Unverified::Refuse).await?;
                        }
                        NativePromptPart::Subtask(subtask) => {
                            self.check_subtask(at, position, subtask).await?;
                        }
                    }
                }
                bounds.check_subtasks(parts).await
            }
        }
    }

    /// The arguments that OpenCode gets for a command with files, to which descriptions of files may have been added. `None`: the
    /// arguments as the caller wrote them.
    async fn sent_arguments(
        &self,
        session: &Session,
        native: &NativePrompt,
        input: &[Input],
        options: &PromptOptions,
    ) -> Result<Option<String>> {
        if input.is_empty() {
            return Ok(None);
        }
        let draft = PromptDraft { prompt: "", input, options, order: Some(native), is_note: false };
        let body = self.starter.prompts.body(&self.for_callers, session, draft).await;
        Ok(body.map_err(to_control_error)?.arguments)
    }

    async fn check_subtask(&self, at: &str, position: usize, subtask: &Subtask) -> Result<()> {
        let field = |name: &str| format!("request.parts[{position}].{name}");
        let (model, agent) = (field("model"), field("agent"));
        let named = PromptOptions {
            model: subtask.model.clone(),
            agent: Some(subtask.agent.clone()),
            ..PromptOptions::default()
        };
        let fields =
            Fields { model: &model, provider: &model, agent: &agent, variant: &model, system: &model };
        self.access.rules.check(&named, fields)?;
        let none = PromptOptions::default();
        self.access.catalog.check(at, &named, &none, fields, Unverified::Refuse).await
    }

    /// Sends a note. OpenCode keeps the options of the note, such as the model, for the session's next prompts, so they are checked
    /// first.
    pub(super) async fn send_note(
        &self,
        session: &Session,
        native: &NativePrompt,
        input: &[Input],
        options: &PromptOptions,
    ) -> Result<()> {
        if matches!(native, NativePrompt::Command { .. }) {
            return Err(Error::internal("a command always expects a response, so it cannot be a note"));
        }
        self.check_prompt(session, native, input, options).await?;
        let prompt = &self.starter.prompts.ids.of_note();
        let draft = PromptDraft { prompt, input, options, order: Some(native), is_note: true };
        let body = self.starter.prompts.body(&self.for_callers, session, draft).await;
        let body = body.map_err(to_control_error)?.json;
        let noted = self.for_callers.note(&session.directory, session.id.as_str(), body).await;
        noted.for_purpose(Purpose::change("add the note to the session").in_session(&session.id))
    }
}
