//! Chromium, without a window: what it makes of a page, and a picture of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs};

use tokio::process::Command;
use tokio::time::timeout;

/// Longer than it takes on the busiest machine; only ever reached by a failing test.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the same program is called by those who hand it out.
const NAMES: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];

/// Where it is. A missing browser fails the test: a skipped test proves nothing.
fn binary() -> PathBuf {
    if let Some(path) = env::var_os("CHROMIUM") {
        return path.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = env::split_paths(&path).collect();
    let files = NAMES
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    let found = files.into_iter().find(|file| file.is_file());
    found.expect("no Chromium: run `make browser`, or install it, or set CHROMIUM to its path")
}

/// What it keeps of a visit; gone when the visit is over.
struct Profile(PathBuf);

impl Profile {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("chromium-{}-{number}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // A process of the browser may still write; then some of it stays in the directory that `cargo clean` removes.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Visits `url` and does what `args` say; what it prints.
async fn visit(profile: &Profile, url: &str, args: &[&str]) -> String {
    let browser = binary();
    let mut command = Command::new(&browser);
    command
        // Without a sandbox it runs as root, and in containers; the page is our own.
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        // It neither looks for updates nor asks anybody else for anything.
        .args(["--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-sync"])
        .args(["--disable-component-update", "--disable-quic"])
        .arg("--disable-breakpad")
        .arg("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.0.display()))
        .args(args)
        .arg(url)
        .env("HOME", &profile.0)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match timeout(PATIENCE, command.output()).await {
        Ok(output) => output.unwrap_or_else(|error| panic!("{}: {error}", browser.display())),
        Err(_) => panic!("{} did not come to an end: {url}", browser.display()),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The page at `url` as the browser has understood it.
pub(crate) async fn dom(url: &str) -> String {
    visit(&Profile::new(), url, &["--dump-dom"]).await
}

/// A picture of a page.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Red, green and blue, row by row.
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// How the page at `url` looks in a window of this size.
    pub(crate) async fn of(url: &str, width: u32, height: u32, dark: bool) -> Self {
        let profile = Profile::new();
        let file = profile.0.join("picture.png");
        let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
        let args = [
            &*format!("--screenshot={}", file.display()),
            &*format!("--window-size={width},{height}"),
            &*scheme,
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ];
        visit(&profile, url, &args).await;
        Self::decode(&fs::read(&file).unwrap())
    }

    fn decode(file: &[u8]) -> Self {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        let samples = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()].chunks_exact(samples);
        Self {
            width: info.width as usize,
            height: info.height as usize,
            pixels: pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        }
    }

    pub(crate) fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    /// Where what is not the background reaches from and to, from left to right.
    pub(crate) fn reach(&self) -> (usize, usize) {
        let drawn = |x: &usize| (0..self.height).any(|y| self.pixel(*x, y) != self.pixel(0, 0));
        let first = (0..self.width).find(drawn);
        let last = (0..self.width).rev().find(drawn);
        (first.unwrap_or(self.width), last.unwrap_or(0))
    }

    /// How many colours there are.
    pub(crate) fn colours(&self) -> usize {
        let colours: std::collections::BTreeSet<_> = self.pixels.iter().collect();
        colours.len()
    }
}
