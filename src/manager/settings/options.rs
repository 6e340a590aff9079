//! The settings of a manager, checked.

use std::sync::Arc;
use std::time::Duration;

use crate::manager::error::config::ConfigError;
use crate::manager::queue::fifo::Bounds;
use crate::manager::settings::checks::{MAX_TTL, MIN_TTL, check_range, ensure};
use crate::manager::settings::fencing::{Fencing, usual};
use crate::manager::settings::hand_off::HandOff;
use crate::manager::settings::restart_guard::RestartGuard;
use crate::manager::settings::times::{checked_max_hold, checked_ttl, retry_after, whole_millis};
use crate::namespace::Namespace;
use crate::node::{ClusterConfig, Node};
use crate::protocol::quarantine::latest_vote;
use crate::protocol::quorum::Quorum;
use crate::protocol::renewal::Terms;
use crate::protocol::validity::Drift;

/// The settings of the builder, not yet checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) ttl: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) drift_factor: f64,
    pub(crate) masked: usize,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_wait: Duration,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) max_waiters: usize,
    pub(crate) hand_off: HandOff,
    pub(crate) fencing: Fencing,
    pub(crate) guard: RestartGuard,
    pub(crate) bootstrap: bool,
    pub(crate) start_on_quorum: bool,
    pub(crate) redact_keys: bool,
    pub(crate) connect_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: Namespace::default().as_str().to_owned(),
            ttl: Duration::from_secs(10),
            max_ttl: Duration::from_secs(60),
            node_timeout: None,
            drift_factor: Drift::DEFAULT_FACTOR,
            masked: 0,
            max_hold: None,
            max_wait: Duration::from_secs(5),
            max_waiters_per_key: 64,
            max_waiters: 10_000,
            hand_off: HandOff::default(),
            fencing: Fencing::default(),
            guard: RestartGuard::default(),
            bootstrap: false,
            start_on_quorum: false,
            redact_keys: false,
            connect_timeout: Duration::from_secs(5),
        }
    }
}

/// The settings, checked, for so many nodes.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) namespace: Namespace,
    pub(crate) terms: Terms,
    // The longest ttl that any process uses with these nodes.
    pub(crate) max_ttl: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) max_wait: Duration,
    pub(crate) bounds: Bounds,
    pub(crate) hand_off: HandOff,
    pub(crate) fencing: Fencing,
    pub(crate) guard: RestartGuard,
    pub(crate) bootstrap: bool,
    pub(crate) redact: bool,
    pub(crate) connect_timeout: Duration,
    // How many losses the quorum masks.
    pub(crate) masked: usize,
}

impl Options {
    /// The config that all processes that share `nodes` must have in common.
    pub(crate) fn config(&self, nodes: &[Arc<dyn Node>]) -> Arc<ClusterConfig> {
        let described = nodes.iter().map(|node| match node.agreed() {
            more if more.is_empty() => node.name().to_owned(),
            more => format!("{} ({more})", node.name()),
        });
        let mut described: Vec<String> = described.collect();
        described.sort_unstable();
        let guarded = self.guard.max_clock_skew.is_some();
        let text = format!(
            "nodes {}; quorum {}; losses masked {}; max_ttl {:?}; restart guard {}; fencing {}",
            described.join(", "),
            self.terms.quorum.needed(),
            self.masked,
            self.max_ttl,
            on_off(guarded),
            on_off(self.fencing.keep.is_some()),
        );
        let config = ClusterConfig::new(&text, self.terms.ttl);
        Arc::new(if guarded { config } else { config.unguarded() })
    }
}

