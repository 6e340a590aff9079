//! Callers come while a turn ends: never two turns for a key, and never a seat that nobody will call.

use crate::queue::{Entered, Refused};
use crate::world::{Bell, Handover, Key, explore, explore_within};

/// Comes for the key, waits if need be, and has it for a moment.
pub(crate) fn come(key: &Key) -> &'static str {
    match key.enter(true).unwrap() {
        Entered::Turn(turn) => {
            key.hold();
            drop(turn);
            "free"
        }
        Entered::Seat(seat) => key.wait(seat).unwrap(),
    }
}

#[test]
fn two_who_come_while_a_turn_ends_have_it_one_after_the_other() {
    explore_within(
        Some(3),
        ["free, free", "free, turn", "turn, free", "turn, turn"],
        |seen| {
            let (key, turn) = Key::in_use();
            let ending = key.spawn(move |key| {
                key.hold();
                drop(turn);
            });
            let coming = key.spawn(move |key| come(&key));
            let one = come(&key);
            ending.join().unwrap();
            let two = coming.join().unwrap();
            seen.note(format!("{one}, {two}"));
            key.assert_empty();
        },
    );
}

#[test]
fn who_does_not_wait_is_let_in_line_only_while_the_lock_is_given_back() {
    explore(["free", "refused", "turn"], |seen| {
        let (key, turn) = Key::in_use();
        turn.set_holder(&7);
        let ending = key.spawn(move |key| {
            key.hold();
            turn.set_being_released(true);
            drop(turn);
        });
        match key.enter(false) {
            Ok(Entered::Turn(turn)) => {
                key.hold();
                drop(turn);
                seen.note("free");
            }
            Ok(Entered::Seat(seat)) => seen.note(key.wait(seat).unwrap()),
            Err(Refused::InUse(note)) => {
                assert_eq!(note, Some(7));
                seen.note("refused");
            }
            Err(other) => panic!("{other:?}"),
        }
        ending.join().unwrap();
        key.assert_empty();
    });
}

#[test]
fn what_is_told_of_a_key_is_of_the_turn_that_is_on() {
    explore(["the first", "nothing yet", "the second"], |seen| {
        let (key, turn) = Key::in_use();
        turn.set_holder(&1);
        let seat = key.seat();
        let ending = key.spawn(move |key| {
            drop(turn);
            let Handover::Turn(turn) = Bell::new().block_on(seat).unwrap() else {
                panic!("a bare turn was passed");
            };
            turn.set_holder(&2);
            key.hold();
            // Kept, so that the key stays in use.
            turn
        });
        let Err(Refused::InUse(told)) = key.enter(false) else {
            panic!("the key is in use all the time");
        };
        seen.note(match told {
            Some(1) => "the first",
            Some(2) => "the second",
            Some(_) => "nonsense",
            None => "nothing yet",
        });
        drop(ending.join().unwrap());
        key.assert_empty();
    });
}
