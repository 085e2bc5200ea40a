// Kernels with planted errors: the host device must see each of them. `fault_none` is the same without one.
#include "../kernels/device.cuh"

// Reverses `in` by way of shared memory.
static __device__ __forceinline__ void reverse(const uint32_t *in, uint32_t *out, bool wait) {
    DYNAMIC_SHARED(uint32_t, held);
    held[threadIdx.x] = in[threadIdx.x];
    if (wait) __syncthreads();
    out[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void fault_none(const uint32_t *in, uint32_t *out) { reverse(in, out, true); }

// No barrier between writing and reading.
extern "C" __global__ void fault_barrier(const uint32_t *in, uint32_t *out) { reverse(in, out, false); }

// One word behind the end of the allocation.
extern "C" __global__ void fault_bounds(const uint32_t *in, uint32_t *out) {
    out[threadIdx.x + 1] = in[threadIdx.x];
}

// One word behind the end of the block's shared memory.
extern "C" __global__ void fault_shared(const uint32_t *in, uint32_t *out) {
    DYNAMIC_SHARED(uint32_t, held);
    held[threadIdx.x + 1] = in[threadIdx.x];
    out[threadIdx.x] = in[threadIdx.x];
}

// A collective that half of the lanes never reach.
extern "C" __global__ void fault_stuck(const uint32_t *in, uint32_t *out) {
    if (threadIdx.x & 1) out[threadIdx.x] = __ballot_sync(0xffffffffu, in[threadIdx.x]);
}
