//! What is measured: one file per question.

mod acp;
mod bindings;
mod flood;
mod length;
mod overload;
mod push;
mod scrape;
mod soak;
mod stalled;
mod start;
mod streams;
mod unary;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

pub use self::flood::{Flooded, flood};
use crate::bench::Bench;
use crate::results::Measured;
use crate::servers::Kind;

/// A phase of a run, in the order in which they are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Phase {
    Start,
    Unary,
    Streams,
    Fast,
    Length,
    Acp,
    Bindings,
    Stalled,
    Overload,
    Flood,
    Push,
    Scrape,
    Soak,
}

impl Phase {
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether this phase is measured on that server: phases that only show that a server is steady are skipped for the peer.
    pub fn is_for(self, kind: Kind) -> bool {
        kind == Kind::Longshore
            || matches!(self, Self::Start | Self::Unary | Self::Streams | Self::Fast | Self::Length)
    }

    /// The planned duration in a full run.
    pub fn plan(self, kind: Kind) -> Duration {
        let (ours, peers) = match self {
            Self::Start => (12, 40),
            Self::Unary => (45, 45),
            Self::Streams => (180, 212),
            Self::Fast => (27, 62),
            Self::Length => (130, 120),
            Self::Acp => (120, 0),
            Self::Bindings => (190, 0),
            Self::Stalled => (140, 0),
            Self::Overload => (180, 0),
            Self::Flood => (560, 0),
            Self::Push => (160, 0),
            Self::Scrape => (40, 0),
            Self::Soak => (1205, 0),
        };
        Duration::from_secs(if kind == Kind::Longshore { ours } else { peers })
    }

    /// The timeout of the phase, so that a hanging phase does not prevent the others.
    pub fn bound(self, kind: Kind) -> Duration {
        match self {
            Self::Soak => self.plan(kind) + Duration::from_mins(2),
            _ => self.plan(kind) * 2 + Duration::from_mins(1),
        }
    }

    /// Removes the results of an earlier run.
    pub fn forget(self, found: &mut Measured) {
        found.failed.remove(&self.name());
        found.ran.remove(&self.name());
        match self {
            Self::Start => found.start = None,
            Self::Unary => found.unary.clear(),
            Self::Streams => (found.streams, found.v03) = (Vec::new(), None),
            Self::Fast => found.fast = None,
            Self::Length => found.length.clear(),
            Self::Acp => found.acp = None,
            Self::Bindings => found.bindings = None,
            Self::Stalled => found.stalled = None,
            Self::Overload => found.overload = None,
            Self::Flood => found.flood.clear(),
            Self::Push => found.push = None,
            Self::Scrape => found.scrape = None,
            Self::Soak => found.soak.clear(),
        }
    }

    /// Measures, and stores the results in `found`; if the phase fails, the results so far.
    pub async fn run(self, bench: &Bench, kind: Kind, found: &mut Measured) -> Result<()> {
        match self {
            Self::Start => found.start = Some(start::run(bench, kind).await?),
            Self::Unary => unary::run(bench, kind, &mut found.unary).await?,
            Self::Streams => streams::run(bench, kind, found).await?,
            Self::Fast => found.fast = Some(streams::fast(bench, kind).await?),
            Self::Length => length::run(bench, kind, &mut found.length).await?,
            Self::Acp => found.acp = Some(acp::run(bench).await?),
            Self::Bindings => bindings::run(bench, &mut found.bindings).await?,
            Self::Stalled => found.stalled = Some(stalled::run(bench).await?),
            Self::Overload => found.overload = Some(overload::run(bench).await?),
            Self::Flood => flood::run(bench, &mut found.flood).await?,
            Self::Push => push::run(bench, &mut found.push).await?,
            Self::Scrape => found.scrape = Some(scrape::run(bench).await?),
            Self::Soak => soak::run(bench, &mut found.soak).await?,
        }
        Ok(())
    }
}
