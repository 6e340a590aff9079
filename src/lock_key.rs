//! The names of locks: [`LockKey`], and [`LockKeys`] for several that are locked together.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::key_error::KeyError;

/// The name of what a lock protects, such as `order:42`: 1 to 512 bytes of UTF-8 without control characters.
///
/// # Examples
///
/// [`LockKey::join`] makes a key of several parts, and escapes each part:
///
/// ```
/// use tower_redlock::LockKey;
///
/// let key = LockKey::new("order:42")?;
/// assert_eq!(key.as_str(), "order:42");
///
/// assert_eq!(LockKey::join(["a:b", "c"])?.as_str(), "a%3Ab:c");
/// assert_eq!(LockKey::join(["a", "b:c"])?.as_str(), "a:b%3Ac");
/// # Ok::<(), tower_redlock::error::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockKey(Arc<str>);

impl LockKey {
    pub(crate) const MAX_LEN: usize = 512;

    /// Makes a key of `key`, unchanged. For text from a client use [`LockKey::join`], because the text could otherwise
    /// reach into another part of the key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key is empty, longer than 512 bytes, or contains a control character.
    pub fn new(key: impl AsRef<str>) -> Result<Self, KeyError> {
        let key = key.as_ref();
        if key.is_empty() {
            return Err(KeyError::empty());
        }
        check_len(key.len())?;
        if key.chars().any(char::is_control) {
            return Err(KeyError::malformed("it holds a control character"));
        }
        Ok(Self(Arc::from(key)))
    }

    /// Joins `parts` with `:` after escaping each, so that different lists of parts make different keys.
    ///
    /// `%`, `:`, `{`, `}`, control characters and bytes that are not UTF-8 become `%` and two hexadecimal digits per
    /// byte.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if there are no parts, if every part is empty, or if the key is longer than 512 bytes.
    pub fn join<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Result<Self, KeyError> {
        let mut key = KeyParts::default();
        for part in parts {
            key.push(part)?;
        }
        key.finish()
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The index of the key's group among `groups` groups of nodes. As in a Redis Cluster, a text in the key's first
    /// braces selects it alone.
    pub(crate) fn group(&self, groups: usize) -> usize {
        let braced = |text: &'_ str| Some(text.split_once('{')?.1.split_once('}')?.0.to_owned());
        let tag = braced(self.as_str()).filter(|tag| !tag.is_empty());
        let hash = sha1_smol::Sha1::from(tag.as_deref().unwrap_or(self.as_str())).digest();
        let [first, second, ..] = hash.bytes();
        usize::from(u16::from_be_bytes([first, second])) % groups
    }

    /// Returns the key as it is shown where keys are [redacted](crate::Settings::redact_keys): `#` and 16 digits of its
    /// SHA-1, which are the same in all processes.
    ///
    /// Nobody can read the key from it, but anyone can check a guess: the hashes of a list of customers, for example.
    #[must_use]
    pub fn redacted(&self) -> String {
        let digest = sha1_smol::Sha1::from(&*self.0).digest().to_string();
        ["#", digest.get(..16).unwrap_or_default()].concat()
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockKey").field(&self.as_str()).finish()
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for LockKey {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<&Self> for LockKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}

/// Escapes and joins the parts of a key.
#[derive(Debug, Default)]
pub(crate) struct KeyParts {
    joined: String,
    begun: bool,
    // Whether any part is not empty, because a key must not consist of separators alone.
    any: bool,
}

impl KeyParts {
    /// Adds one part, escaped. It fails as soon as the key is too long, without reading the rest of the part.
    pub(crate) fn push(&mut self, part: impl AsRef<[u8]>) -> Result<(), KeyError> {
        let part = part.as_ref();
        if self.begun {
            self.joined.push(SEPARATOR);
        } else {
            // Enough for most keys, so that the text need not grow with each part.
            self.joined.reserve(USUAL_LEN);
        }
        self.begun = true;
        self.any |= !part.is_empty();
        escape_into(&mut self.joined, part)
    }

    pub(crate) fn finish(self) -> Result<LockKey, KeyError> {
        match self.any {
            true => Ok(LockKey(Arc::from(self.joined))),
            false => Err(KeyError::empty()),
        }
    }
}

fn check_len(len: usize) -> Result<(), KeyError> {
    match len > LockKey::MAX_LEN {
        true => Err(KeyError::too_long(len, LockKey::MAX_LEN)),
        false => Ok(()),
    }
}

fn escape_into(joined: &mut String, part: &[u8]) -> Result<(), KeyError> {
    let is_plain =
        |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'%' | b':' | b'{' | b'}');
    if part.iter().all(is_plain)
        && let Ok(plain) = str::from_utf8(part)
        && joined.len() + part.len() <= LockKey::MAX_LEN
    {
        // Most parts need no escaping.
        joined.push_str(plain);
        return Ok(());
    }
    let special = |c: char| matches!(c, '%' | ':' | '{' | '}') || c.is_control();
    for chunk in part.utf8_chunks() {
        for character in chunk.valid().chars() {
            match special(character) {
                true => push_hex(joined, character.encode_utf8(&mut [0; 4]).as_bytes()),
                false => joined.push(character),
            }
            check_len(joined.len())?;
        }
        push_hex(joined, chunk.invalid());
        check_len(joined.len())?;
    }
    check_len(joined.len())
}

fn push_hex(joined: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(joined, "%{byte:02X}");
    }
}

const SEPARATOR: char = ':';
const USUAL_LEN: usize = 64;

/// One or several keys that are locked together: sorted, without duplicates.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockKeys(SmallVec<[LockKey; 1]>);

impl LockKeys {
    pub(crate) const MAX: usize = 64;

