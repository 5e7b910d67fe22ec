//! Adds a note to a task's metadata that the task is delivered only in certain output modes.

use std::borrow::Cow;

use longshore_model::{Metadata, OutputModes};

use super::merge;
use crate::names::AGENT_OBJECT;

/// Sets `output_negotiation` in the agent's metadata object, if the output modes are restricted. All other keys are kept.
pub(crate) fn annotated<'a>(metadata: Option<&'a Metadata>, output: &OutputModes) -> Option<Cow<'a, str>> {
    let metadata = metadata.map(Metadata::get);
    if output.is_unrestricted() {
        return metadata.map(Cow::Borrowed);
    }
    let mut out = Vec::new();
    merge::write(&mut out, metadata, AGENT_OBJECT, |object| {
        object.object("output_negotiation", |object| {
            object.texts("accepted_output_modes", output.iter());
        });
    });
    Some(Cow::Owned(String::from_utf8(out).expect("JSON is UTF-8")))
}
