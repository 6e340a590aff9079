//! The program on a terminal: what it shows there, and asks, and nowhere else. `ended` says of every other run that it has
//! no escapes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::support::{eventually, eventually_or_tell};
use crate::{Fleet, PASSWORD, held};

const CLEAR_LINE: &str = "\r\x1b[2K";

/// The program with a terminal for its input and output.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        // Neither end becomes the terminal of this process.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let theirs = File::from(ioctl_tiocgptpeer(&ours, flags).unwrap());
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let child = command.spawn().unwrap();
        // With its ends of the terminal: ours ends with the last of them.
        drop(command);
        let ours = File::from(ours);
        let keyboard = ours.try_clone().unwrap();
        let screen = Arc::default();
        thread::spawn({
            let screen = Arc::clone(&screen);
            move || read(ours, &screen)
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    async fn shows(&self, text: &str) {
        let shown = || self.screen.lock().unwrap().contains(text);
        eventually_or_tell(text, shown, || self.screen.lock().unwrap().clone()).await;
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Its exit code, and all that it has shown.
    async fn end(mut self) -> (i32, String) {
        let mut status = None;
        eventually("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        // The reader ends after the last of the text.
        eventually("all is read", || Arc::strong_count(&self.screen) == 1).await;
        let screen = self.screen.lock().unwrap().clone();
        assert!(!screen.contains(PASSWORD), "{screen}");
        (status.unwrap().code().unwrap(), screen)
    }
}

/// Until the program has ended, which is an error on a terminal.
fn read(mut from: File, screen: &Mutex<String>) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]);
        screen.lock().unwrap().push_str(&text);
    }
}

#[tokio::test]
async fn a_terminal_has_colours_unless_they_are_not_wanted() {
    let (mut fleet, _locks) = Fleet::started().await;
    fleet.servers[0].kill();
    let (code, screen) = Terminal::start(fleet.redlock(&["status"])).end().await;
    assert_eq!(code, 0, "{screen}");
    let green = screen.matches("\x1b[32mvotes\x1b[0m");
    assert_eq!(green.count(), 2, "{screen:?}");
    assert!(screen.contains("\x1b[31mdown\x1b[0m"), "{screen:?}");
    let mut plain = fleet.redlock(&["status"]);
    plain.env("NO_COLOR", "1");
    let (code, screen) = Terminal::start(plain).end().await;
    assert_eq!(code, 0, "{screen}");
    let is_plain = screen.contains("votes") && !screen.contains("\x1b[3");
    assert!(is_plain, "{screen:?}");
    // A reader that is no person gets neither.
    fleet.run("status").await.with(0);
}

#[tokio::test]
async fn what_is_watched_takes_the_place_of_what_was_there() {
    const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";
    let (fleet, _locks) = Fleet::started().await;
    let (_, once) = Terminal::start(fleet.redlock(&["status"])).end().await;
    assert!(!once.contains(CLEAR_SCREEN), "{once:?}");
    for (arguments, twice) in [
        (
            &["status", "--watch"][..],
            format!("{CLEAR_SCREEN}quorum: "),
        ),
        (
            &["status", "--watch", "--json"],
            "{\"has_quorum\"".to_owned(),
        ),
    ] {
        let mut terminal = Terminal::start(fleet.redlock(arguments));
        let screen = Arc::clone(&terminal.screen);
        let count = |text: &str| screen.lock().unwrap().matches(text).count();
        eventually("it is shown again", || count(&twice) >= 2).await;
        let cleared = count(CLEAR_SCREEN) > 0;
        assert_eq!(cleared, arguments.len() == 2, "{arguments:?}");
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
    }
}

#[tokio::test]
async fn on_a_terminal_release_asks_and_only_yes_is_yes() {
    let (fleet, locks) = Fleet::started().await;
    let guard = held(&fleet, &locks, "order:42").await;
    let release = || fleet.redlock(&["release", "order:42", "--force", "--now"]);
    for answer in ["n\n", "\n", "\x04"] {
        let mut terminal = Terminal::start(release());
        terminal.shows("Go on? [y/N] ").await;
        assert_eq!(fleet.holding("order:42"), 3, "it waits for the answer");
        terminal.type_in(answer);
        let (code, screen) = terminal.end().await;
        assert_eq!(code, 1, "{screen}");
        assert!(screen.contains("nothing was changed"), "{screen}");
        assert_eq!(fleet.holding("order:42"), 3);
    }
    let mut terminal = Terminal::start(release());
    terminal
        .shows("This takes order:42 from service@1 (owner ")
        .await;
    terminal.shows("Go on? [y/N] ").await;
    terminal.type_in("y\n");
    let (code, screen) = terminal.end().await;
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("freed on 3 of 3 nodes"), "{screen}");
    guard.lost().await;
}

#[tokio::test]
async fn a_terminal_shows_what_is_waited_for_until_that_is_there() {
    let (mut fleet, _locks) = Fleet::started().await;
    fleet.servers[0].kill();
    let terminal = Terminal::start(fleet.redlock(&["wait"]));
    terminal
        .shows(&format!("{CLEAR_LINE}quorum: 2 of 3 vote"))
        .await;
    fleet.servers[0].restart();
    let (code, screen) = terminal.end().await;
    assert_eq!(code, 0, "{screen}");
    let last = format!("{CLEAR_LINE}all 3 nodes vote\r\n");
    assert!(screen.ends_with(&last), "nothing of it is left: {screen:?}");
}