    /// Sorts `keys`, and removes duplicates.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if a key is invalid, or if there is no key or more than 64.
    pub fn new<I>(keys: I) -> Result<Self, KeyError>
    where
        I: IntoIterator,
        I::Item: TryInto<LockKey>,
        <I::Item as TryInto<LockKey>>::Error: Into<KeyError>,
    {
        let mut list: Vec<LockKey> = Vec::new();
        for key in keys {
            let key = key.try_into().map_err(Into::into)?;
            // Sort while reading, so that an endless list is refused early.
            if let Err(place) = list.binary_search(&key) {
                if list.len() == Self::MAX {
                    return Err(KeyError::too_many(Self::MAX));
                }
                list.insert(place, key);
            }
        }
        if list.is_empty() {
            return Err(KeyError::no_key());
        }
        Ok(Self(list.into_iter().collect()))
    }

    /// The keys, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[LockKey] {
        self.0.as_slice()
    }

    #[expect(clippy::indexing_slicing, reason = "never empty")]
    pub(crate) fn first(&self) -> &LockKey {
        &self.0[0]
    }

    /// Takes keys that are already sorted, without duplicates, and at least one.
    pub(crate) fn of(keys: impl Iterator<Item = LockKey>) -> Self {
        Self(keys.collect())
    }
}

impl From<LockKey> for LockKeys {
    fn from(key: LockKey) -> Self {
        Self(smallvec![key])
    }
}

macro_rules! one {
    ($($key:ty),*) => {
        $(impl TryFrom<$key> for LockKey {
            type Error = KeyError;

            fn try_from(key: $key) -> Result<Self, KeyError> {
                Self::new(key)
            }
        }

        impl TryFrom<$key> for LockKeys {
            type Error = KeyError;

            fn try_from(key: $key) -> Result<Self, KeyError> {
                LockKey::new(key).map(Self::from)
            }
        })*
    };
}

one!(&str, String, &String);

macro_rules! several {
    ($($list:ty $(, $len:ident)?;)*) => {
        $(impl<K $(, const $len: usize)?> TryFrom<$list> for LockKeys
        where
            K: TryInto<LockKey, Error: Into<KeyError>>,
        {
            type Error = KeyError;

            fn try_from(keys: $list) -> Result<Self, KeyError> {
                Self::new(keys)
            }
        })*
    };
}

several! { [K; N], N; Vec<K>; }

impl<K> TryFrom<&[K]> for LockKeys
where
    K: Clone + TryInto<LockKey, Error: Into<KeyError>>,
{
    type Error = KeyError;

    fn try_from(keys: &[K]) -> Result<Self, KeyError> {
        Self::new(keys.iter().cloned())
    }
}

impl From<&LockKey> for LockKeys {
    fn from(key: &LockKey) -> Self {
        key.clone().into()
    }
}

