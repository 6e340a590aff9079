//! [`Longest`]: what the nodes are told of the leases of this process, whose handles may have ttls of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mutant::{self, Mutant};
use crate::node::ClusterConfig;
use crate::protocol::renewal::Terms;

/// The longest leases of this process.
///
/// A node that may have forgotten locks waits for the longest ttl that it is told of, so it is always told of the
/// longest of any handle, whichever handle is in use: a shorter one would end its quarantine while a lease that it has
/// forgotten still counts.
#[derive(Debug)]
pub(crate) struct Longest {
    told: Mutex<Told>,
    // How long a run may have lasted that was begun so far, with its ttl, in milliseconds.
    run: AtomicU64,
}

#[derive(Debug)]
struct Told {
    // The config with the longest ttl of any handle.
    config: Arc<ClusterConfig>,
    // The longest lease that each node has said it knows of.
    nodes: Vec<Duration>,
}

impl Longest {
    /// Of a manager whose first handle has the ttl in `config`.
    pub(crate) fn new(config: Arc<ClusterConfig>, nodes: usize) -> Self {
        let nodes = vec![Duration::ZERO; nodes];
        Self {
            told: Mutex::new(Told { config, nodes }),
            run: AtomicU64::new(0),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The config, with the longest ttl: for check-ins and promotions.
    pub(crate) fn config(&self) -> Arc<ClusterConfig> {
        Arc::clone(&self.told().config)
    }

    /// The longest ttl of any handle.
    pub(crate) fn ttl(&self) -> Duration {
        self.told().config.max_lease
    }

    /// Notes the ttl of one more handle. Returns whether the nodes have to be told.
    pub(crate) fn raise(&self, ttl: Duration) -> bool {
        let mut told = self.told();
        let before = told.config.max_lease;
        let is_longer = ttl > before || mutant::is(Mutant::LastTtlTold) && ttl != before;
        if is_longer {
            told.config = Arc::new(ClusterConfig {
                max_lease: ttl,
                ..(*told.config).clone()
            });
        }
        is_longer
    }

    /// Stores that `node` knows of leases of this length.
    pub(crate) fn knows(&self, node: usize, max_lease: Duration) {
        if let Some(known) = self.told().nodes.get_mut(node) {
            *known = max_lease;
        }
    }

    /// How many nodes have said that they know of leases as long as `ttl`.
    pub(crate) fn knowing(&self, ttl: Duration) -> usize {
        let told = self.told();
        told.nodes.iter().filter(|known| **known >= ttl).count()
    }

    /// For how long a holder from before a run that begins now, under `terms`, may believe that it still has the lock,
    /// by the handles that have begun runs so far.
    pub(crate) fn before_run(&self, terms: &Terms) -> Duration {
        let own = terms.max_hold.saturating_add(terms.ttl);
        // Rounded up.
        let millis = u64::try_from(own.as_millis()).unwrap_or(u64::MAX);
        let before = self
            .run
            .fetch_max(millis.saturating_add(1), Ordering::Relaxed);
        own.max(Duration::from_millis(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::quorum::Quorum;
    use crate::protocol::validity::Drift;

    #[test]
    fn a_run_is_remembered_for_as_long_as_any_handle_may_have_held_the_one_before() {
        let secs = Duration::from_secs;
        let config = Arc::new(ClusterConfig::new("", secs(10)));
        let longest = Longest::new(config, 3);
        let before = |ttl, max_hold| {
            longest.before_run(&Terms {
                quorum: Quorum::masking(3, 0).unwrap(),
                ttl: secs(ttl),
                drift: Drift::default(),
                retry: secs(1),
                max_hold: secs(max_hold),
            })
        };
        assert_eq!(before(10, 60), secs(70));
        assert_eq!(before(20, 300), secs(320));
        let after = before(10, 60);
        assert!(after >= secs(320) && after < secs(321), "{after:?}");
    }
}
