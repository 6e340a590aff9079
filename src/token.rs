//! Owner tokens, which prove the ownership of a lock, and fencing tokens, which order its holders.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// The secret value that a lock key holds on the nodes while we own it.
///
/// It is 160 random bits as 40 hexadecimal digits, new for every acquire round, then `:` and the label of the process,
/// if it has one. Anyone who knows the token can release the lock.
// The label is stored in place, because each lock copies some tokens and `Copy` needs no allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerToken {
    text: [u8; Self::MAX_LEN],
    len: u8,
}

impl OwnerToken {
    /// The number of random bytes in a token.
    pub const ENTROPY_LEN: usize = 20;

    pub(crate) const DIGITS: usize = 2 * Self::ENTROPY_LEN;
    const MAX_LEN: usize = Self::DIGITS + 1 + Label::MAX_LEN;

    /// Makes a token of bytes from the operating system's random source.
    #[must_use]
    pub fn from_entropy(entropy: [u8; Self::ENTROPY_LEN]) -> Self {
        let none = Self {
            text: [0; Self::MAX_LEN],
            len: 0,
        };
        none.and(&hex::<{ Self::DIGITS }>(&entropy))
    }

    /// The value of a key that readers share, in place of an owner token. It is not secret.
    pub(crate) fn readers() -> Self {
        Self::from_entropy([0; Self::ENTROPY_LEN]).and(b":shared")
    }

    /// The value of a key that waiting writers share.
    pub(crate) fn writers() -> Self {
        Self::from_entropy([0; Self::ENTROPY_LEN]).and(b":waiting")
    }

    /// Adds a label, unless it is empty.
    #[must_use]
    pub fn labelled(self, label: &Label) -> Self {
        match label.as_str() {
            "" => self,
            label => self.and(b":").and(label.as_bytes()),
        }
    }

    fn and(mut self, more: &[u8]) -> Self {
        let len = usize::from(self.len);
        if let Some(room) = self.text.get_mut(len..len + more.len()) {
            room.copy_from_slice(more);
            self.len += more.len() as u8;
        }
        self
    }

    /// The secret value as it is on the nodes. Never log it or send it to clients.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.text.get(..self.len.into()).unwrap_or_default()
    }

    /// The random part, which is as secret as the whole.
    pub(crate) fn digits(&self) -> &str {
        let digits = self.text.get(..Self::DIGITS).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }

    pub(crate) fn label(&self) -> &str {
        let label = self.expose().get(Self::DIGITS + 1..);
        std::str::from_utf8(label.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerToken(secret)")
    }
}

/// The name of a process next to its owner tokens on the nodes, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(Arc<str>);

impl Label {
    pub(crate) const MAX_LEN: usize = 64;

