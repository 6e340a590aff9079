//! The errors of lock keys.

use std::fmt;

/// Why a text cannot be a [`LockKey`](crate::LockKey). The message never repeats text from the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError(Reason);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Empty,
    TooLong(usize, usize),
    Missing(Subject),
    Malformed(Subject, &'static str),
    Unreadable(Subject, &'static str),
    Misplaced(Subject),
    NotInRoute(Subject),
    NoKey,
    TooMany(usize),
    Reserved,
    Several,
    NoSlot,
    Upgrade,
}

/// The source of a key, in the words of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Key,
    Text(&'static str),
    /// A kind of place and a name in it, such as the header `x-order-id`.
    Named(&'static str, &'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key => f.write_str("it"),
            Self::Text(text) => f.write_str(text),
            Self::Named(place, name) => write!(f, "the {place} `{name}`"),
        }
    }
}

impl KeyError {
    /// The source of the key is missing from the request. `what` names it, for example a header or path parameter.
    #[must_use]
    pub const fn missing(what: &'static str) -> Self {
        Self(Reason::Missing(Subject::Text(what)))
    }

    /// The source of the key is there but unusable. `why` gives the reason, without the client's text.
    #[must_use]
    pub const fn malformed(why: &'static str) -> Self {
        Self(Reason::Malformed(Subject::Key, why))
    }

    pub(crate) const fn missing_from(subject: Subject) -> Self {
        Self(Reason::Missing(subject))
    }

    pub(crate) const fn malformed_in(subject: Subject, why: &'static str) -> Self {
        Self(Reason::Malformed(subject, why))
    }

    pub(crate) const fn unreadable(subject: Subject, kind: &'static str) -> Self {
        Self(Reason::Unreadable(subject, kind))
    }

    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "only axum has routers")
    )]
    pub(crate) const fn misplaced(subject: Subject) -> Self {
        Self(Reason::Misplaced(subject))
    }

    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "only axum has routes")
    )]
    pub(crate) const fn not_in_route(subject: Subject) -> Self {
        Self(Reason::NotInRoute(subject))
    }

    pub(crate) const fn empty() -> Self {
        Self(Reason::Empty)
    }

    pub(crate) const fn no_key() -> Self {
        Self(Reason::NoKey)
    }

    pub(crate) const fn too_many(limit: usize) -> Self {
        Self(Reason::TooMany(limit))
    }

    pub(crate) const fn reserved() -> Self {
        Self(Reason::Reserved)
    }

    pub(crate) const fn no_slot() -> Self {
        Self(Reason::NoSlot)
    }

    pub(crate) const fn upgrade() -> Self {
        Self(Reason::Upgrade)
    }

    pub(crate) const fn several() -> Self {
        Self(Reason::Several)
    }

    pub(crate) const fn too_long(len: usize, most: usize) -> Self {
        Self(Reason::TooLong(len, most))
    }

    pub(crate) const fn is_missing(&self) -> bool {
        matches!(self.0, Reason::Missing(_) | Reason::NotInRoute(_))
    }

    pub(crate) const fn is_misplaced(&self) -> bool {
        matches!(
            self.0,
            Reason::Misplaced(_) | Reason::NotInRoute(_) | Reason::Several | Reason::Upgrade
        )
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::Empty => f.write_str("the lock key is empty"),
            Reason::TooLong(len, most) => write!(
                f,
                "the lock key has {len} bytes or more; at most {most} are allowed"
            ),
            Reason::Missing(what) => write!(f, "the lock key cannot be made: {what} is missing"),
            Reason::Malformed(Subject::Key, why) => write!(f, "the lock key is malformed: {why}"),
            Reason::Malformed(what, why) => {
                write!(f, "the lock key is malformed: {what} {why}")
            }
            Reason::Unreadable(what, kind) => {
                // Do not show the modules of the program to clients.
                let path = kind.split('<').next().unwrap_or_default();
                let name = path.rsplit("::").next().unwrap_or_default();
                write!(
                    f,
                    "the lock key is malformed: {what} cannot be read as `{name}`"
                )
            }
            Reason::Misplaced(Subject::Key) => f.write_str(
                "the lock key cannot be made: its extractor does not work at the place of the lock layer; put the layer \
                 inside the layers that the extractor needs, and around routes that have its path parameters",
            ),
            Reason::Misplaced(what) => write!(
                f,
                "the lock key cannot be made: {what} is not known here, because no router ran before the lock \
                 layer; put the layer inside the router"
            ),
            Reason::NotInRoute(what) => write!(
                f,
                "the lock key cannot be made: the route that matched does not have {what}; use the name that the route has, \
                 or make it optional"
            ),
            Reason::NoKey => f.write_str("there is no lock key in the list; name at least one"),
            Reason::TooMany(limit) => {
                write!(
                    f,
                    "there are too many lock keys in the list; at most {limit} are allowed"
                )
            }
            Reason::NoSlot => f.write_str(
                "a permit is named by its key and the number of its slot, as in `tenant:7:0`",
            ),
            Reason::Several => f.write_str(
                "permits and shared locks have only one key, and several keys were given; acquire each key on its own",
            ),
            Reason::Upgrade => f.write_str(
                "this work holds the key as a reader and cannot acquire it for writing, because two such readers would \
                 wait for each other; release the key, acquire it for writing, and read again",
            ),
            Reason::Reserved => f.write_str(
                "the lock key begins with `!`, which is reserved if the namespace is empty; set a namespace, or use another key",
            ),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<std::convert::Infallible> for KeyError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}
