// What a kernel sees when it is compiled for the host: CUDA's names, with one switched stack for each thread.
//
// A block runs on one operating-system thread. Its CUDA threads run in an order drawn at random, each until it waits
// at a barrier or a warp's collective, so that a barrier that is missing shows as a wrong answer for some seed.
// Addresses are the host's, so that the address sanitizer sees every access to device memory and to shared memory,
// which has exactly the size that the launch asked for and holds noise when a block begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(shim::shared_memory())

struct uint3 { unsigned x, y, z; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace shim {

struct Thread;
// The thread that runs, and what it may ask about itself.
extern Thread *current;
uint3 thread_index();
uint3 block_index();
dim3 block_size();
dim3 grid_size();
void *shared_memory();

void barrier();
// Leaves `value` for the lanes of `mask`, and waits until all have; `all` gets what they left, by lane.
void collective(unsigned mask, uint64_t value, uint64_t all[32]);
unsigned lane();
}  // namespace shim

#define threadIdx (shim::thread_index())
#define blockIdx (shim::block_index())
#define blockDim (shim::block_size())
#define gridDim (shim::grid_size())

inline void __syncthreads() { shim::barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
    uint64_t all[32];
    shim::collective(mask, 0, all);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    uint64_t all[32];
    shim::collective(mask, predicate != 0, all);
    unsigned ballot = 0;
    for (int i = 0; i < 32; i++) ballot |= (mask >> i & 1) ? unsigned(all[i]) << i : 0;
    return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
inline unsigned __shfl_sync(unsigned mask, unsigned value, int from, int = 32) {
    uint64_t all[32];
    shim::collective(mask, value, all);
    return unsigned(all[from & 31]);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
    uint64_t all[32];
    shim::collective(mask, value, all);
    unsigned least = 0xffffffffu;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && unsigned(all[i]) < least) least = unsigned(all[i]);
    return least;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
template <class T> inline T __ldg(const T *p) { return *p; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

// One thread runs at a time, so plain steps are atomic.
inline unsigned atomicMax(unsigned *at, unsigned value) {
    unsigned old = *at;
    if (value > old) *at = value;
    return old;
}
inline unsigned atomicMin(unsigned *at, unsigned value) {
    unsigned old = *at;
    if (value < old) *at = value;
    return old;
}
inline unsigned atomicAdd(unsigned *at, unsigned value) {
    unsigned old = *at;
    *at = old + value;
    return old;
}
