use crate::namespace::NodeKey;
use crate::node::memory::records::Now;
use crate::node::memory::store::Store;
use crate::node::{
    AcquireReply, CompleteReply, CompleteRequest, NodeError, RecallRequest, ReleaseReply,
};
use crate::token::OwnerToken;

impl Store {
    pub(super) fn recall(
        &mut self,
        request: &RecallRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let key = lock.keys.first();
        if let Some(config) = &lock.config {
            // A record can be returned whatever the lease.
            self.data.markers.admit(lock.keys.namespace(), config)?;
        }
        let record = self.data.records.record(key, now);
        if let (Some(record), false) = (&record, request.adopt) {
            self.count_command();
            return Ok(AcquireReply::Recorded(record.clone()));
        }
        let reply = self.acquire(lock, now)?;
        let AcquireReply::Granted { fence } = reply else {
            return Ok(reply);
        };
        self.data
            .records
            .grant(key, (lock.token, fence), request.linger, now);
        Ok(AcquireReply::Promised {
            fence,
            record,
            now: now.unix_millis(),
        })
    }

    pub(super) fn complete(
        &mut self,
        request: &CompleteRequest,
        now: Now,
    ) -> Result<CompleteReply, NodeError> {
        let (key, token) = (request.release.keys.first(), &request.release.token);
        let namespace = request.release.keys.namespace();
        let voting = match &request.config {
            Some(config) => self.data.markers.is_voting(namespace, config)?,
            None => true,
        };
        // A node that may have lost data can still store what a quorum has.
        let stored = (voting || request.chosen) && self.keep_record(request, key, token, now);
        let released = self.release(&request.release, now.moment);
        Ok(match (stored, released) {
            (false, _) => CompleteReply::Refused,
            (true, ReleaseReply::Released { listeners }) => CompleteReply::Stored { listeners },
            (true, ReleaseReply::NotOwner) => CompleteReply::Stored { listeners: 0 },
        })
    }

    fn keep_record(
        &mut self,
        request: &CompleteRequest,
        key: &NodeKey,
        token: &OwnerToken,
        now: Now,
    ) -> bool {
        let Some(record) = &request.record else {
            self.data.records.forget(key, token, now);
            return true;
        };
        if now.is_after(record) {
            // Another caller may have found that it has ended.
            return false;
        }
        let slot = self.data.records.live(key, now);
        let known = slot.and_then(|slot| slot.record(now));
        let known = known.map(|known| known.ballot);
        if known > Some(record.ballot) {
            // The writer of that record was told of ours, if ours was chosen.
            return request.chosen;
        }
        let same = known == Some(record.ballot);
        let ours = match slot.and_then(|slot| slot.last.as_ref()) {
            Some(last) => last == token,
            // That the lock is ours proves nothing by itself: an extension may have set it again after the grant of a
            // later owner had ended.
            None => {
                let surpassed = self.data.counters.surpass(key, record.ballot, now.moment);
                !surpassed && self.holds(key, token, now.moment)
            }
        };
        // A grant from before the last promotion does not count: a later grant may have been lost.
        let floor = self.data.counters.floor(request.release.keys.namespace());
        let ours = ours && record.ballot.get() > floor;
        // The grant promised that nothing is stored under a lower ballot than its number. An earlier owner may have a
        // ballot between the two, and the owner of this grant one that other nodes agreed on.
        let promised = slot.and_then(|slot| slot.promised);
        let kept = promised.is_none_or(|promised| promised <= record.ballot);
        let right = same || ours && kept || request.chosen;
        if right {
            self.data.records.put(key, record.clone(), now);
        }
        right
    }
}
