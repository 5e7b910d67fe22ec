//! The bucket bounds of the histograms.
//!
//! Each bound is a series, so there are few: about two for each power of ten, more where a performance budget lies.

use crate::quantity::{Quantity, Seconds, Whole};

/// The maximum number of buckets, including the one after the last bound.
pub(crate) const MAX_BUCKETS: usize = 18;

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

/// The buckets of a histogram.
pub trait Scale {
    /// The unit of its values.
    type Quantity: Quantity;
    /// The inclusive upper bounds of the buckets, ascending, as the quantity holds them.
    const BOUNDS: &'static [u64];
}

macro_rules! scales {
    ($($(#[$doc:meta])* $name:ident of $quantity:ty: $bounds:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}

            impl Scale for $name {
                type Quantity = $quantity;
                const BOUNDS: &'static [u64] = &$bounds;
            }
        )*
    };
}

scales! {
    /// How long an event takes through the gateway. On an idle machine it takes well below a millisecond.
    EventDelay of Seconds: [
        100 * US, 250 * US, 500 * US, MS, 5 * MS / 2, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS,
        S, 5 * S / 2, 5 * S, 10 * S,
    ];
    /// How long the store takes to append. Without waiting for the disk, it takes tens of microseconds.
    AppendTime of Seconds: [
        50 * US, 100 * US, 250 * US, 500 * US, MS, 5 * MS / 2, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS,
        S, 5 * S,
    ];
    /// How long OpenCode takes to answer. Calls time out after the control timeout, which is minutes.
    ResponseTime of Seconds: [
        MS, 5 * MS / 2, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, S, 5 * S / 2, 5 * S, 10 * S,
        30 * S, 120 * S,
    ];
    /// How long an ask waits for a person.
    AskTime of Seconds: [
        S, 5 * S, 15 * S, 60 * S, 300 * S, 900 * S, 3_600 * S, 14_400 * S, 86_400 * S,
    ];
    /// How long a push notification takes: milliseconds if its receiver is well, up to a day if it was down.
    PushLag of Seconds: [
        10 * MS, 50 * MS, 100 * MS, 500 * MS, S, 5 * S, 30 * S, 60 * S, 300 * S, 3_600 * S, 14_400 * S, 86_400 * S,
    ];
    /// How many requests to the store's writer one commit contains.
    CommitSize of Whole: [1, 2, 4, 8, 16, 32, 64, 128, 256];
    /// How many jobs are ahead of a new one in a queue.
    QueueLength of Whole: [0, 1, 4, 16, 64, 256, 1_024];
}
