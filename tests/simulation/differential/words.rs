//! Random words of calls. They come from small sets, so that calls meet each other's keys, times and owners; and some
//! are nonsense.

use tower_redlock_simulated::server::dice::Dice;

/// Stands for the servers' run id.
pub(super) const RUN_ID: &str = "<run id>";
/// Stands for the id of the connection with the digit that follows.
pub(super) const CLIENT_ID: &str = "<client id>";

/// How many connections there are. The first one speaks the older protocol and has no subscriptions.
pub(super) const CONNECTIONS: usize = 3;

pub(super) const MARKER: &str = "m";
const TOMBSTONES: [&str; 2] = ["!dead:A", "!dead:B"];
pub(super) const LOCKS: [&str; 3] = ["k1", "k2", "k3"];
pub(super) const COUNTERS: [&str; 3] = ["!fence:k1", "!fence:k2", "!fence:k3"];
pub(super) const RECORD: &str = "r";
const CHANNELS: [&str; 2] = ["free:k1", "free:k2"];
/// Options of `SET`.
const SET: [&str; 5] = ["NX", "xx", "PX <span>", "px <span>", "PXAT <moment>"];
/// All of them.
pub(super) const KEYS: [&str; 10] = [
    MARKER,
    "!dead:A",
    "!dead:B",
    "k1",
    "k2",
    "k3",
    "!fence:k1",
    "!fence:k2",
    "!fence:k3",
    RECORD,
];

/// As long as the scripts take them for.
const DIGESTS: [&str; 2] = [
    "d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1",
    "d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2",
];
// Choices, parted by bars: see [`Words::fill`].
const SPANS: &str = "1|50|100|1000|60000|100";
const ODD_NUMBERS: &str = "0|-1|-9223372036854775808|9223372036854775807|9223372036854775808|9000000000000000000|1e300|\
    |abc|1.5|1e3| 7|+7|007|0x10|nan|inf|-0";
/// Fencing tokens.
const NUMBERS: &str = "0000000000000000001|0000000000000000999|0000000000000001000|0000000000001000000|\
    0001763816000000000|0001763816000000999|9223372036854773759|9223372036854773000|1806147584000000000|\
    1806147584000001024|1806147584000999424|1806151184000000000|1806151999999999999";
const FIELDS: &str = "identity|digest|length|former|hwm|floor|quarantine|evicted|vote|former|f";
const ODD_TEXTS: [&[u8]; 4] = [b"", b" ", b"\xff\0\r\n", b"-ERR\nx"];

