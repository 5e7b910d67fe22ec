use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use longshore_model::{ErrorKind, Json, PartContent};
use proptest::prelude::*;

use super::*;

const ABSENT: Option<&str> = None;

fn part(content: PartContent, media_type: Option<&str>) -> Part {
    Part { media_type: media_type.map(str::to_owned), ..Part::new(content) }
}

fn text(text: &str, media_type: Option<&str>) -> Part {
    part(PartContent::Text(text.to_owned()), media_type)
}

fn raw(bytes: &[u8], media_type: Option<&str>) -> Part {
    part(PartContent::Raw(bytes.to_vec()), media_type)
}

fn url(url: &str, media_type: Option<&str>) -> Part {
    part(PartContent::Url(url.to_owned()), media_type)
}

fn data(json: &str, media_type: Option<&str>) -> Part {
    part(PartContent::Data(Json::parse(json).unwrap()), media_type)
}

fn small() -> IntakeRules {
    IntakeRules {
        max_text_bytes: 10,
        max_inline_bytes: 20,
        max_file_bytes: 40,
        remote_hosts: vec!["files.example.com".to_owned()],
        ..IntakeRules::default()
    }
}

async fn prepare_here(rules: &IntakeRules, parts: &[Part]) -> Result<Vec<Input>> {
    prepare(rules, Path::new("/nowhere"), parts).await
}

