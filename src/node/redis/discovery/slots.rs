//! Chooses the slots of a cluster that are nodes, and their hash tags.

const SLOTS: u16 = 16_384;

/// The slots of `count` nodes for each of `groups`, group by group, spread evenly. If the masters have even ranges,
/// each node is on a different master. The first group has the same slots for any number of groups.
pub(crate) fn spread(count: u16, groups: usize) -> Vec<u16> {
    let (all, count) = (usize::from(SLOTS), usize::from(count.max(1)));
    let slot = |group: usize, node: usize| {
        // Each group takes the middle of its part of a node's range, and the first group takes the middle of the whole
        // range.
        let half = match group {
            0 => groups,
            _ => (groups / 2 + group) % groups * 2 + 1,
        };
        ((2 * groups * node + half) * all).div_ceil(2 * groups * count)
    };
    let slots = (0..groups).flat_map(|group| (0..count).map(move |node| slot(group, node)));
    slots.filter_map(|slot| u16::try_from(slot).ok()).collect()
}

/// The prefix for keys of a slot: the shortest hash tag that leads to it, in braces.
pub(crate) fn tag(slot: u16) -> String {
    let tags = (0_u32..).map(|number| format!("{number:x}"));
    let mut fitting = tags.filter(|tag| slot_of(tag.as_bytes()) == slot);
    format!("{{{}}}", fitting.next().unwrap_or_default())
}

/// CRC-16/XMODEM, as in the Redis Cluster specification.
fn slot_of(tag: &[u8]) -> u16 {
    let shift = |crc: u16, _| match crc & 0x8000 {
        0 => crc << 1,
        _ => (crc << 1) ^ 0x1021,
    };
    let crc = tag.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), shift)
    });
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn slots_are_spread_over_even_ranges() {
        assert_eq!(spread(1, 1), [8_192]);
        assert_eq!(spread(3, 1), [2_731, 8_192, 13_654]);
        for (count, groups) in [(1, 2), (1, 7), (3, 2), (3, 5), (5, 4), (15, 64)] {
            let slots = spread(count, groups);
            assert_eq!(slots[..usize::from(count)], spread(count, 1));
            let masters = usize::from(count) * groups;
            let begins = |master: &usize| master * usize::from(SLOTS) / masters;
            let owner = |slot: &u16| (0..masters).rfind(|it| begins(it) <= usize::from(*slot));
            let owners: BTreeSet<Option<usize>> = slots.iter().map(owner).collect();
            assert_eq!(owners.len(), masters, "{count} nodes in {groups} groups");
        }
        for masters in 3..=20_u32 {
            let owner = |slot: u16| u32::from(slot) * masters / u32::from(SLOTS);
            let owners: BTreeSet<u32> = spread(3, 1).into_iter().map(owner).collect();
            assert_eq!(owners.len(), 3, "{masters} masters");
        }
    }

    #[test]
    fn a_tag_leads_to_its_slot() {
        // As `CLUSTER KEYSLOT` reports it.
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b""), 0);
        for slot in spread(7, 1).into_iter().chain([0, SLOTS - 1]) {
            let tag = tag(slot);
            let inner = tag.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
            assert_eq!(slot_of(inner.as_bytes()), slot);
        }
    }
}
