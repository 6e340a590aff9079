//! The measurements of all libraries as a file, with a picture of the latencies beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fleet::{BARE, OURS};
use crate::held::{Held, Keys};
use crate::scenes::{Mixed, Scene};

/// What there is to be written.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) scenes: Vec<Scene>,
    pub(crate) mixed: Vec<Mixed>,
    pub(crate) held: Option<Held>,
    pub(crate) keys: Vec<Keys>,
}

const FILE: &str = "benches/peers/RESULTS.md";
/// Beside it.
const PICTURE: &str = "latencies.svg";
/// Has the most telling of it, between two marks.
const SUMMARY: (&str, [&str; 2]) = ("BENCHMARKS.md", ["<!-- by `table` -->\n", "<!-- -->\n"]);
/// The scenes of the summary.
const TELLING: [&str; 9] = [
    "uncontended, 1 task, 1 node",
    "uncontended, 16 tasks, 1 node",
    "one key, 4 processes x 16 tasks, sections of 1 ms, 1 node",
    "uncontended, 1 task, 5 nodes",
    "uncontended, 16 tasks, 5 nodes",
    "one key, 4 processes x 16 tasks, sections of 1 ms, 5 nodes",
    "one of 5 nodes frozen",
    "two of 5 nodes down",
    "uncontended, 1 task, 5 nodes 0.5 ms away each way",
];

/// The libraries of the summary.
const LEADING: [&str; 7] = [
    BARE,
    "rslock",
    "redsync",
    "node-redlock",
    "rueidislock",
    "redisson-rlock",
    "redisson-redlock",
];

/// Writes the table, its summary, and the picture.
pub(crate) fn write(measured: &Measured) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (page, [begin, end]) = SUMMARY;
    let text = fs::read_to_string(root.join(page)).unwrap();
    let (before, rest) = text.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let summary = summary(&measured.scenes);
    let text = format!("{before}{begin}{summary}{end}{after}");
    fs::write(root.join(page), text).unwrap();
    let file = root.join(FILE);
    let head =
        "# Beside other libraries\n\n`cargo bench --all-features -- table` writes this file.";
    fs::write(&file, format!("{head}\n\n{}", section(measured))).unwrap();
    fs::write(file.with_file_name(PICTURE), picture(&measured.scenes)).unwrap();
    println!("\nwritten: {FILE}, {PICTURE}, {page}");
}

/// A row for each scene, a column for each library: the rate as a multiple of ours.
fn summary(scenes: &[Scene]) -> String {
    let mut text = format!(
        "| scene | {} |\n|{}\n",
        LEADING.join(" | "),
        "---|".repeat(1 + LEADING.len())
    );
    for scene in TELLING {
        let scene = scenes.iter().find(|it| it.name == scene).unwrap();
        let rate = |name: &str| {
            let row = scene.rows.iter().find(|row| row.library == name)?;
            Some(row.rate)
        };
        let ours = rate(OURS).unwrap();
        let cells = LEADING.map(|name| match rate(name) {
            Some(rate) => format!("{:.2}", rate / ours),
            None => "–".to_owned(),
        });
        let _ = writeln!(text, "| {} | {} |", scene.name, cells.join(" | "));
    }
    text
}

