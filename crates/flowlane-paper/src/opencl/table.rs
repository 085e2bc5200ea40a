//! A rule set for the cores of a CPU, and batches looked up in it.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, WordKind};
use flowlane_gpu::GpuError;
use flowlane_gpu::kernel_tables::{
    ClassTables, ENTRIES_MAX, Filters, rule_words, words_of_class, words_of_rule,
};
use flowlane_gpu::ternary::TernaryRules;
use opencl_sys::*;

use super::device::{ClDevice, Queue};
use super::error::ClError;
use super::library::{Object, OpenCl, done};
use super::program::{ClMethod, Kernel};

/// Work items of a group, which a core runs one by one or as vector lanes. These were fastest with PoCL 3.1 on a Xeon
/// with AVX-512: with one item, linear search takes 1.6 times as long; with 16, tuple and Bloom search take 1.2 times
/// as long.
const LINEAR_ITEMS: usize = 16;
const CLASS_ITEMS: usize = 1;
/// Local memory of a group in linear search: about the first-level cache of a core.
const LINEAR_BYTES: usize = 32 << 10;
/// The least number of groups for each core in linear search, to balance the load.
const GROUPS_A_CORE: usize = 4;

/// An immutable rule set for the cores of a CPU.
#[derive(Debug)]
pub struct ClTable<const W: usize> {
    method: ClMethod,
    device: ClDevice,
    /// The rules, indexed by standing from 1.
    hits: Vec<Hit>,
    entries: usize,
    classes: Option<usize>,
    table_bytes: usize,
    batch_max: usize,
    lane: Mutex<Lane>,
}

/// The resources of one batch at a time.
#[derive(Debug)]
struct Lane {
    queue: Queue,
    kernel: Kernel,
    /// The position of the number of tuples among the kernel's arguments.
    count: cl_uint,
    groups: usize,
    items: usize,
    tuples: Object,
    winners: Object,
    /// Buffers that the kernel reads.
    _tables: Vec<Object>,
    columns: Vec<u32>,
    standings: Vec<u32>,
}

/// A table in construction.
struct Prepared {
    kernel: Kernel,
    tables: Vec<Object>,
    table_bytes: usize,
    /// The number of groups; work items and local memory of each follow.
    groups: usize,
    items: usize,
    local_bytes: usize,
    classes: Option<usize>,
}

impl<const W: usize> ClTable<W> {
    /// Builds a table of the entries of category 0. `seed` is secret; batches have at most `batch_max` keys.
    ///
    /// # Errors
    /// Returns an error if the entries do not fit, the kernel does not compile, or the device fails.
    pub fn build(
        device: &ClDevice,
        method: ClMethod,
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        seed: u64,
        batch_max: usize,
    ) -> Result<Self, ClError> {
        let rules = TernaryRules::new(kinds, entries, ENTRIES_MAX)?;
        let prepared = match method {
            ClMethod::Linear => linear(device, &rules),
            ClMethod::Tuple => tuple(device, &rules, seed),
            ClMethod::Bloom => bloom(device, &rules, seed),
        }?;
        let local_bytes = device.properties().local_bytes;
        if prepared.local_bytes > local_bytes {
            let needed_bytes = prepared.local_bytes;
            let what = "a group of work items";
            return Err(GpuError::Memory { what, needed_bytes, free_bytes: local_bytes }.into());
        }
        let (classes, table_bytes) = (prepared.classes, prepared.table_bytes);
        let batch_max = batch_max.clamp(1, u32::MAX as usize / W);
        let mut lane = Lane::new::<W>(device, prepared, batch_max)?;
        // Drivers finish compiling at the first launch, which must not count as lookup time.
        lane.look_up(&[[0; W]])?;
        let lane = Mutex::new(lane);
        let (entries, device) = (rules.rules.len(), device.clone());
        Ok(Self { method, device, hits: rules.hits, entries, classes, table_bytes, batch_max, lane })
    }

    /// Looks up keys, batch by batch; concurrent callers take turns.
    ///
    /// # Errors
    /// Returns an error if the device fails; the contents of `hits` are unspecified then.
    ///
    /// # Panics
    /// Panics if the slices differ in length.
    pub fn lookup_batch(&self, keys: &[[u32; W]], hits: &mut [Option<Hit>]) -> Result<(), ClError> {
        assert_eq!(keys.len(), hits.len());
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        for (keys, hits) in keys.chunks(self.batch_max).zip(hits.chunks_mut(self.batch_max)) {
            let standings = lane.look_up(keys)?;
            hits.iter_mut().zip(standings).for_each(|(hit, standing)| *hit = self.hit(*standing));
        }
        Ok(())
    }

