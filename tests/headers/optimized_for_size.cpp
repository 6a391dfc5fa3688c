// Loops of kernels over single precision, for every instruction set.
#include "eigenformer/kernels/elementwise/activation.hpp"

template void eigenformer::detail::kernels::activation_backward(Activation, const float*, const float*,
                                                                float*, float, index_t);
template void eigenformer::detail::kernels::activation_forward(Activation, const float*, float*, index_t);
