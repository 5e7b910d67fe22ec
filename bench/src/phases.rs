//! What is measured, one file a question.

mod flood;
mod length;
mod overload;
mod scrape;
mod soak;
mod stalled;
mod start;
mod streams;
mod unary;

use anyhow::Result;
use clap::ValueEnum;

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
    Stalled,
    Overload,
    Flood,
    Scrape,
    Soak,
}

impl Phase {
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether the peer can do this at all: what only shows that a server is steady is not asked of it.
    pub fn is_for(self, kind: Kind) -> bool {
        kind == Kind::Longshore
            || matches!(self, Self::Start | Self::Unary | Self::Streams | Self::Fast | Self::Length)
    }

    /// Measures, and puts what was found into `found`, also the first part of what failed later.
    pub async fn run(self, bench: &Bench, kind: Kind, found: &mut Measured) -> Result<()> {
        match self {
            Self::Start => found.start = Some(start::run(bench, kind).await?),
            Self::Unary => unary::run(bench, kind, &mut found.unary).await?,
            Self::Streams => streams::run(bench, kind, found).await?,
            Self::Fast => found.fast = Some(streams::fast(bench, kind).await?),
            Self::Length => length::run(bench, kind, &mut found.length).await?,
            Self::Stalled => found.stalled = Some(stalled::run(bench).await?),
            Self::Overload => found.overload = Some(overload::run(bench).await?),
            Self::Flood => flood::run(bench, &mut found.flood).await?,
            Self::Scrape => found.scrape = Some(scrape::run(bench).await?),
            Self::Soak => soak::run(bench, &mut found.soak).await?,
        }
        Ok(())
    }
}
