//! CPUs as OpenCL devices: detection, properties, and the number of cores in use.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use flowlane_gpu::GpuError;
use opencl_sys::*;

use super::error::ClError;
use super::library::{Object, OpenCl, done, query, text};

const DESCRIBING: &str = "saying what it is";

/// Properties of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClProperties {
    /// The index among the CPUs of all platforms, from 0.
    pub ordinal: usize,
    pub name: String,
    /// The vendor of the driver, and its version.
    pub platform: String,
    /// The number of cores, or the requested number.
    pub cores: usize,
    /// The size of its memory.
    pub memory_bytes: usize,
    /// The largest table.
    pub table_bytes_max: usize,
    /// The local memory of a work group.
    pub local_bytes: usize,
}

/// A CPU, or some of its cores.
#[derive(Clone, Debug)]
pub struct ClDevice {
    shared: Arc<Shared>,
    memory_max: usize,
}

/// The open devices, by index and cores, kept until the process ends: a driver's threads may still use a context or a
/// queue after its work has finished, and PoCL 3.1 then reads freed memory.
static OPEN: Mutex<Open> = Mutex::new(Open::new());

type Open = BTreeMap<(usize, Option<usize>), Arc<Shared>>;

#[derive(Debug)]
struct Shared {
    context: Object,
    /// Queues that no table uses.
    queues: Mutex<Vec<Object>>,
    /// The sub-device, if not all cores are used.
    _part: Option<Object>,
    id: cl_device_id,
    properties: ClProperties,
}

// SAFETY: the handle of a device, which the library lets every thread use; a sub-device lives as long as this.
unsafe impl Send for Shared {}
// SAFETY: the library allows concurrent use of the handle.
unsafe impl Sync for Shared {}

/// Returns the properties of all CPUs.
///
/// # Errors
/// Returns an error without the library, a driver or a CPU.
pub fn all() -> Result<Vec<ClProperties>, ClError> {
    let cl = OpenCl::get()?;
    let describe = |(ordinal, (platform, id))| properties(cl, ordinal, platform, id);
    cpus(cl)?.into_iter().enumerate().map(describe).collect()
}

/// Returns all CPUs with their platforms; at least one.
fn cpus(cl: &OpenCl) -> Result<Vec<(cl_platform_id, cl_device_id)>, ClError> {
    let mut count = 0;
    // SAFETY: it writes one number; it is given no room for more.
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
        // SAFETY: the platform is one that the library listed, and there is room for `count` devices.
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

/// Queries a property of a device.
fn ask<T: Default + Clone>(cl: &OpenCl, id: cl_device_id, what: cl_device_info) -> Result<Vec<T>, ClError> {
    // SAFETY: the device is one that the library listed; the room is as large as stated.
    query(DESCRIBING, |size, room, needed| unsafe { (cl.clGetDeviceInfo)(id, what, size, room, needed) })
}

fn properties(
    cl: &OpenCl,
    ordinal: usize,
    platform: cl_platform_id,
    id: cl_device_id,
) -> Result<ClProperties, ClError> {
    // SAFETY: the platform is one that the library listed; the room is as large as stated.
    let platform = query(DESCRIBING, |size, room, needed| unsafe {
        (cl.clGetPlatformInfo)(platform, CL_PLATFORM_NAME, size, room, needed)
    })?;
    let bytes = |what| {
        let value = ask::<cl_ulong>(cl, id, what)?;
        Ok::<_, ClError>(value.first().map_or(0, |bytes| usize::try_from(*bytes).unwrap_or(usize::MAX)))
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
    /// Opens the CPU with this index, from 0.
    ///
    /// # Errors
    /// Returns the errors of [`all`], and an error if there is no such CPU.
    pub fn open(ordinal: usize) -> Result<Self, ClError> {
        Self::open_part(ordinal, None)
    }

    /// Opens some cores of the CPU with this index.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open), and an error if the CPU has fewer cores or cannot be partitioned.
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

    /// Limits the memory of one table.
    pub fn with_memory_max(self, memory_max: usize) -> Self {
        Self { memory_max, ..self }
    }

    /// Returns the properties of the device.
    pub fn properties(&self) -> &ClProperties {
        &self.shared.properties
    }

    pub(super) fn id(&self) -> cl_device_id {
        self.shared.id
    }

    pub(super) fn context(&self) -> cl_context {
        self.shared.context.raw()
    }

    /// Returns a queue for exclusive use until it is dropped.
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

    /// Refuses a table that does not fit, before it is built.
    pub(super) fn reserve(&self, what: &'static str, needed_bytes: usize) -> Result<(), GpuError> {
        let free_bytes = self.properties().table_bytes_max.min(self.memory_max);
        match needed_bytes <= free_bytes {
            true => Ok(()),
            false => Err(GpuError::Memory { what, needed_bytes, free_bytes }),
        }
    }
}

/// A queue of a device; its owner waits for each operation.
#[derive(Debug)]
pub(super) struct Queue {
    /// The queue; present until it is dropped.
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

/// Creates a sub-device with some cores of a device.
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