    /// Makes the label `text`, which may be empty.
    ///
    /// # Errors
    ///
    /// A text that says what is allowed.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if text.len() > Self::MAX_LEN || !text.bytes().all(is_of_label) {
            return Err(NOT_A_LABEL);
        }
        Ok(Self(text.into()))
    }

    /// Makes the label of a process from its `host` and its process id.
    pub(crate) fn of_process(host: &str, process: u32) -> Self {
        let process = format!("@{process}");
        let allowed = |c: char| u8::try_from(c).is_ok_and(is_of_label);
        let host = host.chars().map(|c| if allowed(c) { c } else { '-' });
        let label = host.take(Self::MAX_LEN - process.len());
        Self(label.chain(process.chars()).collect::<String>().into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_of_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@')
}

const NOT_A_LABEL: &str =
    "an instance has at most 64 bytes and holds only ASCII letters, digits, `-`, `_`, `.` and `@`";

/// A number that grows with every holder of a lock. The resource behind the lock stores the highest number, and rejects
/// writes with a lower one: `docs::one_effect`.
///
/// A token is below 2<sup>63</sup>, so that it fits a signed database column. It is above 2<sup>53</sup>, so in JSON it
/// must be a string, and `serde` makes it one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The least distance between the tokens of two grants. The tokens between them are for hand-overs inside a
    /// process.
    #[doc(hidden)]
    pub const STEP: u64 = 1 << Self::HAND_OFF_BITS;
    const HAND_OFF_BITS: u32 = 10;
    /// The highest token that leaves room for another token and its hand-overs.
    pub(crate) const LAST_COUNTED: u64 = i64::MAX.cast_unsigned() - 2 * Self::STEP;

    /// The token with this value; `None` for zero, and for values of 2<sup>63</sup> or more.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(number) if value <= i64::MAX.cast_unsigned() => Some(Self(number)),
            _ => None,
        }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The value for a database that has only signed numbers. It is never negative.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.get().cast_signed()
    }

    pub(crate) const fn proposed_at(micros: u64) -> Option<Self> {
        // It fits until the year 2255.
        Self::new(micros.saturating_mul(Self::STEP))
    }

    /// When it was proposed, in microseconds since 1970, or later if it had to exceed another token.
    pub(crate) const fn micros(self) -> u64 {
        self.get() / Self::STEP
    }

    pub(crate) const fn handed_on(self, number: u32) -> Self {
        match Self::new(self.get().saturating_add(number as u64)) {
            Some(token) => token,
            None => self,
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.as_i64()
    }
}

impl serde::Serialize for FencingToken {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for FencingToken {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for FencingToken {
    type Err = FencingTokenError;

    /// Reads only what [`Display`](fmt::Display) writes, so that different texts are different tokens.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `parse` would accept a sign and leading zeros.
        let is_plain = text.starts_with(|first: char| matches!(first, '1'..='9'));
        let value = text.parse().ok().filter(|_| is_plain);
        value.and_then(Self::new).ok_or(FencingTokenError(()))
    }
}

/// A text that is not a [`FencingToken`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingTokenError(());

impl fmt::Display for FencingTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a fencing token is a whole number from 1 to 9223372036854775807 in decimal digits, without zeros in front",
        )
    }
}

impl std::error::Error for FencingTokenError {}

/// A hash of an owner token. It identifies an owner, but does not authorise any command on the nodes.
///
/// It is the SHA-1 of the token in hexadecimal digits, because Redis scripts can compute that. The token's 160 random
/// bits cannot be found from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerHash([u8; Self::LEN]);

impl OwnerHash {
    const LEN: usize = 40;

    pub(crate) fn of(token: &OwnerToken) -> Self {
        let digest = sha1_smol::Sha1::from(token.expose()).digest();
        Self(hex(&digest.bytes()))
    }

    /// Reads a hash; `None` unless it is 40 hexadecimal digits in lower case.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let digits = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let text: [u8; Self::LEN] = text.try_into().ok()?;
        text.iter().all(digits).then_some(Self(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// A number that is equal for equal tokens.
    pub(crate) fn tag(&self) -> u64 {
        let digits = self.as_str().get(..16).unwrap_or_default();
        u64::from_str_radix(digits, 16).unwrap_or(0)
    }
}

impl fmt::Display for OwnerHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for OwnerHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for OwnerHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Eight digits are enough to distinguish owners.
        let start = self.as_str().get(..8).unwrap_or_default();
        write!(f, "OwnerHash({start}..)")
    }
}

/// `bytes` as hexadecimal digits in lower case. Every lock needs this, and formatting macros would take several times
/// as long.
pub(crate) fn hex<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    std::array::from_fn(|index| {
        let byte = bytes.get(index / 2).copied().unwrap_or_default();
        let nibble = if index % 2 == 0 {
            byte >> 4
        } else {
            byte & 0xF
        };
        nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
    })
}

