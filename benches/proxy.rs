//! A network of some length: proxies that deliver everything they are sent, in order, a fixed time later.
//!
//! One thread reads and stamps every segment with the time at which it is due, another delivers them. All delays
//! are equal, so the segments of all connections are due in the order in which they came: one queue holds any
//! number of them in flight, none waits for another, and the delivering thread sleeps until the next is due,
//! which is far finer than a timer of tokio. What waking up takes is measured at the start, and taken off.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::clock;
use crate::measure::Spread;

/// Proxies in front of servers. They end with this value.
pub(crate) struct Proxies {
    ports: Vec<u16>,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// What one connection sent; nothing at its end.
struct Segment {
    due: u64,
    to: Arc<TcpStream>,
    bytes: Vec<u8>,
}

impl Proxies {
    /// One proxy for every port of this machine in `targets`, with `delay` in each direction.
    pub(crate) fn start(targets: &[u16], delay: Duration) -> Self {
        let listeners: Vec<_> = targets
            .iter()
            .map(|target| (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), *target))
            .collect();
        let ports = listeners
            .iter()
            .map(|(listener, _)| listener.local_addr().unwrap().port())
            .collect();
        let hold = Arc::new(AtomicU64::new(clock::nanos(delay)));
        let held = Arc::clone(&hold);
        let (stop, stopped) = oneshot::channel();
        let (segments, queue) = mpsc::channel();
        let read = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                for (listener, target) in listeners {
                    tokio::spawn(listen(
                        listener,
                        target,
                        Arc::clone(&held),
                        segments.clone(),
                    ));
                }
                // Fails when the value is dropped, which is what is waited for.
                let _ = stopped.await;
            });
        });
        let write = thread::spawn(move || deliver(&queue));
        let proxies = Self {
            ports,
            stop: Some(stop),
            threads: vec![read, write],
        };
        let trip = |ports: &[u16]| {
            let median = ping(ports, 100, Duration::from_millis(1)).part(0.5);
            clock::nanos(Duration::from_secs_f64(median / 1e3))
        };
        let late = trip(&proxies.ports).saturating_sub(trip(targets) + 2 * clock::nanos(delay));
        hold.fetch_sub((late / 2).min(clock::nanos(delay) / 2), Ordering::Relaxed);
        proxies
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let ports = self.ports.iter();
        ports
            .map(|port| format!("redis://127.0.0.1:{port}"))
            .collect()
    }

    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A panic there was printed.
            let _ = thread.join();
        }
    }
}

async fn listen(
    listener: std::net::TcpListener,
    target: u16,
    hold: Arc<AtomicU64>,
    segments: Sender<Segment>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    while let Ok((client, _)) = listener.accept().await {
        let client = client.into_std().unwrap();
        let server = TcpStream::connect(("127.0.0.1", target)).unwrap();
        server.set_nonblocking(true).unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.set_nodelay(true).unwrap();
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            tokio::spawn(stamp(
                from,
                Arc::new(to),
                Arc::clone(&hold),
                segments.clone(),
            ));
        }
    }
}

/// Reads what one side sends as soon as it is there.
async fn stamp(
    from: TcpStream,
    to: Arc<TcpStream>,
    hold: Arc<AtomicU64>,
    segments: Sender<Segment>,
) {
    let mut from = tokio::net::TcpStream::from_std(from).unwrap();
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        let segment = Segment {
            due: clock::now() + hold.load(Ordering::Relaxed),
            to: Arc::clone(&to),
            bytes: buffer[..count].to_vec(),
        };
        if segments.send(segment).is_err() || count == 0 {
            return;
        }
    }
}

fn deliver(queue: &Receiver<Segment>) {
    clock::sharpen();
    while let Ok(Segment { due, to, bytes }) = queue.recv() {
        clock::sleep_until(due);
        if bytes.is_empty() || !send(&to, &bytes) {
            // The other side may have closed it, too.
            let _ = to.shutdown(Shutdown::Write);
        }
    }
}

/// Whether all was taken. A full buffer means that the receiver stands still: waiting a little for it is right.
fn send(mut to: &TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(_) => return false,
        }
    }
    true
}

/// How long a PING takes on connections to `ports`, in milliseconds: `count` in all, by turns, `pause` apart.
pub(crate) fn ping(ports: &[u16], count: usize, pause: Duration) -> Spread {
    let connect = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).unwrap();
    let mut nodes: Vec<_> = ports.iter().map(connect).collect();
    let mut samples = Vec::with_capacity(count);
    for turn in 0..=count {
        let index = turn % nodes.len();
        let node = &mut nodes[index];
        node.set_nodelay(true).unwrap();
        thread::sleep(pause);
        let sent = clock::now();
        node.write_all(b"PING\r\n").unwrap();
        node.read_exact(&mut [0; 7]).unwrap();
        // The first one warms up.
        if turn > 0 {
            samples.push(clock::millis(sent, clock::now()));
        }
    }
    Spread::of(samples)
}
