//! Measuring several candidates in turns, and printing what they took side by side.

use std::pin::Pin;
use std::time::{Duration, Instant};

/// How long each operation of a batch took.
pub(crate) type Samples = Vec<Times>;

/// One cycle: until the lock was there, and until it was given back; or a request, and its repeat.
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

/// Samples in their order.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        Self(samples)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A part of the samples: 0.5 is the median, 1.0 the maximum. No number, if there are none.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "an index of a few thousand samples"
    )]
    pub(crate) fn part(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * part).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }
}

/// A ratio of two counts.
#[allow(clippy::cast_precision_loss, reason = "some millions")]
pub(crate) fn ratio(this: u64, of: u64) -> f64 {
    this as f64 / of as f64
}

/// How long to measure what is measured for a time: `REDLOCK_BENCH_SECONDS`, or `default`.
pub(crate) fn seconds(default: u64) -> Duration {
    let wish = std::env::var("REDLOCK_BENCH_SECONDS").ok();
    Duration::from_secs(wish.map_or(default, |wish| wish.parse().unwrap()))
}

impl Row {
    /// p50 and p99 of what `of` picks, in microseconds.
    pub(crate) fn parts(&self, of: fn(&Times) -> Duration) -> [f64; 2] {
        let spread = Spread::of(self.samples.iter().map(|times| micros(of(times))).collect());
        [0.5, 0.99].map(|part| spread.part(part))
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
    print_halves(title, ["acquire", "acquire+release"], rows, bases);
}

/// The same under other names.
pub(crate) fn print_halves(title: &str, names: [&str; 2], rows: &[Row], bases: &[usize]) {
    println!("\n{title}");
    let mut head = format!("{:30}", "p50 / p99 in µs");
    for half in names {
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
