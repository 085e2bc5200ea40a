//! Queries under way to accelerators, and the batches whose results share a line.

use super::cache::Line;
use crate::event::Ps;

/// A query's number while it is under way.
pub type QueryId = u32;
/// A batch's number while it is under way.
pub type BatchId = u32;

/// What answers a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// An accelerator beside a slice.
    Cha,
    /// The engine beside the asking core's second cache.
    NearL2,
}

/// What a lookup reads: recorded from the real table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Walk {
    /// The line that says where the table is.
    pub table: Line,
    pub key: Line,
    /// The key's hash.
    pub hash: u32,
    /// Lines of buckets and entries in their order; whether each is a bucket's.
    pub lines: Vec<(Line, bool)>,
    /// What the walk found.
    pub answer: Option<u32>,
    /// What the library says.
    pub expected: Option<u32>,
}

/// Where a query stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// On its way to the accelerator.
    Sent,
    /// Waiting to be begun.
    Queued,
    /// The table's metadata are being fetched.
    Metadata,
    /// The key is being fetched.
    Key,
    /// It is being hashed.
    Hash,
    /// Line `n` of the walk is being fetched.
    Access(u32),
    /// It is being compared.
    Compare(u32),
    /// The query is being closed.
    Commit,
    /// The result is on its way.
    Result,
}

#[derive(Clone, Debug)]
pub struct Query {
    /// What is read.
    pub walk: Walk,
    /// What answers.
    pub engine: Engine,
    /// The batch whose line takes the result; none for a blocking query.
    pub batch: Option<BatchId>,
    /// Who asked: core, thread, and the operation's number.
    pub core: u32,
    /// See `core`.
    pub thread: u8,
    /// See `core`.
    pub op: u64,
    /// Which accelerator has it.
    pub unit: u32,
    /// Where it stands.
    pub step: Step,
    /// When it was sent.
    pub sent: Ps,
    /// When the step began.
    pub since: Ps,
    /// Time spent fetching.
    pub data_ps: Ps,
    /// Lines that it has locked.
    pub locked: Vec<Line>,
    /// Its place among all queries.
    pub number: u64,
}

/// A batch: the line that its results are written to, and how many are missing.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub line: Line,
    /// Results that have not been written.
    pub missing: u32,
}

/// All queries and batches under way.
#[derive(Debug, Default)]
pub struct Queries {
    queries: Vec<Option<Query>>,
    free: Vec<QueryId>,
    batches: Vec<Option<Batch>>,
    free_batches: Vec<BatchId>,
    made: u64,
    answered: u64,
}

impl Queries {
    /// A new query.
    pub fn add(&mut self, walk: Walk, engine: Engine, batch: Option<BatchId>) -> QueryId {
        let query = Query {
            walk,
            engine,
            batch,
            core: 0,
            thread: 0,
            op: 0,
            unit: 0,
            step: Step::Sent,
            sent: 0,
            since: 0,
            data_ps: 0,
            locked: Vec::new(),
            number: self.made,
        };
        self.made += 1;
        if let Some(batch) = batch {
            self.batch_mut(batch).missing += 1;
        }
        put(&mut self.queries, &mut self.free, query)
    }

    /// A new batch whose results go to a line.
    pub fn add_batch(&mut self, line: Line) -> BatchId {
        put(&mut self.batches, &mut self.free_batches, Batch { line, missing: 0 })
    }

    /// A query that is under way.
    pub fn get(&self, id: QueryId) -> &Query {
        self.queries[id as usize].as_ref().expect("it is under way")
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: QueryId) -> &mut Query {
        self.queries[id as usize].as_mut().expect("it is under way")
    }

    /// A batch that is under way.
    pub fn batch_mut(&mut self, id: BatchId) -> &mut Batch {
        self.batches[id as usize].as_mut().expect("it is under way")
    }

    /// Ends a query: it was answered.
    pub fn end(&mut self, id: QueryId) -> Query {
        self.answered += 1;
        self.free.push(id);
        self.queries[id as usize].take().expect("it is under way")
    }

    /// Ends a batch: its results have been read.
    pub fn end_batch(&mut self, id: BatchId) {
        self.batches[id as usize] = None;
        self.free_batches.push(id);
    }

    /// Queries made, and queries answered.
    pub fn count(&self) -> (u64, u64) {
        (self.made, self.answered)
    }

    /// Those under way.
    pub fn under_way(&self) -> impl Iterator<Item = &Query> {
        self.queries.iter().flatten()
    }

    pub fn batches_under_way(&self) -> usize {
        self.batches.iter().flatten().count()
    }
}

fn put<T>(places: &mut Vec<Option<T>>, free: &mut Vec<u32>, value: T) -> u32 {
    let id = free.pop().unwrap_or_else(|| {
        places.push(None);
        places.len() as u32 - 1
    });
    places[id as usize] = Some(value);
    id
}
