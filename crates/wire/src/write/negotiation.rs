//! The note that a task is told in certain output modes only, for every reader of it.

use std::borrow::Cow;

use longshore_model::{Metadata, OutputModes};

use super::merge;

/// The metadata with `opencode.output_negotiation` set, if there are modes to name. Other keys stay.
pub(crate) fn noted<'a>(metadata: Option<&'a Metadata>, output: &OutputModes) -> Option<Cow<'a, str>> {
    let metadata = metadata.map(Metadata::get);
    if output.is_unrestricted() {
        return metadata.map(Cow::Borrowed);
    }
    let mut out = Vec::new();
    merge::write(&mut out, metadata, "opencode", |object| {
        object.object("output_negotiation", |object| {
            object.texts("accepted_output_modes", output.iter());
        });
    });
    Some(Cow::Owned(String::from_utf8(out).expect("JSON is text")))
}
