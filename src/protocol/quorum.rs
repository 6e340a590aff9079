//! How many nodes must agree.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
    needed: usize,
}

impl Quorum {
    /// The quorum `ceil((nodes + masked + 1) / 2)`: any two of them share more than `masked` nodes. `None` if there are
    /// too few nodes.
    pub(crate) const fn masking(nodes: usize, masked: usize) -> Option<Self> {
        if nodes == 0 || masked >= nodes {
            return None;
        }
        Some(Self {
            nodes,
            needed: (nodes + masked + 1).div_ceil(2),
        })
    }

    pub(crate) const fn nodes(self) -> usize {
        self.nodes
    }

    pub(crate) fn needed(self) -> usize {
        self.needed
    }

    /// How many may be down while the lock still works.
    pub(crate) fn spare(self) -> usize {
        self.nodes - self.needed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_quorums() {
        let needed = |n, f| Quorum::masking(n, f).map(Quorum::needed);
        assert_eq!(needed(0, 0), None);
        assert_eq!(needed(1, 0), Some(1));
        assert_eq!(needed(2, 0), Some(2));
        assert_eq!(needed(3, 0), Some(2));
        assert_eq!(needed(4, 0), Some(3));
        assert_eq!(needed(5, 0), Some(3));
        assert_eq!(needed(3, 1), Some(3));
        assert_eq!(needed(4, 1), Some(3));
        assert_eq!(needed(5, 1), Some(4));
        assert_eq!(needed(5, 2), Some(4));
        assert_eq!(needed(6, 1), Some(4));
        assert_eq!(needed(1, 1), None);
    }

    #[test]
    fn two_quorums_share_more_nodes_than_are_masked() {
        for nodes in 1..12 {
            for masked in 0..nodes {
                let quorum = Quorum::masking(nodes, masked).unwrap();
                assert!(quorum.needed() <= nodes, "{nodes} {masked}");
                assert!(2 * quorum.needed() - nodes > masked, "{nodes} {masked}");
                assert_eq!(quorum.spare() + quorum.needed(), quorum.nodes());
            }
        }
    }
}
