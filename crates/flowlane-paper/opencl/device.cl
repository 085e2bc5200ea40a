// What all kernels share. OpenCL C 1.2, compiled where it runs, for keys of W words: as `flowlane-gpu/kernels/device.cuh`.

// No rule matches. Otherwise a winner is a *standing*: the greater, the better the rule, and 0 is none.
#define NO_RULE 0u

// A tuple of W words, one array for each word.
static void read_tuple(__global const uint *tuples, uint count, uint number, uint *tuple) {
    for (int w = 0; w < W; w++) tuple[w] = tuples[(size_t)w * count + number];
}

// Copies words into local memory, all items of a group together.
static void load_local(__local uint *to, __global const uint *from, uint words) {
    for (uint i = get_local_id(0); i < words; i += get_local_size(0)) to[i] = from[i];
}
