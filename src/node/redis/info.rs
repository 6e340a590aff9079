//! What a server says of itself, and whether it can serve as a node.

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
    replid: String,
}

impl Info {
    /// Picks the fields out of the answer to `INFO`. Fields that are missing are empty.
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
                "master_replid" => &mut info.replid,
                _ => continue,
            };
            value.trim().clone_into(field);
        }
        info
    }

    /// The identity of the server process; it changes with every restart.
    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The identity of the history of writes; it changes when a replica becomes a master.
    #[allow(dead_code, reason = "the restart guard compares it with the marker")]
    pub(super) fn master_replid(&self) -> &str {
        &self.replid
    }

    /// Whether it follows a master.
    pub(super) fn is_replica(&self) -> bool {
        self.role == "slave"
    }

    /// Whether a lock is safe with this server; with `eviction`, whether it would be if the server evicted nothing.
    pub(super) fn check(&self, eviction: bool) -> Result<(), NodeError> {
        self.refusal(eviction).map_or(Ok(()), |text| {
            Err(NodeError::new(NodeErrorKind::Misconfigured, text))
        })
    }

    fn refusal(&self, eviction: bool) -> Option<String> {
        if self.version.is_empty() || self.run_id.is_empty() || self.role.is_empty() {
            return Some(
                "its INFO lacks `redis_version`, `run_id` or `role`, without which nothing can be told of it; use the server itself, not a proxy in front of it".to_owned(),
            );
        }
        if version(&self.version) < OLDEST {
            let (major, minor) = OLDEST;
            return Some(format!(
                "it runs version {}; locks need Redis {major}.{minor} or later, or Valkey",
                shown(&self.version)
            ));
        }
        if self.role != "master" {
            return Some(format!(
                "its role is `{}`, and only a master can hold locks; use the master's URL",
                shown(&self.role)
            ));
        }
        if self.cluster != "0" {
            return Some(
                "it runs in cluster mode, which moves keys between servers; use independent servers with `cluster-enabled no`".to_owned(),
            );
        }
        if self.policy != "noeviction" && !eviction {
            return Some(format!(
                "its `maxmemory-policy` is `{}`, so it may throw locks away; set it to `noeviction`, or accept that with `accept_eviction`",
                shown(&self.policy)
            ));
        }
        None
    }
}

/// The major and minor number of a version; zero for what is no number.
fn version(text: &str) -> (u64, u64) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// A value from the server, fit to be shown.
fn shown(value: &str) -> String {
    super::error::scrub(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n\r\n# Memory\r\nmaxmemory_policy:noeviction\r\nrole:master\r\ncluster_enabled:0\r\nmaster_replid:def\r\n";

    #[test]
    fn a_plain_master_is_accepted() {
        let info = Info::parse(GOOD);
        assert_eq!(info.check(false), Ok(()));
        assert_eq!(info.run_id(), "abc");
        assert_eq!(info.master_replid(), "def");
        assert!(!info.is_replica());
        assert_eq!(
            Info::parse(&GOOD.replace("7.0.15", "6.2.0")).check(false),
            Ok(())
        );
        assert_eq!(
            Info::parse(&GOOD.replace("7.0.15", "10.0")).check(false),
            Ok(())
        );
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
        ] {
            let error = Info::parse(&GOOD.replace(from, to))
                .check(false)
                .unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(Info::parse("").check(false).is_err());
        let evicting = Info::parse(&GOOD.replace("noeviction", "volatile-lru"));
        assert_eq!(evicting.check(true), Ok(()));
        let replica = Info::parse(&GOOD.replace("role:master", "role:slave"));
        assert!(replica.check(true).is_err());
    }
}
