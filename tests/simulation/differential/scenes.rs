//! What random calls do not do: handshakes, channels, commands that wait, several commands at once, words that are no
//! commands, a server that cannot save. Played on both servers.

use super::BEGIN;
use super::plain::Plain;
use super::wire::{Event, Real, Simulated, Wire, packed};
use super::words::texts;
use crate::support::PATIENCE;
use crate::support::server::Kind;

/// What came on one connection, in order.
type Heard = Vec<Option<Plain>>;

/// Plays a scene on two connections to both sides, which must hear the same.
fn play(scene: impl Fn(&mut dyn Wire) -> Heard) {
    play_after(|_, _| {}, scene);
}

/// The same, after something was done to the servers.
fn play_after(prepare: impl Fn(&mut Real, &mut Simulated), scene: impl Fn(&mut dyn Wire) -> Heard) {
    for kind in Kind::ALL {
        let mut real = Real::start(kind, BEGIN);
        let dialect = real.dialect;
        let mut simulated = Simulated::start(dialect, BEGIN);
        for connection in 0..2 {
            real.open(connection);
            simulated.open(connection);
        }
        prepare(&mut real, &mut simulated);
        let (simulated, real) = (scene(&mut simulated), scene(&mut real));
        assert_eq!(simulated, real, "{dialect:?}: simulated, then real");
    }
}

fn words_of(line: &str) -> Vec<Vec<u8>> {
    texts(&line.split(' ').collect::<Vec<_>>())
}

fn send(wire: &mut dyn Wire, connection: usize, line: &str) {
    wire.write(connection, &packed(&words_of(line)));
}

fn hear(wire: &mut dyn Wire, connection: usize, asked: &str) -> Option<Plain> {
    let reply = wire.read(connection)?;
    Some(reply.compared(&words_of(asked)))
}

/// So many messages.
fn messages(wire: &mut dyn Wire, connection: usize, count: usize) -> Heard {
    (0..count).map(|_| hear(wire, connection, "")).collect()
}

/// Makes calls one after the other, each of which has one reply.
fn calls(wire: &mut dyn Wire, connection: usize, lines: &[&str]) -> Heard {
    let call = |line: &&str| {
        send(wire, connection, line);
        hear(wire, connection, line)
    };
    lines.iter().map(call).collect()
}

#[test]
fn channels_of_slots() {
    play(|wire| {
        calls(wire, 1, &["HELLO 3"]);
        send(wire, 1, "SSUBSCRIBE {a}one {a}two");
        let mut heard = calls(wire, 0, &["SPUBLISH {a}one x", "SPUBLISH {a}other x"]);
        let is_known = heard[0] == Some(Plain::Int(1));
        heard.extend(messages(wire, 1, if is_known { 3 } else { 1 }));
        let lines = ["CLUSTER NODES", "SPUBLISH a", "SSUBSCRIBE"];
        heard.extend(calls(wire, 0, &lines));
        let lines = ["SUNSUBSCRIBE {a}two", "SUNSUBSCRIBE", "SUNSUBSCRIBE"];
        heard.extend(calls(wire, 1, &lines));
        heard
    });
}

#[test]
fn handshakes() {
    let lines = [
        "HELLO",
        "HELLO 2",
        "GET nosuch",
        "HSET h f v",
        "HGETALL h",
        "INFO cluster",
        "CLUSTER NODES",
        "HELLO 3",
        "GET nosuch",
        "HGETALL h",
        "HGETALL nosuch",
        "INFO cluster",
        "CLUSTER NODES",
        "HELLO 4",
        "HELLO 1",
        "HELLO x",
        "HELLO 3 NOSUCH",
        "CLIENT SETNAME me",
        "HELLO 2",
        "HGETALL nosuch",
    ];
    play(|wire| calls(wire, 0, &lines));
}

#[test]
fn subscriptions_in_the_older_protocol() {
    play(|wire| {
        send(wire, 0, "SUBSCRIBE a b a");
        let mut heard = messages(wire, 0, 3);
        let lines = ["GET x", "PING", "EVAL x 0", "HELLO 3"];
        heard.extend(calls(wire, 0, &lines));
        for line in ["PUBLISH a one", "PUBLISH b two", "PUBLISH c three"] {
            heard.extend(calls(wire, 1, &[line]));
        }
        heard.extend(messages(wire, 0, 2));
        send(wire, 0, "UNSUBSCRIBE b a");
        heard.extend(messages(wire, 0, 2));
        heard.extend(calls(wire, 0, &["UNSUBSCRIBE", "UNSUBSCRIBE a", "GET x"]));
        heard
    });
}