/// The holder of a key on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "of this crate, and tests make some"
)]
pub struct Holder {
    /// Identifies the holder without its token: equal tokens have equal tags.
    pub tag: u64,
    /// How long the node keeps the key unless it is extended or released; `None` for a key without expiry.
    pub remaining: Option<Duration>,
    /// In reply to an acquire, the index of the held key among the requested keys, if the node knows it. While the
    /// caller waits for this key, its process lets other callers use the remaining keys.
    pub key: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fencing_token_fits_a_signed_column_and_is_text_in_json() {
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new(1 << 63), None);
        let token = FencingToken::proposed_at(1_800_000_000_000_000).unwrap();
        assert_eq!(token.get(), 1_843_200_000_000_000_000);
        assert_eq!(token.handed_on(3).as_i64(), 1_843_200_000_000_000_003);
        let text = serde_json::to_string(&token).unwrap();
        assert_eq!(text, "\"1843200000000000000\"");
        assert_eq!(serde_json::from_str::<FencingToken>(&text).unwrap(), token);
        for bad in [
            "",
            "0",
            "-1",
            "+1",
            "01",
            "9223372036854775808",
            "1e3",
            " 1",
        ] {
            assert!(bad.parse::<FencingToken>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_owner_hash_is_the_sha_1_of_the_token() {
        let token = OwnerToken::from_entropy([0; OwnerToken::ENTROPY_LEN]);
        let hash = OwnerHash::of(&token);
        // printf '0%.0s' {1..40} | sha1sum
        assert_eq!(hash.as_str(), "9514e18b679622b8d59991a6298559cb03099d64");
        assert_eq!(OwnerHash::parse(hash.as_str().as_bytes()), Some(hash));
        assert_eq!(OwnerHash::parse(b"short"), None);
        assert_eq!(OwnerHash::parse(&[b'X'; 40]), None);
        assert!(!format!("{hash:?}").contains(hash.as_str()));
    }

    #[test]
    fn the_value_is_hexadecimal_and_debug_hides_it() {
        let mut entropy = [0; OwnerToken::ENTROPY_LEN];
        entropy[0] = 0xAB;
        entropy[19] = 0x0F;
        let token = OwnerToken::from_entropy(entropy);
        assert_eq!(token.expose(), b"ab0000000000000000000000000000000000000f");
        assert_eq!(format!("{token:?}"), "OwnerToken(secret)");
    }

    #[test]
    fn a_label_stands_behind_the_digits_and_is_part_of_the_hash() {
        let plain = OwnerToken::from_entropy([0xCD; OwnerToken::ENTROPY_LEN]);
        let label = Label::new("web-1.eu_2@77").unwrap();
        let token = plain.labelled(&label);
        let text = format!("{}:web-1.eu_2@77", "cd".repeat(20));
        assert_eq!(token.expose(), text.as_bytes());
        assert_eq!((token.label(), plain.label()), ("web-1.eu_2@77", ""));
        assert_eq!(token.digits(), plain.digits());
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        assert_eq!(OwnerHash::of(&token).as_str(), hash);
        assert_eq!(plain.labelled(&Label::new("").unwrap()), plain);
        let longest = Label::new(&"x".repeat(64)).unwrap();
        assert!(plain.labelled(&longest).expose().ends_with(&[b'x'; 64]));
        assert_ne!(plain.labelled(&longest), token);
    }

    #[test]
    fn a_label_is_a_word_that_needs_no_quotes() {
        for bad in ["a b", "a:b", "ä", "a\n", "a/b", &"x".repeat(65)] {
            assert!(Label::new(bad).is_err(), "{bad:?}");
        }
        let of = |host: &str| Label::of_process(host, 4711);
        assert_eq!(of("web-1").as_str(), "web-1@4711");
        assert_eq!(of("käse:1 b").as_str(), "k-se-1-b@4711");
        let long = of(&"x".repeat(300));
        assert_eq!(Label::new(long.as_str()), Ok(long.clone()));
        assert!(long.as_str().ends_with("x@4711"), "{long:?}");
        assert_eq!(long.as_str().len(), Label::MAX_LEN);
    }
}
