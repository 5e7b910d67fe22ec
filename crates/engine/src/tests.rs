use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The top-level modules of this crate that a file imports.
fn imports(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = code.split("crate::").skip(1).flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default().split(|c| !is_name(c)).collect(),
        None => vec![rest.split(|c| !is_name(c)).next().unwrap_or_default()],
    });
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn no_module_imports_itself_through_others() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut below: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in files(&source).iter().filter(|path| !path.ends_with("tests.rs")) {
        let module = path.strip_prefix(&source).unwrap().components().next().unwrap();
        let module = Path::new(&module).with_extension("").to_str().unwrap().to_owned();
        below.entry(module.clone()).or_default().extend(imports(path));
        below.get_mut(&module).unwrap().remove(&module);
    }
    below.remove("lib");
    // Repeatedly removes the modules that import no remaining module. Modules in an import cycle remain.
    while let Some(done) =
        below.iter().find(|(_, imports)| imports.iter().all(|name| !below.contains_key(name)))
    {
        let done = done.0.clone();
        below.remove(&done);
    }
    assert!(below.is_empty(), "{below:?}");
}
