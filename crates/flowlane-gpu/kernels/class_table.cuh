// The table of a class, that is of rules with one mask: cuckoo hashing over three subtables (Varvello and others, IV-B).
#pragma once

#include "device.cuh"

constexpr int SUBTABLES = 3;
// Slots of a subtable: 256 rules fill two thirds of 384 slots.
constexpr uint32_t SLOTS = 128;
constexpr uint32_t CLASS_RULES_MAX = 256;
// Numbers below it are hashed: the largest prime of 32 bits.
constexpr uint64_t PRIME = 4294967291u;

// The mask, then the slots: W words of a value and the standing of its rule, NO_RULE where there is none.
template <int W>
constexpr uint32_t CLASS_WORDS = W + SUBTABLES * SLOTS * (W + 1);

// hᵢ(x) = ((aᵢ x + bᵢ) mod p) mod d, aᵢ and bᵢ below p; 0 < aᵢ.
static __device__ __forceinline__ uint32_t slot_of(uint32_t x, const uint64_t *universal, int i) {
    uint64_t a = universal[2 * i], b = universal[2 * i + 1];
    return uint32_t((a * (x % PRIME) + b) % PRIME) % SLOTS;
}

// The standing of the rule for a masked tuple whose hash is `x`.
template <int W>
static __device__ __forceinline__ uint32_t find_in_class(const uint32_t *table, const uint32_t (&masked)[W], uint32_t x,
                                                         const uint64_t *universal) {
    for (int i = 0; i < SUBTABLES; i++) {
        const uint32_t *slot = table + W + (i * SLOTS + slot_of(x, universal, i)) * (W + 1);
        uint32_t differs = 0;
        UNROLL for (int w = 0; w < W; w++) differs |= slot[w] ^ masked[w];
        if (differs == 0 && slot[W] != NO_RULE) return slot[W];
    }
    return NO_RULE;
}
