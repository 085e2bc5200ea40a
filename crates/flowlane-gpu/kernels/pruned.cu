// Pruned tuple search, ours: of two words of the key, each says which classes have a rule that its value suits; only the
// classes that both name are looked up, those of the best rules first.
//
// What a word says is the same between two ends of prefixes: a span. Its first 16 bits lead to the spans that begin
// there, the span to a bitmap of classes; spans of one answer share a bitmap.
#include "tuple_table.cuh"

// Of one word of a key.
struct Spans {
    // For each value of the upper 16 bits the first span that begins there, and one more.
    const uint32_t *index;
    // Where each span begins, and its bitmap.
    const uint32_t *begins;
    const uint32_t *bitmaps;
    // The bitmaps, of so many words each as `Pruning` says.
    const uint32_t *bits;
    // Which word of the key it is.
    uint32_t word;
};

struct Pruning {
    Spans of[2];
    uint32_t bitmap_words;
};

// The bitmap for a value.
static __device__ __forceinline__ const uint32_t *bitmap_of(const Spans &spans, uint32_t value, uint32_t bitmap_words) {
    // The last span that begins at or below the value. It may be one of the 16 bits before.
    uint32_t low = __ldg(&spans.index[value >> 16]), high = __ldg(&spans.index[(value >> 16) + 1]);
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (__ldg(&spans.begins[middle]) <= value) low = middle + 1;
        else high = middle;
    }
    return spans.bits + size_t(__ldg(&spans.bitmaps[low - 1])) * bitmap_words;
}

template <int W>
static __device__ __forceinline__ void pruned(const TupleTable &table, const Pruning &pruning, const uint32_t *tuples,
                                              uint32_t tuple_count, uint32_t *winners) {
    for (uint64_t t = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; t < tuple_count;
         t += uint64_t(gridDim.x) * blockDim.x) {
        uint32_t key[W];
        read_key<W>(table, tuples, tuple_count, uint32_t(t), key);
        const uint32_t *bitmap[2];
        UNROLL for (int i = 0; i < 2; i++) {
            uint32_t value = tuples[size_t(pruning.of[i].word) * tuple_count + t];
            bitmap[i] = bitmap_of(pruning.of[i], value, pruning.bitmap_words);
        }
        uint32_t best = NO_RULE;
        for (uint32_t b = 0; b < pruning.bitmap_words; b++) {
            for (uint32_t left = __ldg(&bitmap[0][b]) & __ldg(&bitmap[1][b]); left != 0; left &= left - 1) {
                uint32_t c = b * 32 + uint32_t(__ffs(int(left))) - 1;
                const uint32_t *info = table.classes + size_t(c) * CLASS_INFO<W>;
                // Classes are in the order of their best rules.
                if (__ldg(&info[1]) <= best) {
                    b = pruning.bitmap_words;
                    break;
                }
                uint32_t masked[W];
                uint64_t sum = __ldg(&table.hash[W]);
                UNROLL for (int w = 0; w < W; w++) {
                    masked[w] = key[w] & __ldg(&info[2 + w]);
                    sum += __ldg(&table.hash[w]) * masked[w];
                }
                best = max(best, find<W>(table, c, masked, hash_in_class(sum, c)));
            }
        }
        winners[t] = best;
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void pruned_##W(TupleTable table, Pruning pruning, const uint32_t *tuples,                  \
                                          uint32_t tuple_count, uint32_t *winners) {                                  \
        pruned<W>(table, pruning, tuples, tuple_count, winners);                                                      \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
