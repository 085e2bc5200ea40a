// Tuple search (Varvello and others, Algorithm 4), as `flowlane-gpu/kernels/tuple.cu`: a group holds the table of one
// class in local memory and looks every tuple up there.

// tables: CLASS_WORDS for each class. hash: the key of hash_tuple, then pairs a_i, b_i. winners: zeros to begin with. held:
// CLASS_WORDS.
__kernel void find_tuple(__global const uint *tables, uint class_count, __global const ulong *hash,
                         __global const uint *tuples, uint tuple_count, __global uint *winners, __local uint *held) {
    __global const ulong *universal = hash + W + 1;
    for (uint c = get_group_id(0); c < class_count; c += get_num_groups(0)) {
        load_local(held, tables + (size_t)c * CLASS_WORDS, CLASS_WORDS);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = get_local_id(0); t < tuple_count; t += get_local_size(0)) {
            uint masked[W];
            read_tuple(tuples, tuple_count, t, masked);
            for (int w = 0; w < W; w++) masked[w] &= held[w];
            uint best = find_in_class(held, masked, hash_tuple(masked, hash), universal);
            if (best != NO_RULE) atomic_max(&winners[t], best);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
