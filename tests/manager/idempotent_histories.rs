//! Many histories of processes that do a piece of work, crash, lose their lock, and are told what came of it, over a
//! network that delays, loses and re-orders what it likes: all who are told anything are told the same.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::LocalSet;

use super::idempotent::with_record;
use super::*;

const TTL: Duration = Duration::from_millis(100);
const HISTORIES: u64 = 100;

/// How long one leg of a round trip takes; `None`: for ever.
fn leg(dice: &mut Dice, bad: u64) -> Option<Duration> {
    match dice.roll(20) {
        roll if roll < bad => None,
        roll if roll < 3 * bad => Some(dice.span(300)),
        _ => Some(dice.span(6)),
    }
}

/// A node as one process sees it over its network.
#[derive(Clone, Debug)]
struct Remote {
    node: MemoryNode,
    dice: Arc<Mutex<Dice>>,
    // The process has crashed: it sends nothing any more.
    crashed: Arc<AtomicBool>,
}

impl Remote {
    /// What is sent arrives some time or never, whether or not anybody waits for the answer; the worse the more often
    /// not.
    fn send<T: Send + 'static>(&self, bad: u64, command: Reply<T>) -> Reply<T> {
        let (dice, crashed) = (Arc::clone(&self.dice), Arc::clone(&self.crashed));
        Box::pin(async move {
            if crashed.load(Ordering::SeqCst) {
                let error = NodeError::of(NodeErrorKind::Unavailable, "crashed");
                return Err(error);
            }
            let (out, back) = {
                let mut dice = dice.lock().unwrap();
                (leg(&mut dice, bad), leg(&mut dice, bad))
            };
            let lost = || NodeError::of(NodeErrorKind::Interrupted, "lost on the way");
            let out = out.ok_or_else(lost)?;
            let arrival = tokio::spawn(async move {
                sleep(out).await;
                command.await
            });
            let answer = arrival.await.unwrap();
            sleep(back.ok_or_else(lost)?).await;
            answer
        })
    }
}

impl Between for Remote {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        match call {
            Call::Ready | Call::CheckIn | Call::Promote | Call::Close => reply,
            Call::Release => self.send(2, reply),
            Call::Extend => self.send(3, reply),
            Call::Complete => self.send(5, reply),
            _ => self.send(1, reply),
        }
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }
}

/// What came to light in one history.
#[derive(Default)]
struct Seen {
    // What people were told, by its author.
    told: Vec<u64>,
    runs: u64,
    replays: u64,
    unknown: u64,
}

/// One process after another under one name: each asks once, and may crash at any moment.
async fn processes(nodes: Vec<MemoryNode>, mut dice: Dice, name: u64, seen: Rc<RefCell<Seen>>) {
    for life in 0..6 {
        let crashed = Arc::new(AtomicBool::new(false));
        let remote = |(index, node): (usize, &MemoryNode)| Remote {
            node: node.clone(),
            dice: Arc::new(Mutex::new(Dice::new(
                dice.roll(u64::MAX) ^ (index as u64 + 11),
            ))),
            crashed: Arc::clone(&crashed),
        };
        let remotes: Vec<Remote> = nodes.iter().enumerate().map(remote).collect();
        let builder = over(remotes.into_iter().map(Wrapped)).ttl(TTL);
        let locks = lazy(builder.node_timeout(TTL / 4).max_wait(TTL * 4));
        sleep(dice.span(60)).await;
        let lifetime = dice.span(400);
        let _ = timeout(lifetime, work(&locks, &mut dice, name * 10 + life, &seen)).await;
        crashed.store(true, Ordering::SeqCst);
    }
}

async fn work(locks: &LockManager, dice: &mut Dice, author: u64, seen: &RefCell<Seen>) {
    loop {
        let wait = dice.span(120);
        let Ok(begun) = locks.begin_idempotent("work", 3_600 * SECOND, wait).await else {
            sleep(dice.span(20)).await;
            continue;
        };
        match begun {
            IdempotentRun::Replay(body) => {
                let author = u64::from_be_bytes(body[..].try_into().unwrap());
                let mut seen = seen.borrow_mut();
                seen.replays += 1;
                seen.told.push(author);
                return;
            }
            IdempotentRun::Execute(run) => {
                seen.borrow_mut().runs += 1;
                sleep(dice.span(150)).await;
                seen.borrow_mut().unknown += 1;
                if run.complete(author.to_be_bytes().to_vec()).await.is_ok() {
                    let mut seen = seen.borrow_mut();
                    seen.unknown -= 1;
                    seen.told.push(author);
                    return;
                }
            }
            _ => unreachable!("there is nothing else"),
        }
    }
}

fn history(seed: u64) -> Seen {
    let runtime = paused();
    let seen = Rc::new(RefCell::new(Seen::default()));
    LocalSet::new().block_on(&runtime, async {
        let nodes = nodes(5);
        let names = (0..5).map(|name| {
            let (nodes, dice) = (nodes.clone(), Dice::new(seed * 31 + name));
            tokio::task::spawn_local(processes(nodes, dice, name, Rc::clone(&seen)))
        });
        for process in names.collect::<Vec<_>>() {
            process.await.unwrap();
        }
    });
    drop(runtime);
    Rc::into_inner(seen).unwrap().into_inner()
}

#[test]
fn all_who_are_told_are_told_the_same() {
    let (mut runs, mut twice, mut replays, mut unknown, mut done) = (0, 0, 0, 0, 0);
    let mut seed = 0;
    // Pauses are random, so some more may be needed until a third of that number came to something.
    while seed < HISTORIES || done <= HISTORIES / 3 && seed < 2 * HISTORIES {
        let seen = history(seed);
        let first = seen.told.first();
        let told = &seen.told;
        let is_same = told.iter().all(|author| Some(author) == first);
        assert!(is_same, "seed {seed}: {told:?}");
        runs += seen.runs;
        twice += u64::from(seen.runs > 1);
        replays += seen.replays;
        unknown += seen.unknown;
        done += u64::from(first.is_some());
        seed += 1;
    }
    println!(
        "{seed} histories: {done} came to something, {runs} runs, more than one in {twice}, {replays} replays, {unknown} of unknown outcome"
    );
    // Else nothing was tried.
    assert!(done > HISTORIES / 3 && replays > HISTORIES / 2 && unknown > HISTORIES / 10);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_brought_to_all_nodes_that_are_there_before_the_shutdown_ends() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([4], MemoryNode::go_down);
    let run = to_run(locks.begin_idempotent("order", DAY, Duration::ZERO).await);
    nodes.each([4], MemoryNode::come_up);
    let ending = spawn(&locks, |locks| async move { locks.shutdown(TTL).await });
    sleep(MS).await;
    run.complete("done").await.unwrap();
    assert!(ending.await.unwrap().is_all_released());
    assert_eq!(with_record(&nodes).await, 5);
}
