//! Detects text files that OpenCode would not read from the workspace, because it takes them for binary by their name or their
//! bytes. The gateway sends the content of such a file instead of its path.

use std::path::Path;

use longshore_engine::port::ContentFacts;
use sha2::{Digest as _, Sha256};

/// The file extensions that OpenCode takes for binary files.
const BINARY_EXTENSIONS: &[&str] = &[
    "7z", "a", "avif", "bin", "bmp", "class", "dat", "dll", "doc", "docx", "exe", "gif", "gz", "ico", "jar",
    "jpeg", "jpg", "lib", "o", "obj", "odp", "ods", "odt", "pdf", "png", "ppt", "pptx", "pyc", "pyo", "so",
    "tar", "tif", "tiff", "war", "wasm", "webp", "xls", "xlsx", "zip",
];

/// The number of bytes at the beginning of a file by which OpenCode decides whether it is binary.
const HEAD: usize = 4096;

pub(super) async fn looks_binary(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if BINARY_EXTENSIONS.iter().any(|known| extension.eq_ignore_ascii_case(known)) {
        return true;
    }
    let head = super::head(path, HEAD).await.unwrap_or_default();
    let control = head.iter().filter(|byte| matches!(byte, 0..=8 | 14..=31)).count();
    head.contains(&0) || control * 10 > head.len() * 3
}

/// Reads the file. `None`: its content has changed since the message was accepted.
pub(super) async fn unchanged_content(path: &Path, facts: &ContentFacts) -> Option<Vec<u8>> {
    let bytes = super::head(path, usize::try_from(facts.bytes).ok()?).await?;
    let hash: [u8; 32] = Sha256::digest(&bytes).into();
    (hash == facts.sha256).then_some(bytes)
}
