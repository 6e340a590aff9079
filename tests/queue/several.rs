//! Who wants several keys has all or none of them, loses no wake-up, and leaves nothing behind.

use std::task::Poll;

use loom::thread;

use crate::entering::come;
use crate::queue::Entered;
use crate::world::{Bell, Handover, Key, Seat, Turn, explore, explore_within};

/// Has both keys for a moment.
fn hold_both(turn: Turn, one: &Key, two: &Key) {
    one.hold();
    two.hold();
    drop(turn);
}

fn wait_for_both(seat: Seat, one: &Key, two: &Key) {
    let bell = Bell::new();
    match bell.block_on(seat).unwrap() {
        Handover::Turn(turn) => hold_both(turn, one, two),
        Handover::Lock(_) => panic!("a lock of one key"),
    }
    bell.assert_done();
}

/// Comes for both keys, waits if need be, and has them for a moment.
fn come_for_both(one: &Key, two: &Key) -> &'static str {
    match one.enter_with(two) {
        Entered::Turn(turn) => {
            hold_both(turn, one, two);
            "free"
        }
        Entered::Seat(seat) => {
            wait_for_both(seat, one, two);
            "turn"
        }
    }
}

fn pair() -> (Key, Key) {
    let key = Key::new();
    let other = key.other();
    (key, other)
}

#[test]
fn two_who_want_both_and_one_who_wants_one_have_them_one_after_the_other() {
    explore_within(Some(2), ["free", "turn"], |seen| {
        let (key, other) = pair();
        let single = other.spawn(|other| come(&other));
        let (one, two) = (key.clone(), other.clone());
        let crossing = thread::spawn(move || come_for_both(&two, &one));
        seen.note(come_for_both(&key, &other));
        single.join().unwrap();
        crossing.join().unwrap();
        key.assert_empty();
    });
}

#[test]
fn who_waits_for_both_is_called_once_when_their_turns_end_at_the_same_time() {
    explore(["both"], move |seen| {
        let (key, other) = pair();
        let turns = [key.turn(), other.turn()];
        let seat = key.seat_with(&other);
        let ending = turns.map(|turn| thread::spawn(move || drop(turn)));
        wait_for_both(seat, &key, &other);
        seen.note("both");
        for thread in ending {
            thread.join().unwrap();
        }
        key.assert_empty();
    });
}

#[test]
fn what_a_waiter_for_both_cannot_use_goes_to_those_behind() {
    explore(["turn"], |seen| {
        let (key, other) = pair();
        let (turn, others) = (key.turn(), other.turn());
        let seat = key.seat_with(&other);
        let behind = key.seat();
        let ending = thread::spawn(move || drop(turn));
        // Before the other is free.
        seen.note(key.wait(behind).unwrap());
        ending.join().unwrap();
        // Free for newcomers, too.
        drop(key.turn());
        let (one, two) = (key.clone(), other.clone());
        let waiting = thread::spawn(move || wait_for_both(seat, &one, &two));
        drop(others);
        waiting.join().unwrap();
        key.assert_empty();
    });
}

#[test]
fn who_wants_both_and_leaves_takes_nothing_from_those_behind() {
    explore_within(Some(2), ["left", "left when called", "turn"], |seen| {
        let (key, other) = pair();
        let (turn, others) = (key.turn(), other.turn());
        let seat = key.seat_with(&other);
        let behind = key.seat();
        let ending = thread::spawn(move || drop(turn));
        let ending_too = thread::spawn(move || drop(others));
        let leaving = thread::spawn({
            let (key, other, seen) = (key.clone(), other.clone(), seen.clone());
            move || {
                let (mut seat, bell) = (seat, Bell::new());
                match bell.poll(&mut seat) {
                    Poll::Ready(Ok(Handover::Turn(turn))) => {
                        hold_both(turn, &key, &other);
                        seen.note("turn");
                    }
                    Poll::Ready(_) => panic!("neither a lock nor sent away"),
                    Poll::Pending => {
                        drop(seat);
                        seen.note(["left", "left when called"][bell.rings()]);
                    }
                }
            }
        });
        assert_eq!(key.wait(behind), Ok("turn"));
        for thread in [ending, ending_too, leaving] {
            thread.join().unwrap();
        }
        key.assert_empty();
    });
}

#[test]
fn a_turn_of_both_that_is_cut_down_and_taken_again_meets_a_newcomer() {
    explore(
        [
            "again, free",
            "again, turn",
            "not again, free",
            "not again, turn",
        ],
        |seen| {
            let (key, other) = pair();
            let both = key.turn_with(&other);
            let coming = key.spawn(move |key| come(&key));
            key.hold();
            let kept = both.keep_only(|name| *name == *other.name).unwrap();
            let names = [key.name.clone(), other.name.clone()];
            let again = match kept.widen(&names) {
                Some(turn) => {
                    hold_both(turn, &key, &other);
                    "again"
                }
                None => "not again",
            };
            let came = coming.join().unwrap();
            seen.note(format!("{again}, {came}"));
            key.assert_empty();
        },
    );
}

#[test]
fn who_does_not_wait_has_what_an_attempt_leaves_or_is_told_that_it_is_kept() {
    explore(["left, free", "left, turn", "left, refused"], |seen| {
        let (key, other) = pair();
        let both = key.turn_with(&other);
        let coming = key.spawn(move |key| match key.enter(false) {
            Ok(Entered::Turn(turn)) => {
                key.hold();
                drop(turn);
                "free"
            }
            Ok(Entered::Seat(seat)) => key.wait(seat).unwrap_or("sent away"),
            Err(_) => "refused",
        });
        key.hold();
        both.set_being_released(true);
        let kept = both.keep_only(|name| *name == *other.name).unwrap();
        kept.set_being_released(false);
        drop(kept);
        seen.note(format!("left, {}", coming.join().unwrap()));
        key.assert_empty();
    });
    explore(["sent away", "refused"], |seen| {
        let (key, other) = pair();
        let both = key.turn_with(&other);
        both.set_being_released(true);
        let coming = key.spawn(move |key| match key.enter(false) {
            Ok(Entered::Seat(seat)) => key.wait(seat).unwrap_or("sent away"),
            Ok(Entered::Turn(_)) => panic!("it is in use"),
            Err(_) => "refused",
        });
        both.set_being_released(false);
        seen.note(coming.join().unwrap());
        drop(both);
        key.assert_empty();
    });
}
