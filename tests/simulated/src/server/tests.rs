//! What happens to a server beside the calls of its clients.

use super::{Dialect, Image, Opinion, Output, Position, Sentinel, Server, Sync};

/// The clock at the begin, in microseconds since 1970.
const BEGIN: u64 = 1_763_816_000_000_000;
const ADDRESS: (&str, u16) = ("h", 1);

fn server() -> Server {
    server_of(7)
}

fn server_of(seed: u64) -> Server {
    let mut server = Server::new(Dialect::Redis70, seed, BEGIN);
    server.connect(0);
    server
}

/// The reply to a command line at that many milliseconds after the begin.
fn at(server: &mut Server, millis: u64, line: &str) -> String {
    let outputs = server.receive(0, format!("{line}\r\n").as_bytes(), BEGIN + 1_000 * millis);
    text(&outputs)
}

/// What is sent on the connection 0.
fn text(outputs: &[Output]) -> String {
    let mut sent = Vec::new();
    for output in outputs {
        match output {
            Output::Send(0, bytes) => sent.extend_from_slice(bytes),
            other => panic!("{other:?}"),
        }
    }
    String::from_utf8(sent).unwrap()
}

/// A master, and a replica that has all its changes.
fn couple() -> (Server, Server) {
    let (mut master, mut replica) = (server(), server_of(8));
    assert_eq!(replica.follow(), []);
    at(&mut master, 0, "SET a 1");
    replica.synchronize(master.attach(ADDRESS.0, ADDRESS.1, Some(&replica.position())));
    (master, replica)
}

/// The replica gets what it lacks. Returns what the master sends to those who waited for that.
fn catch_up(master: &mut Server, replica: &mut Server) -> String {
    let Position { offset, .. } = replica.position();
    for logged in master.changes_after(offset).unwrap() {
        replica.apply(&logged, BEGIN);
    }
    let Position { offset, .. } = replica.position();
    text(&master.acknowledge(ADDRESS.0, ADDRESS.1, offset, BEGIN))
}

#[test]
fn a_restart_is_another_process_with_the_data_it_is_given() {
    let mut server = server();
    at(&mut server, 0, "SET a 1");
    at(&mut server, 5, "SET b 2 PX 100");
    at(&mut server, 10, "HSET c f v");
    let hash = at(&mut server, 10, "SCRIPT LOAD return(1)");
    let hash = hash.lines().nth(1).unwrap().to_owned();
    server.trouble().out_of_memory = true;
    let (image, run_id) = (server.image(), server.run_id().to_owned());
    let old = server.image_before(BEGIN + 7_000);
    let part = image.clone().without(|key| key == b"c");
    let keys = |image: Option<Image>, server: &mut Server| {
        server.restart(image, BEGIN + 20_000);
        assert_ne!(server.run_id(), run_id);
        let keys = server.keys(BEGIN + 20_000);
        keys.into_iter()
            .map(|(key, _)| String::from_utf8(key).unwrap())
            .collect::<Vec<_>>()
            .concat()
    };
    assert_eq!(keys(Some(old), &mut server), "ab");
    assert_eq!(keys(Some(part), &mut server), "ab");
    assert_eq!(keys(None, &mut server), "");
    assert_eq!(keys(Some(image), &mut server), "abc");
    assert_eq!(at(&mut server, 20, "GET a"), "", "the connection has ended");
    server.connect(0);
    assert_eq!(server.field(b"c", b"f", BEGIN), Some(&b"v"[..]));
    assert_eq!(server.text(b"b", BEGIN + 105_000), Some(&b"2"[..]));
    assert_eq!(
        server.text(b"b", BEGIN + 106_000),
        None,
        "it lives for as long as before"
    );
    assert!(at(&mut server, 20, &format!("EVALSHA {hash} 0")).starts_with("-NOSCRIPT"));
    assert_eq!(
        at(&mut server, 20, "SET d 1"),
        "+OK\r\n",
        "it has memory again"
    );
}

#[test]
fn it_evicts_what_its_policy_lets_it_and_counts_that() {
    let mut server = server();
    for key in ["a", "b", "c"] {
        at(&mut server, 0, &format!("SET {key} 1"));
    }
    at(&mut server, 0, "PEXPIRE b 1000");
    assert_eq!(server.evict(2, BEGIN), 0);
    server.set_policy("volatile-lru");
    assert_eq!(server.evict(2, BEGIN), 1);
    assert_eq!(server.text(b"b", BEGIN), None);
    server.set_policy("allkeys-random");
    assert_eq!(server.evict(1, BEGIN), 1);
    assert_eq!(server.keys(BEGIN).len(), 1);
    assert!(at(&mut server, 0, "INFO stats").contains("evicted_keys:2\r\n"));
    server.remove_all(BEGIN);
    assert_eq!(server.keys(BEGIN), []);
}

