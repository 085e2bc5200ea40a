// One hash table for the rules of all classes, in device memory: where it fits, in the second-level cache.
//
// A bucket is a sector of 32 bytes: eight slots, each a tag of eight bits and the number of a record. Records lie apart,
// and are read where a tag suits. A bucket that is full goes on in the next.
#pragma once

#include "device.cuh"

constexpr uint32_t BUCKET_SLOTS = 8;
// A slot: the number of a record plus one, and the tag above it.
constexpr uint32_t TAG_SHIFT = 24;

// A record: its class and standing, then W words of the value; so many words, that it begins at 16 bytes.
template <int W>
constexpr uint32_t RECORD_WORDS = (W + 2 + 3) / 4 * 4;

// A class: the first word in which its mask differs from that of the class before, the standing of its best rule, and W
// words of its mask.
template <int W>
constexpr uint32_t CLASS_INFO = W + 2;

struct TupleTable {
    const uint32_t *classes;
    const uint4 *buckets;
    const uint32_t *records;
    // Multipliers of the words of a key, and one number more.
    const uint64_t *hash;
    // Where in a tuple each word of a key comes from.
    const uint32_t *places;
    uint32_t class_count;
    uint32_t bucket_count;
};

// The hash of a masked key in a class, from the sum of its products. The class is in it, so that values that are equal under
// many masks, such as those of the beginning of a network, do not meet.
static __device__ __forceinline__ uint32_t hash_in_class(uint64_t sum, uint32_t c) {
    return uint32_t(sum >> 32) ^ c * 0x9e3779b1u;
}

// The bucket and the tag of a hash. The filter takes other bits of it.
static __device__ __forceinline__ uint32_t bucket_of(uint32_t x, uint32_t bucket_count) {
    return __umulhi(x * 0x85ebca6bu, bucket_count);
}

// A tuple's words in the order of the table.
template <int W>
static __device__ __forceinline__ void read_key(const TupleTable &table, const uint32_t *tuples, uint32_t count,
                                                uint32_t number, uint32_t (&key)[W]) {
    UNROLL for (int w = 0; w < W; w++) key[w] = tuples[size_t(__ldg(&table.places[w])) * count + number];
}

// The standing of the rule of class `c` whose value is `masked`, if the record has it.
template <int W>
static __device__ __forceinline__ uint32_t compare_record(const uint32_t *record, uint32_t c,
                                                          const uint32_t (&masked)[W]) {
    uint32_t differs = __ldg(&record[0]) ^ c;
    UNROLL for (int w = 0; w < W; w++) differs |= __ldg(&record[2 + w]) ^ masked[w];
    return differs == 0 ? __ldg(&record[1]) : NO_RULE;
}

// The standing of the rule of class `c` whose value is `masked`, a key under that class's mask with hash `x`.
template <int W>
static __device__ __forceinline__ uint32_t find(const TupleTable &table, uint32_t c, const uint32_t (&masked)[W],
                                                uint32_t x) {
    uint32_t tag = x & 0xff;
    uint32_t bucket = bucket_of(x, table.bucket_count);
    while (true) {
        const uint4 half[2] = {table.buckets[2 * size_t(bucket)], table.buckets[2 * size_t(bucket) + 1]};
        const uint32_t slots[BUCKET_SLOTS] = {half[0].x, half[0].y, half[0].z, half[0].w,
                                              half[1].x, half[1].y, half[1].z, half[1].w};
        UNROLL for (uint32_t i = 0; i < BUCKET_SLOTS; i++) {
            if (slots[i] == 0 || slots[i] >> TAG_SHIFT != tag) continue;
            uint32_t record = (slots[i] & ((1u << TAG_SHIFT) - 1)) - 1;
            uint32_t found = compare_record<W>(table.records + size_t(record) * RECORD_WORDS<W>, c, masked);
            if (found != NO_RULE) return found;
        }
        // Slots are taken from the first on; half of all are free.
        if (slots[BUCKET_SLOTS - 1] == 0) return NO_RULE;
        bucket = bucket + 1 == table.bucket_count ? 0 : bucket + 1;
    }
}
