// Tuple search (Varvello and others, Algorithm 4): a block holds the table of one class in shared memory and looks every
// tuple up there.
#include "class_table.cuh"

// tables: CLASS_WORDS<W> for each class. hash: the key of hash_tuple, then pairs aᵢ, bᵢ. winners: zeros to begin with.
template <int W>
static __device__ __forceinline__ void tuple(const uint32_t *tables, uint32_t class_count, const uint64_t *hash,
                                             const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {
    DYNAMIC_SHARED(uint32_t, held);
    const uint64_t *universal = hash + W + 1;
    for (uint32_t c = blockIdx.x; c < class_count; c += gridDim.x) {
        load_shared(held, tables + size_t(c) * CLASS_WORDS<W>, CLASS_WORDS<W>);
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < tuple_count; t += blockDim.x) {
            uint32_t masked[W];
            read_tuple<W>(tuples, tuple_count, t, masked);
            UNROLL for (int w = 0; w < W; w++) masked[w] &= held[w];
            uint32_t best = find_in_class<W>(held, masked, hash_tuple<W>(masked, hash), universal);
            if (best != NO_RULE) atomicMax(&winners[t], best);
        }
        __syncthreads();
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void tuple_##W(const uint32_t *tables, uint32_t class_count, const uint64_t *hash,          \
                                         const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {           \
        tuple<W>(tables, class_count, hash, tuples, tuple_count, winners);                                            \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
