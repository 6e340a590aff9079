//! The queue is closed: everyone who waits is told, and nobody is let in after.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use loom::thread;

use crate::queue::{Entered, Refused, SentAway};
use crate::world::{Bell, Key, explore};

fn assert_closed(key: &Key) {
    assert!(matches!(key.enter(true), Err(Refused::Closed)));
    assert!(matches!(key.enter(false), Err(Refused::Closed)));
}

#[test]
fn a_waiter_is_called_or_told_when_the_queue_is_closed_while_a_turn_passes() {
    explore(["called", "told"], |seen| {
        let key = Key::new();
        let turn = key.turn();
        let seat = key.seat();
        let passing = thread::spawn(move || drop(turn));
        let waiting = thread::spawn({
            let key = key.clone();
            move || match key.wait(seat) {
                Ok(_) => "called",
                Err(SentAway::Closed) => "told",
                Err(SentAway::InUse) => "sent away",
            }
        });
        key.queue.close();
        assert_closed(&key);
        passing.join().unwrap();
        seen.note(waiting.join().unwrap());
        assert_closed(&key);
        key.assert_empty();
    });
}

#[test]
fn who_comes_while_the_queue_is_closed_is_let_in_before_or_not_at_all() {
    explore(["free", "called", "told", "refused"], |seen| {
        let key = Key::new();
        let turn = key.turn();
        let passing = thread::spawn(move || drop(turn));
        let coming = thread::spawn({
            let key = key.clone();
            move || match key.enter(true) {
                Ok(Entered::Turn(_)) => "free",
                Ok(Entered::Seat(seat)) => match key.wait(seat) {
                    Ok(_) => "called",
                    Err(SentAway::Closed) => "told",
                    Err(SentAway::InUse) => "sent away",
                },
                Err(Refused::Closed) => "refused",
                Err(other) => panic!("{other:?}"),
            }
        });
        key.queue.close();
        assert_closed(&key);
        passing.join().unwrap();
        seen.note(coming.join().unwrap());
        key.assert_empty();
    });
}

#[test]
fn all_who_wait_are_told() {
    explore(["told, told"], |seen| {
        let key = Key::new();
        let turn = key.turn();
        let (one, two) = (key.seat(), key.seat());
        let waiting = thread::spawn({
            let key = key.clone();
            move || key.wait(one)
        });
        let closing = thread::spawn({
            let key = key.clone();
            move || key.queue.close()
        });
        assert_eq!(key.wait(two), Err(SentAway::Closed));
        assert_eq!(waiting.join().unwrap(), Err(SentAway::Closed));
        seen.note("told, told");
        closing.join().unwrap();
        drop(turn);
        key.assert_empty();
    });
}

#[test]
fn one_may_leave_while_all_are_told() {
    explore(["told, told", "told, left"], |seen| {
        let key = Key::new();
        let turn = key.turn();
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
        let closing = thread::spawn({
            let key = key.clone();
            move || key.queue.close()
        });
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
        let released = Arc::new(AtomicUsize::new(0));
        let lock = key.lock(key.turn(), 1, &released);
        let seat = key.seat();
        let passing = thread::spawn(move || drop(lock));
        let waiting = thread::spawn({
            let key = key.clone();
            move || key.wait(seat).unwrap_or("told")
        });
        key.queue.close();
        passing.join().unwrap();
        seen.note(waiting.join().unwrap());
        assert_eq!(released.load(Ordering::SeqCst), 1);
        key.assert_empty();
    });
}
