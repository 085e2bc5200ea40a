//! Devices: detection, properties, and their kernels.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUfunction_attribute, CUresult};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits,
};
use cudarc::nvrtc::Ptx;

use crate::error::{GpuError, reason};

/// The kernels: machine code for compute capability 9.0, and PTX for 8.0 and later. `kernels/manifest.txt` lists the
/// sources and the compiler's options.
pub const KERNELS: &[u8] = include_bytes!("../kernels/flowlane.fatbin");

/// The CUDA version that the kernels were compiled with, in the driver's notation.
const VERSION_NEEDED: i32 = 13000;
const CAPABILITY_MIN: (i32, i32) = (8, 0);

/// Properties of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceProperties {
    /// The index of the device, from 0.
    pub ordinal: usize,
    /// The name that the driver reports.
    pub name: String,
    /// The compute capability.
    pub capability: (i32, i32),
    /// The number of streaming multiprocessors.
    pub multiprocessors: usize,
    /// The clock of the processors.
    pub clock_khz: usize,
    /// The size of its memory.
    pub memory_bytes: usize,
    /// The size of the second-level cache.
    pub l2_bytes: usize,
    /// The largest shared memory of a block.
    pub shared_bytes_max: usize,
}

/// An opened device with its kernels loaded.
#[derive(Clone, Debug)]
pub struct Device {
    context: Arc<CudaContext>,
    module: Arc<CudaModule>,
    memory_max: usize,
    properties: Arc<DeviceProperties>,
}

/// Returns the number of devices.
///
/// # Errors
/// Returns an error without a driver or a device, or if the driver is too old.
pub fn count() -> Result<usize, GpuError> {
    // SAFETY: loads the library by the name that the system knows it by; its initialisers are the driver's own.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoDriver);
    }
    let none = |error| GpuError::NoDevice { reason: reason(error) };
    let count = CudaContext::device_count().map_err(none)?;
    let mut version = 0;
    // SAFETY: the library is there, as was asked above; it writes one integer.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    result.result().map_err(none)?;
    if version < VERSION_NEEDED {
        return Err(GpuError::OldDriver { version, needed: VERSION_NEEDED });
    }
    match count {
        ..=0 => Err(GpuError::NoDevice { reason: "that there are 0".to_owned() }),
        count => Ok(count as usize),
    }
}

/// Returns the properties of all devices.
///
/// # Errors
/// Returns the errors of [`count`], and an error if a device does not respond.
pub fn all() -> Result<Vec<DeviceProperties>, GpuError> {
    (0..count()?).map(|ordinal| context(ordinal).and_then(|context| properties(&context))).collect()
}

fn context(ordinal: usize) -> Result<Arc<CudaContext>, GpuError> {
    CudaContext::new(ordinal).map_err(|error| match error.0 {
        CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_INVALID_DEVICE => {
            GpuError::NoDevice { reason: reason(error) }
        }
        _ => GpuError::of("being opened")(error),
    })
}

fn properties(context: &CudaContext) -> Result<DeviceProperties, GpuError> {
    let failed = GpuError::of("saying what it is");
    let ask = |attribute| context.attribute(attribute).map(|n| n.max(0) as usize).map_err(&failed);
    Ok(DeviceProperties {
        ordinal: context.ordinal(),
        name: context.name().map_err(&failed)?,
        capability: context.compute_capability().map_err(&failed)?,
        multiprocessors: ask(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        clock_khz: ask(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
        memory_bytes: context.total_mem().map_err(&failed)?,
        l2_bytes: ask(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        shared_bytes_max: ask(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
    })
}

impl Device {
    /// Opens the device with this index, from 0, and loads the kernels.
    ///
    /// # Errors
    /// Returns the errors of [`count`], and an error if there is no such device or it is too old.
    pub fn open(ordinal: usize) -> Result<Self, GpuError> {
        let devices = count()?;
        if ordinal >= devices {
            let reason = format!("that there are {devices}, counted from 0, and not number {ordinal}");
            return Err(GpuError::NoDevice { reason });
        }
        let context = context(ordinal)?;
        let properties = properties(&context)?;
        if properties.capability < CAPABILITY_MIN {
            return Err(GpuError::OldDevice { name: properties.name, capability: properties.capability });
        }
        // SAFETY: tables are there before `upload` returns, are never written again, and a batch keeps the one that it reads
        // until it has ended; all else is read and written on one stream, by the host after it has waited for that.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_binary(KERNELS.to_vec()));
        let module = module.map_err(GpuError::of("loading the kernels"))?;
        Ok(Self { context, module, memory_max: usize::MAX, properties: Arc::new(properties) })
    }

    /// Limits the memory of one table. The host needs the same amount while it builds the table.
    pub fn with_memory_max(self, memory_max: usize) -> Self {
        Self { memory_max, ..self }
    }

    /// Returns the properties of the device.
    pub fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    /// Returns a kernel by name, with `shared_bytes` of shared memory a block.
    pub(crate) fn kernel(&self, name: &str, shared_bytes: usize) -> Result<CudaFunction, GpuError> {
        let failed = GpuError::of("loading a kernel");
        self.context.bind_to_thread().map_err(&failed)?;
        let kernel = self.module.load_function(name).map_err(&failed)?;
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // More than 48 KiB must be requested. All tables of a method share the kernel and thus its limit.
        if shared_bytes > 48 << 10 {
            let most = self.properties.shared_bytes_max as i32;
            kernel.set_attribute(attribute, most).map_err(failed)?;
        }
        Ok(kernel)
    }

    /// Creates a stream on the device.
    pub(crate) fn stream(&self) -> Result<Arc<CudaStream>, GpuError> {
        self.context.new_stream().map_err(GpuError::of("making a stream"))
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Refuses a table that does not fit, before it is built.
    pub(crate) fn reserve(&self, what: &'static str, needed_bytes: usize) -> Result<(), GpuError> {
        let (free_bytes, _) =
            self.context.mem_get_info().map_err(GpuError::of("saying what memory is free"))?;
        // The host builds each table before it copies it to the device.
        let free_bytes = free_bytes.min(self.memory_max);
        match needed_bytes <= free_bytes {
            true => Ok(()),
            false => Err(GpuError::Memory { what, needed_bytes, free_bytes }),
        }
    }

    /// Copies values to the device; every stream may read them.
    pub(crate) fn upload<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        what: &'static str,
        values: &[T],
    ) -> Result<CudaSlice<T>, GpuError> {
        self.reserve(what, size_of_val(values))?;
        let stream = self.context.default_stream();
        let failed = GpuError::of("copying a table to it");
        // The driver rejects empty allocations.
        let mut slice = stream.alloc_zeros(values.len().max(1)).map_err(&failed)?;
        stream.memcpy_htod(values, &mut slice).map_err(&failed)?;
        stream.synchronize().map_err(failed)?;
        Ok(slice)
    }
}
