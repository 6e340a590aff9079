//! [`Board`]: what the Sentinels of a node said last, and whether most of them name the node's server.
//!
//! A Sentinel goes from one master to the next and never back: each change has a number, its *epoch*, and the numbers
//! grow. Two majorities have one Sentinel in common. So if most of them named one server in answer to questions sent at
//! some time or later, every process that hears another server from most of them hears it after that time.

use crate::moment::Moment;

/// Where a Sentinel says that the master is.
pub(super) type Address = (String, u16);

/// What a Sentinel said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) place: Place,
    /// The Sentinel's id.
    pub(super) id: Option<String>,
}

/// A server as Sentinels know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: Address,
    /// Digits, or nothing where it is not known. A server that is made the master a second time has another.
    pub(super) epoch: String,
}

/// Why a Sentinel told nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: String,
    /// It replied, and will refuse until somebody fixes something.
    pub(super) lasting: bool,
}

/// What is known of one Sentinel.
#[derive(Clone, Debug, Default)]
struct Heard {
    /// What it said last, and when it was asked that.
    told: Option<(Moment, Told)>,
    /// Why it did not answer since.
    trouble: Option<Trouble>,
}

/// The node's server.
#[derive(Clone, Debug)]
struct Seat {
    run_id: String,
    epoch: String,
    /// Its addresses: Sentinels may know it by several.
    names: Vec<Address>,
    /// Most Sentinels named it when they were asked at this moment or later.
    confirmed: Option<Moment>,
}

/// What all listed Sentinels said last.
#[derive(Clone, Debug)]
pub(super) struct Board {
    heard: Vec<Heard>,
    seat: Option<Seat>,
}

impl Board {
    /// So many Sentinels, none of which has replied yet.
    pub(super) fn new(sentinels: usize) -> Self {
        Self {
            heard: vec![Heard::default(); sentinels],
            seat: None,
        }
    }

    /// How many Sentinels are a majority of those listed, whether they exist or not.
    const fn most(&self) -> usize {
        self.heard.len() / 2 + 1
    }

    /// Notes what a Sentinel said when it was asked at `asked`.
    pub(super) fn note(&mut self, sentinel: usize, asked: Moment, answer: Result<Told, Trouble>) {
        let Some(heard) = self.heard.get_mut(sentinel) else {
            return;
        };
        match answer {
            Ok(told) => {
                heard.told = Some((asked, told));
                heard.trouble = None;
            }
            Err(trouble) => {
                // A Sentinel that refuses names no master any more. One that does not reply has not said anything new.
                if trouble.lasting {
                    heard.told = None;
                }
                heard.trouble = Some(trouble);
            }
        }
        self.count();
    }

    /// The node's server is `run_id` now, which Sentinels know by the address in `place`.
    pub(super) fn sit(&mut self, run_id: &str, place: &Place) {
        self.seat = Some(Seat {
            run_id: run_id.to_owned(),
            epoch: place.epoch.clone(),
            names: vec![place.address.clone()],
            confirmed: None,
        });
        self.count();
    }

    /// Sentinels know the server by this address, too.
    pub(super) fn call(&mut self, name: &Address) {
        if let Some(seat) = &mut self.seat
            && !seat.names.contains(name)
        {
            seat.names.push(name.clone());
        }
        self.count();
    }

    fn count(&mut self) {
        let confirmed = self.seat.as_ref().and_then(|seat| {
            let names = |place: &Place| seat.is(place);
            let mut asked: Vec<Moment> = self.votes(names).map(|(asked, _)| asked).collect();
            // Of the majority that was asked last, the one that was asked first.
            asked.sort_unstable_by(|one, other| other.cmp(one));
            asked.get(self.most() - 1).copied()
        });
        if let Some(seat) = &mut self.seat {
            seat.confirmed = confirmed;
        }
    }

