// Stacks, and switching between them.
#pragma once

#include <cstddef>

#if defined(__x86_64__)
// Without the system call that `swapcontext` makes: a warp's collective is 32 switches.
extern "C" void flowlane_switch(void **save, void *to);
asm(R"(
    .text
    .hidden flowlane_switch
    .globl flowlane_switch
    .type flowlane_switch, @function
flowlane_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size flowlane_switch, . - flowlane_switch
)");

namespace shim {
struct Context {
    void *top = nullptr;

    // Begins with `entry`, which never returns, on this stack.
    void begin(char *stack, size_t bytes, void (*entry)()) {
        auto words = reinterpret_cast<void **>(stack + bytes);
        words[-1] = nullptr;
        words[-2] = reinterpret_cast<void *>(entry);
        for (int i = 3; i <= 8; i++) words[-i] = nullptr;
        top = words - 8;
    }
    static void change(Context &from, Context &to) { flowlane_switch(&from.top, to.top); }
};
}  // namespace shim
#else
#include <ucontext.h>

namespace shim {
struct Context {
    ucontext_t state;

    void begin(char *stack, size_t bytes, void (*entry)()) {
        getcontext(&state);
        state.uc_stack.ss_sp = stack;
        state.uc_stack.ss_size = bytes;
        state.uc_link = nullptr;
        makecontext(&state, entry, 0);
    }
    static void change(Context &from, Context &to) { swapcontext(&from.state, &to.state); }
};
}  // namespace shim
#endif
