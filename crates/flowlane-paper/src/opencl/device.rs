//! CPUs as OpenCL devices: whether there are any, what they are, and how many of their cores work.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use flowlane_gpu::GpuError;
use opencl_sys::*;

use super::error::ClError;
use super::library::{Object, OpenCl, done, text, told};

const DESCRIBING: &str = "saying what it is";

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClProperties {
    /// Its place among the CPUs of all platforms, from 0.
    pub ordinal: usize,
    pub name: String,
    /// Whose driver it is, and its version.
    pub platform: String,
    /// Cores, or as many as were asked for.
    pub cores: usize,
    /// All of its memory.
    pub memory_bytes: usize,
    /// Most bytes of one table.
    pub table_bytes_max: usize,
    /// Memory of a group of work items.
    pub local_bytes: usize,
}

/// Some cores of a CPU.
#[derive(Clone, Debug)]
pub struct ClDevice {
    shared: Arc<Shared>,
    memory_max: usize,
}

/// What is open, for as long as the process runs, by number and cores: a driver's threads may still have a hand in a context
/// or a queue when all that was asked of them is done, and PoCL 3.1 then reads what was given back.
static OPEN: Mutex<Open> = Mutex::new(Open::new());

type Open = BTreeMap<(usize, Option<usize>), Arc<Shared>>;

#[derive(Debug)]
struct Shared {
    context: Object,
    /// Queues that no table has at present.
    queues: Mutex<Vec<Object>>,
    /// Where not all cores are to work.
    _part: Option<Object>,
    id: cl_device_id,
    properties: ClProperties,
}

// SAFETY: the name of a device, of which the library lets every thread make use; a part of one stays as long as this.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// What all CPUs are.
///
/// # Errors
/// Without the library, a driver or a CPU.
pub fn all() -> Result<Vec<ClProperties>, ClError> {
    let cl = OpenCl::get()?;
    let describe = |(ordinal, (platform, id))| properties(cl, ordinal, platform, id);
    cpus(cl)?.into_iter().enumerate().map(describe).collect()
}

/// All CPUs, with their platforms; one at least.
fn cpus(cl: &OpenCl) -> Result<Vec<(cl_platform_id, cl_device_id)>, ClError> {
    let mut count = 0;
    // SAFETY: it writes one number; there is no room for more that it might fill.
    let status = unsafe { (cl.clGetPlatformIDs)(0, ptr::null_mut(), &mut count) };
    if status == CL_PLATFORM_NOT_FOUND_KHR || count == 0 {
        return Err(ClError::NoPlatform);
    }
    done("listing its platforms", status)?;
    let mut platforms = vec![ptr::null_mut(); count as usize];
    // SAFETY: there is room for `count` platforms.
    let status = unsafe { (cl.clGetPlatformIDs)(count, platforms.as_mut_ptr(), ptr::null_mut()) };
    done("listing its platforms", status)?;
    let mut cpus = Vec::new();
    for platform in platforms {
        let mut count = 0;
        // SAFETY: the platform is one that the library listed; it writes one number.
        let status =
            unsafe { (cl.clGetDeviceIDs)(platform, CL_DEVICE_TYPE_CPU, 0, ptr::null_mut(), &mut count) };
        if status == CL_DEVICE_NOT_FOUND {
            continue;
        }
        done("listing its devices", status)?;
        let mut ids = vec![ptr::null_mut(); count as usize];
        // SAFETY: as above, and there is room for `count` devices.
        let status = unsafe {
            (cl.clGetDeviceIDs)(platform, CL_DEVICE_TYPE_CPU, count, ids.as_mut_ptr(), ptr::null_mut())
        };
        done("listing its devices", status)?;
        cpus.extend(ids.into_iter().map(|id| (platform, id)));
    }
    match cpus.len() {
        0 => Err(ClError::NoCpu { reason: "no platform has one".to_owned() }),
        _ => Ok(cpus),
    }
}

/// What a device says of itself.
fn ask<T: Default + Clone>(cl: &OpenCl, id: cl_device_id, what: cl_device_info) -> Result<Vec<T>, ClError> {
    // SAFETY: the device is one that the library listed; there is as much room as it is told.
    told(DESCRIBING, |size, room, needed| unsafe { (cl.clGetDeviceInfo)(id, what, size, room, needed) })
}

