//! Faults of processes.

use super::super::rolls::Rolls;
use super::super::settings::Shape;
use super::{Kind, Made};
use tower_redlock_simulated::world::Fault;

pub(super) fn processes(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let process = rolls.pick(&shape.places());
    match kind {
        Kind::Pause => {
            made.add(0, Fault::Pause { process });
            made.add(rolls.wide(30, 5_000), Fault::Resume { process });
        }
        Kind::Block => {
            // Often for longer than locks last that nobody renews.
            let least = rolls.pick(&[30, 1_500, 1_500]);
            made.add(0, Fault::Block { process });
            made.add(rolls.wide(least, 5_000), Fault::Unblock { process });
        }
        Kind::Kill => {
            made.add(0, Fault::Kill { process });
            made.add(rolls.wide(5, 3_000), Fault::Start { process });
        }
        Kind::Rollout => {
            // A new version: one process after the other is replaced.
            let gap = rolls.wide(100, 2_000);
            for (index, process) in shape.places().into_iter().enumerate() {
                let after = gap * index as u64;
                made.add(after, Fault::Kill { process });
                made.add(after + rolls.wide(5, 800), Fault::Start { process });
            }
        }
        Kind::Jitter => {
            let jitter = |permille, max_ms| Fault::Jitter {
                process,
                permille,
                max_ms,
            };
            let (permille, max_ms) = (rolls.range(5, 100) as u32, rolls.wide(1, 20));
            made.add(0, jitter(permille, max_ms));
            made.add(rolls.range(500, 4_000), jitter(0, 0));
        }
        _ => {
            let ms = rolls.wide(20, 20_000);
            made.add(0, Fault::Suspend { ms });
        }
    }
}
