//! Queries in flight to accelerators, and batches whose results share a line.

use super::cache::Line;
use crate::event::Ps;

/// The number of a query in flight.
pub type QueryId = u32;
/// The number of a batch in flight.
pub type BatchId = u32;

/// The unit that answers a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// An accelerator next to a slice.
    Cha,
    /// The engine next to the core's second-level cache.
    NearL2,
}

/// The memory accesses of a lookup, recorded from the real table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Walk {
    /// The line of the table's metadata.
    pub table: Line,
    pub key: Line,
    /// The hash of the key.
    pub hash: u32,
    /// The lines of buckets and entries in order, and whether each is a bucket.
    pub lines: Vec<(Line, bool)>,
    /// The lines of the key's two buckets, both known once the key is hashed.
    pub buckets: [Line; 2],
    /// The result of the walk.
    pub answer: Option<u32>,
    /// The result of the library.
    pub expected: Option<u32>,
}

/// The step of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// In transit to the accelerator.
    Sent,
    /// Waiting in the queue.
    Queued,
    /// Fetching the table's metadata.
    Metadata,
    /// Fetching the key.
    Key,
    /// Hashing the key.
    Hash,
    /// Fetching line `n` of the walk; beyond its end, waiting for a bucket that was fetched and not needed.
    Access(u32),
    /// Comparing line `n` of the walk.
    Compare(u32),
    /// Committing.
    Commit,
    /// Returning the result.
    Result,
}

#[derive(Clone, Debug)]
pub struct Query {
    /// The accesses.
    pub walk: Walk,
    /// The unit that answers.
    pub engine: Engine,
    /// The batch that receives the result; `None` for a blocking query.
    pub batch: Option<BatchId>,
    /// The core that sent the query.
    pub core: u32,
    /// The thread that sent the query.
    pub thread: u8,
    /// The number of the operation that sent the query.
    pub op: u64,
    /// The unit that has the query.
    pub unit: u32,
    /// The current step.
    pub step: Step,
    /// The time of sending.
    pub sent: Ps,
    /// The beginning of the step.
    pub since: Ps,
    /// The time spent fetching.
    pub data_ps: Ps,
    /// The second bucket, fetched together with the first, and whether it has arrived.
    pub ahead: Option<(Line, bool)>,
    /// The lines locked by the query.
    pub locked: Vec<Line>,
    /// The sequence number among all queries.
    pub number: u64,
}

impl Query {
    /// Adds the second bucket to the lines to compare if the key is absent, since only the library's filter spares it,
    /// and returns its line if it differs from the first.
    pub(super) fn fetch_both(&mut self) -> Option<Line> {
        let first = self.walk.lines.first()?.0;
        let other = self.walk.buckets.into_iter().find(|line| *line != first)?;
        if self.walk.answer.is_none() && !self.walk.lines.iter().any(|(line, _)| *line == other) {
            self.walk.lines.push((other, true));
        }
        self.ahead = Some((other, false));
        Some(other)
    }

    /// Returns whether the second bucket is still on its way.
    pub(super) fn is_fetching_ahead(&self) -> bool {
        matches!(self.ahead, Some((_, false)))
    }
}

/// A batch: the line of its results, and the number of missing results.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub line: Line,
    /// The number of results not yet written.
    pub missing: u32,
}

/// All queries and batches in flight.
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
    /// Adds a query.
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
            ahead: None,
            locked: Vec::new(),
            number: self.made,
        };
        self.made += 1;
        if let Some(batch) = batch {
            self.batch_mut(batch).missing += 1;
        }
        put(&mut self.queries, &mut self.free, query)
    }

    /// Adds a batch whose results go to a line.
    pub fn add_batch(&mut self, line: Line) -> BatchId {
        put(&mut self.batches, &mut self.free_batches, Batch { line, missing: 0 })
    }

    /// Returns a query in flight.
    pub fn get(&self, id: QueryId) -> &Query {
        self.queries[id as usize].as_ref().expect("it is under way")
    }

    /// Returns a query in flight, mutably.
    pub fn get_mut(&mut self, id: QueryId) -> &mut Query {
        self.queries[id as usize].as_mut().expect("it is under way")
    }

    /// Returns a batch in flight, mutably.
    pub fn batch_mut(&mut self, id: BatchId) -> &mut Batch {
        self.batches[id as usize].as_mut().expect("it is under way")
    }

    /// Ends an answered query.
    pub fn end(&mut self, id: QueryId) -> Query {
        self.answered += 1;
        self.free.push(id);
        self.queries[id as usize].take().expect("it is under way")
    }

    /// Ends a batch whose results have been read.
    pub fn end_batch(&mut self, id: BatchId) {
        self.batches[id as usize] = None;
        self.free_batches.push(id);
    }

    /// Returns the number of queries made, and of queries answered.
    pub fn count(&self) -> (u64, u64) {
        (self.made, self.answered)
    }

    /// Returns the queries in flight.
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
