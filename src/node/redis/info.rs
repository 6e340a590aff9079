//! [`Info`]: a server's reply to `INFO`, and whether the server can serve as a node. [`Skew`] and [`Memory`] are made
//! from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::InfoDict;

use crate::moment::Moment;
use crate::node::redis::error::scrub;
use crate::node::{NodeError, NodeErrorKind, ServerStatus};

const OLDEST: (u64, u64) = (6, 2);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    role: String,
    policy: String,
    cluster: String,
    version: String,
    run_id: String,
    // The replication id and offset of the last promotion. They are cleared only when the server frees its backlog.
    former: String,
    since: String,
    evicted: String,
    used_memory: u64,
    maxmemory: u64,
    has_replica: bool,
    has_no_file: bool,
    // Microseconds since 1970, unless the server hides its time.
    time: Option<u64>,
}

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let given = InfoDict::new(text);
        let text = |name: &str| given.get::<String>(name).unwrap_or_default();
        let number = |name: &str| text(name).parse().ok();
        Self {
            role: text("role"),
            policy: text("maxmemory_policy"),
            cluster: text("cluster_enabled"),
            version: text("redis_version"),
            run_id: text("run_id"),
            former: text("master_replid2"),
            since: text("second_repl_offset"),
            evicted: text("evicted_keys"),
            used_memory: number("used_memory").unwrap_or(0),
            maxmemory: number("maxmemory").unwrap_or(0),
            has_replica: given.keys().any(|name| is_replica(name, &text(name))),
            has_no_file: text("aof_enabled") == "0",
            time: number("server_time_usec"),
        }
    }

    pub(super) const fn time(&self) -> Option<u64> {
        self.time
    }

    pub(super) fn status(
        &self,
        address: &str,
        clock_ahead: Option<f64>,
        is_full: bool,
    ) -> ServerStatus {
        ServerStatus {
            address: address.to_owned(),
            version: scrub(&self.version),
            role: scrub(&self.role),
            used_memory: self.used_memory,
            max_memory: Some(self.maxmemory).filter(|bytes| *bytes > 0),
            is_full,
            clock_ahead: clock_ahead.map(|seconds| (seconds * 1e6) as i64),
        }
    }

    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The server's identity, as in `commands/lua/identity.lua`. Every restart and promotion changes it.
    pub(super) fn identity(&self) -> String {
        let Self {
            run_id,
            former,
            since,
            ..
        } = self;
        if !self.was_promoted() {
            return run_id.clone();
        }
        format!("{run_id}/{former}:{since}")
    }

    fn was_promoted(&self) -> bool {
        self.since != "-1" && self.former.bytes().any(|digit| digit != b'0')
    }

    /// Whether the server may receive another server's data while connections live on.
    pub(super) fn may_be_replaced(&self) -> bool {
        self.has_replica || self.was_promoted()
    }

    /// Whether this server has the former `identity` and the same data (as in `commands/lua/is_told.lua`).
    pub(super) fn is_still(&self, identity: &str) -> bool {
        let now = self.identity();
        let before = identity.strip_prefix(&self.run_id);
        now == identity || now == self.run_id && before.is_some_and(|rest| rest.starts_with('/'))
    }

    pub(super) fn is_replica(&self) -> bool {
        self.role == "slave"
    }

    pub(super) fn evicted(&self) -> &str {
        &self.evicted
    }

    #[cfg(feature = "idempotency")]
    pub(super) const fn has_no_file(&self) -> bool {
        self.has_no_file
    }

    pub(super) fn check(&self, in_cluster: bool) -> Result<(), NodeError> {
        let refuse = |why: String| Err(NodeError::new(NodeErrorKind::Misconfigured, why));
        if self.version.is_empty() || self.role.is_empty() {
            return refuse(
                "its INFO lacks `redis_version` or `role`, so that it cannot be checked; connect to the server itself and not to a proxy".to_owned(),
            );
        }
        if version(&self.version) < OLDEST {
            let (major, minor) = OLDEST;
            return refuse(format!(
                "it runs version {}; locks need Redis {major}.{minor} or later, or Valkey",
                scrub(&self.version)
            ));
        }
        if self.role != "master" {
            return refuse(format!(
                "its role is `{}`, and only a master can hold locks; use the master's URL",
                scrub(&self.role)
            ));
        }
        match (&*self.cluster, in_cluster) {
            ("0", false) | ("1", true) => {}
            (_, false) => return refuse(IN_CLUSTER.to_owned()),
            (_, true) => return refuse(NO_CLUSTER.to_owned()),
        }
        if self.policy != "noeviction" {
            return refuse(format!(
                "its `maxmemory-policy` is `{}`, so it may evict locks; set it to `noeviction`",
                scrub(&self.policy)
            ));
        }
        Ok(())
    }

    pub(super) fn check_identity(&self) -> Result<(), NodeError> {
        let parts = [&self.run_id, &self.former, &self.since];
        if parts.iter().any(|part| part.is_empty()) {
            return Err(NodeError::new(NodeErrorKind::Misconfigured, NO_IDENTITY));
        }
        Ok(())
    }
}

