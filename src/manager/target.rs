//! [`LockTarget`]: the keys of one lock.

use crate::key_error::KeyError;
use crate::lock_keys::LockKeys;
use crate::namespace::{Namespace, NodeKeys};

/// The keys of one lock: as its caller names them, and as the nodes know them.
#[derive(Clone, Debug)]
pub(crate) struct LockTarget {
    pub(crate) names: LockKeys,
    pub(crate) keys: NodeKeys,
}

impl LockTarget {
    /// The keys `names` in `namespace`.
    pub(crate) fn new(namespace: &Namespace, names: LockKeys) -> Result<Self, KeyError> {
        let keys = namespace.node_keys(&names)?;
        Ok(Self { names, keys })
    }

    /// Whether there is more than one key.
    pub(crate) fn are_several(&self) -> bool {
        self.names.are_several()
    }
}
