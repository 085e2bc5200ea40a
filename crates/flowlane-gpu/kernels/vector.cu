// Linear search by bit vectors, ours: a warp looks up a tuple, each of its lanes 32 rules of a chunk of 1024 at a time.
//
// For four bits of the key a chunk has sixteen rows, one for each value, with a bit for each rule that such bits suit.
// The AND of one row for each four bits that the chunk looks at is the set of rules that match. Rules stand best first,
// so that the first chunk with a rule ends the search, and its first bit is the winner: nothing is compared, and
// nothing joined.
#include "device.cuh"

constexpr uint32_t CHUNK_WORDS = 32;
constexpr uint32_t ROWS = 16;
// Rows that are asked for together, before anybody looks whether a rule is left.
constexpr uint32_t TOGETHER = 4;

// chunks: for each its first stride, and one more that ends the last. strides: which four bits of the key, 8 to a word,
// most telling first. rows: ROWS × CHUNK_WORDS for each stride. standings: of each rule.
template <int W>
static __device__ __forceinline__ void vector(const uint32_t *__restrict__ chunks, uint32_t chunk_count,
                                              const uint32_t *__restrict__ strides, const uint32_t *__restrict__ rows,
                                              const uint32_t *__restrict__ standings, const uint32_t *tuples,
                                              uint32_t tuple_count, uint32_t *winners) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warps = gridDim.x * (blockDim.x / 32);
    for (uint32_t t = (blockIdx.x * blockDim.x + threadIdx.x) / 32; t < tuple_count; t += warps) {
        // Lane w has word w of the tuple.
        uint32_t word = lane < W ? tuples[size_t(lane) * tuple_count + t] : 0;
        uint32_t winner = NO_RULE;
        for (uint32_t c = 0; c < chunk_count; c++) {
            uint32_t stride = __ldg(&chunks[c]);
            const uint32_t end = __ldg(&chunks[c + 1]);
            uint32_t left = 0xffffffffu;
            bool any = true;
            while (stride < end && any) {
                uint32_t row[TOGETHER];
                UNROLL for (uint32_t i = 0; i < TOGETHER; i++) {
                    // The last few are asked for again, which changes nothing.
                    uint32_t s = min(stride + i, end - 1);
                    uint32_t which = __ldg(&strides[s]);
                    uint32_t nibble = __shfl_sync(0xffffffffu, word, int(which / 8)) >> (which % 8 * 4) & 15;
                    row[i] = __ldg(&rows[(size_t(s) * ROWS + nibble) * CHUNK_WORDS + lane]);
                }
                UNROLL for (uint32_t i = 0; i < TOGETHER; i++) left &= row[i];
                any = __any_sync(0xffffffffu, left != 0);
                stride += TOGETHER;
            }
            if (any) {
                uint32_t first = uint32_t(__ffs(int(__ballot_sync(0xffffffffu, left != 0)))) - 1;
                uint32_t bits = __shfl_sync(0xffffffffu, left, int(first));
                winner = __ldg(&standings[(c * CHUNK_WORDS + first) * 32 + uint32_t(__ffs(int(bits))) - 1]);
                break;
            }
        }
        if (lane == 0) winners[t] = winner;
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void vector_##W(const uint32_t *chunks, uint32_t chunk_count, const uint32_t *strides,      \
                                          const uint32_t *rows, const uint32_t *standings, const uint32_t *tuples,    \
                                          uint32_t tuple_count, uint32_t *winners) {                                  \
        vector<W>(chunks, chunk_count, strides, rows, standings, tuples, tuple_count, winners);                       \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