pub(super) fn texts(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// Random words.
pub(super) struct Words {
    pub(super) dice: Dice,
    /// What the servers' clocks show, in microseconds since 1970.
    pub(super) now: u64,
    /// Whether scripts may ask the server for its identity.
    pub(super) asks: bool,
    /// What is to be called before the script, so that it meets what it is made for.
    pub(super) before: Option<Vec<Vec<u8>>>,
}

impl Words {
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.dice.below(items.len())]
    }

    /// True `times` out of 100 times.
    pub(super) fn chance(&mut self, times: usize) -> bool {
        self.dice.below(100) < times
    }

    /// One of these; rarely an odd number.
    fn mostly(&mut self, usual: &str) -> Vec<u8> {
        let odd = self.chance(7);
        self.word(if odd { ODD_NUMBERS } else { usual })
    }

    pub(super) fn token(&mut self) -> Vec<u8> {
        if self.chance(3) {
            return self.pick(&ODD_TEXTS).to_vec();
        }
        self.word("A|B|C")
    }

    /// Milliseconds for which something lasts.
    pub(super) fn span(&mut self) -> Vec<u8> {
        self.mostly(SPANS)
    }

    /// A fencing token.
    pub(super) fn number(&mut self) -> Vec<u8> {
        self.mostly(NUMBERS)
    }

    /// The words of a template, in which `a|b` is one of these, and `<kind>` a random word of a kind, `<kind>+` one to
    /// three and `<kind>*` up to two of them.
    pub(super) fn fill(&mut self, template: &str) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for part in template.split(' ') {
            let (kind, count) = match part.rsplit_once('>') {
                Some((kind, "+")) => (kind, 1 + self.dice.below(3)),
                Some((kind, "*")) => (kind, self.dice.below(3)),
                Some((kind, _)) => (kind, 1),
                None => (part, 1),
            };
            for _ in 0..count {
                match kind {
                    "<pair" => all.extend(self.fill("<field> <value>")),
                    "<set" => {
                        let option = self.pick(&SET);
                        all.extend(self.fill(option));
                    }
                    _ => all.push(self.word(kind)),
                }
            }
        }
        all
    }

    fn word(&mut self, kind: &str) -> Vec<u8> {
        match kind {
            "<key" => self.pick(&KEYS).into(),
            "<value" => self.value(),
            "<span" => self.span(),
            "<moment" => self.moment(),
            "<number" => self.number(),
            "<token" => self.token(),
            "<identity" => self.identity(),
            "<digest" => self.digest(),
            // The same as the last two are for most scripts.
            "<vote" => [self.digest(), self.identity()].join(&b' '),
            "<flag" => self.word("|1"),
            "<tombstone" => self.pick(&TOMBSTONES).into(),
            "<lock" => self.pick(&LOCKS).into(),
            "<channel" => self.pick(&CHANNELS).into(),
            "<field" => self.word(FIELDS),
            "<client" => format!("{CLIENT_ID}{}", self.dice.below(CONNECTIONS)).into(),
            "<script" => self.word("return 1|return (||return ARGV"),
            _ => {
                let choices: Vec<&str> = kind.split('|').collect();
                self.pick(&choices).into()
            }
        }
    }

    /// What fits into a field or a key.
    fn value(&mut self) -> Vec<u8> {
        match self.dice.below(8) {
            0 => self.identity(),
            1 => self.number(),
            2 => self.span(),
            3 => self.digest(),
            4 => self.moment(),
            5 => self.word("<vote"),
            6 => self.record(),
            _ => self.token(),
        }
    }

    /// What the record of a key may be, with a response or without.
    fn record(&mut self) -> Vec<u8> {
        let mut parts = vec![self.token(), self.number(), self.moment()];
        if self.chance(50) {
            parts.extend([self.number(), self.moment(), b"a body".to_vec()]);
        } else {
            parts.push(Vec::new());
        }
        parts.join(&b' ')
    }

    /// A time near now in milliseconds since 1970.
    fn moment(&mut self) -> Vec<u8> {
        let now = self.now / 1_000;
        let near = [now - 60_000, now - 1, now, now + 1, now + 100, now + 60_000];
        self.mostly(&near.map(|moment| moment.to_string()).join("|"))
    }

    fn identity(&mut self) -> Vec<u8> {
        let usual = [
            "any",
            "",
            "ask",
            "7|ask",
            "7|<run id>",
            "<run id>/0f:42",
            "other",
        ];
        match self.chance(35) {
            true => RUN_ID.into(),
            false => match self.pick(&usual) {
                asked if !self.asks && asked.ends_with("ask") => RUN_ID.into(),
                identity => identity.into(),
            },
        }
    }

    fn digest(&mut self) -> Vec<u8> {
        self.pick(&[DIGESTS[0], DIGESTS[0], DIGESTS[0], DIGESTS[1], ""])
            .into()
    }

    /// Spoils a call, now and then: leaves a word out, adds one, or has an odd one instead. The first `fixed` words
    /// stay.
    pub(super) fn spoil(&mut self, words: &mut Vec<Vec<u8>>, fixed: usize) {
        if words.len() <= fixed || !self.chance(6) {
            return;
        }
        let place = fixed + self.dice.below(words.len() - fixed);
        match self.dice.below(4) {
            0 => {
                words.remove(place);
            }
            1 => words.insert(place, words[place].clone()),
            2 => words[place] = self.word(ODD_NUMBERS),
            _ => words[place] = self.pick(&ODD_TEXTS).to_vec(),
        }
    }
}
