// Linear search (Varvello and others, Algorithm 1): each block holds some rules in shared memory and compares every
// tuple with them; an atomic maximum joins what blocks find.
#include "device.cuh"

// rules: W values, W masks and the standing of each, one rule after the other. winners: zeros to begin with.
template <int W>
static __device__ __forceinline__ void linear(const uint32_t *rules, uint32_t rule_count, uint32_t rules_shared,
                                              const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {
    constexpr int RULE = 2 * W + 1;
    DYNAMIC_SHARED(uint32_t, held);
    uint32_t fair = (rule_count + gridDim.x - 1) / gridDim.x;
    uint32_t per_block = min(fair, rules_shared);
    // 64 bits: the last step may lead beyond the largest number of rules.
    for (uint64_t first = uint64_t(per_block) * blockIdx.x; first < rule_count; first += uint64_t(per_block) * gridDim.x) {
        uint32_t count = min(uint32_t(rule_count - first), per_block);
        load_shared(held, rules + first * RULE, count * RULE);
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < tuple_count; t += blockDim.x) {
            uint32_t tuple[W];
            read_tuple<W>(tuples, tuple_count, t, tuple);
            uint32_t best = NO_RULE;
            for (uint32_t i = 0; i < count; i++) {
                const uint32_t *rule = held + i * RULE;
                uint32_t differs = 0;
                UNROLL for (int w = 0; w < W; w++) differs |= (tuple[w] & rule[W + w]) ^ rule[w];
                best = differs == 0 ? max(best, rule[2 * W]) : best;
            }
            if (best != NO_RULE) atomicMax(&winners[t], best);
        }
        __syncthreads();
    }
}

#define DEFINE(W)                                                                                                     \
    extern "C" __global__ void linear_##W(const uint32_t *rules, uint32_t rule_count, uint32_t rules_shared,          \
                                          const uint32_t *tuples, uint32_t tuple_count, uint32_t *winners) {          \
        linear<W>(rules, rule_count, rules_shared, tuples, tuple_count, winners);                                     \
    }
FOR_EACH_WIDTH(DEFINE)
#undef DEFINE
