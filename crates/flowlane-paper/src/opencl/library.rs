//! The library, loaded when it is first asked for, and what it makes.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use opencl_sys::cl_function_types::*;
use opencl_sys::*;

use super::error::ClError;

/// The loader of the system's OpenCL drivers.
const NAME: &str = "libOpenCL.so.1";

/// A pointer to a function, of which the types of the standard's headers make an `Option`.
pub(super) trait Function {
    type Pointer;
}

impl<F> Function for Option<F> {
    type Pointer = F;
}

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The functions that are used.
        #[expect(non_snake_case, reason = "the standard's names")]
        pub(super) struct OpenCl {
            $(pub(super) $name: <$type as Function>::Pointer,)*
            /// The functions are in it.
            _library: Library,
        }

        impl OpenCl {
            fn load() -> Result<Self, libloading::Error> {
                // SAFETY: loads the library by the name that systems know it by; its initialisers are its own.
                let library = unsafe { Library::new(NAME) }?;
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the one that the standard's headers give to this name.
                        *unsafe { library.get::<<$type as Function>::Pointer>(name.as_bytes()) }?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clCreateSubDevices: clCreateSubDevices_t,
    clReleaseDevice: clReleaseDevice_t,
    clCreateContext: clCreateContext_t,
    clReleaseContext: clReleaseContext_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clReleaseCommandQueue: clReleaseCommandQueue_t,
    clCreateBuffer: clCreateBuffer_t,
    clReleaseMemObject: clReleaseMemObject_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clBuildProgram: clBuildProgram_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clReleaseProgram: clReleaseProgram_t,
    clCreateKernel: clCreateKernel_t,
    clReleaseKernel: clReleaseKernel_t,
    clSetKernelArg: clSetKernelArg_t,
    clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clEnqueueReadBuffer: clEnqueueReadBuffer_t,
}

impl OpenCl {
    /// The library; it stays loaded.
    pub(super) fn get() -> Result<&'static Self, ClError> {
        static LOADED: OnceLock<Result<OpenCl, String>> = OnceLock::new();
        // What the system says is behind what the crate says, that loading failed.
        let reason = |error: libloading::Error| error.source().map_or(error.to_string(), ToString::to_string);
        let loaded = LOADED.get_or_init(|| Self::load().map_err(reason));
        loaded.as_ref().map_err(|reason| ClError::NoOpenCl { reason: reason.clone() })
    }
}

/// Makes a status an error.
pub(super) fn done(doing: &'static str, status: cl_int) -> Result<(), ClError> {
    match status {
        CL_SUCCESS => Ok(()),
        failed => Err(ClError::Device { doing, reason: status_name(failed) }),
    }
}

/// What `ask` writes: it is given the size of the room, the room, and where to write the size that is needed.
pub(super) fn told<T: Default + Clone>(
    doing: &'static str,
    mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<Vec<T>, ClError> {
    let mut bytes = 0;
    done(doing, ask(0, ptr::null_mut(), &mut bytes))?;
    let mut values = vec![T::default(); bytes / size_of::<T>()];
    done(doing, ask(size_of_val(&values[..]), values.as_mut_ptr().cast(), ptr::null_mut()))?;
    Ok(values)
}

/// A text that was [`told`], without the zero at its end.
pub(super) fn text(told: &[u8]) -> String {
    String::from_utf8_lossy(told).trim_end_matches('\0').trim().to_owned()
}

type Release = unsafe extern "C" fn(*mut c_void) -> cl_int;

/// Something that the library made, until nobody needs it any more.
pub(super) struct Object {
    raw: *mut c_void,
    release: Release,
}

impl Object {
    /// What `make` returns, unless it writes that it failed; `release` is the function for its kind.
    pub(super) fn made(
        doing: &'static str,
        release: Release,
        make: impl FnOnce(&mut cl_int) -> *mut c_void,
    ) -> Result<Self, ClError> {
        let mut status = CL_SUCCESS;
        let raw = make(&mut status);
        done(doing, status)?;
        Ok(Self { raw, release })
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the library made it (`made`), nobody else gives this reference back, and the function is the one for its
        // kind. What still uses it has references of its own.
        unsafe { (self.release)(self.raw) };
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}

// SAFETY: all functions of OpenCL may be called by any thread at any time (1.2, A.2) but for clSetKernelArg on one kernel,
// which is only called by who has the table's lane for itself.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

/// The standard's name for a status, of those that the functions above return.
fn status_name(status: cl_int) -> String {
    let name = match status {
        CL_DEVICE_NOT_AVAILABLE => "CL_DEVICE_NOT_AVAILABLE",
        CL_COMPILER_NOT_AVAILABLE => "CL_COMPILER_NOT_AVAILABLE",
        CL_MEM_OBJECT_ALLOCATION_FAILURE => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        CL_OUT_OF_RESOURCES => "CL_OUT_OF_RESOURCES",
        CL_OUT_OF_HOST_MEMORY => "CL_OUT_OF_HOST_MEMORY",
        CL_BUILD_PROGRAM_FAILURE => "CL_BUILD_PROGRAM_FAILURE",
        CL_DEVICE_PARTITION_FAILED => "CL_DEVICE_PARTITION_FAILED",
        CL_INVALID_VALUE => "CL_INVALID_VALUE",
        CL_INVALID_BUILD_OPTIONS => "CL_INVALID_BUILD_OPTIONS",
        CL_INVALID_KERNEL_NAME => "CL_INVALID_KERNEL_NAME",
        CL_INVALID_KERNEL_ARGS => "CL_INVALID_KERNEL_ARGS",
        CL_INVALID_WORK_GROUP_SIZE => "CL_INVALID_WORK_GROUP_SIZE",
        CL_INVALID_BUFFER_SIZE => "CL_INVALID_BUFFER_SIZE",
        CL_INVALID_DEVICE_PARTITION_COUNT => "CL_INVALID_DEVICE_PARTITION_COUNT",
        other => return format!("status {other}"),
    };
    name.to_owned()
}
