//! What the processes of a world send, as one file for each seed, so that two builds of the crate can be compared.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::runner::{run_plan, told, with_seeds};
use tower_redlock_simulated::world::Sent;

/// What follows in a line may differ between two builds that send the same: arguments, whose number and order belong to
/// a script, and the texts of errors.
const DETAILS: &str = " | ";

/// The names of scripts: their files, by the first lines of these.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node/commands");
    let paths = fs::read_dir(folder).expect("the folder of scripts");
    let paths = paths.map(|entry| entry.expect("a file").path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "lua"));
    let name = |path: PathBuf| {
        let text = fs::read(&path).expect("a script");
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        (first_line(&text), name.into_owned())
    };
    scripts.map(name).collect()
}

fn first_line(text: &[u8]) -> String {
    let line = text.split(|byte| *byte == b'\n').next();
    line.unwrap_or_default().escape_ascii().to_string()
}

/// What was sent, one command or event on each line. No line has a hash or a text of a script.
fn lines(sent: &[Sent], files: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut line = |(head, words): &Sent| {
        if let [_, load, text] = &words[..]
            && load == b"LOAD"
        {
            let first = first_line(text);
            let name = files.get(&first).unwrap_or(&first).clone();
            let line = format!("{head} SCRIPT LOAD {name}");
            names.insert(sha1_smol::Sha1::from(text).digest().to_string(), name);
            return line;
        }
        let words = words.iter().map(|word| word.escape_ascii().to_string());
        let words: Vec<String> = words.collect();
        match &words[..] {
            // Behind a colon is the text of an error.
            [] => head.replacen(": ", DETAILS, 1),
            [run, hash, count, rest @ ..] if run == "EVALSHA" => {
                let (keys, arguments) = rest.split_at(count.parse().expect("a number of keys"));
                let is_owner = |word: &&String| keys.len() > 1 && is_owner(word);
                let mut shown = vec![names.get(hash).unwrap_or(hash)];
                shown.extend(keys);
                shown.extend(arguments.iter().filter(is_owner));
                let shown: Vec<&str> = shown.into_iter().map(String::as_str).collect();
                let (shown, arguments) = (shown.join(" "), arguments.join(" "));
                format!("{head} EVALSHA {shown}{DETAILS}{arguments}")
            }
            words => format!("{head} {}", words.join(" ")),
        }
    };
    sent.iter().map(&mut line).collect()
}

/// Whether an argument looks like an owner token. Where the marker is the only key it is a digest, and no owner.
fn is_owner(word: &str) -> bool {
    let digits = word.split(':').next().unwrap_or_default();
    digits.len() == 40 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Nothing, unless it is told into which folder.
#[test]
fn writes_what_is_sent() {
    let Ok(folder) = env::var("REDLOCK_SIM_TRACES") else {
        return;
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder).unwrap();
    let (first, count): (u64, u64) = (told("REDLOCK_SIM_SEED", 1), told("REDLOCK_SIM_SEEDS", 200));
    let files = files();
    with_seeds(first, count, |seed| {
        let sent = run_plan(&Plan::generate(seed), true).sent;
        let text = lines(&sent, &files).join("\n") + "\n";
        fs::write(folder.join(format!("{seed}.sent")), text).unwrap();
        true
    });
}