const NO_IDENTITY: &str = "its INFO lacks `run_id`, `master_replid2` or `second_repl_offset`, which show restarts and failovers; connect to the server itself and not to a proxy, or turn this check off by `restart_guard = false`";
const IN_CLUSTER: &str = "it runs in cluster mode, which moves keys between servers; name it with `cluster`, or use independent servers with `cluster-enabled no`";
const NO_CLUSTER: &str = "it does not run in cluster mode; give its URL without `cluster`";

/// Whether a line of `INFO` describes a replica, and not a backup by `redis-cli --rdb`, which announces no port.
fn is_replica(name: &str, value: &str) -> bool {
    let number = name.strip_prefix("slave").map(str::parse::<u32>);
    let mut fields = value.split(',').map(str::trim);
    matches!(number, Some(Ok(_))) && fields.all(|field| field != "port=0")
}

fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Slower replies say too little about the clock.
const SLOW: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(250);
const RATE: u32 = 1_000;

#[derive(Clone, Debug)]
pub(super) struct Reading<'a> {
    pub(super) run_id: &'a str,
    // Both in microseconds since 1970.
    pub(super) server: u64,
    pub(super) ours: u64,
    pub(super) asked: Moment,
    pub(super) answered: Moment,
}

/// Clock differences in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) ahead: f64,
    pub(super) step: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Skew(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    run_id: String,
    server: u64,
    at: Moment,
    took: Duration,
    ahead: f64,
}

impl Skew {
    /// How many seconds the server was ahead at the last reading.
    pub(super) fn ahead(&self) -> Option<f64> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|last| last.ahead)
    }

    /// Compares a reading with the last one. Returns `None` if the reply was too slow.
    pub(super) fn found(&self, reading: &Reading<'_>) -> Option<Found> {
        let took = reading.answered.since(reading.asked);
        if took > SLOW {
            return None;
        }
        let half = took / 2;
        let at = reading.asked + half;
        let ahead = seconds(reading.server, reading.ours) + half.as_secs_f64();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let step = (last.as_ref())
            .filter(|last| last.run_id == reading.run_id && at > last.at)
            .and_then(|last| {
                let passed = at.since(last.at);
                let step = seconds(reading.server, last.server) - passed.as_secs_f64();
                let vague = STEP + half + last.took / 2 + passed / RATE;
                (step.abs() > vague.as_secs_f64()).then_some(step)
            });
        *last = Some(Last {
            run_id: reading.run_id.to_owned(),
            server: reading.server,
            at,
            took,
            ahead,
        });
        Some(Found { ahead, step })
    }
}

fn seconds(later: u64, earlier: u64) -> f64 {
    let span = Duration::from_micros(later.abs_diff(earlier)).as_secs_f64();
    if later < earlier { -span } else { span }
}

/// Above this percentage of `maxmemory`, no request with an idempotency key begins, so that locks keep the rest.
const FULL_AT: u32 = 75;

#[cfg_attr(not(feature = "idempotency"), allow(dead_code))]
#[derive(Default)]
pub(crate) struct Memory {
    // From the last check. A limit of 0 means none.
    used: AtomicU64,
    limit: AtomicU64,
    // The bytes that this process has stored since the last check.
    since: AtomicU64,
}

