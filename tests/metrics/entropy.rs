//! A process whose operating system has no random bytes for owner tokens.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use metrics_util::debugging::DebuggingRecorder;
use tower_redlock::AcquireError;
use tower_redlock::node::OwnerToken;

use super::{Seen, builder, five, preload, recorder};

/// The library that gives no random bytes must be there before the process begins, so this test starts itself again.
#[test]
fn a_system_without_random_bytes_is_counted() {
    const SELF: &str = "entropy::a_system_without_random_bytes_is_counted";
    const AGAIN: &str = "REDLOCK_TEST_WITHOUT_RANDOM_BYTES";
    if env::var_os(AGAIN).is_none() {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let dir = dir.join(format!("no-entropy-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let denied = format!("DENIED={}", OwnerToken::ENTROPY_LEN);
        let source = include_str!("../support/random.c");
        let library = preload::library(&dir, "random", source, &[denied]);
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", SELF]).env(AGAIN, "1");
        let output = again.env("LD_PRELOAD", library).output().unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && told.contains("1 passed"),
            "{told}"
        );
        return;
    }
    recorder!(seen);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let locks = builder(&five()).connect_lazy().unwrap();
        let refused = locks.try_acquire("order:1").await;
        assert!(
            matches!(refused, Err(AcquireError::NoEntropy(_))),
            "{refused:?}"
        );
        let now = seen();
        assert_eq!(now.number("redlock_acquire_total", "no-entropy"), 1.0);
        assert_eq!(
            now.number("redlock_acquire_wait_seconds", "no-entropy"),
            0.0
        );
    });
}
