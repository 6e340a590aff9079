//! Idempotent work without HTTP.

use tokio::time::sleep;
use tower_redlock::idempotency::IdempotentRun;

use super::calls::Here;
use super::history::{Told, What};
use super::ms;
use super::scene::Kind;
use crate::plan::{Once, OnceEnd};

/// Does some work, or gets its result.
pub(super) async fn once(here: &Here, asked: &Once) {
    let Here {
        scene,
        process,
        call,
        shop,
    } = here;
    let settings = scene.settings(*process);
    let (name, keep) = (format!("work:{}", asked.key), ms(settings.retention));
    let about = format!("{}/{name}", settings.namespace);
    here.called(&about, asked.wait.min(settings.max_wait));
    let begun = shop
        .locks
        .begin_idempotent(name.as_str(), keep, ms(asked.wait))
        .await;
    let saw = |run: u64, addressee: &str, replayed: bool| {
        let told = Told {
            process: *process,
            call: *call,
            run: Some(run),
            addressee: addressee.to_owned(),
            replayed,
        };
        let saw = What::Saw {
            work: about.clone(),
            told,
            retention: settings.retention,
        };
        here.tell(format_args!("sees the result of run {run}"), saw);
    };
    match begun {
        Ok(IdempotentRun::Execute(guard)) => {
            here.answered("it is to be done");
            here.granted(&guard.handle(), Kind::Work);
            let run = scene.run(*process, &about);
            sleep(ms(asked.work)).await;
            match asked.end {
                OnceEnd::Complete => {
                    if guard.complete(format!("{run} {about}")).await.is_ok() {
                        saw(run, &about, false);
                    }
                }
                OnceEnd::Abandon => {
                    let _ = guard.abandon().await;
                }
                OnceEnd::Drop => {}
            }
        }
        Ok(IdempotentRun::Replay(result)) => {
            here.answered("it is done");
            let text = String::from_utf8_lossy(&result);
            let (run, addressee) = text.split_once(' ').unwrap_or(("0", ""));
            saw(run.parse().unwrap_or(0), addressee, true);
        }
        Ok(_) => {}
        Err(error) => here.answered(error),
    }
}
