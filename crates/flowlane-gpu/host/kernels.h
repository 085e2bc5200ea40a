// The kernels that the host device has.
#pragma once

#include <string>
#include <vector>

#include "threads.h"

struct Kernel {
    std::string name;
    std::function<shim::Body(void **)> bind;
};

const std::vector<Kernel> &kernels();
