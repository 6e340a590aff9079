//! Measuring several candidates in turns, and printing what they took side by side.

use std::pin::Pin;
use std::time::{Duration, Instant};

/// How long each operation of a batch took.
pub(crate) type Samples = Vec<Times>;

/// One cycle: until the lock was there, and until it was given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) acquire: Duration,
    pub(crate) cycle: Duration,
}

/// Takes the times of one cycle, between whose halves [`half`](Self::half) is called.
pub(crate) struct Watch {
    began: Instant,
    acquire: Duration,
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self {
            began: Instant::now(),
            acquire: Duration::ZERO,
        }
    }

    pub(crate) fn half(&mut self) {
        self.acquire = self.began.elapsed();
    }

    pub(crate) fn stop(self) -> Times {
        Times {
            acquire: self.acquire,
            cycle: self.began.elapsed(),
        }
    }
}

/// Runs a batch of so many cycles. One box per batch, so that it does not count.
pub(crate) type Batch = Box<dyn FnMut(usize) -> Pin<Box<dyn Future<Output = Samples>>>>;

/// Something to be measured.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) batch: Batch,
}

/// What was measured of one candidate.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) samples: Samples,
}

/// Warms all candidates up, then runs them in turns, so that noise from outside hits all alike.
pub(crate) async fn in_turns(candidates: &mut [Candidate], turns: usize, size: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = candidates
        .iter()
        .map(|candidate| Row {
            name: candidate.name.to_owned(),
            samples: Vec::with_capacity(turns * size),
        })
        .collect();
    for candidate in candidates.iter_mut() {
        (candidate.batch)(size * 2).await;
    }
    for turn in 0..turns {
        // Who comes first changes, too: it finds the caches as the last one left them.
        let count = candidates.len();
        for index in (0..count).map(|n| (n + turn) % count) {
            rows[index]
                .samples
                .extend((candidates[index].batch)(size).await);
        }
    }
    rows
}

/// A part of the sorted samples: 0.5 is the median.
fn part(mut samples: Vec<Duration>, part: f64) -> Duration {
    samples.sort_unstable();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index of a few thousand samples"
    )]
    let index = ((samples.len() - 1) as f64 * part).round() as usize;
    samples[index]
}

impl Row {
    /// p50 and p99 of what `of` picks, in microseconds.
    pub(crate) fn parts(&self, of: fn(&Times) -> Duration) -> [f64; 2] {
        let samples = || self.samples.iter().map(of).collect();
        [0.5, 0.99].map(|p| micros(part(samples(), p)))
    }

    pub(crate) fn slowest(&self) -> Duration {
        let cycles = self.samples.iter().map(|times| times.cycle);
        cycles.max().unwrap_or_default()
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Prints p50 and p99 of every row, and how they relate to those of the rows in `bases`.
pub(crate) fn print(title: &str, rows: &[Row], bases: &[usize]) {
    println!("\n{title}");
    let mut head = format!("{:30}", "p50 / p99 in µs");
    for half in ["acquire", "acquire+release"] {
        head += &format!(" | {half:>17}");
        for base in bases {
            head += &format!(
                " {:>13}",
                format!("x {}", rows[*base].name.split(' ').next().unwrap_or(""))
            );
        }
    }
    println!("{head}");
    for row in rows {
        let mut line = format!("{:30}", row.name);
        for of in [|times: &Times| times.acquire, |times: &Times| times.cycle] {
            let [p50, p99] = row.parts(of);
            line += &format!(" | {p50:>8.1} {p99:>8.1}");
            for base in bases {
                let [base50, base99] = rows[*base].parts(of);
                line += &format!(" {:>6.2} {:>6.2}", p50 / base50, p99 / base99);
            }
        }
        println!("{line}");
    }
}
