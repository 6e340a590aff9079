//! Which fencing token a holder gets.
//!
//! A token is safe once a quorum of nodes has a counter at or above it that was written while we owned the lock there:
//! any later holder shares a node with that quorum, and its token there is a step higher. If a quorum of the granting
//! nodes reports one token, that is so already. Otherwise the highest one is written back.

use crate::token::FencingToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceVerdict {
    /// A quorum reports this token: it may be handed out.
    Agreed(FencingToken),
    /// This is the highest; it may be handed out once a quorum has it.
    Open(FencingToken),
    /// No node reports a token.
    None,
}

pub(crate) fn agree(
    fences: impl Iterator<Item = FencingToken> + Clone,
    needed: usize,
) -> FenceVerdict {
    let votes = |fence: FencingToken| fences.clone().filter(|other| *other == fence).count();
    let agreed = fences.clone().filter(|fence| votes(*fence) >= needed).max();
    match (agreed, fences.max()) {
        (Some(fence), _) => FenceVerdict::Agreed(fence),
        (None, Some(highest)) => FenceVerdict::Open(highest),
        (None, None) => FenceVerdict::None,
    }
}

/// The verdict where the fencing token is the ballot of a record: only the highest counts. A node stores nothing under
/// a lower ballot than it has promised, so with another one some of those that granted could not store it.
#[cfg(feature = "idempotency")]
pub(crate) fn highest(
    fences: impl Iterator<Item = FencingToken> + Clone,
    needed: usize,
) -> FenceVerdict {
    let Some(highest) = fences.clone().max() else {
        return FenceVerdict::None;
    };
    match fences.filter(|fence| *fence == highest).count() {
        votes if votes >= needed => FenceVerdict::Agreed(highest),
        _ => FenceVerdict::Open(highest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(values: &[u64]) -> impl Iterator<Item = FencingToken> + Clone {
        values
            .iter()
            .map(|value| FencingToken::new(*value).unwrap())
    }

    fn of(values: &[u64]) -> FenceVerdict {
        agree(tokens(values), 3)
    }

    #[cfg(feature = "idempotency")]
    #[test]
    fn a_ballot_is_what_a_quorum_reports_as_the_highest() {
        let token = |value| FencingToken::new(value).unwrap();
        let of = |values: &[u64]| highest(tokens(values), 3);
        assert_eq!(of(&[5, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[9, 5, 9, 9]), FenceVerdict::Agreed(token(9)));
        assert_eq!(of(&[5, 9, 5, 5]), FenceVerdict::Open(token(9)));
        assert_eq!(of(&[]), FenceVerdict::None);
    }

    #[test]
    fn a_quorum_with_one_token_agrees_even_if_another_has_more() {
        let token = |value| FencingToken::new(value).unwrap();
        assert_eq!(of(&[5, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5]), FenceVerdict::Open(token(9)));
        assert_eq!(of(&[5, 5]), FenceVerdict::Open(token(5)));
        assert_eq!(of(&[]), FenceVerdict::None);
    }
}
