//! [`Namespace`]: the names of our keys and channels on the nodes.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use smallvec::SmallVec;

use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::token::OwnerToken;

/// The prefix that separates the locks of one application from everything else on the nodes.
///
/// The lock `order:42` in the namespace `lk` is the Redis key `lk:order:42`. All other keys and channels begin with
/// `lk!`. In the empty namespace, the Redis key is the lock key itself. In a cluster, all keys begin with a hash tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace {
    text: Arc<str>,
    root: usize,
    // Whether logs and reports show hashes instead of keys.
    redacts: bool,
}

impl Namespace {
    pub(crate) const MAX_LEN: usize = 64;

    /// The namespace `name`.
    ///
    /// # Errors
    ///
    /// A text that says what is allowed.
    pub fn new(name: &str) -> Result<Self, &'static str> {
        let allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        if name.len() > Self::MAX_LEN || !name.bytes().all(allowed) {
            return Err(NOT_A_NAMESPACE);
        }
        Ok(Self::root_of(name))
    }

    fn root_of(name: &str) -> Self {
        Self {
            text: Arc::from(name),
            root: name.len(),
            redacts: false,
        }
    }

    pub(crate) const fn redacting(mut self, redacts: bool) -> Self {
        self.redacts = redacts;
        self
    }

    /// The namespace of the locks of idempotency keys. No lock of the outer namespace has a name in it.
    #[must_use]
    #[cfg(feature = "idempotency")]
    pub fn idempotency(&self) -> Self {
        self.inner("!idem")
    }

    /// The namespace of permits. No lock of the outer namespace has a name in it.
    #[must_use]
    pub fn permits(&self) -> Self {
        self.inner(PERMITS)
    }

    fn inner(&self, name: &str) -> Self {
        Self {
            text: Arc::from([self.root(), name].concat()),
            root: self.root,
            redacts: self.redacts,
        }
    }

    /// This namespace behind `tag`, a hash tag of a cluster, so that all keys are in its slot.
    #[cfg(feature = "redis")]
    pub(crate) fn tagged(&self, tag: &str) -> Self {
        Self {
            text: Arc::from([tag, &self.text].concat()),
            root: tag.len() + self.root,
            redacts: self.redacts,
        }
    }

    /// The root name, under which a node keeps its marker.
    #[must_use]
    pub fn root(&self) -> &str {
        self.text.get(..self.root).unwrap_or_default()
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of `key` on the nodes.
    #[must_use]
    pub fn node_key(&self, key: &LockKey) -> NodeKey {
        self.place(key, Kind::Lock)
    }

    fn place(&self, key: &LockKey, kind: Kind) -> NodeKey {
        let text = match (self.as_str(), kind) {
            (name, Kind::Slot(slot)) => Arc::from(format!("{name}:{key}:{slot}")),
            (name, Kind::Writer) => Arc::from(format!("{name}!writer:{key}")),
            ("", Kind::Lock | Kind::Shared) => Arc::from(key.as_str()),
            (name, Kind::Lock | Kind::Shared) => joined(name, key.as_str()),
        };
        NodeKey {
            hash: hash(&text),
            name: key.clone(),
            kind,
            text,
            namespace: self.clone(),
        }
    }

    pub(crate) fn start(&self) -> String {
        match self.as_str() {
            "" => String::new(),
            name => [name, ":"].concat(),
        }
    }

    /// The key of the lock that is called `name` on the nodes; `None` if it is not a lock of this namespace.
    pub(crate) fn lock_key(&self, name: &str) -> Option<LockKey> {
        let key = name.strip_prefix(self.start().as_str())?;
        let is_reserved = self.text.is_empty() && key.starts_with('!');
        LockKey::new(key).ok().filter(|_| !is_reserved)
    }

    /// The names of `keys` on the nodes.
    ///
    /// # Errors
    ///
    /// [`KeyError`] for a key that begins with `!` in the empty namespace, because such names are reserved for our
    /// other keys.
    pub fn node_keys(&self, keys: &LockKeys) -> Result<NodeKeys, KeyError> {
        let reserved = |key: &LockKey| key.as_str().starts_with('!');
        if self.text.is_empty() && keys.as_slice().iter().any(reserved) {
            return Err(KeyError::reserved());
        }
        let keys = keys.as_slice().iter().map(|key| self.node_key(key));
        Ok(NodeKeys(keys.collect()))
    }

    /// The names on the nodes of keys as [`NodeKey::show`] shows them: a permit is its key and the number of its slot.
    pub(crate) fn shown_keys(&self, names: &LockKeys) -> Result<NodeKeys, KeyError> {
        if !self.as_str().ends_with(PERMITS) {
            return self.node_keys(names);
        }
        let slot = |name: &LockKey| {
            let (key, slot) = name.as_str().rsplit_once(':')?;
            Some(self.place(&LockKey::new(key).ok()?, Kind::Slot(slot.parse().ok()?)))
        };
        let slots: Option<_> = names.as_slice().iter().map(slot).collect();
        slots.map(NodeKeys).ok_or_else(KeyError::no_slot)
    }

    /// The Redis key of the marker, by which a node remembers whether it may vote.
    #[must_use]
    pub fn marker(&self) -> [&str; 2] {
        [self.root(), "!node"]
    }

    /// The Redis key of an owner's tombstone, which makes late commands of this owner void.
    #[must_use]
    pub fn tombstone<'a>(&'a self, owner: &'a OwnerToken) -> [&'a str; 3] {
        [self.root(), "!dead:", owner.digits()]
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::root_of("lk")
    }
}

