//! Which number a holder gets.
//!
//! A token is safe once a quorum of nodes has a counter at or above it that was written while we owned them: any later
//! holder shares a node with that quorum, and its number there is a step higher. If a quorum of the nodes that granted
//! report one number, that is so already. Else the highest is taken and written back.

use crate::token::FencingToken;

/// What the numbers of a granted round come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// A quorum reports this number: it may be handed out.
    Agreed(FencingToken),
    /// This is the highest; it may be handed out once a quorum has it.
    Open(FencingToken),
    /// No node reports a number.
    None,
}

/// What `numbers`, of so many nodes that granted, come to when `needed` must agree.
pub(crate) fn numbering(numbers: &[FencingToken], needed: usize) -> Numbering {
    let votes = |number: FencingToken| numbers.iter().filter(|other| **other == number).count();
    let agreed = numbers
        .iter()
        .copied()
        .filter(|n| votes(*n) >= needed)
        .max();
    match (agreed, numbers.iter().copied().max()) {
        (Some(number), _) => Numbering::Agreed(number),
        (None, Some(highest)) => Numbering::Open(highest),
        (None, None) => Numbering::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(values: &[u64]) -> Vec<FencingToken> {
        let token = |value: &u64| FencingToken::new(*value).unwrap();
        values.iter().map(token).collect()
    }

    fn of(values: &[u64]) -> Numbering {
        numbering(&tokens(values), 3)
    }

    #[test]
    fn a_quorum_with_one_number_agrees_even_if_another_has_more() {
        let token = |value| FencingToken::new(value).unwrap();
        assert_eq!(of(&[5, 5, 5]), Numbering::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5, 5]), Numbering::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5]), Numbering::Open(token(9)));
        assert_eq!(of(&[5, 5]), Numbering::Open(token(5)));
        assert_eq!(of(&[]), Numbering::None);
    }
}
