//! As many wait as may, and no more; who leaves makes room.

use loom::thread;

use crate::queue::{Entered, Refused};
use crate::world::{Key, Seat, explore};

fn try_seat(key: &Key) -> Result<Seat, &'static str> {
    match key.enter(true) {
        Ok(Entered::Seat(seat)) => Ok(seat),
        Ok(Entered::Turn(_)) => panic!("nobody has the key"),
        Err(Refused::KeyFull) => Err("key full"),
        Err(Refused::Full) => Err("full"),
        Err(other) => panic!("{other:?}"),
    }
}

/// Fills the line of `key`, which holds `room`, and empties it.
fn assert_room(key: &Key, room: usize, full: &str) {
    let seats: Vec<Seat> = (0..room).map(|_| try_seat(key).unwrap()).collect();
    assert_eq!(try_seat(key).err(), Some(full));
    assert_eq!(key.queue.load().waiting, room);
    drop(seats);
}

#[test]
fn room_in_all_is_shared_by_the_keys_while_one_leaves_and_one_is_called() {
    explore(["in", "out"], |seen| {
        let key = Key::within(9, 2);
        let other = key.other();
        let (turn, other_turn) = (key.turn(), other.turn());
        let (called, leaver) = (key.seat(), other.seat());
        let leaving = thread::spawn(move || drop(leaver));
        let passing = thread::spawn(move || drop(turn));
        let coming = try_seat(&other);
        assert!(key.queue.load().waiting <= 2);
        passing.join().unwrap();
        leaving.join().unwrap();
        seen.note(if coming.is_ok() { "in" } else { "out" });
        assert_eq!(key.queue.load().waiting, usize::from(coming.is_ok()));
        assert_eq!(key.wait(called), Ok("turn"));
        drop(coming);
        assert_room(&other, 2, "full");
        drop(other_turn);
        key.assert_empty();
    });
}

#[test]
fn leaving_and_being_called_at_once_is_counted_once() {
    explore(["left", "left when called", "turn"], |seen| {
        let key = Key::within(2, 2);
        let turn = key.turn();
        let (leaver, stayer) = (key.seat(), key.seat());
        let passing = thread::spawn(move || drop(turn));
        seen.note(key.look_once(leaver));
        assert!(key.queue.load().waiting <= 1);
        passing.join().unwrap();
        // It has been called, and has not looked: it has the turn, and is not in line.
        let load = key.queue.load();
        assert_eq!((load.keys, load.waiting, load.seats), (1, 0, 1));
        assert_room(&key, 2, "key full");
        drop(stayer);
        key.assert_empty();
    });
}