fn section(measured: &Measured) -> String {
    let mut text = machine();
    text += "\n`p50` and `p99`: the time until the lock is there, in µs; `x ours`: the rate as a multiple of ours; \
             `least share`: of the process with the fewest locks, as a part of an even share; `commands` and `bytes`: \
             what the servers run, receive and send for each lock.\n";
    for scene in &measured.scenes {
        let _ = write!(
            text,
            "\n**{}**\n\n| library | p50 | p99 | locks/s | x ours | ",
            scene.name
        );
        text +=
            "least share | commands | bytes | failures |\n|---|---|---|---|---|---|---|---|---|\n";
        let ours = scene
            .rows
            .iter()
            .find(|row| row.library.starts_with(OURS))
            .map(|row| row.rate);
        for row in &scene.rows {
            let times = ours.map_or(f64::NAN, |ours| row.rate / ours);
            let of = |value: f64, digits: usize| match value.is_finite() {
                true => format!("{value:.digits$}"),
                false => "–".to_owned(),
            };
            let cells = [
                row.library.clone(),
                of(row.acquire.part(0.5), 0),
                of(row.acquire.part(0.99), 0),
                of(row.rate, 0),
                of(times, 2),
                of(row.least, 2),
                of(row.commands, 1),
                of(row.bytes, 0),
                row.failures.to_string(),
            ];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    let _ = write!(text, "\n![The latencies of uncontended locks]({PICTURE})\n");
    text += &beside(&measured.mixed);
    if let Some(held) = &measured.held {
        let _ = write!(
            text,
            "\n**10,000 held locks, ttl 10 s, 5 nodes:** {:.1} % of a core, and {:.1} % over all servers; for each lock in a \
             ttl {:.2} commands and {:.0} bytes on all nodes.\n",
            held.ours, held.servers, held.commands, held.bytes
        );
    }
    text += &keys(&measured.keys);
    text
}

fn beside(mixed: &[Mixed]) -> String {
    let mut text = String::from(
        "\n**One key, two processes x 4 tasks, sections of 1 ms, 5 nodes**: sections a second, and the longest time without \
         one in ms\n\n| one | rate | gap | the other | rate | gap |\n|---|---|---|---|---|---|\n",
    );
    for Mixed {
        ours,
        theirs,
        shares,
    } in mixed
    {
        let [(a, b), (c, d)] = shares;
        let _ = writeln!(
            text,
            "| {ours} | {a:.0} | {b:.0} | {theirs} | {c:.0} | {d:.0} |"
        );
    }
    text
}

fn keys(keys: &[Keys]) -> String {
    let mut text = String::from(
        "\n**Bytes of memory for each key on each node**\n\n| keys | fencing tokens | held | released |\n|---|---|---|---|\n",
    );
    for Keys {
        keys,
        fencing,
        held,
        left,
    } in keys
    {
        let with = if *fencing { "yes" } else { "no" };
        let _ = writeln!(text, "| {keys} | {with} | {held:.0} | {left:.0} |");
    }
    text
}

/// When and where, and with which versions.
fn machine() -> String {
    let said = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output();
        let output = output
            .map(|output| [output.stdout, output.stderr].concat())
            .unwrap_or_default();
        String::from_utf8_lossy(&output)
            .lines()
            .next()
            .unwrap_or("absent")
            .trim()
            .to_owned()
    };
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let processor = processor.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let server = crate::support::server::Kind::Redis.binary();
    format!(
        "Measured on {}, on {cores} cores ({processor}) that ran the clients and all servers, at a load of {} before. \
         Redis: {}. Compilers and runtimes: {}; {}; node {}; {}; {}. Libraries: rslock {}, redlock {}, \
         node-redlock {}, \
         redsync {}, rueidislock {}, pottery {}, redlock-py {}, Redisson {}.\n",
        said("date", &["-u", "+%Y-%m-%d"]),
        fs::read_to_string("/proc/loadavg")
            .unwrap_or_default()
            .split(' ')
            .next()
            .unwrap_or("?"),
        said(&server.to_string_lossy(), &["--version"])
            .split(' ')
            .find(|word| word.starts_with("v="))
            .unwrap_or("?"),
        said("rustc", &["--version"]),
        said("go", &["version"]),
        said("node", &["--version"]),
        said("python3", &["--version"]),
        said("java", &["-version"]),
        pinned("Cargo.lock", "name = \"rslock\"\nversion = \""),
        pinned("Cargo.lock", "name = \"redlock\"\nversion = \""),
        pinned("benches/peers/node/package.json", "\"redlock\": \""),
        pinned("benches/peers/go/go.mod", "redsync/v4 "),
        pinned("benches/peers/go/go.mod", "rueidis "),
        pinned("benches/peers/python/requirements.txt", "pottery=="),
        pinned("benches/peers/python/requirements.txt", "redlock-py=="),
        pinned(
            "benches/peers/java/pom.xml",
            "<artifactId>redisson</artifactId>\n      <version>"
        ),
    )
}

/// What follows `mark` in a `file` that pins versions.
fn pinned(file: &str, mark: &str) -> String {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
    let rest = text.split_once(mark).map_or("?", |(_, rest)| rest);
    rest.split(['"', '\n', '<', ' '])
        .next()
        .unwrap_or("?")
        .to_owned()
}

const LEFT: f64 = 180.0;
const WIDTH: f64 = 620.0;
const LINE: f64 = 24.0;

/// A strip for each library in each scene without contention: from the 1st to the 99th percentile, the middle half as a
/// box, the median as a line, over a logarithmic axis.
fn picture(scenes: &[Scene]) -> String {
    let mut body = String::new();
    let mut y = 20.0;
    for scene in scenes
        .iter()
        .filter(|scene| scene.name.starts_with("uncontended"))
    {
        let _ = writeln!(
            body,
            "<text x=\"8\" y=\"{y}\" font-weight=\"bold\">{}</text>",
            scene.name
        );
        for row in &scene.rows {
            y += LINE;
            strip(
                &mut body,
                &row.library,
                &[0.01, 0.25, 0.5, 0.75, 0.99].map(|part| row.acquire.part(part)),
                y,
            );
        }
        y += LINE;
        axis(&mut body, y);
        y += 2.0 * LINE;
    }
    let width = LEFT + WIDTH + 40.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {y}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{y}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn strip(body: &mut String, name: &str, parts: &[f64; 5], y: f64) {
    let color = if name.starts_with(OURS) {
        "#b5451b"
    } else {
        "#33658a"
    };
    let _ = writeln!(
        body,
        "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{name}</text>",
        LEFT - 8.0
    );
    if parts.iter().any(|part| part.is_nan()) {
        let _ = writeln!(body, "<text x=\"{LEFT}\" y=\"{y}\">no lock</text>");
        return;
    }
    let [low, quarter, median, three, high] = parts.map(place);
    let middle = y - 4.0;
    let _ = writeln!(
        body,
        "<path d=\"M{low:.1} {middle}H{high:.1}\" stroke=\"{color}\"/>\
         <rect x=\"{quarter:.1}\" y=\"{}\" width=\"{:.1}\" height=\"10\" fill=\"{color}\" fill-opacity=\"0.4\"/>\
         <path d=\"M{median:.1} {}v14\" stroke=\"{color}\" stroke-width=\"2\"/>",
        middle - 5.0,
        (three - quarter).max(1.0),
        middle - 7.0
    );
}

/// From 100 µs to 1 s.
fn axis(body: &mut String, y: f64) {
    for (micros, name) in [
        (1e2, "100 µs"),
        (1e3, "1 ms"),
        (1e4, "10 ms"),
        (1e5, "100 ms"),
        (1e6, "1 s"),
    ] {
        let x = place(micros);
        let _ = writeln!(body, "<path d=\"M{x:.1} {}v5\" stroke=\"#555\"/>", y - 12.0);
        let _ = writeln!(
            body,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">{name}</text>",
            y + 6.0
        );
    }
}

fn place(micros: f64) -> f64 {
    LEFT + WIDTH * (micros.clamp(1e2, 1e6) / 1e2).log10() / 4.0
}
