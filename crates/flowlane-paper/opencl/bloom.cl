// Bloom search (Varvello and others, IV-C), as `flowlane-gpu/kernels/bloom.cu`: tuple search with a filter before
// the table of each class.

// The bit that function `j` asks of a filter of 2^bits: (a x + b) >> (32 - bits).
static bool filter_has(__local const uint *filter, uint bits, uint x, __global const ulong *functions, uint j) {
    uint bit = ((uint)functions[2 * j] * x + (uint)functions[2 * j + 1]) >> (32 - bits);
    return filter[bit / 32] >> (bit % 32) & 1;
}

// filters: 2^filter_bits bits for each class. hash: as in tuple search, then `filter_functions` pairs for the filters. held:
// CLASS_WORDS and a filter.
__kernel void find_bloom(__global const uint *tables, uint class_count, __global const uint *filters, uint filter_bits,
                         uint filter_functions, __global const ulong *hash, __global const uint *tuples,
                         uint tuple_count, __global uint *winners, __local uint *held) {
    uint filter_words = 1u << (filter_bits - 5);
    __local uint *filter = held + CLASS_WORDS;
    __global const ulong *universal = hash + W + 1;
    __global const ulong *functions = universal + 2 * SUBTABLES;
    for (uint c = get_group_id(0); c < class_count; c += get_num_groups(0)) {
        load_local(held, tables + (size_t)c * CLASS_WORDS, CLASS_WORDS);
        load_local(filter, filters + (size_t)c * filter_words, filter_words);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint t = get_local_id(0); t < tuple_count; t += get_local_size(0)) {
            uint masked[W];
            read_tuple(tuples, tuple_count, t, masked);
            for (int w = 0; w < W; w++) masked[w] &= held[w];
            uint x = hash_tuple(masked, hash);
            bool maybe = true;
            for (uint j = 0; j < filter_functions && maybe; j++) maybe = filter_has(filter, filter_bits, x, functions, j);
            uint best = maybe ? find_in_class(held, masked, x, universal) : NO_RULE;
            if (best != NO_RULE) atomic_max(&winners[t], best);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
