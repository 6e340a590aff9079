//! Whose words and habits a simulated server has.

use super::data::Told;

/// A kind of servers from a version on, as far as they differ in what is simulated.
///
/// In the order in which they came to be: all that follow Redis 7.0 have it as an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    Redis62,
    Redis70,
    Redis80,
    Redis86,
    Valkey81,
    Valkey91,
}

impl Dialect {
    pub const ALL: [Self; 6] = [
        Self::Redis62,
        Self::Redis70,
        Self::Redis80,
        Self::Redis86,
        Self::Valkey81,
        Self::Valkey91,
    ];

    pub const fn is_valkey(self) -> bool {
        matches!(self, Self::Valkey81 | Self::Valkey91)
    }

    /// The one of two texts that this server has.
    pub(super) fn pick<T: Clone>(self, [redis, valkey]: &[T; 2]) -> T {
        if self.is_valkey() {
            valkey.clone()
        } else {
            redis.clone()
        }
    }

    /// The one of three texts that this server has.
    pub(super) fn pick_of_three<T: Clone>(self, [oldest, redis, valkey]: &[T; 3]) -> T {
        match self {
            Self::Redis62 => oldest.clone(),
            _ if self.is_valkey() => valkey.clone(),
            _ => redis.clone(),
        }
    }

    /// Whether a key that nobody asks for may be gone in its last millisecond, and not only after that.
    pub const fn removes_early(self) -> bool {
        matches!(self, Self::Redis80 | Self::Redis86)
    }

    /// How it tells its replicas of an end that is a span from now on.
    pub(super) const fn tells_spans(self) -> Told {
        match self {
            Self::Redis62 => Told::Span,
            _ => Told::Time,
        }
    }

    /// The version of the server that was compared with it.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Redis62 => "6.2.14",
            Self::Redis70 => "7.0.15",
            Self::Redis80 => "8.0.2",
            Self::Redis86 => "8.6.3",
            Self::Valkey81 => "8.1.1",
            Self::Valkey91 => "9.1.2",
        }
    }

    /// The version of Redis that the server says it is.
    pub(super) const fn redis_version(self) -> &'static str {
        if self.is_valkey() {
            "7.2.4"
        } else {
            self.version()
        }
    }
}
