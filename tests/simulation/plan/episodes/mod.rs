//! The kinds of faults, and how one of each is made.

mod cluster;
mod groups;
mod hosts;
mod network;
mod places;

use super::rolls::Rolls;
use super::settings::Shape;
use super::{Class, Episode, Seen};
use tower_redlock_simulated::world::Fault;

pub(super) use self::hosts::common;
pub(super) use self::network::{late, together};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Slow,
    Cut,
    Partition,
    Flaky,
    Lopsided,
    Break,
    Drain,
    Duplicate,
    Crash,
    Forget,
    OldData,
    Flush,
    Freeze,
    Rates,
    StepBack,
    StepAhead,
    Evict,
    Full,
    Clients,
    Scribble,
    Lag,
    Failback,
    Failover,
    Pause,
    Kill,
    Dates,
    Rollout,
    Jitter,
    Suspend,
    Majority,
    Block,
    Refuses,
    Divide,
    TakeOver,
}

impl Kind {
    pub(super) const ALL: [Self; 34] = [
        Self::Slow,
        Self::Cut,
        Self::Partition,
        Self::Flaky,
        Self::Lopsided,
        Self::Break,
        Self::Drain,
        Self::Duplicate,
        Self::Crash,
        Self::Forget,
        Self::OldData,
        Self::Flush,
        Self::Freeze,
        Self::Rates,
        Self::StepBack,
        Self::StepAhead,
        Self::Evict,
        Self::Full,
        Self::Clients,
        Self::Scribble,
        Self::Lag,
        Self::Failback,
        Self::Failover,
        Self::Pause,
        Self::Kill,
        Self::Dates,
        Self::Rollout,
        Self::Jitter,
        Self::Suspend,
        Self::Majority,
        Self::Block,
        Self::Refuses,
        Self::Divide,
        Self::TakeOver,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Cut => "cut",
            Self::Partition => "partition",
            Self::Flaky => "flaky",
            Self::Lopsided => "lopsided",
            Self::Break => "break",
            Self::Drain => "drain late",
            Self::Duplicate => "duplicate",
            Self::Crash => "crash",
            Self::Forget => "forget",
            Self::OldData => "old data",
            Self::Flush => "flush",
            Self::Freeze => "freeze",
            Self::Rates => "rates",
            Self::StepBack => "step back",
            Self::StepAhead => "step ahead",
            Self::Evict => "evict",
            Self::Full => "full",
            Self::Clients => "clients",
            Self::Scribble => "scribble",
            Self::Lag => "lag",
            Self::Failback => "failover and back",
            Self::Failover => "failover",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Dates => "date steps",
            Self::Rollout => "rollout",
            Self::Jitter => "jitter",
            Self::Suspend => "suspend",
            Self::Majority => "majority",
            Self::Block => "block",
            Self::Refuses => "refuses",
            Self::Divide => "divide",
            Self::TakeOver => "take over",
        }
    }

    /// How many of them there are in a plan at most.
    pub(super) const fn most(self) -> u64 {
        match self {
            Self::Cut | Self::Partition => 8,
            Self::Failback | Self::Failover => 6,
            Self::Slow
            | Self::Forget
            | Self::OldData
            | Self::Freeze
            | Self::Pause
            | Self::Block => 5,
            Self::Break | Self::Flush | Self::Kill => 4,
            Self::Crash | Self::Drain | Self::Duplicate | Self::Evict | Self::Clients => 3,
            // It goes on through the whole plan.
            Self::Flaky | Self::Lopsided => 1,
            _ => 2,
        }
    }

    /// Whether it can be in a plan of this shape.
    pub(super) fn may_be(self, shape: &Shape) -> bool {
        match self {
            Self::Lopsided => shape.spare > 0,
            Self::Failback => !shape.is_cluster() && !shape.with_replicas(false).is_empty(),
            Self::Divide | Self::TakeOver => shape.is_cluster(),
            Self::Failover => !shape.with_replicas(true).is_empty(),
            Self::Lag => shape.topology.groups.iter().any(|group| group.replicas > 0),
            Self::StepAhead => !shape.unseen.is_empty(),
            _ => true,
        }
    }

    /// Whether plans of this shape are made for it.
    pub(super) fn is_important(self, shape: &Shape) -> bool {
        match self {
            Self::Flaky | Self::Lopsided | Self::Forget | Self::OldData | Self::Evict => true,
            Self::StepAhead => shape.class == Class::Within,
            _ => false,
        }
    }

    /// One of it at this time, if it can be.
    pub(super) fn episode(self, shape: &Shape, rolls: &mut Rolls, at: u64) -> Vec<Episode> {
        let mut made = Made::new(self.name(), at);
        match self {
            Self::Slow | Self::Cut | Self::Partition | Self::Break => {
                network::network(self, shape, rolls, &mut made);
            }
            Self::Drain | Self::Duplicate => network::copies(self, shape, rolls, &mut made),
            Self::Crash | Self::Forget | Self::OldData | Self::Flush | Self::Freeze => {
                hosts::host(self, shape, rolls, &mut made);
            }
            Self::Rates | Self::StepBack | Self::StepAhead | Self::Dates => {
                hosts::clocks(self, shape, rolls, &mut made);
            }
            Self::Evict | Self::Full | Self::Refuses | Self::Clients | Self::Scribble => {
                hosts::server(self, shape, rolls, &mut made);
            }
            Self::Lag | Self::Failback | Self::Failover => {
                groups::replicas(self, shape, rolls, &mut made);
            }
            Self::Divide => cluster::divide(shape, rolls, &mut made),
            Self::TakeOver => cluster::take_over(shape, rolls, &mut made),
            Self::Pause
            | Self::Block
            | Self::Kill
            | Self::Rollout
            | Self::Jitter
            | Self::Suspend => {
                places::processes(self, shape, rolls, &mut made);
            }
            Self::Majority => return hosts::majority(shape, rolls, at),
            Self::Flaky => return network::flaky(shape, rolls),
            Self::Lopsided => return network::lopsided(shape, rolls),
        }
        vec![made.done()]
    }
}

/// An episode in the making.
struct Made {
    episode: Episode,
    at: u64,
}

impl Made {
    fn new(name: &str, at: u64) -> Self {
        Self {
            episode: Episode {
                name: name.to_owned(),
                loses: None,
                steps: Vec::new(),
            },
            at,
        }
    }

    /// A fault so long after the beginning.
    fn add(&mut self, after: u64, fault: Fault) {
        self.episode.steps.push((self.at + after, fault));
    }

    fn loses(&mut self, group: u32, seen: Seen) {
        self.episode.loses = Some((group, seen));
    }

    fn done(self) -> Episode {
        self.episode
    }
}
