//! Text that OpenCode would refuse to read from the workspace, because it looks at the name first and then for bytes that
//! are none of a text. Such a file is sent as what it holds.

use std::path::Path;

use longshore_engine::port::ContentFacts;
use sha2::{Digest as _, Sha256};

/// The ends of names by which OpenCode takes a file for something else than text.
const ENDS: &[&str] = &[
    "7z", "a", "avif", "bin", "bmp", "class", "dat", "dll", "doc", "docx", "exe", "gif", "gz", "ico", "jar",
    "jpeg", "jpg", "lib", "o", "obj", "odp", "ods", "odt", "pdf", "png", "ppt", "pptx", "pyc", "pyo", "so",
    "tar", "tif", "tiff", "war", "wasm", "webp", "xls", "xlsx", "zip",
];

/// So much of a file OpenCode looks at.
const HEAD: usize = 4096;

pub(super) async fn is_taken_for_binary(path: &Path) -> bool {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    if ENDS.iter().any(|known| end.eq_ignore_ascii_case(known)) {
        return true;
    }
    let head = super::head(path, HEAD).await.unwrap_or_default();
    let odd = head.iter().filter(|byte| matches!(byte, 0..=8 | 14..=31)).count();
    head.contains(&0) || odd * 10 > head.len() * 3
}

/// The content, if it is still what the intake saw.
pub(super) async fn whole(path: &Path, facts: &ContentFacts) -> Option<Vec<u8>> {
    let bytes = super::head(path, usize::try_from(facts.bytes).ok()?).await?;
    let seen: [u8; 32] = Sha256::digest(&bytes).into();
    (seen == facts.sha256).then_some(bytes)
}
