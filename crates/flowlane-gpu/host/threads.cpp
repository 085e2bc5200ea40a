// The threads of a block as switched stacks.
#include "threads.h"

#include "switch.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SWITCH_BEGIN(save, stack, size) __sanitizer_start_switch_fiber(save, stack, size)
#define SWITCH_END(saved) __sanitizer_finish_switch_fiber(saved, nullptr, nullptr)
#else
#define SWITCH_BEGIN(save, stack, size) (void)(save)
#define SWITCH_END(saved) (void)(saved)
#endif

namespace shim {

constexpr size_t STACK_BYTES = 128 << 10;

enum class State { Ready, AtBarrier, InWarp, Ended };

struct Thread {
    Context context;
    void *fake_stack = nullptr;
    State state = State::Ready;
    unsigned number = 0;
};

// What the lanes of one mask leave for each other. Two generations: a lane may go on to the next exchange while others
// still read this one.
struct Exchange {
    unsigned mask = 0, arrived = 0, generation = 0;
    uint64_t left[2][32];
};

Thread *current = nullptr;

static Context scheduler;
static void *scheduler_fake_stack = nullptr;
static const void *scheduler_stack = nullptr;
static size_t scheduler_stack_bytes = 0;
static char *stacks = nullptr;
static size_t stack_count = 0;
static std::vector<Thread> threads;
static std::vector<std::vector<Exchange>> exchanges;
static dim3 the_block_size, the_grid_size;
static unsigned the_block = 0;
static void *the_shared = nullptr;
static const Body *the_body = nullptr;
static uint64_t order = 1;
// Threads that reached something, ever.
static uint64_t progress = 0;

static unsigned draw(unsigned below) {
    order ^= order << 13;
    order ^= order >> 7;
    order ^= order << 17;
    return unsigned((order >> 32) * below >> 32);
}

uint3 thread_index() { return {current->number, 0, 0}; }
uint3 block_index() { return {the_block, 0, 0}; }
dim3 block_size() { return the_block_size; }
dim3 grid_size() { return the_grid_size; }
void *shared_memory() { return the_shared; }
unsigned lane() { return current->number & 31; }

[[noreturn]] static void fail(const char *what) {
    std::fprintf(stderr, "host device: block %u: %s\n", the_block, what);
    std::abort();
}

// Back to the scheduler, until it is this thread's turn again.
static void yield(State state) {
    Thread *self = current;
    if (state != State::InWarp) progress++;
    self->state = state;
    void **save = state == State::Ended ? nullptr : &self->fake_stack;
    SWITCH_BEGIN(save, scheduler_stack, scheduler_stack_bytes);
    Context::change(self->context, scheduler);
    SWITCH_END(self->fake_stack);
}

void barrier() { yield(State::AtBarrier); }

void collective(unsigned mask, uint64_t value, uint64_t all[32]) {
    unsigned self = lane();
    if (!(mask >> self & 1)) fail("a lane takes part in a collective whose mask does not name it");
    auto &of_warp = exchanges[current->number / 32];
    size_t at = 0;
    while (at < of_warp.size() && of_warp[at].mask != mask) at++;
    if (at == of_warp.size()) of_warp.push_back(Exchange{mask, 0, 0, {}});
    unsigned generation = of_warp[at].generation;
    of_warp[at].left[generation & 1][self] = value;
    progress++;
    of_warp[at].arrived |= 1u << self;
    if (of_warp[at].arrived == mask) {
        of_warp[at].arrived = 0;
        of_warp[at].generation++;
    }
    while (exchanges[current->number / 32][at].generation == generation) yield(State::InWarp);
    std::memcpy(all, exchanges[current->number / 32][at].left[generation & 1], sizeof(uint64_t) * 32);
}

static void entry() {
    SWITCH_END(nullptr);
    (*the_body)();
    yield(State::Ended);
}

static void run(Thread &thread) {
    current = &thread;
    SWITCH_BEGIN(&scheduler_fake_stack, stacks + size_t(thread.number) * STACK_BYTES, STACK_BYTES);
    Context::change(scheduler, thread.context);
    SWITCH_END(scheduler_fake_stack);
    current = nullptr;
}

static void prepare(unsigned count) {
    if (count > stack_count) {
        if (stacks) munmap(stacks, stack_count * STACK_BYTES);
        void *at = mmap(nullptr, count * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) fail("no memory for the stacks of its threads");
        stacks = static_cast<char *>(at);
        stack_count = count;
    }
    threads.assign(count, Thread{});
    exchanges.assign((count + 31) / 32, {});
    for (unsigned i = 0; i < count; i++) {
        Thread &thread = threads[i];
        thread.number = i;
        thread.context.begin(stacks + size_t(i) * STACK_BYTES, STACK_BYTES, entry);
    }
}

// Runs each thread that may go on, in an order drawn for this turn.
static void turn(std::vector<unsigned> &numbers) {
    for (unsigned left = unsigned(numbers.size()); left > 0; left--) std::swap(numbers[left - 1], numbers[draw(left)]);
    for (unsigned i : numbers)
        if (threads[i].state == State::Ready || threads[i].state == State::InWarp) run(threads[i]);
}

static unsigned count_in(State state) {
    unsigned count = 0;
    for (Thread &thread : threads) count += thread.state == state;
    return count;
}

static void run_block(unsigned count) {
    prepare(count);
    std::vector<unsigned> numbers(count);
    for (unsigned i = 0; i < count; i++) numbers[i] = i;
    while (count_in(State::Ended) < count) {
        uint64_t before = progress;
        turn(numbers);
        if (count_in(State::Ended) + count_in(State::AtBarrier) == count) {
            for (Thread &thread : threads)
                if (thread.state == State::AtBarrier) thread.state = State::Ready;
        } else if (progress == before) {
            fail("threads wait for each other: a barrier or a collective that not all of them reach");
        }
    }
}

void launch(const Body &body, dim3 grid, dim3 block, size_t shared_bytes, uint64_t seed) {
    order = seed * 0x9e3779b97f4a7c15u | 1;
    the_body = &body;
    the_grid_size = grid;
    the_block_size = block;
#if defined(__SANITIZE_ADDRESS__)
    // The scheduler's own stack, for the sanitizer: this thread's.
    pthread_attr_t attributes;
    void *stack;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &scheduler_stack_bytes);
    pthread_attr_destroy(&attributes);
    scheduler_stack = stack;
#endif
    for (the_block = 0; the_block < grid.x; the_block++) {
        // An allocation of its own, so that the sanitizer knows where it ends.
        the_shared = std::malloc(shared_bytes);
        auto words = static_cast<uint32_t *>(the_shared);
        for (size_t i = 0; i < shared_bytes / sizeof(uint32_t); i++) words[i] = uint32_t(i + draw(~0u)) * 0x9e3779b9u;
        run_block(block.x);
        std::free(the_shared);
    }
}

}  // namespace shim