    /// When a majority that names the server `run_id` of this `epoch` was asked: the earliest of their questions.
    pub(super) fn confirmed(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let seat = self.seat.as_ref()?;
        let same = seat.run_id == run_id && seat.epoch == epoch;
        seat.confirmed.filter(|_| same)
    }

    /// The statements that `wanted` accepts, one per Sentinel, however often it is listed.
    fn votes(&self, wanted: impl Fn(&Place) -> bool) -> impl Iterator<Item = (Moment, &Place)> {
        let votes = self.heard.iter().enumerate();
        let votes = votes.filter(|(index, _)| !self.is_double(*index));
        let votes = votes.filter_map(|(_, heard)| heard.told.as_ref());
        votes
            .map(|(asked, told)| (*asked, &told.place))
            .filter(move |(_, place)| wanted(place))
    }

    /// Whether a Sentinel is listed before, by another address.
    fn is_double(&self, index: usize) -> bool {
        let mut ids = self.heard.iter().map(id).take(index + 1);
        match ids.next_back() {
            Some(Some(own)) => ids.any(|other| other == Some(own)),
            _ => false,
        }
    }

    /// The servers named in reply to questions sent after `since`, the most frequent first.
    pub(super) fn named(&self, since: Moment) -> Vec<(Place, usize)> {
        let mut named: Vec<(Place, usize)> = Vec::new();
        for (_, place) in self.votes(|_| true).filter(|(asked, _)| *asked > since) {
            match named.iter_mut().find(|(known, _)| known == place) {
                Some((_, votes)) => *votes += 1,
                None => named.push((place.clone(), 1)),
            }
        }
        named.sort_by(|(_, one), (_, other)| other.cmp(one));
        named
    }

    /// The server that most Sentinels may mean: they agree on the epoch, and its address is the most frequent one.
    pub(super) fn favourite(&self, since: Moment) -> Option<Place> {
        let named = self.named(since);
        let votes = |epoch: &str| -> usize {
            let alike = named.iter().filter(|(place, _)| place.epoch == epoch);
            alike.map(|(_, votes)| votes).sum()
        };
        let place = named
            .iter()
            .map(|(place, _)| place)
            .find(|place| votes(&place.epoch) >= self.most());
        place.cloned()
    }

    /// Whether so many votes are a majority.
    pub(super) const fn is_most(&self, votes: usize) -> bool {
        votes >= self.most()
    }

    /// Whether most Sentinels named the node's server last.
    pub(super) fn is_settled(&self) -> bool {
        let seat = self.seat.as_ref();
        seat.is_some_and(|seat| seat.confirmed.is_some())
    }

    /// Whether `name` is an address of the node's server.
    pub(super) fn knows(&self, name: &Address) -> bool {
        let seat = self.seat.as_ref();
        seat.is_some_and(|seat| seat.names.contains(name))
    }

    /// Whether every Sentinel has replied, or failed to, at least once.
    pub(super) fn is_complete(&self) -> bool {
        let heard = |heard: &Heard| heard.told.is_some() || heard.trouble.is_some();
        self.heard.iter().all(heard)
    }

    /// Whether so many Sentinels refuse that no majority can agree before somebody fixes that.
    pub(super) fn is_hopeless(&self) -> bool {
        let refuses = |heard: &&Heard| heard.trouble.as_ref().is_some_and(|it| it.lasting);
        let refusing = self.heard.iter().filter(refuses).count();
        self.heard.len() - refusing < self.most()
    }

    /// What each Sentinel said of late, for people. `addresses` are theirs.
    pub(super) fn describe<'a>(
        &self,
        since: Moment,
        addresses: impl Iterator<Item = &'a str>,
    ) -> String {
        let said = self.heard.iter().enumerate().map(|(index, heard)| {
            match (&heard.told, &heard.trouble) {
                (_, Some(trouble)) => trouble.reason.clone(),
                (Some(_), None) if self.is_double(index) => DOUBLE.to_owned(),
                (Some((asked, told)), None) => {
                    let (host, port) = &told.place.address;
                    match *asked > since {
                        true => format!("says {host}:{port}"),
                        false => format!("has not answered since it said {host}:{port}"),
                    }
                }
                (None, None) => "has not answered yet".to_owned(),
            }
        });
        let said = addresses.zip(said);
        let said: Vec<String> = said.map(|(who, said)| format!("{who}: {said}")).collect();
        said.join("; ")
    }
}