fn joined(name: &str, key: &str) -> Arc<str> {
    // Joined on the stack, so that the `Arc` is the only allocation.
    let mut text: SmallVec<[u8; 1024]> = SmallVec::new();
    for part in [name, ":", key] {
        text.extend_from_slice(part.as_bytes());
    }
    // Always UTF-8, because it joins texts.
    Arc::from(str::from_utf8(&text).unwrap_or_default())
}

/// The hash of a key's text. Other processes cannot choose texts with the same hash.
fn hash(text: &str) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = KEYS.build_hasher();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Lock,
    Shared,
    /// The key of a permit. The slots of one key share a channel.
    Slot(u32),
    /// The key that waiting writers set, so that no new readers come. It shares the channel of the lock.
    Writer,
}

/// A lock key as the nodes know it. Made by [`Namespace::node_key`].
#[derive(Clone)]
pub struct NodeKey {
    name: LockKey,
    kind: Kind,
    text: Arc<str>,
    namespace: Namespace,
    // Made only once, because each of the nodes in memory uses it several times.
    hash: u64,
}

impl NodeKey {
    /// The Redis key that holds the owner token.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) const fn shared(&self) -> &Arc<str> {
        &self.text
    }

    pub(crate) const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The channel on which releases of this key are announced.
    #[must_use]
    pub fn channel(&self) -> [&str; 3] {
        self.beside("!free:")
    }

    /// The Redis key of the counter of this key's fencing tokens.
    #[must_use]
    pub fn counter(&self) -> [&str; 3] {
        let namespace = self.namespace.as_str();
        if matches!(self.kind, Kind::Writer) {
            // A writer's key never has a counter, but its name must differ from all other names.
            return self.beside("!writer!fence:");
        }
        let start = namespace.len() + usize::from(!namespace.is_empty());
        let own = self.text.get(start..).unwrap_or_default();
        [namespace, "!fence:", own]
    }

    /// The Redis key that records that this key was taken from its readers.
    #[must_use]
    pub fn taken(&self) -> [&str; 3] {
        match self.kind {
            Kind::Writer => self.beside("!writer!taken:"),
            _ => self.beside("!taken:"),
        }
    }

    /// The Redis key of the record of this idempotency key.
    #[must_use]
    pub fn record(&self) -> [&str; 3] {
        self.beside("!record:")
    }

    pub(crate) const fn slot(&self) -> Option<u32> {
        match self.kind {
            Kind::Slot(slot) => Some(slot),
            Kind::Lock | Kind::Shared | Kind::Writer => None,
        }
    }

    /// Whether several owners can have the key together.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self.kind, Kind::Shared | Kind::Writer)
    }

    /// The value on the nodes in place of an owner token, where several owners have the key together.
    pub(crate) fn owners(&self) -> OwnerToken {
        match self.kind {
            Kind::Writer => OwnerToken::writers(),
            _ => OwnerToken::readers(),
        }
    }

    /// The key that waiting writers set, so that no new readers come.
    #[must_use]
    pub fn writer(&self) -> Self {
        self.as_kind(Kind::Writer)
    }

    fn as_kind(&self, kind: Kind) -> Self {
        self.namespace.place(&self.name, kind)
    }

    /// The key whose channel announces releases of this key.
    pub(crate) fn announced(&self) -> Cow<'_, Self> {
        match self.kind {
            Kind::Slot(_) | Kind::Writer => Cow::Owned(self.as_kind(Kind::Lock)),
            Kind::Lock | Kind::Shared => Cow::Borrowed(self),
        }
    }

    pub(crate) fn show(&self) -> Cow<'_, str> {
        let name = match self.namespace.redacts {
            true => Cow::Owned(self.name.redacted()),
            false => Cow::Borrowed(self.name.as_str()),
        };
        match self.slot() {
            Some(slot) => Cow::Owned(format!("{name}:{slot}")),
            None => name,
        }
    }

    fn beside(&self, kind: &'static str) -> [&str; 3] {
        [self.namespace.as_str(), kind, self.name.as_str()]
    }
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey")
            .field("text", &self.text)
            .field("namespace", &self.namespace)
            .finish()
    }
}

