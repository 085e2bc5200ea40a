//! Missing devices and drivers are reported without a panic.

use crate::host_device::on_host_device;
use flowlane_gpu::{Device, GpuError, device};

#[test]
fn a_driver_without_a_device_is_told_from_no_driver() {
    on_host_device("a_driver_without_a_device_is_told_from_no_driver", "no-device", || {
        let error = Device::open(0).expect_err("no device");
        assert!(
            matches!(&error, GpuError::NoDevice { reason } if reason == "CUDA_ERROR_NO_DEVICE"),
            "{error}"
        );
        assert!(error.is_absence() && error.to_string().contains("nvidia-smi"));
    });
}

#[test]
fn a_driver_that_is_too_old_is_named_with_what_is_needed() {
    on_host_device("a_driver_that_is_too_old_is_named_with_what_is_needed", "old-driver", || {
        let error = Device::open(0).expect_err("too old");
        assert!(error.to_string().contains("up to 11.4, and the kernels need 13.0"), "{error}");
    });
}

#[test]
fn devices_are_described_and_counted_from_0() {
    on_host_device("devices_are_described_and_counted_from_0", "", || {
        let all = device::all().expect("one");
        assert_eq!((all.len(), all[0].capability, all[0].ordinal), (1, (9, 0), 0));
        assert_eq!(Device::open(0).expect("one").properties(), &all[0]);
        assert!(matches!(Device::open(1), Err(GpuError::NoDevice { .. })));
    });
}
