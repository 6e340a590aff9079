//! Tasks of the runtime: the one place that spawns them, so that a simulation knows to which process each belongs.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

#[cfg(feature = "redis")]
#[track_caller]
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_on(&Handle::current(), task)
}

#[track_caller]
pub(crate) fn spawn_on(
    runtime: &Handle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    #[cfg(tower_redlock_simulation)]
    if let Some(world) = crate::simulation::world() {
        return runtime.spawn(world.wrap(Box::pin(task)));
    }
    runtime.spawn(task)
}
