// Bloom search (Varvello and others, IV-C): tuple search with a filter before the table of each class.
#include "class_table.cuh"

// The bit that function `j` asks of a filter of 2^bits: (a x + b) >> (32 − bits).
static __device__ __forceinline__ bool filter_has(const uint32_t *filter, uint32_t bits, uint32_t x,
                                                  const uint64_t *functions, uint32_t j) {
    uint32_t bit = (uint32_t(functions[2 * j]) * x + uint32_t(functions[2 * j + 1])) >> (32 - bits);
    return filter[bit / 32] >> (bit % 32) & 1;
}

// filters: 2^filter_bits bits for each class. hash: as in tuple search, then `filter_functions` pairs for the filters.
template <int W>
static __device__ __forceinline__ void bloom(const uint32_t *tables, uint32_t class_count, const uint32_t *filters,
                                             uint32_t filter_bits, uint32_t filter_functions, const uint64_t *hash,
                                             const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {
    DYNAMIC_SHARED(uint32_t, held);
    uint32_t filter_words = 1u << (filter_bits - 5);
    uint32_t *filter = held + CLASS_WORDS<W>;
    const uint64_t *universal = hash + W + 1;
    const uint64_t *functions = universal + 2 * SUBTABLES;
    for (uint32_t c = blockIdx.x; c < class_count; c += gridDim.x) {
        load_shared(held, tables + size_t(c) * CLASS_WORDS<W>, CLASS_WORDS<W>);
        load_shared(filter, filters + size_t(c) * filter_words, filter_words);
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < tuple_count; t += blockDim.x) {
            uint32_t masked[W];
            read_tuple<W>(tuples, tuple_count, t, masked);
            UNROLL for (int w = 0; w < W; w++) masked[w] &= held[w];
            uint32_t x = hash_tuple<W>(masked, hash);
            bool maybe = true;
            for (uint32_t j = 0; j < filter_functions && maybe; j++)
                maybe = filter_has(filter, filter_bits, x, functions, j);
            uint32_t best = maybe ? find_in_class<W>(held, masked, x, universal) : NO_RULE;
            if (best != NO_RULE) atomicMax(&winners[t], best);
        }
        __syncthreads();
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void bloom_##W(const uint32_t *tables, uint32_t class_count, const uint32_t *filters,       \
                                         uint32_t filter_bits, uint32_t filter_functions, const uint64_t *hash,       \
                                         const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {           \
        bloom<W>(tables, class_count, filters, filter_bits, filter_functions, hash, tuples, tuple_count, winners);    \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
