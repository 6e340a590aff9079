//! [`Confirmation`]: whether most witnesses name the node's server.
//!
//! A witness moves from one server to the next and never back, and each move has a higher *epoch*. Any two majorities
//! have a witness in common. So if most witnesses named a server when asked at time `t` or later, no process can have
//! learned of its replacement from a majority before `t`.

use crate::moment::Moment;

pub(crate) type Address = (String, u16);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) place: Place,
    pub(crate) id: Option<String>,
}

/// A server as witnesses know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// Digits, or empty if unknown. A server that becomes the master again has a new epoch.
    pub(crate) epoch: String,
}

/// Why a witness has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: String,
    /// The witness replied, and will refuse until an operator fixes something.
    pub(crate) lasting: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    pub(crate) name: String,
    pub(crate) statement: Option<(Moment, Statement)>,
    pub(crate) trouble: Option<Trouble>,
}

#[derive(Clone, Debug)]
struct Server {
    run_id: String,
    epoch: String,
    /// Several, because witnesses can know the server by different addresses.
    addresses: Vec<Address>,
    confirmed: Option<Moment>,
}

#[derive(Clone, Debug)]
pub(crate) struct Confirmation {
    witnesses: Vec<Witness>,
    server: Option<Server>,
}

impl Confirmation {
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter();
        let witnesses = names.map(|name| Witness {
            name: name.to_owned(),
            ..Witness::default()
        });
        Self {
            witnesses: witnesses.collect(),
            server: None,
        }
    }

    pub(crate) fn replace(&mut self, witnesses: Vec<Witness>) {
        self.witnesses = witnesses;
        self.count();
    }

    const fn most(&self) -> usize {
        self.witnesses.len() / 2 + 1
    }

    pub(crate) fn note(&mut self, witness: usize, asked: Moment, said: Result<Statement, Trouble>) {
        let Some(state) = self.witnesses.get_mut(witness) else {
            return;
        };
        match said {
            Ok(statement) => {
                state.statement = Some((asked, statement));
                state.trouble = None;
            }
            Err(trouble) => {
                // A witness that refuses does not name a server any more. Silence changes nothing.
                if trouble.lasting {
                    state.statement = None;
                }
                state.trouble = Some(trouble);
            }
        }
        self.count();
    }

    pub(crate) fn set_server(&mut self, run_id: &str, place: &Place) {
        self.server = Some(Server {
            run_id: run_id.to_owned(),
            epoch: place.epoch.clone(),
            addresses: vec![place.address.clone()],
            confirmed: None,
        });
        self.count();
    }

    pub(crate) fn add_address(&mut self, address: &Address) {
        if let Some(server) = &mut self.server
            && !server.addresses.contains(address)
        {
            server.addresses.push(address.clone());
        }
        self.count();
    }

    fn count(&mut self) {
        let confirmed = self.server.as_ref().and_then(|server| {
            let names = |place: &Place| server.is(place);
            let mut asked: Vec<Moment> = self.votes(names).map(|(asked, _)| asked).collect();
            // Take the majority that was asked last, and of its questions the earliest.
            asked.sort_unstable_by(|one, other| other.cmp(one));
            asked.get(self.most() - 1).copied()
        });
        if let Some(server) = &mut self.server {
            server.confirmed = confirmed;
        }
    }

    pub(crate) fn confirmed(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let server = self.server.as_ref()?;
        let same = server.run_id == run_id && server.epoch == epoch;
        server.confirmed.filter(|_| same)
    }

    fn votes(&self, wanted: impl Fn(&Place) -> bool) -> impl Iterator<Item = (Moment, &Place)> {
        let votes = self.witnesses.iter().enumerate();
        let votes = votes.filter(|(index, _)| !self.is_double(*index));
        let votes = votes.filter_map(|(_, state)| state.statement.as_ref());
        votes
            .map(|(asked, statement)| (*asked, &statement.place))
            .filter(move |(_, place)| wanted(place))
    }

    /// Whether the witness is the same as an earlier one with another address.
    fn is_double(&self, index: usize) -> bool {
        let mut ids = self.witnesses.iter().map(id).take(index + 1);
        match ids.next_back() {
            Some(Some(own)) => ids.any(|other| other == Some(own)),
            _ => false,
        }
    }

    pub(crate) fn named(&self, since: Moment) -> Vec<(Place, usize)> {
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

    /// The address that is named most often with the epoch on which most witnesses agree.
    pub(crate) fn likely_master(&self, since: Moment) -> Option<Place> {
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

    pub(crate) const fn is_most(&self, votes: usize) -> bool {
        votes >= self.most()
    }

    /// Whether most witnesses named the node's server in their last answers.
    pub(crate) fn is_settled(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.confirmed.is_some())
    }

    pub(crate) fn knows(&self, address: &Address) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.addresses.contains(address))
    }

    pub(crate) fn is_complete(&self) -> bool {
        let has_replied = |state: &Witness| state.statement.is_some() || state.trouble.is_some();
        self.witnesses.iter().all(has_replied)
    }

    /// Whether so many witnesses refuse that no majority is left.
    pub(crate) fn is_hopeless(&self) -> bool {
        let refuses = |state: &&Witness| state.trouble.as_ref().is_some_and(|it| it.lasting);
        let refusing = self.witnesses.iter().filter(refuses).count();
        self.witnesses.len() - refusing < self.most()
    }

    pub(crate) fn describe(&self, since: Moment) -> String {
        let said = self.witnesses.iter().enumerate().map(|(index, witness)| {
            let said = match (&witness.statement, &witness.trouble) {
                (_, Some(trouble)) => trouble.reason.clone(),
                (Some(_), None) if self.is_double(index) => DOUBLE.to_owned(),
                (Some((asked, statement)), None) => {
                    let (host, port) = &statement.place.address;
                    match *asked > since {
                        true => format!("says {host}:{port}"),
                        false => format!("has not answered since it said {host}:{port}"),
                    }
                }
                (None, None) => "has not answered yet".to_owned(),
            };
            format!("{}: {said}", witness.name)
        });
        said.collect::<Vec<_>>().join("; ")
    }
}

