// What the device does at best, for the classifiers to be held against.
#include "device.cuh"

// Does nothing: what a launch costs.
extern "C" __global__ void nothing() {}

// Reads sectors of 32 bytes, one after the other by a generator of its own for each thread, and adds them up. `mask` is the
// number of sectors less one, a power of two.
extern "C" __global__ void gather(const uint4 *sectors, uint32_t mask, uint32_t reads, uint32_t *sums) {
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = thread * 0x9e3779b9u + 1, sum = 0;
    for (uint32_t i = 0; i < reads; i += 4) {
        // Four at a time do not wait for each other, and none for what another reads.
        UNROLL for (uint32_t j = 0; j < 4; j++) {
            state = state * 1664525u + 1013904223u;
            const uint4 *sector = sectors + 2 * size_t((state >> 8 ^ state << 13) & mask);
            uint4 a = sector[0], b = sector[1];
            sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w;
        }
    }
    sums[thread] = sum;
}
