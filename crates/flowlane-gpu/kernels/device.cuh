// What all kernels share. They are compiled by nvcc for a device, and by a C++ compiler for the host (`host/shim.h`).
#pragma once

#if defined(__CUDACC__)
#include <cstdint>
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define UNROLL _Pragma("unroll")
#else
#include "../host/shim.h"
#define UNROLL
#endif

// No rule matches. Otherwise a winner is a *standing*: the greater, the better the rule, and 0 is none.
constexpr uint32_t NO_RULE = 0;

// A tuple of W words, one array for each word: threads side by side read words side by side (the paper's READSOA).
template <int W>
static __device__ __forceinline__ void read_tuple(const uint32_t *tuples, uint32_t count, uint32_t number,
                                                  uint32_t (&tuple)[W]) {
    UNROLL for (int w = 0; w < W; w++) tuple[w] = tuples[size_t(w) * count + number];
}

// Copies words into shared memory, all threads together (the paper's READAOS).
static __device__ __forceinline__ void load_shared(uint32_t *to, const uint32_t *from, uint32_t words) {
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
}

// 32 bits of a masked tuple: a sum of products under a secret key of W + 1 odd and even 64-bit numbers (multilinear,
// Lemire and Kaser 2014), as strong as a hash needs to be against who chooses the tuples.
template <int W>
static __device__ __forceinline__ uint32_t hash_tuple(const uint32_t (&tuple)[W], const uint64_t *key) {
    uint64_t sum = key[W];
    UNROLL for (int w = 0; w < W; w++) sum += key[w] * tuple[w];
    return uint32_t(sum >> 32);
}

// One kernel for each width of key that the host knows: IPv4 5-tuple, OpenFlow's twelve fields, IPv6 5-tuple, more.
#define FOR_EACH_WIDTH(define) define(4) define(9) define(10) define(16)
