//! A turn ends: the next is called, whoever leaves meanwhile.

use std::sync::{Arc, Mutex};
use std::task::Poll;

use loom::thread;

use crate::world::{Bell, Key, Seat, explore, explore_within};

/// It leaves before or behind the other one.
#[test]
fn a_turn_that_passes_while_one_of_two_leaves_comes_to_the_other() {
    for place in [0, 1] {
        explore(["left", "left when called", "turn"], move |seen| {
            let (key, turn) = Key::in_use();
            let mut seats = vec![key.seat(), key.seat()];
            let (leaver, stayer) = (seats.remove(place), seats.remove(0));
            let passing = thread::spawn(move || drop(turn));
            let noted = seen.clone();
            let leaving = key.spawn(move |key| noted.note(key.look_once(leaver)));
            assert_eq!(key.wait(stayer), Ok("turn"));
            passing.join().unwrap();
            leaving.join().unwrap();
            key.assert_empty();
        });
    }
}

#[test]
fn a_turn_that_passes_to_the_only_waiter_who_leaves_ends() {
    explore(["left", "left when called", "turn"], |seen| {
        let (key, turn) = Key::in_use();
        let leaver = key.seat();
        let passing = thread::spawn(move || drop(turn));
        seen.note(key.look_once(leaver));
        passing.join().unwrap();
        key.assert_empty();
        drop(key.turn());
    });
}

/// Three waiters in a known order, of whom the one at `place` leaves while the turn passes: the others have the key
/// in their order.
fn in_order_without(place: usize) {
    explore_within(Some(2), ["done"], move |seen| {
        let key = Key::within(3, 3);
        let turn = key.turn();
        let mut seats: Vec<Seat> = (0..3).map(|_| key.seat()).collect();
        let leaver = seats.remove(place);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut threads: Vec<_> = seats
            .into_iter()
            .enumerate()
            .map(|(number, seat)| {
                let (key, order) = (key.clone(), Arc::clone(&order));
                thread::spawn(move || {
                    let handover = Bell::new().block_on(seat).unwrap();
                    order.lock().unwrap().push(number);
                    key.take(handover);
                })
            })
            .collect();
        threads.push(thread::spawn(move || drop(leaver)));
        drop(turn);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1]);
        key.assert_empty();
        seen.note("done");
    });
}

#[test]
fn waiters_have_their_turns_in_order_though_the_first_the_middle_or_the_last_leaves() {
    for place in 0..3 {
        in_order_without(place);
    }
}

#[test]
fn the_task_that_polled_last_is_woken() {
    explore(["called before", "called after"], |seen| {
        let (key, turn) = Key::in_use();
        let mut seat = key.seat();
        let passing = thread::spawn(move || drop(turn));
        let first = Bell::new();
        let seen_by_first = first.poll(&mut seat);
        if let Poll::Ready(outcome) = seen_by_first {
            key.take(outcome.unwrap());
            seen.note("called before");
        } else {
            // Another task takes the seat over; the first one is not there to pass the wake-up on.
            let noted = seen.clone();
            let second = key.spawn(move |key| {
                key.wait(seat).unwrap();
                noted.note("called after");
            });
            second.join().unwrap();
        }
        passing.join().unwrap();
        assert_eq!(Arc::strong_count(&first), 1, "its waker is gone");
        key.assert_empty();
    });
}

#[test]
fn a_task_that_polls_again_and_again_is_woken_once() {
    explore(["woken", "not asleep"], |seen| {
        let (key, turn) = Key::in_use();
        let mut seat = key.seat();
        let passing = thread::spawn(move || drop(turn));
        let bell = Bell::new();
        let handover = match (bell.poll(&mut seat), bell.poll(&mut seat)) {
            (Poll::Ready(_), Poll::Ready(_)) => None,
            (_, Poll::Ready(handover)) => Some(handover),
            _ => Some(bell.block_on(seat)),
        };
        passing.join().unwrap();
        if let Some(handover) = handover {
            key.take(handover.unwrap());
        }
        seen.note(["not asleep", "woken"][bell.rings()]);
        assert_eq!(Arc::strong_count(&bell), 1, "its waker is gone");
        key.assert_empty();
    });
}
