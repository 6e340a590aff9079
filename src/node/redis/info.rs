//! [`Info`]: a server's reply to `INFO`, and whether the server can serve as a node.

use crate::mutant::{self, Mutant};
use crate::node::redis::error::scrub;
use crate::node::{NodeError, NodeErrorKind};

/// The oldest server that is accepted.
const OLDEST: (u64, u64) = (6, 2);

/// The fields of `INFO` that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    role: String,
    policy: String,
    cluster: String,
    version: String,
    run_id: String,
    // The replication id and offset at which it was last promoted. A promotion sets both, and only the end of the
    // backlog clears them.
    former: String,
    since: String,
    evicted: String,
    // The replicas that are attached, as `host:port`.
    replicas: Vec<String>,
}

/// The server's time in its reply to `INFO`, in microseconds since 1970.
pub(super) fn server_time(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let time = lines.find_map(|line| line.strip_prefix("server_time_usec:"))?;
    time.trim().parse().ok()
}

/// Settings of a server that can lose locks, and that are tolerated because the operator says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    /// It evicts keys when it is full.
    pub(super) eviction: bool,
    /// It has replicas, one of which may take its place.
    pub(super) replicas: bool,
}

impl Info {
    /// Reads the fields from the reply to `INFO`. Missing fields are empty.
    pub(super) fn parse(text: &str) -> Self {
        let mut info = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            let field = match name {
                "role" => &mut info.role,
                "maxmemory_policy" => &mut info.policy,
                "cluster_enabled" => &mut info.cluster,
                "redis_version" => &mut info.version,
                "run_id" => &mut info.run_id,
                "master_replid2" => &mut info.former,
                "second_repl_offset" => &mut info.since,
                "evicted_keys" => &mut info.evicted,
                _ => {
                    info.replicas.extend(replica(name, value));
                    continue;
                }
            };
            value.trim().clone_into(field);
        }
        info
    }

    /// The server process; it changes with every restart.
    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The server's identity: its process and, if it was promoted, its last promotion. `lua/identity.lua` makes the
    /// same text.
    ///
    /// It changes with every restart and with every promotion, but not with a backup or the first replica. The part
    /// that a promotion adds is cleared once the backlog is freed; [`is_still`](Self::is_still) does not count that as
    /// a change.
    pub(super) fn identity(&self) -> String {
        let Self {
            run_id,
            former,
            since,
            ..
        } = self;
        if since == "-1" || former.bytes().all(|digit| digit == b'0') {
            return run_id.clone();
        }
        if mutant::is(Mutant::IdentityIsTheProcess) {
            return run_id.clone();
        }
        format!("{run_id}/{former}:{since}")
    }

    /// Whether this is the server that was known as `identity` and has the same data. `lua/identity.lua` has the same
    /// rule for markers.
    pub(super) fn is_still(&self, identity: &str) -> bool {
        let now = self.identity();
        let before = identity.strip_prefix(&self.run_id);
        now == identity || now == self.run_id && before.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether it is a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.role == "slave"
    }

    /// How many keys it has evicted since it started, or since its statistics were reset; empty if it does not say.
    pub(super) fn evicted(&self) -> &str {
        &self.evicted
    }

    /// Whether locks are safe with this server, except for what is `allowed`.
    pub(super) fn check(&self, allowed: Allowed) -> Result<(), NodeError> {
        let refuse = |why: String| Err(NodeError::new(NodeErrorKind::Misconfigured, why));
        let needed = [
            &self.version,
            &self.run_id,
            &self.role,
            &self.former,
            &self.since,
        ];
        if needed.iter().any(|field| field.is_empty()) {
            return refuse(
                "its INFO lacks `redis_version`, `run_id`, `role`, `master_replid2` or `second_repl_offset`, without which nothing can be told of it; use the server itself, not a proxy in front of it".to_owned(),
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
        if self.cluster != "0" {
            return refuse(
                "it runs in cluster mode, which moves keys between servers; use independent servers with `cluster-enabled no`".to_owned(),
            );
        }
        if self.policy != "noeviction" && !allowed.eviction {
            return refuse(format!(
                "its `maxmemory-policy` is `{}`, so it may throw locks away; set it to `noeviction`, or accept that with `accept_eviction`",
                scrub(&self.policy)
            ));
        }
        if let (Some(replica), false) = (self.replicas.first(), allowed.replicas) {
            return refuse(format!(
                "it has a replica, `{}`, which may take its place without having its locks; say so with `expect_replicas`, have the replica acknowledge locks with `require`, or detach it",
                scrub(replica)
            ));
        }
        Ok(())
    }
}

/// The replica in a line of `INFO`, if the line describes one. A backup by `redis-cli --rdb` looks like a replica, but
/// announces no port: it cannot take the master's place.
fn replica(name: &str, value: &str) -> Option<String> {
    name.strip_prefix("slave")?.parse::<u32>().ok()?;
    let field = |wanted: &str| {
        let mut fields = value.split(',').filter_map(|field| field.split_once('='));
        fields.find_map(|(name, value)| (name == wanted).then(|| value.trim()))
    };
    let port = field("port").unwrap_or_default();
    (port != "0").then(|| format!("{}:{port}", field("ip").unwrap_or_default()))
}

/// The major and minor number of a version; zero for what is no number.
fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n# Memory\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nconnected_slaves:0\r\ncluster_enabled:0\r\nmaster_replid:def\r\nmaster_replid2:0000\r\nsecond_repl_offset:-1\r\nevicted_keys:7\r\n";
    const STRICT: Allowed = Allowed {
        eviction: false,
        replicas: false,
    };

    /// `GOOD` after the server was promoted.
    fn promoted(former: &str, since: u32) -> Info {
        let text = GOOD.replace("0000", former);
        Info::parse(&text.replace(":-1", &format!(":{since}")))
    }

    #[test]
    fn a_plain_master_is_accepted() {
        let info = Info::parse(GOOD);
        assert_eq!(info.check(STRICT), Ok(()));
        assert_eq!(info.run_id(), "abc");
        assert_eq!(info.evicted(), "7");
        assert!(!info.is_replica());
        for version in ["6.2.0", "10.0"] {
            let info = Info::parse(&GOOD.replace("7.0.15", version));
            assert_eq!(info.check(STRICT), Ok(()));
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
            (
                "slaves:0",
                "slaves:1\r\nslave0:ip=10.0.0.2,port=6380,state=wait_bgsave,offset=0,lag=0",
                "`10.0.0.2:6380`, which",
            ),
        ] {
            let info = Info::parse(&GOOD.replace(from, to));
            let error = info.check(STRICT).unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(Info::parse("").check(STRICT).is_err());
    }

    #[test]
    fn what_is_allowed_is_accepted() {
        let allowed = Allowed {
            eviction: true,
            replicas: true,
        };
        let loose = GOOD.replace("noeviction", "volatile-lru");
        let loose = loose.replace("slaves:0", "slaves:1\r\nslave0:ip=h,port=1,state=online");
        assert_eq!(Info::parse(&loose).check(allowed), Ok(()));
        let replica = Info::parse(&GOOD.replace("role:master", "role:slave"));
        assert!(replica.check(allowed).is_err());
    }

    #[test]
    fn a_backup_is_no_replica() {
        for state in ["wait_bgsave", "send_bulk", "online"] {
            let line = format!("slaves:1\r\nslave0:ip=::1,port=0,state={state},offset=0,lag=0");
            let info = Info::parse(&GOOD.replace("slaves:0", &line));
            assert_eq!(info.check(STRICT), Ok(()));
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
        // It was cleared.
        assert!(fresh.is_still("abc/f00:42"));
        for other in ["abcd", "abcd/f00:42", "ab", "ab/f00:42", "x/abc/f", ""] {
            assert!(!fresh.is_still(other), "{other}");
        }
    }
}
