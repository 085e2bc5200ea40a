// Tuple search behind one filter for all classes, ours. The filter lies in shared memory: one word of it, with three
// bits, says for nearly every class that it has no rule for a tuple. What is left waits in a queue of its warp, until
// there are 32 of them: then each lane looks one up in the table, whichever lane it belongs to.
//
// Classes are in the order of their masks, so that a class shares most words of its hash with the one before.
#include "tuple_table.cuh"

constexpr uint32_t QUEUE = 64;
constexpr uint32_t ALL = 0xffffffffu;

// Shared memory of a warp: 32 keys by words, the best standing of each, and the queue of hashes, classes and lanes.
template <int W>
constexpr uint32_t WARP_WORDS = 32 * W + 32 + 2 * QUEUE;

// The bits that a hash has in its word of the filter.
static __device__ __forceinline__ uint32_t filter_bits(uint32_t x) {
    uint32_t y = x * 0xc2b2ae35u;
    return 1u << (y >> 27) | 1u << (y >> 22 & 31) | 1u << (y >> 17 & 31);
}

// Adds the products of the words from `first` on: sums[w] is the sum of those before w.
template <int W>
static __device__ __forceinline__ void sum_from(uint32_t first, const uint32_t *mask, const uint32_t (&key)[W],
                                                const uint64_t *hash, uint64_t (&sums)[W + 1]) {
#define FROM(w)                                                                                                       \
    case w:                                                                                                           \
        if constexpr (w < W) sums[w + 1] = sums[w] + __ldg(&hash[w]) * (key[w] & __ldg(&mask[w]));                    \
        [[fallthrough]];
    // All lanes of a warp are at the same class, and jump alike.
    switch (first) {
        FROM(0) FROM(1) FROM(2) FROM(3) FROM(4) FROM(5) FROM(6) FROM(7)
        FROM(8) FROM(9) FROM(10) FROM(11) FROM(12) FROM(13) FROM(14) FROM(15)
        default: break;
    }
#undef FROM
}

// One lane looks up one of the queue.
template <int W>
static __device__ __forceinline__ void look_up(const TupleTable &table, uint32_t x, uint32_t class_and_lane,
                                               const uint32_t *keys, uint32_t *best) {
    uint32_t c = class_and_lane / 32, owner = class_and_lane % 32;
    const uint32_t *mask = table.classes + size_t(c) * CLASS_INFO<W> + 2;
    uint32_t masked[W];
    UNROLL for (int w = 0; w < W; w++) masked[w] = keys[w * 32 + owner] & __ldg(&mask[w]);
    uint32_t found = find<W>(table, c, masked, x);
    if (found != NO_RULE) atomicMax(&best[owner], found);
}

template <int W>
static __device__ __forceinline__ void filtered(const TupleTable &table, const uint32_t *filter, uint32_t filter_words,
                                                const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {
    DYNAMIC_SHARED(uint32_t, held);
    load_shared(held, filter, filter_words);
    __syncthreads();
    const uint32_t lane = threadIdx.x % 32;
    uint32_t *keys = held + filter_words + threadIdx.x / 32 * WARP_WORDS<W>;
    uint32_t *best = keys + 32 * W;
    uint32_t *waiting_hash = best + 32;
    uint32_t *waiting_class = waiting_hash + QUEUE;
    for (uint64_t first = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 32; first < tuple_count;
         first += gridDim.x * blockDim.x) {
        // Lanes behind the last tuple do as the last one does, and write nothing.
        const uint32_t t = min(uint32_t(first) + lane, tuple_count - 1);
        uint32_t key[W];
        read_key<W>(table, tuples, tuple_count, t, key);
        UNROLL for (int w = 0; w < W; w++) keys[w * 32 + lane] = key[w];
        best[lane] = NO_RULE;
        __syncwarp();
        uint64_t sums[W + 1];
        sums[0] = __ldg(&table.hash[W]);
        uint32_t waiting = 0;
        for (uint32_t c = 0; c < table.class_count; c++) {
            const uint32_t *info = table.classes + size_t(c) * CLASS_INFO<W>;
            sum_from<W>(__ldg(&info[0]), info + 2, key, table.hash, sums);
            uint32_t x = hash_in_class(sums[W], c);
            uint32_t bits = filter_bits(x);
            bool maybe = (held[__umulhi(x, filter_words)] & bits) == bits && best[lane] < __ldg(&info[1]);
            uint32_t ballot = __ballot_sync(ALL, maybe);
            if (ballot == 0) continue;
            if (maybe) {
                uint32_t place = waiting + uint32_t(__popc(ballot & ((1u << lane) - 1)));
                waiting_hash[place] = x;
                waiting_class[place] = c * 32 + lane;
            }
            waiting += uint32_t(__popc(ballot));
            __syncwarp();
            if (waiting >= 32) {
                waiting -= 32;
                look_up<W>(table, waiting_hash[waiting + lane], waiting_class[waiting + lane], keys, best);
                __syncwarp();
            }
        }
        if (lane < waiting) look_up<W>(table, waiting_hash[lane], waiting_class[lane], keys, best);
        __syncwarp();
        if (first + lane < tuple_count) winners[t] = best[lane];
        __syncwarp();
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                 \
        filtered_##W(TupleTable table, const uint32_t *filter, uint32_t filter_words, const uint32_t *tuples,         \
                     uint32_t tuple_count, uint32_t *winners) {                                                       \
        filtered<W>(table, filter, filter_words, tuples, tuple_count, winners);                                       \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
