//! The address and password of an OpenCode server, and whether the server is up. All users of one server share this state.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use longshore_model::{Error, ErrorKind};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

/// The address of an OpenCode server. All clones share one address. If another program takes the port of a managed OpenCode
/// while OpenCode is down, OpenCode restarts on another port, and from then on every holder of a clone uses that port.
///
/// The address also says whether OpenCode is up. Each time that OpenCode comes back, a new *run* begins. The end of a run ends
/// every call of that run at once, and no call is made before the next run begins. The reason: a process that has ended never
/// responds, and a process that is still starting accepts requests but never responds to them.
#[derive(Clone)]
pub struct Address(Arc<watch::Sender<Location>>);

/// A URL, its password, and the state of the server at that URL. All of them change together.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) url: Url,
    /// The password after a move of the server. `None`: the server has never moved, so its configured password is valid.
    pub(crate) password: Option<SecretString>,
    /// The number of the run. Grows each time that OpenCode comes back.
    pub(crate) run: u32,
    /// The current outage. `None`: OpenCode is up, as far as is known.
    pub(crate) outage: Option<Outage>,
    /// Whether Longshore supervises the process. Then a new run is a new process, and no turn of the old process continues.
    is_supervised: bool,
}

/// A time in which OpenCode is down.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    pub(crate) since: Instant,
    /// A sentence that may be shown to anybody.
    pub(crate) reason: String,
}

impl Outage {
    pub(crate) fn into_error(self) -> Error {
        Error::new(ErrorKind::AgentUnavailable, self.reason)
    }
}

/// The run of OpenCode to which one call belongs.
pub(crate) struct Run {
    location: watch::Receiver<Location>,
    number: u32,
}

impl Address {
    /// Creates the address of a process that Longshore supervises.
    pub fn supervised(url: Url) -> Self {
        Self::new(url, true)
    }

    fn new(url: Url, is_supervised: bool) -> Self {
        Self(Arc::new(watch::Sender::new(Location {
            url,
            password: None,
            run: 0,
            outage: None,
            is_supervised,
        })))
    }

    pub fn url(&self) -> Url {
        self.0.borrow().url.clone()
    }

    pub(crate) fn location(&self) -> Location {
        self.0.borrow().clone()
    }

    /// Marks OpenCode as down. If it is already down, only the reason changes. `reason`: a sentence that may be shown to anybody.
    pub fn set_down(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.0.send_modify(|location| {
            let since = location.outage.as_ref().map_or_else(Instant::now, |outage| outage.since);
            location.outage = Some(Outage { since, reason });
        });
    }

    /// Marks OpenCode as up, which begins a new run.
    pub fn set_up(&self) {
        self.0.send_modify(|location| {
            location.run += 1;
            location.outage = None;
        });
    }

    /// Like `set_up`, for an OpenCode with a new URL and a new password.
    pub(crate) fn move_to(&self, url: Url, password: SecretString) {
        self.0.send_modify(|location| {
            (location.url, location.password) = (url, Some(password));
            location.run += 1;
            location.outage = None;
        });
    }

    pub(crate) fn is_supervised(&self) -> bool {
        self.0.borrow().is_supervised
    }

    /// The number of the current OpenCode process. Only a supervisor knows that a process is a new one, so the number of an
    /// unsupervised OpenCode is always 0.
    pub(crate) fn process(&self) -> u32 {
        let location = self.0.borrow();
        if location.is_supervised { location.run } else { 0 }
    }

    /// Waits until a process other than `last` responds. Never returns for an unsupervised OpenCode.
    pub(crate) async fn next_process(&self, last: u32) -> u32 {
        let is_next =
            |location: &Location| location.is_supervised && location.run != last && location.outage.is_none();
        self.wait_for(|location| is_next(location).then_some(location.run)).await
    }

    /// Runs `work` until it is done or OpenCode is down.
    pub(crate) async fn unless_down<T>(&self, work: impl Future<Output = T>) -> Result<T, Outage> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            outage = self.until_down() => Err(outage),
        }
    }

    /// The current run. Fails with the reason while OpenCode is down.
    pub(crate) fn run(&self) -> Result<Run, String> {
        let location = self.0.subscribe();
        let (number, outage) = {
            let now = location.borrow();
            (now.run, now.outage.as_ref().map(|outage| outage.reason.clone()))
        };
        outage.map_or(Ok(Run { location, number }), Err)
    }

    /// Waits until OpenCode is down.
    pub(crate) async fn until_down(&self) -> Outage {
        self.wait_for(|location| location.outage.clone()).await
    }

    /// Waits until OpenCode is up.
    pub(crate) async fn until_up(&self) {
        self.wait_for(|location| location.outage.is_none().then_some(())).await;
    }

    /// Waits until OpenCode is up in a later run than the current one.
    pub(crate) fn until_back(&self) -> impl Future<Output = ()> + Send + use<> {
        let (address, before) = (self.clone(), self.0.borrow().run);
        let is_back = move |location: &Location| location.run != before && location.outage.is_none();
        async move { address.wait_for(|location| is_back(location).then_some(())).await }
    }

    async fn wait_for<T>(&self, found: impl Fn(&Location) -> Option<T>) -> T {
        let mut location = self.0.subscribe();
        loop {
            let now = found(&location.borrow_and_update());
            if let Some(now) = now {
                return now;
            }
            if location.changed().await.is_err() {
                // `self` holds the sender.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Run {
    /// Waits until OpenCode is down, or is up in another run.
    pub(crate) async fn ended(&mut self) {
        let ended = |location: &Location| location.run != self.number || location.outage.is_some();
        if self.location.wait_for(ended).await.is_err() {
            // All clones of the address were dropped, so nobody can report the end of the run any more.
            std::future::pending::<()>().await;
        }
    }
}

impl From<Url> for Address {
    fn from(url: Url) -> Self {
        Self::new(url, false)
    }
}

impl FromStr for Address {
    type Err = url::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Url::parse(text).map(Self::from)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest of the URL may contain credentials.
        f.debug_tuple("Address").field(&self.url().host_str()).finish()
    }
}
