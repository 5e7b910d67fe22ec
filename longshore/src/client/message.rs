//! Builds the message of `longshore call`.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_client::{Content, Listing, Outgoing, Part, new_message_id};
use serde_json::json;

use super::exit::Failure;
use super::stdin;
use super::target::Agent;
use crate::cli::client::Call;

/// The largest file that is sent, in bytes.
const MAX_FILE: u64 = 32 * 1024 * 1024;

/// The media types of common files, by file name extension. Only types that agents know are listed.
const MEDIA_TYPES: &[(&str, &str)] = &[
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("toml", "application/toml"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// Builds the message. `text`: the argument of the command, where `-` stands for standard input.
pub(crate) async fn build(options: &Call, text: &str, agent: &Agent) -> Result<Outgoing, Failure> {
    let text = if text == "-" { stdin::all()? } else { text.to_owned() };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is no text to send"));
    }
    let mut parts = vec![Part::text(text)];
    for file in &options.file {
        parts.push(attachment(file)?);
    }
    let mut message = Outgoing::new(new_message_id(), parts);
    message.context_id.clone_from(&options.context);
    if options.continues {
        message.context_id = Some(newest_context(agent).await?);
    }
    let mut opencode = json!({});
    if let Some(directory) = &options.directory {
        opencode["directory"] = directory_for(directory, agent).into();
    }
    if let Some(mode) = &options.mode {
        opencode["agent"] = mode.as_str().into();
    }
    if opencode.as_object().is_some_and(|fields| !fields.is_empty()) {
        message.metadata.insert("opencode".to_owned(), opencode);
    }
    if let Some(model) = &options.model {
        let (provider, model) = model
            .split_once('/')
            .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
            .ok_or_else(|| Failure::usage("--model takes a model as provider/model"))?;
        let model = json!({"model": {"providerID": provider, "modelID": model}});
        message.metadata.insert("shared".to_owned(), model);
    }
    Ok(message)
}

/// The directory to send. For a gateway on this machine it becomes an absolute path, because the gateway runs in another directory.
fn directory_for(directory: &str, agent: &Agent) -> String {
    if !agent.is_local {
        return directory.to_owned();
    }
    let whole = std::fs::canonicalize(directory);
    whole.map_or_else(|_| directory.to_owned(), |whole| whole.to_string_lossy().into_owned())
}

async fn newest_context(agent: &Agent) -> Result<String, Failure> {
    let listing = Listing { page_size: Some(1), ..Listing::default() };
    let newest = agent.client.list(&listing).await?.tasks.into_iter().next();
    newest
        .map(|task| task.context_id)
        .filter(|context| !context.is_empty())
        .ok_or_else(|| Failure::usage("there is no earlier task to continue; leave --continue out"))
}

fn attachment(file: &Path) -> Result<Part, Failure> {
    let cannot = |why: String| Failure::usage(format!("{} cannot be sent: {why}", file.display()));
    let found = file.metadata().map_err(|error| cannot(error.to_string()))?;
    if !found.is_file() {
        return Err(cannot("it is no file".to_owned()));
    }
    if found.len() > MAX_FILE {
        return Err(cannot(format!("it has {} bytes, and at most {MAX_FILE} can be sent", found.len())));
    }
    let bytes = std::fs::read(file).map_err(|error| cannot(error.to_string()))?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Part {
        media_type: Some(media_type(file, &bytes).to_owned()),
        filename: name,
        ..Part::new(Content::Raw(STANDARD.encode(&bytes)))
    })
}

fn media_type(file: &Path, bytes: &[u8]) -> &'static str {
    let end = file.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    let known = MEDIA_TYPES.iter().find(|(known, _)| end.as_deref() == Some(known));
    match known {
        Some((_, media_type)) => media_type,
        None if str::from_utf8(bytes).is_ok() => "text/plain",
        None => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_media_type_of_its_name_or_its_content() {
        for (name, bytes, expected) in [
            ("a.PNG", &[0xff_u8, 0][..], "image/png"),
            ("a.rs", b"fn main() {}", "text/plain"),
            ("a.bin", &[0xff, 0], "application/octet-stream"),
            ("Makefile", b"all:", "text/plain"),
        ] {
            assert_eq!(media_type(Path::new(name), bytes), expected, "{name}");
        }
    }
}