fn properties(
    cl: &OpenCl,
    ordinal: usize,
    platform: cl_platform_id,
    id: cl_device_id,
) -> Result<ClProperties, ClError> {
    // SAFETY: the platform is one that the library listed; there is as much room as it is told.
    let platform = told(DESCRIBING, |size, room, needed| unsafe {
        (cl.clGetPlatformInfo)(platform, CL_PLATFORM_NAME, size, room, needed)
    })?;
    let bytes = |what| {
        let told = ask::<cl_ulong>(cl, id, what)?;
        Ok::<_, ClError>(told.first().map_or(0, |bytes| usize::try_from(*bytes).unwrap_or(usize::MAX)))
    };
    let cores = ask::<cl_uint>(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS)?;
    Ok(ClProperties {
        ordinal,
        name: text(&ask(cl, id, CL_DEVICE_NAME)?),
        platform: format!("{} {}", text(&platform), text(&ask(cl, id, CL_DRIVER_VERSION)?)),
        cores: cores.first().map_or(1, |cores| *cores as usize),
        memory_bytes: bytes(CL_DEVICE_GLOBAL_MEM_SIZE)?,
        table_bytes_max: bytes(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        local_bytes: bytes(CL_DEVICE_LOCAL_MEM_SIZE)?,
    })
}

impl ClDevice {
    /// The CPU of this number, from 0.
    ///
    /// # Errors
    /// As [`all`], and where there is no CPU of this number.
    pub fn open(ordinal: usize) -> Result<Self, ClError> {
        Self::open_part(ordinal, None)
    }

    /// So many cores of the CPU of this number.
    ///
    /// # Errors
    /// As [`open`](Self::open); where it has fewer cores, or none can be left out.
    pub fn open_cores(ordinal: usize, cores: usize) -> Result<Self, ClError> {
        Self::open_part(ordinal, Some(cores))
    }

    fn open_part(ordinal: usize, cores: Option<usize>) -> Result<Self, ClError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = open.get(&(ordinal, cores)) {
            return Ok(Self { shared: shared.clone(), memory_max: usize::MAX });
        }
        let cl = OpenCl::get()?;
        let cpus = cpus(cl)?;
        let Some((platform, whole)) = cpus.get(ordinal).copied() else {
            let reason = format!("there are {}, counted from 0, and not number {ordinal}", cpus.len());
            return Err(ClError::NoCpu { reason });
        };
        let mut properties = properties(cl, ordinal, platform, whole)?;
        let part = match cores {
            Some(cores) if !(1..=properties.cores).contains(&cores) => {
                return Err(ClError::Cores { asked: cores, there: properties.cores });
            }
            Some(cores) if cores < properties.cores => Some(part(cl, whole, cores)?),
            _ => None,
        };
        properties.cores = cores.unwrap_or(properties.cores);
        let id = part.as_ref().map_or(whole, Object::raw);
        let context = Object::made("being opened", cl.clReleaseContext, |status| {
            // SAFETY: one device, which the library listed or made; no properties, no function to be called.
            unsafe { (cl.clCreateContext)(ptr::null(), 1, &id, None, ptr::null_mut(), status) }
        })?;
        let shared = Arc::new(Shared { context, queues: Mutex::default(), _part: part, id, properties });
        open.insert((ordinal, cores), shared.clone());
        Ok(Self { shared, memory_max: usize::MAX })
    }

    /// The same, on which no table takes more than so many bytes.
    pub fn with_memory_max(self, memory_max: usize) -> Self {
        Self { memory_max, ..self }
    }

    /// What it is.
    pub fn properties(&self) -> &ClProperties {
        &self.shared.properties
    }

    pub(super) fn id(&self) -> cl_device_id {
        self.shared.id
    }

    pub(super) fn context(&self) -> cl_context {
        self.shared.context.raw()
    }

    /// A queue that nobody else has, until it is dropped.
    pub(super) fn queue(&self) -> Result<Queue, ClError> {
        let idle = self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let cl = OpenCl::get()?;
        let make = || {
            Object::made("making a queue", cl.clReleaseCommandQueue, |status| {
                // SAFETY: the device is of this context; no properties: in order.
                unsafe { (cl.clCreateCommandQueue)(self.context(), self.id(), 0, status) }
            })
        };
        let object = idle.map_or_else(make, Ok)?;
        Ok(Queue { object: Some(object), shared: self.shared.clone() })
    }

    /// Refuses what does not fit, before any of it is made.
    pub(super) fn reserve(&self, what: &'static str, needed_bytes: usize) -> Result<(), GpuError> {
        let free_bytes = self.properties().table_bytes_max.min(self.memory_max);
        match needed_bytes <= free_bytes {
            true => Ok(()),
            false => Err(GpuError::Memory { what, needed_bytes, free_bytes }),
        }
    }
}

/// A queue of a device; whoever has it waits for what it asks.
#[derive(Debug)]
pub(super) struct Queue {
    /// There until it is dropped.
    object: Option<Object>,
    shared: Arc<Shared>,
}

impl Queue {
    pub(super) fn raw(&self) -> cl_command_queue {
        self.object.as_ref().map_or(ptr::null_mut(), Object::raw)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(self.object.take());
    }
}

/// Some cores of a device, as a device.
fn part(cl: &OpenCl, whole: cl_device_id, cores: usize) -> Result<Object, ClError> {
    let counts = [CL_DEVICE_PARTITION_BY_COUNTS, cores as _, CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0];
    Object::made("being parted", cl.clReleaseDevice, |status| {
        let mut part = ptr::null_mut();
        // SAFETY: the device is one that the library listed; the list of counts ends as it should, and one count makes one
        // device, for which there is room.
        *status = unsafe { (cl.clCreateSubDevices)(whole, counts.as_ptr(), 1, &mut part, ptr::null_mut()) };
        part
    })
}