impl Settings {
    /// Checks the settings for a manager of `nodes` nodes.
    pub(crate) fn check(&self, nodes: usize) -> Result<Options, ConfigError> {
        let namespace = Namespace::new(&self.namespace)
            .map_err(|error| ConfigError::of("namespace", error.to_string()))?;
        // First of all: without a usable ttl nothing can be said of the others.
        check_range("ttl", whole_millis(self.ttl), MIN_TTL..=MAX_TTL)?;
        let max_ttl = whole_millis(self.max_ttl);
        check_range("max_ttl", max_ttl, MIN_TTL..=MAX_TTL)?;
        let ttl = checked_ttl(self.ttl, max_ttl)?;
        let node_timeout = self.node_timeout.unwrap_or_else(|| {
            (ttl / 100)
                .clamp(MIN_NODE_TIMEOUT, MAX_NODE_TIMEOUT)
                .min(ttl / 2)
        });
        check_range("node_timeout", node_timeout, MILLISECOND..=ttl)?;
        let latest = latest_vote(max_ttl);
        ensure(node_timeout <= latest, "node_timeout", || {
            format!(
                "node_timeout is {node_timeout:?}, and with a max_ttl of {max_ttl:?} no answer counts that takes longer than {latest:?}; use a shorter node_timeout"
            )
        })?;
        let drift = Drift::new(self.drift_factor).ok_or_else(|| {
            ConfigError::of(
                "drift_factor",
                "drift_factor is out of range: use a part of the ttl from 0.0 to 0.5",
            )
        })?;
        let max_hold = self.max_hold.unwrap_or_else(|| DEFAULT_MAX_HOLD.max(ttl));
        let max_hold = checked_max_hold(max_hold, ttl)?;
        check_range(
            "connect_timeout",
            self.connect_timeout,
            MILLISECOND..=MAX_TTL,
        )?;
        let guarded = self.guard.max_clock_skew.is_some();
        ensure(
            guarded || !self.start_on_quorum,
            "start_on_quorum",
            || "start_on_quorum needs the restart guard: without it no node tells whether all of them have accepted the list",
        )?;
        Ok(Options {
            namespace,
            terms: Terms {
                quorum: quorum(nodes, self.masked)?,
                ttl,
                drift,
                retry: retry_after(node_timeout, ttl),
                max_hold,
            },
            max_ttl,
            node_timeout,
            max_wait: self.max_wait,
            bounds: self.bounds()?,
            hand_off: self.hand_off.checked(max_hold)?,
            fencing: self.fencing.checked(ttl)?,
            guard: self.guard.checked()?,
            bootstrap: self.bootstrap,
            redact: self.redact_keys,
            connect_timeout: self.connect_timeout,
            masked: self.masked,
        })
    }

    fn bounds(&self) -> Result<Bounds, ConfigError> {
        let (per_key, total) = (self.max_waiters_per_key, self.max_waiters);
        for (field, count) in [("max_waiters_per_key", per_key), ("max_waiters", total)] {
            ensure(
                count > 0,
                field,
                || "max_waiters_per_key and max_waiters must be at least 1; to let nobody wait, set max_wait to zero",
            )?;
        }
        Ok(Bounds { per_key, total })
    }
}

impl HandOff {
    fn checked(self, max_hold: Duration) -> Result<Self, ConfigError> {
        ensure(self.max_passes <= MAX_PASSES, "hand_off.max_passes", || {
            format!(
                "hand_off allows {} passes in a row; there may be at most {MAX_PASSES}",
                self.max_passes
            )
        })?;
        check_range(
            "the time of hand_off",
            self.max_time,
            Duration::ZERO..=max_hold,
        )
        .map_err(|error| error.moved("hand_off.max_time"))?;
        Ok(self)
    }
}

impl Fencing {
    fn checked(self, ttl: Duration) -> Result<Self, ConfigError> {
        if self == Self::default() {
            return Ok(Self::keep(usual(ttl)));
        }
        if let Some(keep) = self.keep {
            check_range("the time that fencing keeps counters", keep, ttl..=MAX_KEEP)
                .map_err(|error| error.moved("fencing.keep"))?;
        }
        Ok(self)
    }
}

impl RestartGuard {
    fn checked(self) -> Result<Self, ConfigError> {
        if let Some(skew) = self.max_clock_skew {
            check_range("max_clock_skew", skew, Duration::ZERO..=MAX_SKEW)
                .map_err(|error| error.moved("restart_guard.max_clock_skew"))?;
        }
        Ok(self)
    }
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn quorum(nodes: usize, masked: usize) -> Result<Quorum, ConfigError> {
    ensure(
        nodes > 0,
        "nodes",
        || "there is no node: give the builder .redis(urls), .memory(count) or .nodes(list)",
    )?;
    ensure(nodes <= MAX_NODES, "nodes", || {
        format!("there are {nodes} nodes; at most {MAX_NODES} are allowed, and 3 or 5 are usual")
    })?;
    Quorum::masking(nodes, masked).ok_or_else(|| {
        let text = format!(
            "{nodes} nodes cannot mask the losses of {masked}: use more nodes or mask fewer"
        );
        ConfigError::of("mask_losses", text)
    })
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MIN_NODE_TIMEOUT: Duration = Duration::from_millis(20);
const MAX_NODE_TIMEOUT: Duration = Duration::from_millis(200);
const DEFAULT_MAX_HOLD: Duration = Duration::from_secs(60);
const MAX_NODES: usize = 32;
/// A hundred years; the servers count milliseconds in 63 bits.
const MAX_KEEP: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
const MAX_SKEW: Duration = Duration::from_secs(60 * 60);
/// Ten bits of a fencing token count the holders of one grant.
const MAX_PASSES: u32 = 1_023;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check(5).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let options = Settings::default().check(5).unwrap();
        assert_eq!(options.terms.ttl, Duration::from_secs(10));
        assert_eq!(options.node_timeout, Duration::from_millis(100));
        assert_eq!(options.terms.quorum.needed(), 3);
        assert_eq!(options.terms.max_hold, Duration::from_secs(60));
        assert_eq!(options.namespace.as_str(), "lk");
        assert_eq!(options.max_wait, Duration::from_secs(5));
        let bounds = Bounds {
            per_key: 64,
            total: 10_000,
        };
        assert_eq!(options.bounds, bounds);
        let hand_off = HandOff::new(32, Duration::from_millis(250));
        assert_eq!(options.hand_off, hand_off);
    }

