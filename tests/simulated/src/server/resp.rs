//! Replies, and how they are written in the two versions of the protocol.

use std::borrow::Cow;

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(Cow<'static, [u8]>),
    /// Begins with a code, such as `ERR`.
    Error(Cow<'static, [u8]>),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    /// In place of a list. The older protocol has another nil for it.
    NilArray,
    Array(Vec<Self>),
    /// A list of keys and values in the older protocol.
    Map(Vec<(Self, Self)>),
    /// A list in the older protocol.
    Push(Vec<Self>),
    /// A text for people; a string in the older protocol.
    Verbatim(Vec<u8>),
    /// So many messages, which may be none.
    Many(Vec<Self>),
}

impl Reply {
    pub const OK: Self = Self::Status(Cow::Borrowed(b"OK"));
    pub(super) const NOTHING: Self = Self::Many(Vec::new());

    pub(super) const fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn failure(text: impl Into<Vec<u8>>) -> Self {
        Self::Error(Cow::Owned(text.into()))
    }

    pub(super) fn bulk(text: impl AsRef<[u8]>) -> Self {
        Self::Bulk(text.as_ref().to_vec())
    }

    pub(super) fn optional(text: Option<&[u8]>) -> Self {
        text.map_or(Self::Nil, Self::bulk)
    }

    pub(super) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap())
    }

    /// Appends the reply's bytes, in version 3 of the protocol or in version 2.
    pub(super) fn write(&self, out: &mut Vec<u8>, resp3: bool) {
        match self {
            Self::Status(text) => write_line(out, b'+', text),
            Self::Error(text) => write_line(out, b'-', text),
            Self::Int(number) => write_number(out, b':', *number),
            Self::Bulk(bytes) => write_bulk(out, bytes),
            Self::Nil | Self::NilArray if resp3 => out.extend_from_slice(b"_\r\n"),
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::NilArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(items) => write_all(out, b'*', items, resp3),
            Self::Push(items) => write_all(out, if resp3 { b'>' } else { b'*' }, items, resp3),
            Self::Map(pairs) => {
                let (kind, per) = if resp3 { (b'%', 1) } else { (b'*', 2) };
                write_length(out, kind, per * pairs.len());
                for (key, value) in pairs {
                    key.write(out, resp3);
                    value.write(out, resp3);
                }
            }
            Self::Verbatim(text) if resp3 => {
                write_length(out, b'=', text.len() + 4);
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Self::Verbatim(text) => write_bulk(out, text),
            Self::Many(items) => items.iter().for_each(|item| item.write(out, resp3)),
        }
    }
}

/// A line has no line breaks in it.
fn write_line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    out.extend(text.iter().map(|byte| match byte {
        b'\r' | b'\n' => b' ',
        other => *other,
    }));
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, kind: u8, number: i64) {
    out.push(kind);
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        out.push(b'0' + digit);
    } else {
        out.extend_from_slice(number.to_string().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    write_number(out, kind, i64::try_from(length).unwrap());
}

fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    write_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn write_all(out: &mut Vec<u8>, kind: u8, items: &[Reply], resp3: bool) {
    write_length(out, kind, items.len());
    items.iter().for_each(|item| item.write(out, resp3));
}
