// Linear search (Varvello and others, Algorithm 1), as `flowlane-gpu/kernels/linear.cu`: each group holds some rules in
// local memory and compares every tuple with them; an atomic maximum joins what groups find.

#define RULE (2 * W + 1)

// rules: W values, W masks and the standing of each, one rule after the other. winners: zeros to begin with. held: room for
// `rules_held` rules.
__kernel void find_linear(__global const uint *rules, uint rule_count, uint rules_held, __global const uint *tuples,
                          uint tuple_count, __global uint *winners, __local uint *held) {
    uint fair = (rule_count + (uint)get_num_groups(0) - 1) / (uint)get_num_groups(0);
    uint per_group = min(fair, rules_held);
    // 64 bits: the last step may lead beyond the largest number of rules.
    for (ulong first = (ulong)per_group * get_group_id(0); first < rule_count;
         first += (ulong)per_group * get_num_groups(0)) {
        uint count = min((uint)(rule_count - first), per_group);
        load_local(held, rules + first * RULE, count * RULE);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = get_local_id(0); t < tuple_count; t += get_local_size(0)) {
            uint tuple[W];
            read_tuple(tuples, tuple_count, t, tuple);
            uint best = NO_RULE;
            for (uint i = 0; i < count; i++) {
                __local const uint *rule = held + i * RULE;
                uint differs = 0;
                for (int w = 0; w < W; w++) differs |= (tuple[w] & rule[W + w]) ^ rule[w];
                best = differs == 0 ? max(best, rule[2 * W]) : best;
            }
            if (best != NO_RULE) atomic_max(&winners[t], best);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
