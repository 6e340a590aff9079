//! One of the processes that take locks, as its parent sees it.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::contender::TEST;
use super::part::Part;
use super::program::Program;
use super::records::Records;
use crate::support::clocks::Clocks;
use crate::support::role::Heard;

/// A process that takes locks. It ends with this value.
pub(crate) struct Process {
    number: usize,
    part: Part,
    pub(crate) clocks: Clocks,
    records: Arc<Records>,
    pub(crate) program: Program,
    reader: JoinHandle<()>,
}

impl Process {
    pub(crate) fn start(number: usize, part: Part, clocks: Clocks, records: Arc<Records>) -> Self {
        let (program, heard) = Program::start(TEST, &part, &clocks);
        let reader = tokio::spawn(read(heard, number, Arc::clone(&records)));
        Self {
            number,
            part,
            clocks,
            records,
            program,
            reader,
        }
    }

    /// Kills it, and starts another in its place, on the same ways.
    pub(crate) async fn replace(&mut self) {
        self.program.player.child.kill().await.unwrap();
        let (part, clocks) = (self.part.clone(), self.clocks.clone());
        *self = Self::start(self.number, part, clocks, Arc::clone(&self.records));
    }

    /// Has it end by itself, and waits until all it has told is noted.
    pub(crate) async fn end(self) {
        self.program.player.end().await;
        self.reader.await.unwrap();
    }
}

async fn read(mut heard: Heard, number: usize, records: Arc<Records>) {
    while let Some((task, held)) = heard.next().await {
        records.add(number, task, held);
    }
}
