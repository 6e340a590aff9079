//! Idempotent work without HTTP.

use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::idempotency::IdempotentRun;

use super::calls::Here;
use super::history::{Told, What};
use super::scene::Kind;
use crate::plan::OnceEnd;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Does some work, or gets its result.
pub(super) async fn once(here: &Here, key: u32, wait: u64, work: u64, end: OnceEnd) {
    let Here {
        scene,
        process,
        call,
        shop,
    } = here;
    let settings = scene.settings(*process);
    let (name, keep) = (format!("work:{key}"), ms(settings.retention));
    let about = format!("{}/{name}", settings.namespace);
    scene.called(*process, *call, &about, ms(wait.min(settings.max_wait)));
    let begun = shop
        .locks
        .begin_idempotent(name.as_str(), keep, ms(wait))
        .await;
    let saw = |run: u64, addressee: &str, replayed: bool| {
        let told = Told {
            process: *process,
            call: *call,
            run: Some(run),
            addressee: addressee.to_owned(),
            replayed,
        };
        let text = format!("(call {call}) sees the result of run {run}");
        let (work, retention) = (about.clone(), settings.retention);
        scene.tell(
            *process,
            text,
            What::Saw {
                work,
                told,
                retention,
            },
        );
    };
    match begun {
        Ok(IdempotentRun::Execute(guard)) => {
            scene.answered(*process, *call, "it is to be done");
            here.granted(&guard.handle(), Kind::Work);
            let run = scene.run(*process, &about);
            sleep(ms(work)).await;
            let ended = match end {
                OnceEnd::Complete => guard.complete(format!("{run} {about}")).await.is_ok(),
                OnceEnd::Abandon => {
                    let _ = guard.abandon().await;
                    false
                }
                OnceEnd::Drop => false,
            };
            if ended {
                saw(run, &about, false);
            }
        }
        Ok(IdempotentRun::Replay(result)) => {
            scene.answered(*process, *call, "it is done");
            let text = String::from_utf8_lossy(&result);
            let (run, addressee) = text.split_once(' ').unwrap_or(("0", ""));
            saw(run.parse().unwrap_or(0), addressee, true);
        }
        Ok(_) => {}
        Err(error) => scene.answered(*process, *call, error),
    }
}
