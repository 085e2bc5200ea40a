// Launches of kernels on the host.
#pragma once

#include <pthread.h>

#include <functional>
#include <tuple>

#include "shim.h"

namespace shim {

using Body = std::function<void()>;

// Runs the body once for each thread of each block, one block after the other.
void launch(const Body &body, dim3 grid, dim3 block, size_t shared_bytes, uint64_t seed);

// Calls a kernel with arguments as the driver gets them: an array of pointers to their values.
template <class... A, size_t... I>
Body with_arguments(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    std::tuple<A...> values{*static_cast<A *>(arguments[I])...};
    return [=] { std::apply(kernel, values); };
}

template <class... A>
Body with_arguments(void (*kernel)(A...), void **arguments) {
    return with_arguments(kernel, arguments, std::index_sequence_for<A...>{});
}

}  // namespace shim