#[cfg_attr(not(feature = "idempotency"), allow(dead_code))]
impl Memory {
    pub(super) fn seen(&self, node: &str, info: &Info) {
        crate::instruments::memory(node, info.used_memory, info.maxmemory);
        self.used.store(info.used_memory, Ordering::Relaxed);
        self.limit.store(info.maxmemory, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    pub(crate) fn stored(&self, bytes: u64) {
        self.since.fetch_add(in_use(bytes), Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_beyond(FULL_AT, 0)
    }

    /// Adds to the error of a full server how full it is.
    pub(crate) fn explain(&self, error: NodeError) -> NodeError {
        use NodeErrorKind::{Full, FullForRecords};
        if !matches!(error.kind(), Full | FullForRecords) {
            return error;
        }
        let [used, limit] = [&self.used, &self.limit].map(|it| it.load(Ordering::Relaxed));
        if limit == 0 {
            // `maxmemory` was set after the last check.
            return error;
        }
        let detail = format!(
            "{error} (it uses {} of the {} that `maxmemory` allows)",
            megabytes(used),
            megabytes(limit)
        );
        NodeError::new(error.kind(), detail)
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let more = self
            .since
            .load(Ordering::Relaxed)
            .saturating_add(in_use(bytes));
        !self.is_beyond(u32::midpoint(FULL_AT, 100), more)
    }

    fn is_beyond(&self, percent: u32, more: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed).saturating_add(more);
        let share = u128::from(self.limit.load(Ordering::Relaxed)) * u128::from(percent);
        share > 0 && u128::from(used) * 100 > share
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// A value takes about this much memory, because servers round sizes up.
const fn in_use(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n# Memory\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nconnected_slaves:0\r\ncluster_enabled:0\r\nmaster_replid:def\r\nmaster_replid2:0000\r\nsecond_repl_offset:-1\r\nevicted_keys:7\r\n";
    fn promoted(former: &str, since: u32) -> Info {
        let text = GOOD.replace("0000", former);
        Info::parse(&text.replace(":-1", &format!(":{since}")))
    }

    #[test]
    fn a_plain_master_is_accepted() {
        let info = Info::parse(GOOD);
        assert_eq!(info.check(false), Ok(()));
        assert_eq!(info.run_id(), "abc");
        assert_eq!(info.evicted(), "7");
        assert!(!info.is_replica());
        for version in ["6.2.0", "10.0"] {
            let info = Info::parse(&GOOD.replace("7.0.15", version));
            assert_eq!(info.check(false), Ok(()));
        }
    }

    #[test]
    fn what_would_lose_locks_is_refused_and_says_what_to_set() {
        for (from, to, word) in [
            ("role:master", "role:slave", "master's URL"),
            ("noeviction", "allkeys-lru", "noeviction"),
            (
                "cluster_enabled:0",
                "cluster_enabled:1",
                "cluster-enabled no",
            ),
            ("cluster_enabled:0", "x:0", "cluster-enabled no"),
            ("7.0.15", "6.0.16", "6.2"),
            ("7.0.15", "nonsense", "6.2"),
            ("run_id:abc", "run:abc", "run_id"),
            ("master_replid2", "x", "master_replid2"),
            ("second_repl_offset", "x", "second_repl_offset"),
        ] {
            let info = Info::parse(&GOOD.replace(from, to));
            let error = info
                .check(false)
                .and_then(|()| info.check_identity())
                .unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(Info::parse("").check(false).is_err());
    }

    #[test]
    fn a_master_with_a_replica_is_accepted_and_the_replica_is_not() {
        let replica = "slaves:1\r\nslave0:ip=h,port=1,state=wait_bgsave,offset=0,lag=0";
        let master = Info::parse(&GOOD.replace("slaves:0", replica));
        assert_eq!(master.check(false), Ok(()));
        let replica = Info::parse(&GOOD.replace("role:master", "role:slave"));
        assert!(replica.check(false).is_err());
    }

    #[test]
    fn it_is_full_beyond_its_share_of_the_memory_that_it_may_use() {
        let of = |used: u64, most: u64| {
            let line = format!("used_memory:{used}\r\nused_memory_rss:999\r\nmaxmemory:{most}\r\n");
            let memory = Memory::default();
            memory.seen("n", &Info::parse(&(GOOD.to_owned() + &line)));
            memory
        };
        assert!(!of(75, 100).is_full() && of(76, 100).is_full());
        assert!(of(u64::MAX, u64::MAX).is_full());
        for unlimited in [of(76, 0), Memory::default()] {
            assert!(!unlimited.is_full() && unlimited.has_room(u64::MAX));
        }
        assert!(of(76, 100).has_room(10) && !of(76, 100).has_room(11));
        let memory = of(75, 100);
        memory.stored(8);
        assert!(!memory.is_full() && memory.has_room(3) && !memory.has_room(4));
    }

    #[test]
    fn a_server_with_a_replica_or_a_promotion_may_be_replaced() {
        let of = |line: &str| Info::parse(&GOOD.replace("slaves:0", line)).may_be_replaced();
        assert!(!of("slaves:0"));
        assert!(of(
            "slaves:1\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=0,lag=0"
        ));
        assert!(promoted("f00", 42).may_be_replaced());
    }

    #[test]
    fn a_backup_is_no_replica() {
        for state in ["wait_bgsave", "send_bulk", "online"] {
            let line = format!("slaves:1\r\nslave0:ip=::1,port=0,state={state},offset=0,lag=0");
            let info = Info::parse(&GOOD.replace("slaves:0", &line));
            assert_eq!(info.check(false), Ok(()));
            assert!(!info.may_be_replaced());
        }
    }

    #[test]
    fn a_promotion_makes_another_identity_and_the_end_of_the_backlog_does_not() {
        let fresh = Info::parse(GOOD);
        assert_eq!(fresh.identity(), "abc");
        let (first, second) = (promoted("f00", 42), promoted("f00", 43));
        assert_eq!(first.identity(), "abc/f00:42");
        assert!(first.is_still("abc/f00:42") && fresh.is_still("abc"));
        assert!(!first.is_still("abc") && !second.is_still("abc/f00:42"));
        // After the promotion was cleared.
        assert!(fresh.is_still("abc/f00:42"));
        for other in ["abcd", "abcd/f00:42", "ab", "ab/f00:42", "x/abc/f", ""] {
            assert!(!fresh.is_still(other), "{other}");
        }
    }
}

#[cfg(test)]
mod clocks {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;

    /// The reply of a server whose clock is `ahead` microseconds ahead, asked at `second`, after `took` milliseconds.
    fn reading(ahead: i64, second: u64, took: u64) -> Reading<'static> {
        let asked = Moment::ORIGIN + Duration::from_secs(second);
        let true_time = NOW + second * SECOND;
        Reading {
            run_id: "a",
            server: (true_time + took * 500).checked_add_signed(ahead).unwrap(),
            ours: true_time + took * 1_000,
            asked,
            answered: asked + Duration::from_millis(took),
        }
    }

    fn near(found: Option<f64>, wanted: Option<f64>) {
        let near = match (found, wanted) {
            (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-5,
            (None, None) => true,
            _ => false,
        };
        assert!(near, "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn the_way_there_and_back_is_not_skew() {
        let skew = Skew::default();
        for (second, ahead) in [(1, 0), (2, 200_000), (3, -50_000)] {
            let found = skew.found(&reading(ahead, second, 80)).unwrap();
            near(
                Some(found.ahead),
                Some(seconds((NOW as i64 + ahead) as u64, NOW)),
            );
            near(found.step, None);
        }
        assert_eq!(skew.found(&reading(0, 4, 501)), None, "too slow to say");
    }

    #[test]
    fn a_clock_that_was_set_is_found_once_and_one_that_runs_a_little_fast_never() {
        let skew = Skew::default();
        let step = |ahead, second| skew.found(&reading(ahead, second, 2)).unwrap().step;
        near(step(0, 1), None);
        near(step(3_600_000_000, 2), Some(3_600.0));
        near(step(3_600_000_000, 3), None);
        near(step(-1_000_000, 4), Some(-3_601.0));
        // After an hour without checks, in which the clock gained two seconds.
        near(step(1_000_000, 3_604), None);
    }

    #[test]
    fn another_server_has_another_clock() {
        let skew = Skew::default();
        skew.found(&reading(0, 1, 2)).unwrap();
        let other = Reading {
            run_id: "b",
            ..reading(7_000_000, 2, 2)
        };
        let found = skew.found(&other).unwrap();
        near(Some(found.ahead), Some(7.0));
        near(found.step, None);
    }

    #[test]
    fn our_own_step_is_skew_but_not_the_servers_step() {
        let skew = Skew::default();
        skew.found(&reading(0, 1, 2)).unwrap();
        let mut set = reading(0, 2, 2);
        set.ours -= 60 * SECOND;
        let found = skew.found(&set).unwrap();
        near(Some(found.ahead), Some(60.0));
        near(found.step, None);
    }
}