    #[test]
    fn the_node_timeout_is_clamped() {
        let timeout = |ttl| {
            let settings = Settings {
                ttl,
                ..Settings::default()
            };
            settings.check(1).unwrap().node_timeout.as_millis()
        };
        assert_eq!(timeout(Duration::from_secs(60)), 200);
        assert_eq!(timeout(Duration::from_secs(1)), 20);
        assert_eq!(timeout(Duration::from_millis(20)), 10);
    }

    #[test]
    fn a_fraction_of_a_millisecond_is_dropped_from_the_ttl() {
        let settings = Settings {
            ttl: Duration::from_micros(1_500_900),
            ..Settings::default()
        };
        let options = settings.check(1).unwrap();
        assert_eq!(options.terms.ttl, Duration::from_millis(1_500));
    }

    #[test]
    fn bad_settings_say_what_is_wrong() {
        assert_eq!(
            error(|s| s.ttl = Duration::ZERO),
            "ttl is 0ns; it must be at least 10ms"
        );
        assert_eq!(
            error(|s| s.ttl = Duration::MAX),
            "ttl is 18446744073709551.615s; it must be at most 86400s"
        );
        assert_eq!(
            error(|s| s.node_timeout = Some(Duration::ZERO)),
            "node_timeout is 0ns; it must be at least 1ms"
        );
        assert_eq!(
            error(|s| s.node_timeout = Some(Duration::from_secs(11))),
            "node_timeout is 11s; it must be at most 10s"
        );
        assert_eq!(
            error(|s| s.drift_factor = f64::NAN),
            "drift_factor is out of range: use a part of the ttl from 0.0 to 0.5"
        );
        assert_eq!(
            error(|s| s.max_hold = Some(Duration::from_secs(9))),
            "max_hold is 9s; it must be at least 10s"
        );
        assert_eq!(
            error(|s| s.connect_timeout = Duration::ZERO),
            "connect_timeout is 0ns; it must be at least 1ms"
        );
        assert_eq!(
            error(|s| s.max_waiters = 0),
            "max_waiters_per_key and max_waiters must be at least 1; to let nobody wait, set max_wait to zero"
        );
        assert_eq!(
            error(|s| s.hand_off = HandOff::new(1_024, Duration::ZERO)),
            "hand_off allows 1024 passes in a row; there may be at most 1023"
        );
        assert_eq!(
            error(|s| s.hand_off = HandOff::new(1, Duration::from_secs(61))),
            "the time of hand_off is 61s; it must be at most 60s"
        );
        assert_eq!(
            error(|s| s.masked = 5),
            "5 nodes cannot mask the losses of 5: use more nodes or mask fewer"
        );
        assert!(
            error(|s| s.namespace = "a b".to_owned()).starts_with("a namespace has at most 64")
        );
        let none = Settings::default().check(0).unwrap_err().to_string();
        assert!(none.starts_with("there is no node"), "{none}");
        let many = Settings::default().check(33).unwrap_err().to_string();
        assert!(many.contains("at most 32"), "{many}");
    }

    #[test]
    fn counters_are_kept_for_as_long_as_a_lock_unless_somebody_says_for_how_long() {
        let secs = Duration::from_secs;
        let of = |fencing: Fencing, ttl| fencing.checked(ttl).map(|fencing| fencing.keep);
        assert_eq!(of(Fencing::default(), secs(10)), Ok(Some(secs(300))));
        assert_eq!(of(Fencing::default(), secs(900)), Ok(Some(secs(900))));
        assert_eq!(of(Fencing::keep(secs(10)), secs(10)), Ok(Some(secs(10))));
        of(Fencing::keep(secs(301)), secs(900)).unwrap_err();
        assert_eq!(of(Fencing::OFF, secs(900)), Ok(None));
    }
}
