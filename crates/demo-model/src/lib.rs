//! A scripted model: a small OpenAI-compatible server on loopback that follows directives in the prompt.
//!
//! The demo model lets Longshore answer offline and without an account. It also lets tests make a real OpenCode do whatever
//! they need: call tools, ask, fail, break off, fall silent. The same prompt always gets the same bytes.
//!
//! A prompt with directives ([`script`]) is a script; directive *i* answers the *i*-th model request of the turn:
//!
//! | directive | arguments | answer |
//! |---|---|---|
//! | `text` | `n=5 size=8 delay=0`, or `text="..."` | n chunks of text |
//! | `long` | `n=2000 size=16 delay=2` | the same, longer |
//! | `reason` | `rn=4 n=3 text=` | reasoning, then text |
//! | `bash` | `cmd= desc=` | a tool call |
//! | `read`, `write`, `edit` | `path=`; `content=`; `old= new=` | a tool call |
//! | `glob`, `grep`, `webfetch` | `pattern=`; `url=` | a tool call |
//! | `question` | `q= header= options="A\|B" multiple=0 n=1` | a question to the user |
//! | `task` | `agent=general desc= prompt= task_id= background=` | a sub-agent, with a script of its own |
//! | `todo` | `items="a\|b" done=0` | a todo list |
//! | `tool` | `name= args={...}` | any tool |
//! | `pair` | `a= b=` | two `bash` calls in one reply |
//! | `plan_exit` | | OpenCode's tool of that name |
//! | `http` | `status=500 times= retry_after= retry_after_ms= body=` | an HTTP error, `times` times, then text |
//! | `auth` | `times= body=` | HTTP 401 to the first `times` prompts of a session with this directive, then text |
//! | `overflow` | `times=1` | HTTP 400 `context_length_exceeded`, `times` times, then text |
//! | `cut` | `after=3 mode=fin\|rst\|noend times= delay=0` | text that breaks off |
//! | `sseerror` | `after=2 times= body= etype= code=` | an error event in the stream |
//! | `badjson` | `after=2` | an event that is not JSON |
//! | `stall` | `after=3` | text, then silence until the client leaves |
//! | `forever` | `delay=20 size=8` | text without end |
//! | `finish` | `reason=length\|content_filter n=3` | text with another finish reason |
//! | `empty` | | nothing at all |
//!
//! Every directive takes `ttft` (milliseconds of silence before the first byte), `in` and `out` (the token usage to
//! report) and, with a tool call, `pre` (text before it) and `argchunks` (its arguments in so many deltas).
//!
//! `POST /v1/messages` answers the same scripts in the API of Anthropic.
//!
//! Besides the API there are `GET /_health`, `GET /_log` and `POST /_reset`.

mod anthropic;
pub mod home;
pub mod journal;
pub mod reply;
pub mod request;
pub mod script;
pub mod server;

pub use journal::Journal;
pub use server::DemoModel;
