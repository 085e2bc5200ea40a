// All kernels, as one module.
#include "bloom.cu"
#include "ceilings.cu"
#include "filtered.cu"
#include "linear.cu"
#include "pruned.cu"
#include "tuple.cu"
#include "vector.cu"