#[test]
fn a_wait_is_answered_when_replicas_have_what_was_written_before() {
    let (mut master, mut replica) = couple();
    assert_eq!(at(&mut master, 0, "SET a 2"), "+OK\r\n");
    assert_eq!(at(&mut master, 0, "WAIT 1 100"), "");
    assert_eq!(at(&mut master, 0, "GET a"), "", "it waits behind the other");
    assert_eq!(master.next_due(), Some(BEGIN + 101_000));
    assert_eq!(text(&master.tick(BEGIN + 100_000)), "");
    assert_eq!(catch_up(&mut master, &mut replica), ":1\r\n$1\r\n2\r\n");
    assert_eq!(master.next_due(), None);
    assert_eq!(at(&mut master, 0, "WAIT 1 100"), ":1\r\n", "nothing is new");
    at(&mut master, 0, "SET a 3");
    assert_eq!(at(&mut master, 0, "WAIT 1 100"), "");
    assert_eq!(text(&master.tick(BEGIN + 101_000)), ":0\r\n");
    at(&mut master, 0, "WAIT 1 0");
    assert_eq!(master.next_due(), None, "for ever");
    let outputs = master.follow();
    let [Output::Send(0, told), Output::Close(0)] = outputs.as_slice() else {
        panic!("{outputs:?}");
    };
    assert!(told.starts_with(b"-UNBLOCKED "));
}

#[test]
fn a_master_tells_of_its_replica_until_that_is_gone() {
    let (mut master, _) = couple();
    assert!(at(&mut master, 0, "INFO").contains("slave0:ip=h,port=1,state=online,"));
    master.detach(ADDRESS.0, ADDRESS.1);
    assert!(!at(&mut master, 0, "INFO").contains("slave0:"));
}

#[test]
fn a_message_reaches_the_listeners_of_replicas() {
    let (mut master, mut replica) = couple();
    at(&mut replica, 0, "HELLO 3");
    at(&mut replica, 0, "SUBSCRIBE c");
    at(&mut master, 0, "PUBLISH c x");
    let changes = master.changes_after(replica.position().offset).unwrap();
    let told = text(&replica.apply(&changes[0], BEGIN));
    assert_eq!(told, ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    assert_eq!(replica.apply(&changes[0], BEGIN), [], "it has it already");
}

#[test]
fn who_was_promoted_tells_since_when() {
    let (mut master, mut replica) = couple();
    catch_up(&mut master, &mut replica);
    let before = replica.position();
    assert_eq!(before, master.position());
    replica.promote();
    let info = at(&mut replica, 0, "INFO replication");
    let (former, since) = (&before.id, before.offset + 1);
    let told = [
        format!("master_replid2:{former}\r\n"),
        format!("second_repl_offset:{since}\r\n"),
    ];
    assert!(told.iter().all(|line| info.contains(line)), "{info}");
    assert_ne!(replica.position().id, before.id);
}

#[test]
fn a_former_master_gets_the_rest_of_the_changes_or_all_data() {
    let (mut old, mut new) = couple();
    catch_up(&mut old, &mut new);
    new.promote();
    at(&mut new, 0, "SET b 2");
    old.follow();
    let sync = new.attach("o", 6379, Some(&old.position()));
    assert!(matches!(sync, Sync::Continue { .. }), "{sync:?}");
    old.synchronize(sync);
    for logged in new.changes_after(old.position().offset).unwrap() {
        old.apply(&logged, BEGIN);
    }
    assert_eq!(old.position(), new.position());
    assert_eq!(old.text(b"b", BEGIN), Some(&b"2"[..]));
    // What it has written by itself, nobody else has.
    let (mut old, mut new) = couple();
    catch_up(&mut old, &mut new);
    at(&mut old, 0, "SET lost 1");
    new.promote();
    old.follow();
    let sync = new.attach("o", 6379, Some(&old.position()));
    assert!(matches!(sync, Sync::Full { .. }), "{sync:?}");
    old.synchronize(sync);
    assert_eq!(old.text(b"lost", BEGIN), None);
    assert_eq!(old.text(b"a", BEGIN), Some(&b"1"[..]));
}

#[test]
fn a_sentinel_says_what_it_was_told() {
    let mut sentinel = Sentinel::new(3);
    sentinel.connect(0);
    let ask = |sentinel: &mut Sentinel, line: &str| {
        text(&sentinel.receive(0, format!("{line}\r\n").as_bytes()))
    };
    let address = "SENTINEL get-master-addr-by-name m";
    assert_eq!(ask(&mut sentinel, address), "*-1\r\n");
    assert!(ask(&mut sentinel, "SENTINEL MASTER m").starts_with("-ERR No such master"));
    let (host, port, epoch) = ("h".to_owned(), 7, 9);
    sentinel.set("m", Some(Opinion { host, port, epoch }));
    let told = "*2\r\n$1\r\nh\r\n$1\r\n7\r\n";
    assert_eq!(ask(&mut sentinel, address), told);
    let fields = ask(&mut sentinel, "SENTINEL MASTER m");
    let told = "$12\r\nconfig-epoch\r\n$1\r\n9\r\n";
    assert!(fields.contains(told), "{fields}");
    assert_eq!(ask(&mut sentinel, "SENTINEL MYID").len(), 47);
    sentinel.set("m", None);
    assert_eq!(ask(&mut sentinel, address), "*-1\r\n");
    sentinel.disconnect(0);
    assert_eq!(sentinel.receive(0, b"PING\r\n"), []);
}
