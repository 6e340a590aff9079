//! [`Image`]: the data of a server at some time, such as a file that it has written.

use super::data::Keys;
use super::replication::Position;

/// The data of a server at some time.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(super) keys: Keys,
    /// Where in the history of changes that was, if the server told replicas of its changes.
    pub(super) position: Option<Position>,
}

impl Image {
    /// Without the keys that `lost` accepts.
    pub fn without(mut self, mut lost: impl FnMut(&[u8]) -> bool) -> Self {
        self.keys.retain(|key, _| !lost(key));
        self
    }
}
