//! Checks the settings of a manager.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::namespace::Namespace;
use crate::node::{ClusterConfig, Node};
use crate::protocol::quorum::Quorum;
use crate::protocol::renewal::Terms;
use crate::settings::constants::{Constants, HandOff};
use crate::settings::error::{ConfigError, at_least, at_most, check_range, ensure};
use crate::settings::server::{NodeSettings, Secret, TlsSettings};
use crate::token::Label;

/// The settings from files, variables and setters, without defaults.
///
/// It is read from a [`Value`](crate::settings::value::Value), because the errors of formats quote values.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub(crate) struct Given {
    pub(super) nodes: Option<Vec<NodeSettings>>,
    pub(super) memory: Option<usize>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) namespace: Option<String>,
    pub(super) instance: Option<String>,
    #[serde(with = "humantime_serde")]
    pub(super) ttl: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) max_ttl: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) node_timeout: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) connect_timeout: Option<Duration>,
    pub(super) groups: Option<usize>,
    pub(super) mask_losses: Option<usize>,
    #[serde(with = "humantime_serde")]
    pub(super) max_hold: Option<Duration>,
    #[serde(with = "humantime_serde")]
    pub(super) max_wait: Option<Duration>,
    pub(super) max_waiters_per_key: Option<usize>,
    pub(super) max_waiters: Option<usize>,
    pub(super) hand_off: Option<bool>,
    pub(super) fencing: Option<bool>,
    pub(super) restart_guard: Option<bool>,
    pub(super) bootstrap: Option<bool>,
    pub(super) redact_keys: Option<bool>,
    pub(super) tls: Option<TlsSettings>,
}

impl Given {
    pub(super) fn replace(&mut self, other: Self) {
        // Servers replace nodes in memory. The reverse is refused later, because other processes would not see locks in
        // memory.
        if other.nodes.is_some() {
            self.memory = None;
        }
        // These two fields are one setting.
        if other.password.is_some() || other.password_file.is_some() {
            (self.password, self.password_file) = (None, None);
        }
        macro_rules! replace {
            ($($field:ident)*) => {
                // This names all fields, so that the compiler finds a missing one.
                let Self { $($field),* } = other;
                $(if $field.is_some() {
                    self.$field = $field;
                })*
            };
        }
        replace! {
            nodes memory user password password_file namespace instance ttl max_ttl node_timeout connect_timeout groups
            mask_losses max_hold max_wait max_waiters_per_key max_waiters hand_off fencing restart_guard bootstrap
            redact_keys tls
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) namespace: Namespace,
    pub(crate) instance: Label,
    pub(crate) observes: bool,
    pub(crate) groups: usize,
    pub(crate) terms: Terms,
    pub(crate) max_ttl: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) max_wait: Duration,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) max_waiters: usize,
    pub(crate) hand_off: HandOff,
    // How long counters are kept; `None` if there are no fencing tokens.
    pub(crate) fencing: Option<Duration>,
    // `None` if there is no restart guard.
    pub(crate) max_clock_skew: Option<Duration>,
    pub(crate) bootstrap: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) masked: usize,
}

impl Checked {
    /// The config of a group, counted from 1. The config contains the number, so that a server serves only one group.
    /// If two groups exchanged nodes, a key could be held in both.
    pub(crate) fn config(&self, nodes: &[Arc<dyn Node>], group: usize) -> Arc<ClusterConfig> {
        let describe = |node: &Arc<dyn Node>| match node.agreed() {
            more if more.is_empty() => node.name().to_owned(),
            more => format!("{} ({more})", node.name()),
        };
        let groups = nodes.chunks(nodes.len() / self.groups).map(|nodes| {
            let mut described: Vec<String> = nodes.iter().map(describe).collect();
            described.sort_unstable();
            described.join(", ")
        });
        let groups: Vec<String> = groups.collect();
        let guarded = self.max_clock_skew.is_some();
        let place = match self.groups {
            1 => String::new(),
            _ => format!(" (it is in group {group})"),
        };
        let text = format!(
            "nodes {}{place}; quorum {}; losses masked {}; max_ttl {:?}; restart guard {}; fencing {}",
            groups.join(" | "),
            self.terms.quorum.needed(),
            self.masked,
            self.max_ttl,
            on_off(guarded),
            on_off(self.fencing.is_some()),
        );
        Arc::new(ClusterConfig {
            guarded,
            ..ClusterConfig::new(&text)
        })
    }
}

