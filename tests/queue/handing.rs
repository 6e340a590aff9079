//! A lock passes from one caller to the next, as a guard passes it when it is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom::thread;

use crate::world::{Handover, Key, TTL, explore};

#[test]
fn a_lock_that_is_handed_to_a_waiter_who_leaves_goes_on_to_the_next() {
    let outcomes = ["left", "left when called", "lock"];
    explore(outcomes, |seen| {
        let key = Key::new();
        let (lock, released) = key.lock(2);
        let (leaver, stayer) = (key.seat(), key.seat());
        let passing = thread::spawn(move || drop(lock));
        let noted = seen.clone();
        let leaving = key.spawn(move |key| noted.note(key.look_once(leaver)));
        assert_eq!(key.wait(stayer), Ok("lock"), "two passes are enough");
        passing.join().unwrap();
        leaving.join().unwrap();
        key.assert_released(&released);
    });
}

#[test]
fn a_lock_that_may_pass_once_is_released_after_it_and_the_turn_goes_on() {
    let outcomes = ["lock, left", "turn, left when called", "turn, lock"];
    explore(outcomes, |seen| {
        let key = Key::new();
        let (lock, released) = key.lock(1);
        let (leaver, stayer) = (key.seat(), key.seat());
        let passing = thread::spawn(move || drop(lock));
        let leaving = key.spawn(move |key| key.look_once(leaver));
        let stayed = key.wait(stayer).unwrap();
        passing.join().unwrap();
        let left = leaving.join().unwrap();
        seen.note(format!("{stayed}, {left}"));
        key.assert_released(&released);
    });
}

#[test]
fn what_nobody_takes_comes_back_as_it_was() {
    explore(["came back", "lock", "left", "left when called"], |seen| {
        let key = Key::new();
        let (lock, released) = key.lock(0);
        let leaver = key.seat();
        let handing = thread::spawn({
            let (key, seen, released) = (key.clone(), seen.clone(), Arc::clone(&released));
            move || match key.queue.hand_over(&key.name, TTL, Handover::Lock(lock)) {
                Ok(()) => {}
                Err(Handover::Lock(lock)) => {
                    assert_eq!(released.load(Ordering::SeqCst), 0);
                    seen.note("came back");
                    drop(lock);
                }
                Err(Handover::Turn(_)) => panic!("it went as a lock"),
            }
        });
        // Called or not: it goes away, and what it has been called with must not be lost.
        seen.note(key.look_once(leaver));
        handing.join().unwrap();
        key.assert_released(&released);
    });
}

#[test]
fn a_hand_over_and_a_newcomer_meet_or_miss_each_other_and_nobody_waits_for_ever() {
    explore(["lock", "turn", "free"], |seen| {
        let key = Key::new();
        let (lock, released) = key.lock(1);
        let passing = thread::spawn(move || drop(lock));
        seen.note(crate::entering::come(&key));
        passing.join().unwrap();
        key.assert_released(&released);
    });
}
