//! Runs a case under callgrind, and reads what that wrote.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cases::Case;
use crate::relay::Relay;

/// The first argument of a process that is counted: for a case, or for the cycles of `path`.
pub(crate) const MARK: &str = "counted";
pub(crate) const CYCLES: &str = "cycles";

/// Per cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
}

/// The least that a batch took: what happens beside the cycles, such as a look at the servers each second, only adds.
pub(crate) fn count(case: &Case, relay: &Relay) -> Counts {
    let options = [
        // Names are compared whole, and both options want the same.
        "--collect-atstart=no",
        "--toggle-collect=cost::cases::counted_by_callgrind",
        "--dump-after=cost::cases::counted_by_callgrind",
    ];
    let mut words = vec![MARK, case.name, &relay.gate];
    words.extend(relay.urls.iter().map(String::as_str));
    let file = run(case.name, &options, &words);
    // The first has the allocations from before it, too.
    let batches = (2..=case.batches).map(|n| read(&dump(&file, n), case.cycles));
    let least = batches.reduce(|least, batch| Counts {
        instructions: least.instructions.min(batch.instructions),
        allocations: least.allocations.min(batch.allocations),
    });
    least.unwrap()
}

/// Runs this program with these arguments under callgrind, and returns the path of its dumps without their numbers.
pub(crate) fn run(name: &str, options: &[&str], words: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/callgrind");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join(name);
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .args(["--compress-strings=no", "--compress-pos=no"])
        .args(options)
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe().unwrap())
        .args(words)
        .stdin(Stdio::null())
        .status();
    let status = status.expect("valgrind does not start: install it");
    assert!(status.success(), "{name} failed under valgrind");
    file
}

pub(crate) fn dump(file: &Path, number: usize) -> PathBuf {
    file.with_extension(number.to_string())
}

/// The allocator's functions that give memory.
const ALLOCATORS: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

#[allow(clippy::cast_precision_loss, reason = "some millions")]
fn read(dump: &Path, cycles: usize) -> Counts {
    let text = std::fs::read_to_string(dump).unwrap_or_else(|error| {
        panic!("callgrind wrote no {}: {error}", dump.display());
    });
    let (mut instructions, mut allocations) = (0, 0);
    let mut callee = "";
    for line in text.lines() {
        if let Some(totals) = line.strip_prefix("totals: ") {
            instructions = totals.trim().parse::<u64>().unwrap();
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = name;
        } else if let Some(calls) = line.strip_prefix("calls=")
            && ALLOCATORS.contains(&callee)
        {
            let count = calls.split(' ').next().unwrap();
            allocations += count.parse::<u64>().unwrap();
        }
    }
    assert!(instructions > 0, "{} counts nothing", dump.display());
    let per_cycle = |count: u64| count as f64 / cycles as f64;
    Counts {
        instructions: per_cycle(instructions),
        allocations: per_cycle(allocations),
    }
}
