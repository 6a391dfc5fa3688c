// The kernels that the headers leave to eigenformer::compiled, instantiated for float and double.
#define EIGENFORMER_COMPILED_BUILD
#define EIGENFORMER_INSTANTIATE
#include "eigenformer/kernels/definitions.hpp"