impl Seat {
    fn is(&self, place: &Place) -> bool {
        self.epoch == place.epoch && self.names.contains(&place.address)
    }
}

fn id(heard: &Heard) -> Option<&str> {
    heard.told.as_ref()?.1.id.as_deref()
}

const DOUBLE: &str = "is the same Sentinel as one before it in the list";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    fn place(port: u16, epoch: &str) -> Place {
        Place {
            address: ("h".to_owned(), port),
            epoch: epoch.to_owned(),
        }
    }

    fn told(port: u16, epoch: &str) -> Result<Told, Trouble> {
        let place = place(port, epoch);
        Ok(Told { place, id: None })
    }

    fn silent() -> Result<Told, Trouble> {
        let reason = "did not answer".to_owned();
        let lasting = false;
        Err(Trouble { reason, lasting })
    }

    /// A board of Sentinels that were asked one second after the other, from the first on.
    fn board(answers: &[Result<Told, Trouble>]) -> Board {
        let mut board = Board::new(answers.len());
        for (index, answer) in answers.iter().enumerate() {
            board.note(index, at(1 + index as u64), answer.clone());
        }
        board
    }

    #[test]
    fn a_word_counts_from_when_enough_were_asked_for_it() {
        let mut board = board(&[told(1, "5"), told(1, "5"), told(1, "5")]);
        assert_eq!(board.confirmed("r", "5"), None, "nobody said where we are");
        board.sit("r", &place(1, "5"));
        // Two of three are most: those that were asked last.
        assert_eq!(board.confirmed("r", "5"), Some(at(2)));
        board.note(0, at(9), told(1, "5"));
        assert_eq!(board.confirmed("r", "5"), Some(at(3)));
        assert_eq!(board.confirmed("other", "5"), None);
        assert_eq!(board.confirmed("r", "4"), None);
        // What one said holds, though it answers no more, until it says something else.
        board.note(2, at(10), silent());
        assert_eq!(board.confirmed("r", "5"), Some(at(3)));
        board.note(2, at(11), told(2, "6"));
        assert_eq!(board.confirmed("r", "5"), Some(at(2)));
        board.note(1, at(12), told(2, "6"));
        assert_eq!(board.confirmed("r", "5"), None);
        assert!(!board.is_settled());
        assert_eq!(board.favourite(at(0)), Some(place(2, "6")));
    }

    #[test]
    fn most_are_most_of_those_listed() {
        let mut half = board(&[told(1, ""), told(1, ""), silent(), silent()]);
        half.sit("r", &place(1, ""));
        assert_eq!(half.confirmed("r", ""), None);
        assert_eq!(half.favourite(at(0)), None);
        assert!(half.is_complete() && !half.is_hopeless());
        let mut one = board(&[told(1, "")]);
        one.sit("r", &place(1, ""));
        assert_eq!(one.confirmed("r", ""), Some(at(1)));
    }

    #[test]
    fn who_was_made_the_master_again_is_another() {
        let mut board = board(&[told(1, "7"), told(1, "7"), told(1, "5")]);
        board.sit("r", &place(1, "5"));
        assert_eq!(board.confirmed("r", "5"), None);
        assert_eq!(board.favourite(at(0)), Some(place(1, "7")));
        board.sit("r", &place(1, "7"));
        assert_eq!(board.confirmed("r", "7"), Some(at(1)));
    }

    #[test]
    fn one_server_may_have_several_names() {
        let mut board = board(&[told(1, "5"), told(2, "5"), told(3, "5"), told(3, "4")]);
        let favourite = board.favourite(at(0)).unwrap();
        assert_eq!(favourite.epoch, "5", "three of four agree on that");
        board.sit("r", &place(1, "5"));
        board.call(&place(2, "5").address);
        assert_eq!(board.confirmed("r", "5"), None);
        board.call(&place(3, "5").address);
        assert_eq!(board.confirmed("r", "5"), Some(at(1)));
    }

    #[test]
    fn a_sentinel_that_is_listed_twice_has_one_word() {
        let known = |id: &str| {
            let place = place(1, "");
            let id = Some(id.to_owned());
            Ok(Told { place, id })
        };
        let mut board = board(&[known("a"), known("a"), silent()]);
        board.sit("r", &place(1, ""));
        assert_eq!(board.confirmed("r", ""), None);
        let text = board.describe(at(0), ["x", "y", "z"].into_iter());
        let wanted = format!("x: says h:1; y: {DOUBLE}; z: did not answer");
        assert_eq!(text, wanted);
        board.note(2, at(9), known("b"));
        assert_eq!(board.confirmed("r", ""), Some(at(1)));
    }

    #[test]
    fn answers_grow_old() {
        let board = board(&[told(1, ""), told(1, ""), told(1, "")]);
        assert_eq!(board.favourite(at(1)), Some(place(1, "")));
        assert_eq!(board.favourite(at(2)), None);
        let text = board.describe(at(2), ["x", "y", "z"].into_iter());
        assert!(
            text.starts_with("x: has not answered since it said h:1;"),
            "{text}"
        );
    }

    #[test]
    fn who_refuses_stands_by_nobody() {
        let refused = Trouble {
            reason: "no such name".to_owned(),
            lasting: true,
        };
        let mut board = board(&[told(1, ""), told(1, ""), silent()]);
        board.sit("r", &place(1, ""));
        board.note(0, at(9), Err(refused.clone()));
        assert_eq!(board.confirmed("r", ""), None);
        assert!(!board.is_hopeless(), "the two others could agree");
        board.note(1, at(9), Err(refused));
        assert!(board.is_hopeless());
    }

    /// One question: when it was sent, how long later the Sentinel saw it, and how long later we had the answer.
    type Question = (usize, u64, u64, u64);

    /// What a process knows that asks like this, with the time of each answer: Sentinels go from the server 1 to the
    /// server 2 at the second of `moves`, if at all.
    fn known(moves: &[u64], questions: &[Question], at_server: u16) -> Vec<(u64, Option<Moment>)> {
        let mut answers: Vec<(u64, usize, u64, u16)> = questions
            .iter()
            .filter(|(sentinel, ..)| *sentinel < moves.len())
            .map(|&(sentinel, sent, there, back)| {
                let server = if sent + there < moves[sentinel] { 1 } else { 2 };
                (sent + there + back, sentinel, sent, server)
            })
            .collect();
        answers.sort_unstable();
        let mut board = Board::new(moves.len());
        let epoch = at_server.to_string();
        board.sit("r", &place(at_server, &epoch));
        let known = answers.into_iter().map(|(when, sentinel, sent, server)| {
            board.note(sentinel, at(sent), told(server, &server.to_string()));
            (when, board.confirmed("r", &epoch))
        });
        known.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_old_master_is_last_confirmed_before_the_new_one_is_first(
            moves in proptest::collection::vec(0_u64..60, 1..6),
            old in proptest::collection::vec((0_usize..5, 0_u64..50, 0_u64..20, 0_u64..20), 0..40),
            new in proptest::collection::vec((0_usize..5, 0_u64..50, 0_u64..20, 0_u64..20), 0..40),
        ) {
            let last = known(&moves, &old, 1).into_iter().filter_map(|(_, confirmed)| confirmed).max();
            let first = known(&moves, &new, 2).into_iter().find(|(_, confirmed)| confirmed.is_some());
            if let (Some(last), Some((first, _))) = (last, first) {
                prop_assert!(last <= at(first), "{last:?} {first}");
            }
        }
    }
}
