//! Whose turn it is among the sources of a worker.
//!
//! Sources whose rows meet are merged by event time: the one that lags most goes first, however long that takes,
//! since what the others read meanwhile would only fill the memory. Where rows never meet nothing is gained by that, nor
//! with a source without event time, which lags for ever: if it has no end either, it would keep all others waiting.
//! So sources are divided into parties that take turns, a poll each. The sources of a pipeline are one party, but each
//! that has neither event time nor an end is one of its own. All pipelines that end by themselves are one party
//! together: their sources without event time are read one after the other.

use crate::physical::{Graph, NodeKind, Ship};

/// Which sources take turns, and who has had one.
pub(super) struct Turns {
    /// The party of each source, by the source's place among those of the worker.
    parties: Vec<usize>,
    /// Parties that have given something in this round.
    had: Vec<bool>,
}

#[derive(PartialEq)]
enum Party {
    Alone(usize),
    Pipeline(usize),
    Ending,
}

impl Turns {
    /// The turns of these nodes of the graph, which are sources or values.
    pub fn new(graph: &Graph, sources: &[usize]) -> Self {
        let pipelines = pipelines(graph);
        let endless = |node: usize| matches!(&graph.nodes[node].kind, NodeKind::Source(spec) if !spec.source.bounded());
        let has_time = |node: usize| matches!(&graph.nodes[node].kind, NodeKind::Source(spec) if spec.watermark.is_some());
        let lasting: Vec<usize> = sources.iter().filter(|node| endless(**node)).map(|node| pipelines[*node]).collect();
        let mut known: Vec<Party> = Vec::new();
        let parties = sources.iter().map(|node| {
            let party = if endless(*node) && !has_time(*node) {
                Party::Alone(*node)
            } else if lasting.contains(&pipelines[*node]) {
                Party::Pipeline(pipelines[*node])
            } else {
                Party::Ending
            };
            known.iter().position(|p| *p == party).unwrap_or_else(|| {
                known.push(party);
                known.len() - 1
            })
        });
        let parties = parties.collect();
        Turns { parties, had: vec![false; known.len()] }
    }

    /// Whether others go before the source at this place, if they have anything.
    pub fn had(&self, at: usize) -> bool {
        self.had[self.parties[at]]
    }

    /// The source at this place has given something.
    pub fn take(&mut self, at: usize) {
        let party = self.parties[at];
        if self.had[party] {
            // The others have had their turns, or have nothing: another round begins.
            self.had.fill(false);
        }
        self.had[party] = true;
    }
}

/// For each node what stands for its pipeline: those that rows connect. Records that cannot be read do not.
fn pipelines(graph: &Graph) -> Vec<usize> {
    let mut pipelines: Vec<usize> = (0..graph.nodes.len()).collect();
    for (index, node) in graph.nodes.iter().enumerate() {
        for edge in node.inputs.iter().filter(|edge| !matches!(edge.ship, Ship::BadRecords)) {
            let (one, other) = (pipelines[index], pipelines[edge.from]);
            pipelines.iter_mut().filter(|p| **p == other).for_each(|p| *p = one);
        }
    }
    pipelines
}
