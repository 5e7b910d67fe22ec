//! Limits for a message apart from its content.

use longshore_meter::label::Limit;
use longshore_meter::{Label as _, Metrics};
use longshore_model::{Error, Metadata, Part, Result, SendMessage};

use super::refusal::size;
use crate::config::IntakeRules;

/// Checks the size of everything in the message except the content of its parts.
pub(crate) fn check(rules: &IntakeRules, metrics: &Metrics, command: &SendMessage) -> Result<()> {
    let refused = |limit: Limit, max: u64, field: &str, text: String| {
        metrics.refused.of(limit).increment();
        Err(Error::invalid(field, text)
            .detail("limit", Limit::VALUES[limit.index()])
            .detail("max", max.to_string()))
    };
    let message = &command.message;
    for (count, max, limit, field, things) in [
        (
            message.extensions.len(),
            rules.max_extensions,
            Limit::MaxExtensions,
            "message.extensions",
            "extensions",
        ),
        (
            message.reference_task_ids.len(),
            rules.max_references,
            Limit::MaxReferences,
            "message.referenceTaskIds",
            "tasks",
        ),
    ] {
        if max > 0 && count > max {
            let text = format!("names {count} {things}, and at most {max} are taken; name fewer");
            return refused(limit, max as u64, field, text);
        }
    }
    let of_metadata = |metadata: &Option<Metadata>| metadata.as_ref().map_or(0, |found| found.get().len());
    let sizes = [
        ("message.metadata", of_metadata(&message.metadata)),
        ("metadata", of_metadata(&command.metadata)),
        ("message.parts", message.parts.iter().map(Part::overhead).sum()),
        ("message.extensions", message.extensions.iter().map(String::len).sum()),
        (
            "configuration.acceptedOutputModes",
            command.config.accepted_output_modes.iter().map(str::len).sum::<usize>(),
        ),
    ];
    let whole: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
    if whole as u64 <= rules.max_metadata_bytes {
        return Ok(());
    }
    let largest = sizes.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("message", |(field, _)| field);
    let text = format!(
        "the message has {whole} bytes of metadata, names and media types, and at most {} are taken; send less of them, and \
         content in the parts",
        size(rules.max_metadata_bytes)
    );
    refused(Limit::MaxMetadataBytes, rules.max_metadata_bytes, largest, text)
}
