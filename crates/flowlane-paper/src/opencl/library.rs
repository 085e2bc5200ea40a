//! The OpenCL library, loaded on first use, and its objects.

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

/// A function pointer type, which the standard's headers wrap in `Option`.
pub(super) trait Function {
    type Pointer;
}

impl<F> Function for Option<F> {
    type Pointer = F;
}

macro_rules! functions {
    ($($name:ident: $type:ty,)*) => {
        /// The functions in use.
        #[expect(non_snake_case, reason = "the standard's names")]
        pub(super) struct OpenCl {
            $(pub(super) $name: <$type as Function>::Pointer,)*
            /// Keeps the functions loaded.
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
    /// Returns the library, which stays loaded.
    pub(super) fn get() -> Result<&'static Self, ClError> {
        static LOADED: OnceLock<Result<OpenCl, String>> = OnceLock::new();
        // The source of the crate's error is the system's reason.
        let reason = |error: libloading::Error| error.source().map_or(error.to_string(), ToString::to_string);
        let loaded = LOADED.get_or_init(|| Self::load().map_err(reason));
        loaded.as_ref().map_err(|reason| ClError::NoOpenCl { reason: reason.clone() })
    }
}

/// Converts a status to a result.
pub(super) fn done(doing: &'static str, status: cl_int) -> Result<(), ClError> {
    match status {
        CL_SUCCESS => Ok(()),
        failed => Err(ClError::Device { doing, reason: status_name(failed) }),
    }
}

/// Returns the value that `query` writes. The closure receives the size of the buffer, the buffer, and a pointer for
/// the required size.
pub(super) fn query<T: Default + Clone>(
    doing: &'static str,
    mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<Vec<T>, ClError> {
    let mut bytes = 0;
    done(doing, ask(0, ptr::null_mut(), &mut bytes))?;
    let mut values = vec![T::default(); bytes / size_of::<T>()];
    done(doing, ask(size_of_val(&values[..]), values.as_mut_ptr().cast(), ptr::null_mut()))?;
    Ok(values)
}

/// Converts a queried text, without its terminating zero.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').trim().to_owned()
}

type Release = unsafe extern "C" fn(*mut c_void) -> cl_int;

/// A reference-counted object of the library.
pub(super) struct Object {
    raw: *mut c_void,
    release: Release,
}

impl Object {
    /// Wraps the object that `make` returns, unless it reports a failure; `release` is the release function of its
    /// type.
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
        // SAFETY: the library made the object (`made`), this is the only release of this reference, and the function
        // matches its type. Remaining users hold references of their own.
        unsafe { (self.release)(self.raw) };
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}

// SAFETY: all functions of OpenCL may be called by any thread at any time (1.2, A.2), except clSetKernelArg on one
// kernel, which only the holder of the table's lane calls.
unsafe impl Send for Object {}
// SAFETY: all functions of OpenCL but clSetKernelArg are thread-safe, as for `Send`.
unsafe impl Sync for Object {}

/// Returns the standard's name of a status, for the statuses of the functions above.
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
