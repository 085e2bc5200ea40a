// All kernels, compiled for the host: the files themselves, not copies.
#include "kernels.h"

#include "../kernels/flowlane.cu"
#include "faults.cu"

#define KERNEL(name) {#name, [](void **arguments) { return shim::with_arguments(name, arguments); }}
#define KERNEL_OF_WIDTHS(name) KERNEL(name##_4), KERNEL(name##_9), KERNEL(name##_10), KERNEL(name##_16)

const std::vector<Kernel> &kernels() {
    static const std::vector<Kernel> all = {
        KERNEL_OF_WIDTHS(linear), KERNEL_OF_WIDTHS(tuple), KERNEL_OF_WIDTHS(bloom),
        KERNEL_OF_WIDTHS(vector), KERNEL_OF_WIDTHS(filtered), KERNEL_OF_WIDTHS(pruned),
        KERNEL(gather), KERNEL(nothing),
        KERNEL(fault_none), KERNEL(fault_bounds), KERNEL(fault_shared), KERNEL(fault_barrier), KERNEL(fault_stuck),
    };
    return all;
}
