#pragma once

#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"

// Declared static, so that each translation unit has its own copy of the callers, and shares the library's
// inline functions with the others, as a client's would.

/// The sum of a matrix product; an exact number, whatever the instruction set: 2 x 3 times 3 x 4, of whole
/// numbers.
static float product_sum() {
  namespace ef = eigenformer;
  const auto a = ef::Tensor<float>::arange(6).reshape({2, 3});
  const auto b = ef::Tensor<float>::arange(12).reshape({3, 4});
  return ef::sum(ef::matmul(ef::Var<float>(a), ef::Var<float>(b))).item();
}