// By hand, because on a node a key is only its text.
impl PartialEq for NodeKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

impl Eq for NodeKey {}

impl Hash for NodeKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// One or several keys of one namespace that are locked together. Made by [`Namespace::node_keys`].
// In an `Arc`, because the request to each node has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeKeys(Arc<[NodeKey]>);

impl NodeKeys {
    pub(crate) fn as_slice(&self) -> &[NodeKey] {
        &self.0
    }

    /// The first key.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "never empty")]
    pub fn first(&self) -> &NodeKey {
        &self.0[0]
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.first().namespace()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn tagged(&self, tag: &str) -> Self {
        let namespace = self.namespace().tagged(tag);
        let keys = self.as_slice().iter();
        let placed = keys.map(|key| namespace.place(&key.name, key.kind));
        Self(placed.collect())
    }

    /// The slots of the first key with these numbers.
    pub(crate) fn slots(&self, numbers: impl Iterator<Item = u32>) -> Self {
        let slots = numbers.map(|slot| self.first().as_kind(Kind::Slot(slot)));
        Self(slots.collect())
    }

    /// The first key, for a reader.
    #[must_use]
    pub fn shared(&self) -> Self {
        Self::from(self.first().as_kind(Kind::Shared))
    }

    pub(crate) fn names(&self) -> LockKeys {
        LockKeys::of(self.as_slice().iter().map(|key| key.name.clone()))
    }

    pub(crate) fn are_several(&self) -> bool {
        self.as_slice().len() > 1
    }
}

impl From<NodeKey> for NodeKeys {
    fn from(key: NodeKey) -> Self {
        Self(Arc::from([key]))
    }
}

const PERMITS: &str = "!permit";

const NOT_A_NAMESPACE: &str =
    "a namespace has at most 64 bytes and holds only ASCII letters, digits, `-`, `_`, `.` and `/`";

#[cfg(test)]
#[cfg(feature = "idempotency")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_placed_under_its_namespace() {
        let key = LockKey::new("order:42").unwrap();
        let placed = Namespace::default().node_key(&key);
        assert_eq!(placed.as_str(), "lk:order:42");
        assert_eq!(placed.channel().concat(), "lk!free:order:42");

