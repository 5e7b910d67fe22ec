//! `longshore doctor`: finds problems that would prevent the gateway of a directory from working, and says what to do about them.

mod agent;
mod certificate;
mod gateway;
mod place;

use std::process::ExitCode;

use crate::config::{self, Checked};
use crate::{cli, output};

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    verdict: Verdict,
    /// The checked thing, in a word or two.
    what: &'static str,
    text: String,
    /// What to do about it. `None`: nothing.
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Fine,
    /// The checked thing works, but perhaps not as expected.
    Warning,
    Problem,
}

impl Finding {
    pub(crate) fn fine(what: &'static str, text: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fine, what, text: text.into(), advice: None }
    }

    pub(crate) fn warning(what: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, what, text: text.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn problem(what: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, what, text: text.into(), advice: Some(advice.into()) }
    }

    fn print(&self) {
        let verdict = match self.verdict {
            Verdict::Fine => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        };
        // Remove control characters, because the text can contain text of an agent.
        output::print(format_args!("{verdict:8} {:13} {}", self.what, output::harmless(&self.text)));
        if let Some(advice) = &self.advice {
            output::print(format_args!("{:22} {advice}", ""));
        }
    }
}

/// Prints all findings. The exit code is 1 if there is a problem, and 2 if the configuration cannot be used.
pub(crate) async fn doctor(options: &cli::Doctor) -> anyhow::Result<ExitCode> {
    let context = crate::context()?;
    let checked = match config::load(&options.settings.0, options.config.config.as_deref(), &context) {
        Ok(checked) => checked,
        Err(problems) => {
            for problem in &problems.0 {
                let advice = "Correct this setting. The other checks need a configuration that can be read.";
                Finding::problem("configuration", problem.to_string(), advice).print();
            }
            return Ok(ExitCode::from(crate::EXIT_USAGE));
        }
    };
    let Checked { plan, warnings } = checked;
    let mut findings = Vec::new();
    if warnings.is_empty() {
        let file = plan.config_file.as_ref().map(|file| format!(" ({})", file.display())).unwrap_or_default();
        findings.push(Finding::fine("configuration", format!("all settings can be used{file}")));
    }
    for warning in warnings {
        findings.push(Finding::warning("configuration", warning, "Remove or correct this setting."));
    }
    findings.extend(place::check(&plan));
    findings.extend(certificate::check(&plan));
    findings.extend(gateway::check(&plan).await);
    findings.extend(agent::check(&plan, &context).await);
    findings.iter().for_each(Finding::print);
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    output::print(match (problems, warnings) {
        (0, 0) => "\nNothing is wrong.".to_owned(),
        (0, warnings) => format!("\nNothing is broken; warnings: {warnings}."),
        (problems, warnings) => format!("\nProblems: {problems}; warnings: {warnings}."),
    });
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