impl Server {
    fn is(&self, place: &Place) -> bool {
        self.epoch == place.epoch && self.addresses.contains(&place.address)
    }
}

fn id(witness: &Witness) -> Option<&str> {
    witness.statement.as_ref()?.1.id.as_deref()
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

    fn told(port: u16, epoch: &str) -> Result<Statement, Trouble> {
        let place = place(port, epoch);
        Ok(Statement { place, id: None })
    }

    fn silent() -> Result<Statement, Trouble> {
        let reason = "did not answer".to_owned();
        let lasting = false;
        Err(Trouble { reason, lasting })
    }

    fn listed(count: usize) -> Confirmation {
        Confirmation::new(["x", "y", "z", "v", "w"].into_iter().take(count))
    }

    fn known_after(statements: &[Result<Statement, Trouble>]) -> Confirmation {
        let mut known = listed(statements.len());
        for (index, statement) in statements.iter().enumerate() {
            known.note(index, at(1 + index as u64), statement.clone());
        }
        known
    }

    #[test]
    fn a_word_counts_from_when_enough_were_asked_for_it() {
        let mut known = known_after(&[told(1, "5"), told(1, "5"), told(1, "5")]);
        assert_eq!(known.confirmed("r", "5"), None, "nobody said where we are");
        known.set_server("r", &place(1, "5"));
        // The two of three that were asked last are a majority.
        assert_eq!(known.confirmed("r", "5"), Some(at(2)));
        known.note(0, at(9), told(1, "5"));
        assert_eq!(known.confirmed("r", "5"), Some(at(3)));
        assert_eq!(known.confirmed("other", "5"), None);
        assert_eq!(known.confirmed("r", "4"), None);
        // A statement holds until the Sentinel says something else, even if it stops answering.
        known.note(2, at(10), silent());
        assert_eq!(known.confirmed("r", "5"), Some(at(3)));
        known.note(2, at(11), told(2, "6"));
        assert_eq!(known.confirmed("r", "5"), Some(at(2)));
        known.note(1, at(12), told(2, "6"));
        assert_eq!(known.confirmed("r", "5"), None);
        assert!(!known.is_settled());
        assert_eq!(known.likely_master(at(0)), Some(place(2, "6")));
    }

    #[test]
    fn most_are_most_of_those_listed() {
        let mut half = known_after(&[told(1, ""), told(1, ""), silent(), silent()]);
        half.set_server("r", &place(1, ""));
        assert_eq!(half.confirmed("r", ""), None);
        assert_eq!(half.likely_master(at(0)), None);
        assert!(half.is_complete() && !half.is_hopeless());
        let mut one = known_after(&[told(1, "")]);
        one.set_server("r", &place(1, ""));
        assert_eq!(one.confirmed("r", ""), Some(at(1)));
    }

    #[test]
    fn who_was_made_the_master_again_is_another() {
        let mut known = known_after(&[told(1, "7"), told(1, "7"), told(1, "5")]);
        known.set_server("r", &place(1, "5"));
        assert_eq!(known.confirmed("r", "5"), None);
        assert_eq!(known.likely_master(at(0)), Some(place(1, "7")));
        known.set_server("r", &place(1, "7"));
        assert_eq!(known.confirmed("r", "7"), Some(at(1)));
    }

    #[test]
    fn one_server_may_have_several_names() {
        let mut known = known_after(&[told(1, "5"), told(2, "5"), told(3, "5"), told(3, "4")]);
        let likely_master = known.likely_master(at(0)).unwrap();
        assert_eq!(likely_master.epoch, "5", "three of four agree on that");
        known.set_server("r", &place(1, "5"));
        known.add_address(&place(2, "5").address);
        assert_eq!(known.confirmed("r", "5"), None);
        known.add_address(&place(3, "5").address);
        assert_eq!(known.confirmed("r", "5"), Some(at(1)));
    }

    #[test]
    fn a_sentinel_that_is_listed_twice_has_one_word() {
        let of = |id: &str| {
            let place = place(1, "");
            let id = Some(id.to_owned());
            Ok(Statement { place, id })
        };
        let mut known = known_after(&[of("a"), of("a"), silent()]);
        known.set_server("r", &place(1, ""));
        assert_eq!(known.confirmed("r", ""), None);
        let text = known.describe(at(0));
        let wanted = format!("x: says h:1; y: {DOUBLE}; z: did not answer");
        assert_eq!(text, wanted);
        known.note(2, at(9), of("b"));
        assert_eq!(known.confirmed("r", ""), Some(at(1)));
    }

    #[test]
    fn answers_grow_old() {
        let known = known_after(&[told(1, ""), told(1, ""), told(1, "")]);
        assert_eq!(known.likely_master(at(1)), Some(place(1, "")));
        assert_eq!(known.likely_master(at(2)), None);
        let text = known.describe(at(2));
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
        let mut known = known_after(&[told(1, ""), told(1, ""), silent()]);
        known.set_server("r", &place(1, ""));
        known.note(0, at(9), Err(refused.clone()));
        assert_eq!(known.confirmed("r", ""), None);
        assert!(!known.is_hopeless(), "the two others could agree");
        known.note(1, at(9), Err(refused));
        assert!(known.is_hopeless());
    }

    /// A question: when it was sent, how much later the Sentinel saw it, and how much later we had the answer.
    type Question = (usize, u64, u64, u64);

    /// What a process learns from these questions, and when. Sentinels go from server 1 to server 2 at the second in
    /// `moves`.
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
        let mut known = listed(moves.len());
        let epoch = at_server.to_string();
        known.set_server("r", &place(at_server, &epoch));
        let known = answers.into_iter().map(|(when, sentinel, sent, server)| {
            known.note(sentinel, at(sent), told(server, &server.to_string()));
            (when, known.confirmed("r", &epoch))
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