/// The outcome in one line: the agent's input, or the reason of the refusal.
fn summary(outcome: Result<Vec<Input>>) -> String {
    let inputs = match outcome {
        Ok(inputs) => inputs,
        Err(error) if error.kind() == ErrorKind::InvalidParams => {
            assert_eq!(error.violations().len(), 1, "{}", error.message());
            return format!("invalid {}", error.message());
        }
        Err(error) if error.kind() == ErrorKind::ContentTypeNotSupported => {
            return format!("type {}", error.message());
        }
        Err(error) => panic!("{:?} {}", error.kind(), error.message()),
    };
    let each = |input: &Input| match input {
        Input::Text(text) => format!("text {text}"),
        Input::File(file) => {
            let source = match &file.source {
                FileSource::Inline(bytes) => {
                    let facts = file.content.unwrap();
                    assert_eq!(facts.bytes, bytes.len() as u64);
                    assert_eq!(facts.sha256, <[u8; 32]>::from(Sha256::digest(bytes)));
                    format!("inline {}", String::from_utf8_lossy(bytes))
                }
                FileSource::Workspace(path) => {
                    let facts = file.content.unwrap();
                    let bytes = fs::read(path).unwrap();
                    assert_eq!(facts.bytes, bytes.len() as u64);
                    assert_eq!(facts.sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
                    format!("workspace {}", path.file_name().unwrap().to_string_lossy())
                }
                FileSource::Remote(url) => {
                    assert_eq!(file.content, None);
                    format!("remote {url}")
                }
            };
            let kind = if file.is_text { "text" } else { "media" };
            format!("{kind} {} {} {source}", file.media_type, file.name.as_deref().unwrap_or("-"))
        }
    };
    inputs.iter().map(each).collect::<Vec<_>>().join(" | ")
}

#[tokio::test]
async fn parts_with_content_are_accepted_or_refused_by_type_and_size() {
    let table = [
        // text
        (text("hello", ABSENT), "text hello"),
        (text("hello", Some("")), "text hello"),
        (text(" 10 bytes ", Some("text/markdown; charset=utf-16")), "text  10 bytes "),
        (text("{}", Some("application/json")), "text {}"),
        (text("hello", Some("image/png")), "type message.parts[0]: a text part cannot be image/png"),
        (text(" ", Some("image/png")), "type message.parts[0]: a text part cannot be image/png"),
        (text("hello", Some("nonsense")), "type message.parts[0]: the media type cannot be read"),
        (
            text("eleven byte", ABSENT),
            "invalid message.parts[0]: is larger than 10 bytes, the most for one text",
        ),
        // data
        (data("{\"a\": 1.0}", ABSENT), "text {\"a\": 1.0}"),
        (data("[1]", Some("Application/JSON; charset=utf-8")), "text [1]"),
        (data("[1]", Some("application/problem+json")), "text [1]"),
        (data("null", ABSENT), "text null"),
        (data("[1]", Some("application/yaml")), "type message.parts[0]: a data part is JSON"),
        (data("[1,2,3,4,5]", ABSENT), "invalid message.parts[0]: is larger than 10 bytes"),
        // raw text
        (raw(b"fn", Some("text/x-rust; charset=UTF-8")), "text text/x-rust - inline fn"),
        (raw(b"<a/>", Some("image/svg+xml")), "text image/svg+xml - inline <a/>"),
        (
            raw(b"\xff", Some("text/plain")),
            "invalid message.parts[0]: is text by its media type and must be UTF-8",
        ),
        (
            raw(b"x", Some("text/plain; charset=latin1")),
            "invalid message.parts[0]: is text by its media type",
        ),
        (
            raw(b"eleven byte", Some("text/plain")),
            "invalid message.parts[0]: is larger than 10 bytes, the most for one text",
        ),
        // raw media
        (raw(b"\x89P", ABSENT), "media application/octet-stream - inline \u{fffd}P"),
        (raw(b"utf-8", ABSENT), "media application/octet-stream - inline utf-8"),
        (raw(b"", Some("image/png")), "media image/png - inline "),
        (raw(&[b'x'; 20], Some("IMAGE/png")), "media image/png - inline xxxxxxxxxxxxxxxxxxxx"),
        (
            raw(&[b'x'; 21], Some("image/png")),
            "invalid message.parts[0]: is larger than 20 bytes, the most for a file that comes",
        ),
        (
            raw(b"x", Some("video/mp4")),
            "type message.parts[0]: files of the type video/mp4 are not taken; these are: text/*",
        ),
        (raw(b"x", Some("../../etc")), "type message.parts[0]: the media type cannot be read"),
        // data: URLs
        (url("data:,hi", ABSENT), "text text/plain - inline hi"),
        (url("DATA:;base64,aGk", Some("image/png")), "media image/png - inline hi"),
        (url("data:image/png;base64,aGk=", ABSENT), "media image/png - inline hi"),
        (url("data:Image/PNG;x=y;base64,aGk=", Some("image/png; z=y")), "media image/png - inline hi"),
        (
            url("data:image/png;base64,aGk=", Some("image/gif")),
            "invalid message.parts[0]: the media type of the part and that of its data: URL differ",
        ),
        (
            url("data:image/png;base64,a", ABSENT),
            "invalid message.parts[0]: the content of the data: URL is not base64",
        ),
        (
            url("data:text/plain,%ff", ABSENT),
            "invalid message.parts[0]: is text by its media type and must be UTF-8",
        ),
        (url("data:;charset=latin1,x", ABSENT), "invalid message.parts[0]: is text by its media type"),
        (
            url("data:text/plain;charset=latin1,x", Some("text/plain")),
            "invalid message.parts[0]: is text by its media type",
        ),
        (
            url("data:text/plain,x", Some("text/plain;charset=latin1")),
            "invalid message.parts[0]: is text by its media type",
        ),
        (url("data:,eleven%20byte", ABSENT), "invalid message.parts[0]: is larger than 10 bytes"),
        (url("data:font/woff,x", ABSENT), "type message.parts[0]: files of the type font/woff"),
        (url("data:nonsense,x", ABSENT), "type message.parts[0]: the media type cannot be read"),
        // other URLs
        (
            url("https://files.example.com/a", Some("image/png")),
            "media image/png - remote https://files.example.com/a",
        ),
        (
            url("HTTP://files.example.com", Some("text/csv")),
            "text text/csv - remote http://files.example.com/",
        ),
        (url("https://files.example.com/a", ABSENT), "invalid message.parts[0]: has no media type"),
        (
            url("https://files.example.com/a", Some("font/woff")),
            "type message.parts[0]: files of the type font/woff",
        ),
        (
            url("https://other.example/a", Some("font/woff")),
            "invalid message.parts[0]: the gateway does not fetch URLs",
        ),
        (
            url("https://u:p@files.example.com/a", Some("image/png")),
            "invalid message.parts[0]: the URL holds a user name",
        ),
        (url("https://", Some("image/png")), "invalid message.parts[0]: is no URL"),
        (
            url("ftp://files.example.com/a", Some("image/png")),
            "invalid message.parts[0]: the URL is of a kind that is not taken",
        ),
        (
            url("javascript:alert(1)", ABSENT),
            "invalid message.parts[0]: the URL is of a kind that is not taken",
        ),
        (
            url("/etc/passwd", Some("text/plain")),
            "invalid message.parts[0]: the URL is of a kind that is not taken",
        ),
        (url(" data:,hi", ABSENT), "invalid message.parts[0]: the URL is of a kind that is not taken"),
        (url("", ABSENT), "invalid message.parts[0]: the URL is of a kind that is not taken"),
    ];
    for (part, expected) in table {
        let summary = summary(prepare_here(&small(), std::slice::from_ref(&part)).await);
        let as_expected = if expected.starts_with("invalid") || expected.starts_with("type") {
            summary.starts_with(expected)
        } else {
            summary == expected
        };
        assert!(as_expected, "{part:?}\n  {summary}\n  {expected}");
    }
}

#[tokio::test]
async fn settings_extend_the_accepted_types() {
    let rules = IntakeRules { data_parts: false, media_types: vec!["video/*".to_owned()], ..small() };
    let summary_of = async |part| summary(prepare_here(&rules, &[part]).await);
    assert_eq!(
        summary_of(data("{}", ABSENT)).await,
        "type message.parts[0]: data parts are not taken here; send the JSON as text"
    );
    assert_eq!(summary_of(raw(b"x", Some("video/mp4"))).await, "media video/mp4 - inline x");
    let rules = IntakeRules { text_types: vec!["application/x-tex".to_owned()], ..small() };
    let summary = summary(prepare_here(&rules, &[raw(b"\\x", Some("application/x-tex"))]).await);
    assert_eq!(summary, "text application/x-tex - inline \\x");
}

#[tokio::test]
async fn blank_texts_are_left_out_and_order_is_kept() {
    let parts =
        [text("\n", ABSENT), text("a", ABSENT), raw(b"b", ABSENT), text("", ABSENT), data("1", ABSENT)];
    let summary_of_all = summary(prepare_here(&small(), &parts).await);
    assert_eq!(summary_of_all, "text a | media application/octet-stream - inline b | text 1");
    for parts in [vec![], vec![text("", ABSENT), text(" \n\t", ABSENT)]] {
        assert_eq!(
            summary(prepare_here(&small(), &parts).await),
            "invalid message.parts: holds nothing to work on"
        );
    }
    let second = [text("a", ABSENT), raw(b"\xff", Some("text/plain"))];
    assert!(summary(prepare_here(&small(), &second).await).starts_with("invalid message.parts[1]:"));
}

#[tokio::test]
async fn a_message_has_a_total_limit_too() {
    let few = vec![text("x", ABSENT); 100];
    assert!(prepare_here(&IntakeRules::default(), &few).await.is_ok());
    let many = vec![text("x", ABSENT); 101];
    assert_eq!(
        summary(prepare_here(&IntakeRules::default(), &many).await),
        "invalid message.parts: holds 101 parts, and at most 100 are taken; send fewer"
    );

    let mut parts =
        vec![raw(&[b'x'; 20], ABSENT), url("data:image/png;base64,eHh4eHh4eHh4eHh4eHh4eHh4eHg=", ABSENT)];
    parts.extend(vec![text("ten bytes.", ABSENT); 4]);
    assert!(prepare_here(&small(), &parts).await.is_ok());
    parts.push(data("1", ABSENT));
    let told_of_more = summary(prepare_here(&small(), &parts).await);
    assert!(told_of_more.starts_with("invalid message.parts: holds more than 80 bytes"), "{told_of_more}");

    // A limit of zero switches media off, and text is still accepted.
    let rules = IntakeRules { max_inline_bytes: 0, ..small() };
    assert!(prepare_here(&rules, &[text("ten bytes.", ABSENT)]).await.is_ok());
}

#[tokio::test]
async fn a_file_name_never_contains_a_path() {
    let long = "é".repeat(200);
    let table = [
        ("a.png", Some("a.png")),
        ("/etc/../a.png", Some("a.png")),
        ("C:\\dir\\a.png", Some("a.png")),
        ("a\r\nb\u{7f}\u{0}.png", Some("ab.png")),
        ("  a b.png ", Some("a b.png")),
        (long.as_str(), Some(&long[..254])),
        ("", None),
        ("dir/", None),
        ("..", None),
        (" . ", None),
        ("\n", None),
    ];
    for (given, expected) in table {
        let part = Part { filename: Some(given.to_owned()), ..raw(b"x", ABSENT) };
        let inputs = prepare_here(&small(), &[part]).await.unwrap();
        let [Input::File(file)] = inputs.as_slice() else { panic!("{inputs:?}") };
        assert_eq!(file.name.as_deref(), expected, "{given:?}");
    }
}

/// A workspace, the directory of another context, and a directory that no caller may see.
struct TestWorkspace {
    _holder: tempfile::TempDir,
    rules: IntakeRules,
    root: PathBuf,
    other: PathBuf,
    outside: PathBuf,
}

impl TestWorkspace {
    fn new() -> Self {
        let holder = tempfile::tempdir().unwrap();
        // The test reaches the workspace through a symbolic link, as an operator's workspace may be reached.
        let real = holder.path().join("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, holder.path().join("link")).unwrap();
        let base = holder.path().join("link");
        let (root, other, outside) = (base.join("root"), base.join("other"), base.join("outside"));
        for directory in [&root, &other, &outside] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(root.join("a.txt"), "hello").unwrap();
        fs::write(outside.join("secret.txt"), "secret").unwrap();
        Self { _holder: holder, rules: IntakeRules { root: root.clone(), ..small() }, root, other, outside }
    }

    async fn summary(&self, part: Part) -> String {
        let summary = summary(prepare(&self.rules, &self.other, &[part]).await);
        if summary.starts_with("invalid") || summary.starts_with("type") {
            assert!(
                !summary.contains(self.root.parent().unwrap().to_str().unwrap()),
                "a path is shown: {summary}"
            );
        }
        summary
    }

    fn url(&self, path: &str) -> String {
        format!("file://{}/{path}", self.root.display())
    }
}

#[tokio::test]
async fn files_of_the_workspace_are_accepted_by_their_type() {
    let workspace = TestWorkspace::new();
    let files: &[(&str, &[u8])] = &[
        ("sub/b.rs", b"fn"),
        ("dot.png", b"\x89PNG"),
        ("bad.md", b"\xff\xfe"),
        ("Makefile", b"all:"),
        ("blob", b"\x80\x81"),
        ("zeros", b"\0\0"),
        ("a b#c?.txt", b"odd"),
        ("%2e%2e", b"escape"),
        ("clip.mp4", b"\x80"),
        ("text.mp4", b"no video"),
        ("empty.txt", b""),
        ("long.txt", b"eleven byte"),
        ("long", b"eleven byte"),
        ("exact.png", &[7; 40]),
        ("large.png", &[7; 41]),
        ("large", &[7; 41]),
    ];
    fs::create_dir(workspace.root.join("sub")).unwrap();
    for (name, content) in files {
        fs::write(workspace.root.join(name), content).unwrap();
    }
    symlink("a.txt", workspace.root.join("link.md")).unwrap();
    symlink(workspace.other.join("c.txt"), workspace.root.join("across.txt")).unwrap();
    fs::write(workspace.other.join("c.txt"), "other").unwrap();

    let table = [
        ("a.txt", ABSENT, "text text/plain a.txt workspace a.txt"),
        ("a.txt", Some("image/png"), "media image/png a.txt workspace a.txt"),
        ("./sub/../a.txt", ABSENT, "text text/plain a.txt workspace a.txt"),
        ("sub/%2e%2e/a.txt", ABSENT, "text text/plain a.txt workspace a.txt"),
        ("sub/b.rs", Some("Text/X-Rust"), "text text/x-rust b.rs workspace b.rs"),
        ("link.md", ABSENT, "text text/markdown link.md workspace a.txt"),
        ("across.txt", ABSENT, "text text/plain across.txt workspace c.txt"),
        ("../other/c.txt", ABSENT, "text text/plain c.txt workspace c.txt"),
        ("dot.png", ABSENT, "media image/png dot.png workspace dot.png"),
        (
            "dot.png",
            Some("text/plain"),
            "invalid message.parts[0]: is text by its media type and must be UTF-8",
        ),
        ("bad.md", ABSENT, "invalid message.parts[0]: is text by its media type and must be UTF-8"),
        ("a.txt", Some("text/plain;charset=utf-16"), "invalid message.parts[0]: is text by its media type"),
        ("Makefile", ABSENT, "text text/plain Makefile workspace Makefile"),
        ("blob", ABSENT, "media application/octet-stream blob workspace blob"),
        ("zeros", ABSENT, "media application/octet-stream zeros workspace zeros"),
        ("a%20b%23c%3F.txt", ABSENT, "text text/plain a b#c?.txt workspace a b#c?.txt"),
        ("%252e%252e", ABSENT, "text text/plain %2e%2e workspace %2e%2e"),
        ("clip.mp4", ABSENT, "media application/octet-stream clip.mp4 workspace clip.mp4"),
        ("clip.mp4", Some("video/mp4"), "type message.parts[0]: files of the type video/mp4 are not taken"),
        ("text.mp4", ABSENT, "text text/plain text.mp4 workspace text.mp4"),
        ("empty.txt", ABSENT, "text text/plain empty.txt workspace empty.txt"),
        ("long.txt", ABSENT, "invalid message.parts[0]: is larger than 10 bytes, the most for one text"),
        ("long", ABSENT, "media application/octet-stream long workspace long"),
        ("exact.png", ABSENT, "media image/png exact.png workspace exact.png"),
        (
            "large.png",
            ABSENT,
            "invalid message.parts[0]: is larger than 40 bytes, the most for a file of the workspace",
        ),
        (
            "large",
            ABSENT,
            "invalid message.parts[0]: is larger than 40 bytes, the most for a file of the workspace",
        ),
        ("a.txt", Some("font/woff"), "type message.parts[0]: files of the type font/woff"),
        ("a.txt?x", ABSENT, "invalid message.parts[0]: a file:// URL has no query"),
        ("sub%2fb.rs", ABSENT, "invalid message.parts[0]: the file:// URL has an encoded slash"),
        ("a.txt%00.png", ABSENT, "invalid message.parts[0]: the file:// URL holds a NUL"),
    ];
    for (path, media_type, expected) in table {
        let summary = workspace.summary(url(&workspace.url(path), media_type)).await;
        assert!(summary.starts_with(expected), "{path}\n  {summary}\n  {expected}");
    }
    let named = Part { filename: Some("dir/other.txt".to_owned()), ..url(&workspace.url("a.txt"), ABSENT) };
    assert_eq!(workspace.summary(named).await, "text text/plain other.txt workspace a.txt");
    let nameless = Part { filename: Some("..".to_owned()), ..url(&workspace.url("a.txt"), ABSENT) };
    assert_eq!(workspace.summary(nameless).await, "text text/plain a.txt workspace a.txt");
}

#[tokio::test]
async fn every_unreadable_file_is_refused_with_the_same_text() {
    let workspace = TestWorkspace::new();
    let root = &workspace.root;
    symlink(workspace.outside.join("secret.txt"), root.join("leak.txt")).unwrap();
    symlink(workspace.outside.join("missing.txt"), root.join("dangling.txt")).unwrap();
    symlink(&workspace.outside, root.join("away")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("..", root.join("up")).unwrap();
    fs::create_dir(root.join("dir.txt")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(root.join("pipe.txt")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket.txt")).unwrap();
    // A directory whose name begins with the name of the workspace.
    let beside = PathBuf::from(format!("{}-beside", root.display()));
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("secret.txt"), "secret").unwrap();

    let mut urls: Vec<String> = [
        "missing.txt",
        "dir.txt",
        "",
        "a.txt/",
        "a.txt/x.txt",
        "pipe.txt",
        "socket.txt",
        "loop",
        "leak.txt",
        "dangling.txt",
        "away/secret.txt",
        "away/missing.txt",
        "up/outside/secret.txt",
        "../outside/secret.txt",
        "../outside/missing.txt",
        "%2e%2e/outside/secret.txt",
        "%2E./outside/secret.txt",
        "away/../outside/secret.txt",
        "%252e%252e/outside/secret.txt",
        "..%5coutside%5csecret.txt",
        "%ff",
    ]
    .map(|path| workspace.url(path))
    .to_vec();
    urls.push(format!("file://{}/secret.txt", beside.display()));
    urls.push(format!("file://{}/secret.txt", workspace.outside.display()));
    urls.extend(
        ["file:///", "file:///etc/passwd", "file:///dev/zero", "file:///proc/self/environ"]
            .map(str::to_owned),
    );
    urls.push(format!("file:///{}", "a".repeat(300)));
    urls.push(format!("file:///{}", "a/".repeat(5000)));

    // The administrator can read every file, so the permissions prove nothing for this user.
    fs::write(root.join("closed.txt"), "closed").unwrap();
    fs::set_permissions(root.join("closed.txt"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(root.join("closed.txt")).is_err() {
        urls.push(workspace.url("closed.txt"));
    }

    let text = refusal::not_readable("message.parts[0]").message().to_owned();
    for written in urls {
        for media_type in [ABSENT, Some("image/png"), Some("text/plain")] {
            let summary = workspace.summary(url(&written, media_type)).await;
            assert_eq!(summary, format!("invalid {text}"), "{written}");
        }
    }
}

/// The workspace holds the configuration, the token and the agent's password: no spelling of a `file:` URL reaches them.
#[tokio::test]
async fn no_spelling_of_a_url_reaches_a_secret_of_the_gateway() {
    let mut workspace = TestWorkspace::new();
    let root = workspace.root.clone();
    let real = root.canonicalize().unwrap();
    fs::create_dir_all(root.join(".longshore/home")).unwrap();
    fs::create_dir(root.join("src")).unwrap();
    for file in ["longshore.toml", ".longshore/token", ".longshore/managed.json", ".longshore/home/auth.json"]
    {
        fs::write(root.join(file), "secret").unwrap();
    }
    for (name, target) in [
        ("config-link", "longshore.toml"),
        ("link.txt", ".longshore/token"),
        ("link-link", "link.txt"),
        ("away", ".longshore"),
        ("src/up", ".."),
    ] {
        symlink(target, root.join(name)).unwrap();
    }
    symlink(real.join(".longshore/token"), root.join("absolute-link")).unwrap();
    for (name, target) in [
        ("hard.txt", ".longshore/token"),
        ("src/hard.json", ".longshore/managed.json"),
        ("hard.toml", "longshore.toml"),
        ("hard-deep.png", ".longshore/home/auth.json"),
    ] {
        fs::hard_link(root.join(target), root.join(name)).unwrap();
    }
    // A hard link to a file that is no secret is no reason to refuse the file.
    fs::hard_link(root.join("a.txt"), root.join("b.txt")).unwrap();

    let mut urls = [
        "longshore.toml",
        "./longshore.toml",
        "/longshore.toml",
        "//longshore.toml",
        "src/../longshore.toml",
        "%6cong%73hore.toml",
        "longshore%2Etoml",
        "longshore.tom%6C",
        "src/%2e%2e/longshore.toml",
        "src/%2E./longshore.toml",
        "config-link",
        "./src/up/longshore.toml",
        "hard.toml",
        "hard.tom%6c",
        ".longshore/token",
        ".longshore//token",
        ".longshore/./token",
        "%2elongshore/token",
        ".longshore/%74oken",
        ".longshore/../.longshore/token",
        ".longshore/home/../token",
        "src/../.longshore/token",
        "src/up/.longshore/token",
        "src/up/src/up/.longshore/token",
        "link.txt",
        "link-link",
        "absolute-link",
        "away/token",
        "away/../away/token",
        "away/home/../managed.json",
        "src/up/away/token",
        "hard.txt",
        "src/hard.json",
        "src/../hard.txt",
        "hard-deep.png",
        ".longshore/managed.json",
        ".longshore/home/auth.json",
        "away/home/auth.json",
        // These paths lead to no file, and are refused in the same words.
        "LONGSHORE.TOML",
        "Longshore.toml",
        ".LONGSHORE/token",
        ".longshore/TOKEN",
        "longshore.toml.",
        ".longshore./token",
        ".longshore/token.",
        "longshore.toml%20",
        "longshore%252etoml",
        ".longshore%5ctoken",
        "longshore.toml/",
        ".longshore/token/",
        "src/gone/../../longshore.toml",
        ".longshore",
        ".longshore/",
        "away",
    ]
    .map(|path| workspace.url(path))
    .to_vec();
    for path in ["longshore.toml", ".longshore/token", "hard.txt"] {
        urls.push(format!("file://{}/{path}", real.display()));
        urls.push(format!("FILE://LocalHost{}/{path}", real.display()));
        urls.push(format!("file:///proc/self/root{}/{path}", real.display()));
        urls.push(format!("file:///proc/{}/root{}/{path}", std::process::id(), real.display()));
    }
    let open = fs::File::open(root.join(".longshore/token")).unwrap();
    urls.push(format!("file:///proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open)));

    let secrets = ["longshore.toml", ".longshore"].map(|name| root.join(name));
    workspace.rules.protected = crate::ProtectedPaths::new(secrets).into();
    let text = refusal::not_readable("message.parts[0]").message().to_owned();
    for written in &urls {
        for media_type in [ABSENT, Some("image/png")] {
            let summary = workspace.summary(url(written, media_type)).await;
            assert_eq!(summary, format!("invalid {text}"), "{written}");
        }
    }
    // These paths are refused before the disk is read.
    for path in [
        "longshore.toml%00.txt",
        ".longshore%2ftoken",
        "longshore.toml?x",
        "longshore.toml#x",
        "longshore.toml%",
    ] {
        let summary = workspace.summary(url(&workspace.url(path), ABSENT)).await;
        assert!(summary.starts_with("invalid message.parts[0]: "), "{path}: {summary}");
    }
    assert_eq!(
        workspace.summary(url(&workspace.url("b.txt"), ABSENT)).await,
        "text text/plain b.txt workspace b.txt"
    );
    // With the root of the file system as workspace, the workspace contains the environment of the gateway process (`/proc`).
    workspace.rules.root = "/".into();
    for path in ["/proc/self/environ", "/proc/thread-self/environ", "/proc/self/task/../environ"] {
        let summary = workspace.summary(url(&format!("file://{path}"), Some("text/plain"))).await;
        assert_eq!(summary, format!("invalid {text}"), "{path}");
    }
}

#[tokio::test]
async fn a_file_is_checked_again_at_each_use() {
    let workspace = TestWorkspace::new();
    let part = url(&workspace.url("a.txt"), ABSENT);
    assert_eq!(workspace.summary(part.clone()).await, "text text/plain a.txt workspace a.txt");
    fs::write(workspace.root.join("a.txt"), "changed").unwrap();
    assert_eq!(workspace.summary(part.clone()).await, "text text/plain a.txt workspace a.txt");
    fs::write(workspace.root.join("a.txt"), "longer than before").unwrap();
    assert!(workspace.summary(part.clone()).await.contains("larger than 10 bytes"));
    fs::remove_file(workspace.root.join("a.txt")).unwrap();
    symlink(workspace.outside.join("secret.txt"), workspace.root.join("a.txt")).unwrap();
    assert!(workspace.summary(part).await.contains("names no file of the workspace"));
}

#[tokio::test]
async fn files_of_one_message_have_a_total_limit() {
    let workspace = TestWorkspace::new();
    fs::write(workspace.root.join("a.png"), [7; 40]).unwrap();
    let mut parts = vec![url(&workspace.url("a.png"), ABSENT); 4];
    assert!(prepare(&workspace.rules, &workspace.other, &parts).await.is_ok());
    parts.push(url(&workspace.url("a.txt"), ABSENT));
    let summary = summary(prepare(&workspace.rules, &workspace.other, &parts).await);
    assert!(
        summary.starts_with("invalid message.parts: refers to files of more than 160 bytes together"),
        "{summary}"
    );
}

#[test]
fn limits_are_shown_in_units_for_people() {
    for (bytes, expected) in
        [(0, "0 bytes"), (1000, "1000 bytes"), (5 << 20, "5 MiB"), ((5 << 20) + 1, "5242881 bytes")]
    {
        assert_eq!(size(bytes), expected);
    }
}

proptest! {
    #[test]
    fn no_part_makes_intake_panic(
        url in prop_oneof![".*", "(data|file|https?|DATA):.*", "data:[a-z/;=]*(;base64)?,.*", "file:///[./%a-f0-9]*"],
        media_type in prop::option::of(prop_oneof![".*", "[a-z]*/[a-z*+;= ]*"]),
        filename in prop::option::of(".*"),
    ) {
        let part = |content| Part { content, media_type: media_type.clone(), filename: filename.clone(), metadata: None };
        let rules = IntakeRules { remote_hosts: vec!["*.example.com".to_owned()], ..IntakeRules::default() };
        for content in [PartContent::Url(url.clone()), PartContent::Text(url.clone()), PartContent::Raw(url.into_bytes())] {
            if let Err(error) = draft_all(&rules, &[part(content)], PartNames::MESSAGE) {
                prop_assert!(matches!(error.kind(), ErrorKind::InvalidParams | ErrorKind::ContentTypeNotSupported));
                prop_assert!(error.message().starts_with("message.parts"));
            }
        }
    }
}