impl fmt::Debug for LockKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bad_keys_say_what_is_wrong() {
        let text = |key: &str| LockKey::new(key).unwrap_err().to_string();
        assert_eq!(text(""), "the lock key is empty");
        assert_eq!(
            text(&"x".repeat(513)),
            "the lock key has 513 bytes or more; at most 512 are allowed"
        );
        assert_eq!(
            text("a\r\nb"),
            "the lock key is malformed: it holds a control character"
        );
        assert_eq!(
            KeyError::missing("the header `x-order`").to_string(),
            "the lock key cannot be made: the header `x-order` is missing"
        );
        assert!(LockKey::new("x".repeat(512)).is_ok());
    }

    #[test]
    fn a_key_shows_its_text() {
        let (a, b) = (LockKey::new("a").unwrap(), LockKey::new("b").unwrap());
        assert_eq!(
            (a.as_ref(), format!("{a:?}")),
            ("a", "LockKey(\"a\")".to_owned())
        );
        let both = LockKeys::new([b, a]).unwrap();
        assert_eq!(format!("{both:?}"), "[LockKey(\"a\"), LockKey(\"b\")]");
    }

    #[test]
    fn a_huge_part_is_refused_without_being_built() {
        let error = LockKey::join([vec![0xFF; 10 << 20]]).unwrap_err();
        assert!(error.to_string().contains("at most 512"), "{error}");
    }

    #[test]
    fn no_parts_or_only_empty_parts_are_empty() {
        assert_eq!(LockKey::join::<&str>([]), Err(KeyError::empty()));
        assert_eq!(LockKey::join(["", ""]), Err(KeyError::empty()));
        assert!(LockKey::join(["", "a"]).is_ok());
    }

    proptest! {
        #[test]
        fn different_parts_never_meet(
            left in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..4),
            right in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..4),
        ) {
            if let (Ok(a), Ok(b)) = (LockKey::join(&left), LockKey::join(&right)) {
                prop_assert_eq!(left == right, a == b);
                let text = a.as_str();
                prop_assert_eq!(LockKey::new(text), Ok(a.clone()), "a joined key is a valid key");
                // What a cluster or a pattern would read something into.
                prop_assert!(!text.contains(['{', '}']), "{}", text);
                prop_assert_eq!(text.split(':').count(), left.len());
                if let (Ok(first), Ok(rest)) = (LockKey::join(&left[..1]), LockKey::join(&left[1..])) {
                    prop_assert_eq!([first.as_str(), rest.as_str()].join(":"), text);
                }
            }
        }

        #[test]
        fn a_text_is_taken_as_it_is_or_not_at_all(text in prop_oneof!["(?s).{0,20}", "[ -~]{500,530}"]) {
            match LockKey::new(&text) {
                Ok(key) => {
                    prop_assert_eq!(key.as_str(), &text);
                    prop_assert!((1..=512).contains(&text.len()) && !text.contains(char::is_control));
                    let redacted = key.redacted();
                    prop_assert!(redacted.len() == 17 && redacted.starts_with('#'), "{}", redacted);
                }
                Err(error) => {
                    let error = error.to_string();
                    prop_assert!(!error.contains(char::is_control) && error.len() <= 120, "{}", error);
                }
            }
        }

        #[test]
        fn parts_of_the_dangerous_bytes_never_meet(
            left in prop::collection::vec("[:%3A{}é\u{0}]{0,3}", 1..4),
            right in prop::collection::vec("[:%3A{}é\u{0}]{0,3}", 1..4),
        ) {
            if let (Ok(a), Ok(b)) = (LockKey::join(&left), LockKey::join(&right)) {
                prop_assert_eq!(left == right, a == b);
            }
        }
    }

    #[test]
    fn keys_are_sorted_and_each_is_there_once() {
        let keys = LockKeys::new(["b", "a", "b", "c", "a"]).unwrap();
        let texts: Vec<&str> = keys.as_slice().iter().map(LockKey::as_str).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert_eq!(keys.first().as_str(), "a");
        let one = LockKeys::new(["a", "a"]).unwrap();
        assert_eq!(one, LockKeys::from(LockKey::new("a").unwrap()));
    }

    #[test]
    fn there_is_at_least_one_key_and_there_are_not_too_many() {
        assert!(LockKeys::new([""; 0]).is_err());
        assert!(LockKeys::new(["a", ""]).is_err());
        let many = |count: usize| LockKeys::new((0..count).map(|n| n.to_string()));
        assert_eq!(many(64).unwrap().as_slice().len(), 64);
        let error = many(65).unwrap_err().to_string();
        assert!(error.contains("at most 64"), "{error}");
        // An endless list ends.
        assert!(LockKeys::new((0_u64..).map(|n| n.to_string())).is_err());
    }
}