    /// Returns the rule of a standing. An unknown standing indicates an error in a kernel and yields no rule rather
    /// than a wrong one.
    fn hit(&self, standing: u32) -> Option<Hit> {
        self.hits.get((standing as usize).checked_sub(1)?).copied()
    }

    /// Returns the search method.
    pub fn method(&self) -> ClMethod {
        self.method
    }

    /// Returns the device.
    pub fn device(&self) -> &ClDevice {
        &self.device
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.hits.len()
    }

    /// Returns whether the table has no rules.
    pub fn is_empty(&self) -> bool {
        self.hits.is_empty()
    }

    /// Returns the number of entries; a rule with ranges has several.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the number of masks, counting the parts of split classes; `None` if the method does not use classes.
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// Returns the memory of the table without the list of rules.
    pub fn table_bytes(&self) -> usize {
        self.table_bytes
    }
}

/// Copies words to the device for kernels to read.
fn upload<T>(device: &ClDevice, what: &'static str, values: &[T]) -> Result<Object, ClError> {
    device.reserve(what, size_of_val(values))?;
    if values.is_empty() {
        // OpenCL rejects empty buffers.
        return room(device, size_of::<T>());
    }
    let cl = OpenCl::get()?;
    Object::made("taking memory for a table", cl.clReleaseMemObject, |status| {
        let flags = CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR;
        let start = values.as_ptr().cast_mut().cast();
        // SAFETY: the library copies this many bytes before it returns, and writes nothing.
        unsafe { (cl.clCreateBuffer)(device.context(), flags, size_of_val(values), start, status) }
    })
}

/// Allocates a buffer on the device.
fn room(device: &ClDevice, bytes: usize) -> Result<Object, ClError> {
    let cl = OpenCl::get()?;
    Object::made("taking memory", cl.clReleaseMemObject, |status| {
        // SAFETY: nothing of the host's is read or written.
        unsafe { (cl.clCreateBuffer)(device.context(), CL_MEM_READ_WRITE, bytes, ptr::null_mut(), status) }
    })
}

fn linear<const W: usize>(device: &ClDevice, rules: &TernaryRules<W>) -> Result<Prepared, ClError> {
    let rule_bytes = 4 * words_of_rule(W);
    device.reserve("linear search", rule_bytes * rules.rules.len())?;
    let held = LINEAR_BYTES / rule_bytes;
    // One group for each full set of rules; with few rules, enough groups for all cores.
    let spread = (GROUPS_A_CORE * device.properties().cores).min(rules.rules.len());
    let table = upload(device, "linear search", &rule_words(rules))?;
    let kernel = Kernel::compile(device, ClMethod::Linear, W)?
        .buffer(&table)?
        .number(rules.rules.len() as u32)?
        .number(held as u32)?;
    Ok(Prepared {
        kernel,
        tables: vec![table],
        table_bytes: rule_bytes * rules.rules.len(),
        items: LINEAR_ITEMS,
        groups: rules.rules.len().div_ceil(held).max(spread).max(1),
        local_bytes: held * rule_bytes,
        classes: None,
    })
}

fn tuple<const W: usize>(device: &ClDevice, rules: &TernaryRules<W>, seed: u64) -> Result<Prepared, ClError> {
    let tables = ClassTables::new(rules, seed, |what, bytes| device.reserve(what, bytes))?;
    let functions = tables.function_words();
    let buffers =
        vec![upload(device, "tuple search", tables.words())?, upload(device, "tuple search", &functions)?];
    let kernel = Kernel::compile(device, ClMethod::Tuple, W)?
        .buffer(&buffers[0])?
        .number(tables.class_count() as u32)?
        .buffer(&buffers[1])?;
    Ok(Prepared {
        kernel,
        tables: buffers,
        table_bytes: size_of_val(tables.words()) + size_of_val(&functions[..]),
        groups: tables.class_count().max(1),
        items: CLASS_ITEMS,
        local_bytes: 4 * words_of_class(W),
        classes: Some(tables.class_count()),
    })
}