        let bare = Namespace::new("").unwrap().node_key(&key);
        assert_eq!(bare.as_str(), "order:42");
        assert_eq!(bare.channel().concat(), "!free:order:42");
        assert_eq!(placed.counter().concat(), "lk!fence:order:42");
        assert_eq!(Namespace::default().marker().concat(), "lk!node");
    }

    #[test]
    fn a_name_on_the_nodes_is_that_of_a_lock_or_of_none() {
        let (lk, bare) = (Namespace::default(), Namespace::new("").unwrap());
        let key = |namespace: &Namespace, name| namespace.lock_key(name).map(|key| key.to_string());
        assert_eq!(key(&lk, "lk:order:42").as_deref(), Some("order:42"));
        assert_eq!(key(&bare, "order:42").as_deref(), Some("order:42"));
        for name in [
            "lk:",
            "lk!node",
            "lk!idem:5f3a",
            "lkx:a",
            "order:42",
            "lk:a\n",
        ] {
            assert_eq!(key(&lk, name), None, "{name:?}");
        }
        assert_eq!(key(&bare, "!node"), None);
        let requests = lk.idempotency();
        assert_eq!(key(&requests, "lk!idem:5f3a").as_deref(), Some("5f3a"));
    }

    #[test]
    fn requests_are_kept_beside_the_locks_and_share_the_node_s_memory_of_itself() {
        let key = LockKey::new("5f3a").unwrap();
        for (name, place, record) in [
            ("lk", "lk!idem:5f3a", "lk!idem!record:5f3a"),
            ("", "!idem:5f3a", "!idem!record:5f3a"),
        ] {
            let root = Namespace::new(name).unwrap();
            let requests = root.idempotency();
            let placed = requests.node_key(&key);
            assert_eq!(
                (placed.as_str(), &*placed.record().concat()),
                (place, record)
            );
            assert_eq!(requests.marker().concat(), root.marker().concat());
            let owner = OwnerToken::from_entropy([7; OwnerToken::ENTROPY_LEN]);
            assert_eq!(requests.tombstone(&owner), root.tombstone(&owner));
            assert_eq!(requests.root(), name);
        }
    }

    #[test]
    fn no_key_is_called_like_what_is_kept_beside_the_locks() {
        let keys = LockKeys::new(["a", "!fence:a"]).unwrap();
        let bare = Namespace::new("").unwrap();
        assert_eq!(bare.node_keys(&keys), Err(KeyError::reserved()));
        // In a namespace, the name of a lock continues with `:`, and never with `!`.
        let placed = Namespace::default().node_keys(&keys).unwrap();
        assert!(
            placed
                .as_slice()
                .iter()
                .all(|key| key.as_str().starts_with("lk:"))
        );
    }

    #[test]
    fn a_namespace_cannot_hold_glob_or_control_characters() {
        for bad in ["a*", "a:b", "a b", "a!", "ä", "a\n", &"x".repeat(65)] {
            assert!(Namespace::new(bad).is_err(), "{bad:?}");
        }
        assert!(Namespace::new("shop/eu-1/locks_v2.0").is_ok());
    }

    fn names(root: &Namespace, key: &LockKey, owner: &OwnerToken) -> Vec<(String, String)> {
        let requests = root.idempotency();
        let mut names = vec![
            (root.marker().concat(), "the marker".to_owned()),
            (requests.tombstone(owner).concat(), "a tombstone".to_owned()),
        ];
        let keys = LockKeys::from(key.clone());
        for (whose, namespace) in [("locks", root), ("requests", &requests)] {
            let Ok(placed) = namespace.node_keys(&keys) else {
                continue;
            };
            let slot = root.permits().place(key, Kind::Slot(1));
            names.push((slot.as_str().to_owned(), format!("a slot of {key}")));
            names.push((
                slot.counter().concat(),
                format!("the counter of a slot of {key}"),
            ));
            names.push((
                slot.channel().concat(),
                format!("the channel of the slots of {key}"),
            ));
            let placed = placed.first();
            for (what, name) in [
                ("lock", placed.as_str().to_owned()),
                ("channel", placed.channel().concat()),
                ("counter", placed.counter().concat()),
                ("record", placed.record().concat()),
                ("writer", placed.writer().as_str().to_owned()),
                ("counter of a writer", placed.writer().counter().concat()),
                ("takeover of readers", placed.taken().concat()),
                ("takeover of writers", placed.writer().taken().concat()),
            ] {
                names.push((name, format!("the {what} of {key} of {whose}")));
            }
        }
        let names = names.into_iter();
        names
            .map(|(name, what)| (name, format!("{what} in `{}`", root.as_str())))
            .collect()
    }

    proptest! {
        #[test]
        fn no_two_things_on_a_node_have_one_name(
            key in "[a:!{%]{1,4}",
            entropy in any::<[u8; OwnerToken::ENTROPY_LEN]>(),
            // A lock of the empty namespace may be called like one of another.
            roots in prop::sample::select(vec![&[""][..], &["lk"], &["lk", "idem"]]),
        ) {
            let roots: Vec<_> = roots.iter().map(|name| Namespace::new(name).unwrap()).collect();
            let owner = OwnerToken::from_entropy(entropy);
            let first = LockKey::new(key).unwrap();
            let mut taken = std::collections::BTreeMap::new();
            let mut keys = std::collections::BTreeSet::from([first.clone()]);
            for root in &roots {
                let names_of_first = names(root, &first, &owner);
                keys.extend(names_of_first.iter().filter_map(|(name, _)| {
                    let name = name.strip_prefix(root.as_str())?;
                    let imitation = if root.as_str().is_empty() { name } else { name.get(1..)? };
                    LockKey::new(imitation).ok()
                }));
            }
            prop_assert!(keys.len() > 5, "{:?}", keys);
            for (root, key) in roots.iter().flat_map(|root| keys.iter().map(move |key| (root, key))) {
                for (name, what) in names(root, key, &owner) {
                    let before = taken.insert(name.clone(), what.clone()).unwrap_or(what.clone());
                    prop_assert_eq!(before, what, "{}", name);
                }
            }
        }
    }
}