#[test]
fn messages_to_oneself() {
    play(|wire| {
        let mut heard = calls(wire, 0, &["HELLO 3", "SUBSCRIBE a", "GET x"]);
        send(wire, 0, "PUBLISH a one");
        heard.extend(messages(wire, 0, 2));
        let script =
            "EVAL return{redis.call('PUBLISH','a','two'),redis.call('PUBLISH','a','three')} 0";
        send(wire, 0, script);
        heard.extend(messages(wire, 0, 3));
        heard.extend(calls(wire, 0, &["UNSUBSCRIBE a", "UNSUBSCRIBE"]));
        heard
    });
}

#[test]
fn commands_at_once_and_in_pieces() {
    play(|wire| {
        let lines = [
            "SET a 1",
            "GET a",
            "PEXPIRE a 100",
            "NOSUCH",
            "PTTL a",
            "PING",
        ];
        let all = lines.map(|line| packed(&words_of(line))).concat();
        let (first, rest) = all.split_at(all.len() / 2);
        wire.write(0, first);
        wire.write(0, rest);
        let mut heard: Heard = lines.iter().map(|line| hear(wire, 0, line)).collect();
        wire.write(0, b"PING\r\n\r\nGET  a\r\n*0\r\n*-1\r\nECHO x\n");
        heard.extend(messages(wire, 0, 3));
        heard
    });
}

#[test]
fn what_is_no_command_ends_the_connection() {
    for bytes in [
        &b"*1\r\n+PING\r\n"[..],
        b"*x\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*9999999999\r\n",
        b"*2\r\n$1\r\na\r\n:1\r\n",
    ] {
        play(|wire| {
            wire.write(0, bytes);
            messages(wire, 0, 2)
        });
    }
}

#[test]
fn waiting_for_replicas_that_are_not_there() {
    let lines = [
        "WAIT 0 0",
        "WAIT 0 5",
        "WAIT -1 5",
        "WAIT x 5",
        "WAIT 1 x",
        "WAIT 1 -1",
        "WAIT 1",
        "SET a 1",
        "WAIT 0 1",
    ];
    play(|wire| {
        let mut heard = calls(wire, 0, &lines);
        // What is behind it waits, too; others do not.
        for line in ["SET a 2", "WAIT 1 100", "SET a 3", "WAIT 2 50"] {
            send(wire, 0, line);
        }
        heard.push(hear(wire, 0, ""));
        heard.extend(calls(wire, 1, &["GET a"]));
        wire.do_event(Event::Clock(BEGIN + 99_000));
        heard.extend(calls(wire, 1, &["GET a"]));
        wire.do_event(Event::Clock(BEGIN + 102_000));
        heard.extend(messages(wire, 0, 2));
        heard.extend(calls(wire, 1, &["GET a"]));
        wire.do_event(Event::Clock(BEGIN + 202_000));
        heard.push(hear(wire, 0, ""));
        heard
    });
}

#[test]
fn a_server_that_cannot_save() {
    let lines = [
        "SET a 1",
        "DEL a",
        "GET a",
        "PING",
        "PUBLISH a b",
        "PEXPIRE a 100",
        "FLUSHALL",
        "ECHO x",
        "TIME 1",
        "EVAL return{redis.call('GET','a')} 0",
        "EVAL return{redis.call('SET','a','2')} 0",
        "EVAL return{redis.pcall('DEL','a')} 0",
        "EVAL return{redis.pcall('PUBLISH','a','b')} 0",
        "WAIT 0 0",
        "SCRIPT LOAD x=1",
    ];
    let prepare = |real: &mut Real, simulated: &mut Simulated| {
        simulated.server.trouble().cannot_save = true;
        // It cannot write into a directory that is not there any more.
        let mut raw = real.server.raw();
        let mut run = |words: &[&str]| raw.command(words).unwrap();
        run(&["CONFIG", "SET", "save", "3600 1000000"]);
        std::fs::remove_dir_all(real.server.dir()).unwrap();
        let begin = std::time::Instant::now();
        while !run(&["INFO", "persistence"]).contains("last_bgsave_status:err") {
            run(&["BGSAVE"]);
            assert!(begin.elapsed() < PATIENCE, "it can save");
        }
    };
    play_after(prepare, |wire| calls(wire, 0, &lines));
}
