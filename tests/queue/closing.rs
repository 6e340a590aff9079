//! The queue is closed: everyone who waits is told, and nobody is let in after.

use std::task::Poll;

use loom::thread;

use crate::queue::{Entered, Refused, SentAway};
use crate::world::{Bell, Key, explore};

fn assert_closed(key: &Key) {
    assert!(matches!(key.enter(true), Err(Refused::Closed)));
    assert!(matches!(key.enter(false), Err(Refused::Closed)));
}

#[test]
fn who_comes_while_the_queue_is_closed_is_let_in_before_or_not_at_all() {
    explore(["free", "called", "told", "refused"], |seen| {
        let (key, turn) = Key::in_use();
        let passing = thread::spawn(move || drop(turn));
        let coming = key.spawn(move |key| match key.enter(true) {
            Ok(Entered::Turn(_)) => "free",
            Ok(Entered::Seat(seat)) => match key.wait(seat) {
                Ok(_) => "called",
                Err(SentAway::Closed) => "told",
                Err(SentAway::InUse) => "sent away",
            },
            Err(Refused::Closed) => "refused",
            Err(other) => panic!("{other:?}"),
        });
        key.queue.close();
        assert_closed(&key);
        passing.join().unwrap();
        seen.note(coming.join().unwrap());
        key.assert_empty();
    });
}

#[test]
fn one_may_leave_while_all_are_told() {
    explore(["told, told", "told, left"], |seen| {
        let (key, turn) = Key::in_use();
        let (stayer, leaver) = (key.seat(), key.seat());
        let leaving = thread::spawn(move || {
            let bell = Bell::new();
            let mut leaver = leaver;
            match bell.poll(&mut leaver) {
                Poll::Ready(Err(SentAway::Closed)) => "told",
                Poll::Ready(Err(SentAway::InUse)) => "sent away",
                Poll::Ready(Ok(_)) => "called",
                Poll::Pending => "left",
            }
        });
        let closing = key.spawn(move |key| key.queue.close());
        assert_eq!(
            key.wait(stayer),
            Err(SentAway::Closed),
            "nobody passes a turn to it"
        );
        let left = leaving.join().unwrap();
        seen.note(format!("told, {left}"));
        closing.join().unwrap();
        assert_eq!(key.queue.load().waiting, 0);
        drop(turn);
        key.assert_empty();
    });
}

#[test]
fn a_lock_that_is_handed_over_while_the_queue_is_closed_is_released_once() {
    explore(["lock", "told"], |seen| {
        let key = Key::new();
        let (lock, released) = key.lock(1);
        let seat = key.seat();
        let passing = thread::spawn(move || drop(lock));
        let waiting = key.spawn(move |key| key.wait(seat).unwrap_or("told"));
        key.queue.close();
        passing.join().unwrap();
        seen.note(waiting.join().unwrap());
        key.assert_released(&released);
    });
}
