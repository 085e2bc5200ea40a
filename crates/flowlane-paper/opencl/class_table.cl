// The table of a class, that is of rules with one mask: cuckoo hashing over SUBTABLES subtables of SLOTS slots (Varvello and
// others, IV-B), as `flowlane-gpu/kernels/class_table.cuh`. The host says what the two and PRIME are.

// The mask, then the slots: W words of a value and the standing of its rule, NO_RULE where there is none.
#define CLASS_WORDS (W + SUBTABLES * SLOTS * (W + 1))

// 32 bits of a masked tuple: a sum of products under a secret key of W + 1 numbers.
static uint hash_tuple(const uint *tuple, __global const ulong *key) {
    ulong sum = key[W];
    for (int w = 0; w < W; w++) sum += key[w] * tuple[w];
    return (uint)(sum >> 32);
}

// h_i(x) = ((a_i x + b_i) mod p) mod d, a_i and b_i below p; 0 < a_i.
static uint slot_of(uint x, __global const ulong *universal, int i) {
    ulong a = universal[2 * i], b = universal[2 * i + 1];
    return (uint)((a * (x % PRIME) + b) % PRIME) % SLOTS;
}

// The standing of the rule for a masked tuple whose hash is `x`.
static uint find_in_class(__local const uint *table, const uint *masked, uint x, __global const ulong *universal) {
    for (int i = 0; i < SUBTABLES; i++) {
        __local const uint *slot = table + W + (i * SLOTS + slot_of(x, universal, i)) * (W + 1);
        uint differs = 0;
        for (int w = 0; w < W; w++) differs |= slot[w] ^ masked[w];
        if (differs == 0 && slot[W] != NO_RULE) return slot[W];
    }
    return NO_RULE;
}