fn bloom<const W: usize>(device: &ClDevice, rules: &TernaryRules<W>, seed: u64) -> Result<Prepared, ClError> {
    let tables = ClassTables::new(rules, seed, |what, bytes| device.reserve(what, bytes))?;
    let filters = Filters::new(&tables, seed);
    let buffers = vec![
        upload(device, "Bloom search", tables.words())?,
        upload(device, "Bloom search", &filters.words)?,
        upload(device, "Bloom search", &filters.functions)?,
    ];
    let kernel = Kernel::compile(device, ClMethod::Bloom, W)?
        .buffer(&buffers[0])?
        .number(tables.class_count() as u32)?
        .buffer(&buffers[1])?
        .number(filters.bits)?
        .number(filters.function_count)?
        .buffer(&buffers[2])?;
    let words = tables.words().len() + filters.words.len();
    Ok(Prepared {
        kernel,
        tables: buffers,
        table_bytes: 4 * words + size_of_val(&filters.functions[..]),
        groups: tables.class_count().max(1),
        items: CLASS_ITEMS,
        local_bytes: 4 * words_of_class(W) + filters.bytes_of_class(),
        classes: Some(tables.class_count()),
    })
}

impl Lane {
    fn new<const W: usize>(device: &ClDevice, prepared: Prepared, batch_max: usize) -> Result<Self, ClError> {
        device.reserve("batches", 4 * W * batch_max)?;
        let queue = device.queue()?;
        let tuples = room(device, 4 * W * batch_max)?;
        let winners = room(device, 4 * batch_max)?;
        let kernel = prepared.kernel.buffer(&tuples)?;
        let count = kernel.arguments();
        let kernel = kernel.number(0)?.buffer(&winners)?.local(prepared.local_bytes)?;
        let (groups, items, _tables) = (prepared.groups, prepared.items, prepared.tables);
        let (columns, standings) = (Vec::new(), Vec::new());
        Ok(Self { queue, kernel, count, groups, items, tuples, winners, _tables, columns, standings })
    }

    /// Returns the standings of the winners for at most one batch of keys.
    fn look_up<const W: usize>(&mut self, keys: &[[u32; W]]) -> Result<&[u32], ClError> {
        self.columns.clear();
        (0..W).for_each(|w| self.columns.extend(keys.iter().map(|key| key[w])));
        self.standings.clear();
        self.standings.resize(keys.len(), 0);
        self.kernel.change(self.count, keys.len() as u32)?;
        let cl = OpenCl::get()?;
        self.write(cl, &self.tuples, &self.columns)?;
        self.write(cl, &self.winners, &self.standings)?;
        let (all, group) = (self.groups * self.items, self.items);
        // SAFETY: the arguments are those of the method's kernel in their order, with tables whose lengths are among
        // the arguments (`linear`, `tuple`, `bloom`); `tuples` and `winners` hold `count` tuples, as written above.
        let status = unsafe {
            let (queue, kernel) = (self.queue.raw(), self.kernel.raw());
            (cl.clEnqueueNDRangeKernel)(
                queue,
                kernel,
                1,
                ptr::null(),
                &all,
                &group,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        done("looking a batch up", status)?;
        let (room, bytes) = (self.standings.as_mut_ptr().cast(), size_of_val(&self.standings[..]));
        // SAFETY: the buffer has room for this many bytes, which are the standings of this batch; the call blocks
        // until they are written.
        let status = unsafe {
            let (queue, winners) = (self.queue.raw(), self.winners.raw());
            (cl.clEnqueueReadBuffer)(queue, winners, CL_TRUE, 0, bytes, room, 0, ptr::null(), ptr::null_mut())
        };
        done("reading winners", status)?;
        Ok(&self.standings)
    }

    /// Copies words to the device.
    fn write(&self, cl: &OpenCl, to: &Object, words: &[u32]) -> Result<(), ClError> {
        let (start, bytes) = (words.as_ptr().cast(), size_of_val(words));
        // SAFETY: the call blocks until the words are copied. Batches are at most as long as the buffers that `new`
        // allocated.
        let status = unsafe {
            let queue = self.queue.raw();
            (cl.clEnqueueWriteBuffer)(
                queue,
                to.raw(),
                CL_TRUE,
                0,
                bytes,
                start,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        done("sending a batch", status)
    }
}
