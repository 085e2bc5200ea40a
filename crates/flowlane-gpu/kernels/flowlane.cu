// All kernels, as one module.
#include "bloom.cu"
#include "linear.cu"
#include "tuple.cu"
#include "vector.cu"
