//! Kernels: their sources, compiled for a device, and their arguments.

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::ptr;

use flowlane::named_enum;
use flowlane_gpu::kernel_tables::{PRIME, SLOTS, SUBTABLES};
use opencl_sys::*;
use strum::{IntoStaticStr, VariantArray};

use super::device::ClDevice;
use super::error::ClError;
use super::library::{Object, OpenCl, done, query, text};

/// A method to find the best rule through OpenCL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", prefix = "opencl-")]
pub enum ClMethod {
    /// Linear search over all rules (Varvello and others, Algorithm 1).
    Linear,
    /// Tuple search: a hash table for each mask (Varvello and others, Algorithm 4).
    Tuple,
    /// Tuple search behind a Bloom filter for each mask (Varvello and others, IV-C).
    Bloom,
}

impl ClMethod {
    /// All methods.
    pub const ALL: [Self; 3] = named_enum::all();

    /// Returns the name of the engine.
    pub fn name(self) -> &'static str {
        self.into()
    }

    fn kernel(self) -> &'static str {
        match self {
            Self::Linear => "find_linear",
            Self::Tuple => "find_tuple",
            Self::Bloom => "find_bloom",
        }
    }

    /// Returns the sources, which the compiler sees as one file.
    fn sources(self) -> Vec<&'static str> {
        let device = include_str!("../../opencl/device.cl");
        let class_table = include_str!("../../opencl/class_table.cl");
        match self {
            Self::Linear => vec![device, include_str!("../../opencl/linear.cl")],
            Self::Tuple => vec![device, class_table, include_str!("../../opencl/tuple.cl")],
            Self::Bloom => vec![device, class_table, include_str!("../../opencl/bloom.cl")],
        }
    }
}

impl fmt::Display for ClMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kernel with all its arguments except the number of tuples.
#[derive(Debug)]
pub(super) struct Kernel {
    object: Object,
    arguments: cl_uint,
}

impl Kernel {
    /// Compiles the kernel of a method for keys of `w` words, without arguments.
    pub(super) fn compile(device: &ClDevice, method: ClMethod, w: usize) -> Result<Self, ClError> {
        let cl = OpenCl::get()?;
        let sources = method.sources();
        let mut starts: Vec<*const c_char> = sources.iter().map(|source| source.as_ptr().cast()).collect();
        let lengths: Vec<usize> = sources.iter().map(|source| source.len()).collect();
        let program = Object::made("reading a kernel", cl.clReleaseProgram, |status| {
            let count = starts.len() as cl_uint;
            // SAFETY: as many texts as there are lengths, which say how long each is; the library copies them.
            unsafe {
                let (starts, lengths) = (starts.as_mut_ptr(), lengths.as_ptr());
                (cl.clCreateProgramWithSource)(device.context(), count, starts, lengths, status)
            }
        })?;
        let options =
            format!("-cl-std=CL1.2 -DW={w} -DSUBTABLES={SUBTABLES} -DSLOTS={SLOTS} -DPRIME={PRIME}UL");
        let options = CString::new(options).expect("no zero in it");
        let id = device.id();
        // SAFETY: the program and the device are of one context; the options end with a zero; no function to be called.
        let status =
            unsafe { (cl.clBuildProgram)(program.raw(), 1, &id, options.as_ptr(), None, ptr::null_mut()) };
        if status == CL_BUILD_PROGRAM_FAILURE {
            // SAFETY: the program and the device are of one context; the room is as large as stated.
            let log = query("saying why a kernel does not compile", |size, room, needed| unsafe {
                (cl.clGetProgramBuildInfo)(program.raw(), id, CL_PROGRAM_BUILD_LOG, size, room, needed)
            })?;
            return Err(ClError::Kernel { device: device.properties().name.clone(), log: text(&log) });
        }
        done("compiling a kernel", status)?;
        let name = CString::new(method.kernel()).expect("no zero in it");
        let object = Object::made("loading a kernel", cl.clReleaseKernel, |status| {
            // SAFETY: the program is built; the name ends with a zero. The kernel keeps its program.
            unsafe { (cl.clCreateKernel)(program.raw(), name.as_ptr(), status) }
        })?;
        Ok(Self { object, arguments: 0 })
    }

    /// Sets an argument.
    fn set(&self, place: cl_uint, size: usize, value: *const c_void) -> Result<(), ClError> {
        // SAFETY: the value is of this size, or null where it is a size of local memory; the library compares it with the
        // argument's and copies it.
        let status = unsafe { (OpenCl::get()?.clSetKernelArg)(self.object.raw(), place, size, value) };
        done("preparing a kernel", status)
    }

    /// Appends a buffer argument.
    pub(super) fn buffer(mut self, buffer: &Object) -> Result<Self, ClError> {
        let raw = buffer.raw();
        self.set(self.arguments, size_of_val(&raw), (&raw const raw).cast())?;
        self.arguments += 1;
        Ok(self)
    }

    /// Appends a number argument.
    pub(super) fn number(mut self, number: u32) -> Result<Self, ClError> {
        self.change(self.arguments, number)?;
        self.arguments += 1;
        Ok(self)
    }

    /// Appends an argument of local memory.
    pub(super) fn local(mut self, bytes: usize) -> Result<Self, ClError> {
        self.set(self.arguments, bytes, ptr::null())?;
        self.arguments += 1;
        Ok(self)
    }

    /// Changes a number argument.
    pub(super) fn change(&self, place: cl_uint, number: u32) -> Result<(), ClError> {
        self.set(place, size_of_val(&number), (&raw const number).cast())
    }

    /// Returns the number of arguments.
    pub(super) fn arguments(&self) -> cl_uint {
        self.arguments
    }

    pub(super) fn raw(&self) -> cl_kernel {
        self.object.raw()
    }
}