impl Given {
    pub(super) fn check(
        &self,
        nodes: usize,
        constants: &Constants,
    ) -> Result<Checked, ConfigError> {
        let namespace = match &self.namespace {
            Some(name) => {
                Namespace::new(name).map_err(|error| ConfigError::of("namespace", error))?
            }
            None => Namespace::default(),
        };
        let instance = match &self.instance {
            Some(label) => Label::new(label).map_err(|error| ConfigError::of("instance", error))?,
            None => Label::of_process(&host_name(), std::process::id()),
        };
        // The ttl comes first, because the bounds of other settings depend on it.
        let ttl = self.ttl.unwrap_or(TTL);
        check_range("ttl", ttl, MIN_TTL..=MAX_TTL)?;
        let max_ttl = self.max_ttl.unwrap_or_else(|| TTL.max(ttl));
        check_range("max_ttl", max_ttl, MIN_TTL..=MAX_TTL)?;
        let max_ttl = whole_millis(max_ttl);
        let ttl = checked_ttl(ttl, max_ttl)?;
        let node_timeout = self.checked_node_timeout(ttl)?;
        let max_hold = self.max_hold.unwrap_or_else(|| MAX_HOLD.max(ttl));
        let max_hold = checked_max_hold(max_hold, ttl)?;
        let connect_timeout = self.connect_timeout.unwrap_or(FIVE_SECONDS);
        check_range("connect_timeout", connect_timeout, MILLISECOND..=MAX_TTL)?;
        let max_wait = self.max_wait.unwrap_or(FIVE_SECONDS);
        let hand_off = match self.hand_off {
            Some(false) => HandOff::OFF,
            _ => HandOff::new(
                constants.hand_off.max_passes,
                constants.hand_off.max_time.min(max_hold),
            ),
        };
        let groups = self.groups()?;
        let masked = self.mask_losses.unwrap_or_default();
        let listed_in = if self.memory.is_some() {
            "memory"
        } else {
            "nodes"
        };
        Ok(Checked {
            namespace: namespace.redacting(self.redact_keys.unwrap_or_default()),
            instance,
            observes: false,
            groups,
            terms: Terms {
                quorum: quorum(listed_in, nodes, groups, masked)?,
                ttl,
                drift: constants.drift,
                retry: retry_after(node_timeout, ttl),
                max_hold,
            },
            max_ttl,
            node_timeout,
            max_wait,
            max_waiters_per_key: at_least_one(
                "max_waiters_per_key",
                self.max_waiters_per_key.unwrap_or(64),
            )?,
            max_waiters: at_least_one("max_waiters", self.max_waiters.unwrap_or(10_000))?,
            hand_off,
            fencing: self
                .fencing
                .unwrap_or(true)
                .then(|| constants.keep.max(ttl)),
            max_clock_skew: self
                .restart_guard
                .unwrap_or(true)
                .then_some(constants.max_clock_skew),
            bootstrap: self.bootstrap.unwrap_or_default(),
            connect_timeout,
            masked,
        })
    }

    pub(super) fn groups(&self) -> Result<usize, ConfigError> {
        let groups = self.groups.unwrap_or(1);
        let is_allowed = (1..=MOST_GROUPS).contains(&groups);
        ensure(is_allowed, "groups", || {
            format!("must be from 1 to {MOST_GROUPS}")
        })?;
        Ok(groups)
    }

    fn checked_node_timeout(&self, ttl: Duration) -> Result<Duration, ConfigError> {
        let node_timeout = self.node_timeout.unwrap_or_else(|| {
            (ttl / 100)
                .clamp(MIN_NODE_TIMEOUT, MAX_NODE_TIMEOUT)
                .min(ttl / 2)
        });
        at_least("node_timeout", node_timeout, "", MILLISECOND)?;
        at_most("node_timeout", node_timeout, "the ttl, ", ttl)?;
        Ok(node_timeout)
    }
}

#[cfg(unix)]
fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

fn at_least_one(field: &str, count: usize) -> Result<usize, ConfigError> {
    ensure(
        count > 0,
        field,
        || "must be at least 1; if no caller is to wait, set max_wait to zero",
    )?;
    Ok(count)
}

const fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn quorum(field: &str, nodes: usize, groups: usize, masked: usize) -> Result<Quorum, ConfigError> {
    ensure(nodes > 0, field, || NO_NODE)?;
    ensure(nodes.is_multiple_of(groups), "groups", || {
        format!(
            "{nodes} nodes cannot be divided into {groups} groups of equal size; give each group the same number of nodes"
        )
    })?;
    let nodes = nodes / groups;
    ensure(nodes <= MAX_NODES, field, || {
        format!("there are {nodes} nodes; at most {MAX_NODES} are allowed, and 1, 3 or 5 are usual")
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
const TTL: Duration = Duration::from_secs(10);
const MAX_HOLD: Duration = Duration::from_secs(60);
const FIVE_SECONDS: Duration = Duration::from_secs(5);
/// In each group.
const MAX_NODES: usize = 32;
const MOST_GROUPS: usize = 64;

const NO_NODE: &str = "there is no node: give the URLs of servers, or `memory` with a number for nodes inside this process";

pub(super) const MIN_TTL: Duration = Duration::from_millis(10);
pub(super) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) terms: Terms,
    pub(crate) max_wait: Duration,
}

impl Times {
    pub(crate) fn with_ttl(
        mut self,
        ttl: Duration,
        max_ttl: Duration,
        node_timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let ttl = checked_ttl(ttl, max_ttl)?;
        ensure(node_timeout <= ttl, "ttl", || {
            format!(
                "ttl is {ttl:?}, and a node may take {node_timeout:?} to reply; use a longer ttl, or a shorter node_timeout"
            )
        })?;
        self.terms.ttl = ttl;
        self.terms.retry = retry_after(node_timeout, ttl);
        self.terms.max_hold = self.terms.max_hold.max(ttl);
        Ok(self)
    }

    pub(crate) fn with_max_hold(mut self, max_hold: Duration) -> Result<Self, ConfigError> {
        self.terms.max_hold = checked_max_hold(max_hold, self.terms.ttl)?;
        Ok(self)
    }
}

/// The ttl in whole milliseconds, as nodes count it. It is rounded down, because the deadline must not be later than
/// theirs.
pub(super) fn checked_ttl(ttl: Duration, max_ttl: Duration) -> Result<Duration, ConfigError> {
    check_range("ttl", ttl, MIN_TTL..=MAX_TTL)?;
    let ttl = whole_millis(ttl);
    ensure(ttl <= max_ttl, "ttl", || {
        format!(
            "ttl is {ttl:?}, and max_ttl, the longest that any process uses with these nodes, is {max_ttl:?}; use a shorter ttl, or a longer max_ttl; to raise max_ttl while the nodes are in use, follow `Moving` in docs::operating"
        )
    })?;
    Ok(ttl)
}

pub(super) fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn checked_max_hold(max_hold: Duration, ttl: Duration) -> Result<Duration, ConfigError> {
    at_least("max_hold", max_hold, "the ttl, ", ttl)?;
    Ok(max_hold)
}

/// When a renewal that missed its quorum is tried again: early enough for several attempts before the lock ends.
pub(super) fn retry_after(node_timeout: Duration, ttl: Duration) -> Duration {
    node_timeout.max(ttl / 30).min(ttl / 6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::value::{Value, read};

    fn error(change: impl FnOnce(&mut Given)) -> String {
        let mut settings = Given::default();
        change(&mut settings);
        settings
            .check(5, &Constants::default())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let options = Given::default().check(5, &Constants::default()).unwrap();
        assert_eq!(options.terms.ttl, Duration::from_secs(10));
        assert_eq!(options.node_timeout, Duration::from_millis(100));
        assert_eq!(options.terms.quorum.needed(), 3);
        assert_eq!(options.terms.max_hold, Duration::from_secs(60));
        assert_eq!(options.namespace.as_str(), "lk");
        assert_eq!(options.max_wait, Duration::from_secs(5));
        assert_eq!(options.max_waiters_per_key, 64);
        assert_eq!(options.max_waiters, 10_000);
        let hand_off = HandOff::new(32, Duration::from_millis(250));
        assert_eq!(options.hand_off, hand_off);
        let short = Given {
            ttl: Some(MILLISECOND * 100),
            max_hold: Some(MILLISECOND * 200),
            ..Given::default()
        };
        assert_eq!(
            short
                .check(5, &Constants::default())
                .unwrap()
                .hand_off
                .max_time,
            MILLISECOND * 200
        );
    }

    #[test]
    fn the_node_timeout_is_clamped() {
        let timeout = |ttl| {
            let settings = Given {
                ttl: Some(ttl),
                max_ttl: Some(MAX_TTL),
                ..Given::default()
            };
            settings
                .check(1, &Constants::default())
                .unwrap()
                .node_timeout
                .as_millis()
        };
        assert_eq!(timeout(Duration::from_secs(60)), 200);
        assert_eq!(timeout(Duration::from_secs(1)), 20);
        assert_eq!(timeout(Duration::from_millis(20)), 10);
    }

    #[test]
    fn a_fraction_of_a_millisecond_is_dropped_from_the_ttl() {
        let settings = Given {
            ttl: Some(Duration::from_micros(1_500_900)),
            ..Given::default()
        };
        let options = settings.check(1, &Constants::default()).unwrap();
        assert_eq!(options.terms.ttl, Duration::from_millis(1_500));
    }

    #[test]
    fn bad_settings_say_what_is_wrong() {
        assert_eq!(
            error(|s| s.ttl = Some(Duration::ZERO)),
            "ttl is 0ns; it must be at least 10ms"
        );
        assert_eq!(
            error(|s| s.ttl = Some(Duration::MAX)),
            "ttl is 18446744073709551615.999999999s; it must be at most 86400s"
        );
        assert_eq!(
            error(|s| s.node_timeout = Some(Duration::ZERO)),
            "node_timeout is 0ns; it must be at least 1ms"
        );
        assert_eq!(
            error(|s| s.node_timeout = Some(Duration::from_secs(11))),
            "node_timeout is 11s; it must be at most the ttl, 10s"
        );
        assert_eq!(
            error(|s| s.max_hold = Some(Duration::from_secs(9))),
            "max_hold is 9s; it must be at least the ttl, 10s"
        );
        assert_eq!(
            error(|s| s.connect_timeout = Some(Duration::ZERO)),
            "connect_timeout is 0ns; it must be at least 1ms"
        );
        assert_eq!(
            error(|s| s.max_waiters = Some(0)),
            "max_waiters: must be at least 1; if no caller is to wait, set max_wait to zero"
        );
        assert_eq!(
            error(|s| s.mask_losses = Some(5)),
            "mask_losses: 5 nodes cannot mask the losses of 5: use more nodes or mask fewer"
        );
        assert!(
            error(|s| s.namespace = Some("a b".to_owned()))
                .starts_with("namespace: a namespace has at most 64")
        );
        assert!(
            error(|s| s.instance = Some("a b".to_owned()))
                .starts_with("instance: an instance has at most 64")
        );
        let none = Given::default()
            .check(0, &Constants::default())
            .unwrap_err()
            .to_string();
        assert!(none.starts_with("nodes: there is no node"), "{none}");
        let many = Given::default()
            .check(33, &Constants::default())
            .unwrap_err()
            .to_string();
        assert!(many.contains("at most 32"), "{many}");
    }

    fn checked(toml: &str) -> String {
        let given = read(toml::from_str(toml).unwrap()).unwrap();
        format!("{:?}", given.check(5, &Constants::default()).unwrap())
    }

    #[test]
    fn the_usual_values_of_the_docs_are_the_usual_values() {
        let said = checked(
            r#"
            memory = 5
            namespace = "lk"
            ttl = "10s"
            max_ttl = "10s"
            node_timeout = "100ms"
            connect_timeout = "5s"
            mask_losses = 0
            max_hold = "1m"
            max_wait = "5s"
            max_waiters_per_key = 64
            max_waiters = 10000
            bootstrap = false
            redact_keys = false
            hand_off = true
            fencing = true
            restart_guard = true
            "#,
        );
        assert_eq!(said, checked("memory = 5"));
        // An empty table has no effect.
        assert_eq!(checked("tls = {}"), checked(""));
    }

    #[test]
    fn a_password_is_the_same_from_every_source() {
        let given = |value: serde_json::Value| {
            use serde::Deserialize as _;
            read(Value::deserialize(value).unwrap()).unwrap().password
        };
        let password = Some(Secret("0123".to_owned()));
        assert_eq!(given(serde_json::json!({"password": "0123"})), password);
        // A password of digits is not read as a number.
        let variables = [("A_PASSWORD".to_owned(), "0123".to_owned())];
        let variables = crate::settings::value::given("A", variables.into_iter()).unwrap();
        assert_eq!(variables.password, password);
    }

    #[test]
    fn counters_are_kept_for_as_long_as_a_lock_unless_somebody_says_for_how_long() {
        let kept = |ttl: u64, keep: Option<u64>| {
            let given = Given {
                ttl: Some(Duration::from_secs(ttl)),
                max_ttl: Some(MAX_TTL),
                ..Given::default()
            };
            let usual = Constants::default();
            let constants = Constants {
                keep: keep.map_or(usual.keep, Duration::from_secs),
                ..usual
            };
            let kept = given.check(5, &constants).unwrap().fencing;
            kept.unwrap().as_secs()
        };
        assert_eq!(kept(10, None), 300);
        assert_eq!(kept(900, None), 900);
        assert_eq!(kept(10, Some(20)), 20);
        assert_eq!(kept(900, Some(301)), 900);
    }
}
