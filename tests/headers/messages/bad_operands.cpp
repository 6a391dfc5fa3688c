// Calls of operations with what is no operand: what a compiler says of them is tested. Without BAD only one
// that is right.
#include <string>

#include "eigenformer/autograd/ops/elementwise/activation.hpp"
#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/ops/normalization/softmax.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"

namespace ef = eigenformer;

ef::Var<float> right(const ef::Tensor<float>& x, const ef::Var<float>& y) {
  return ef::add(ef::relu(x), ef::softmax(ef::matmul(x, y)));
}
#ifdef BAD
void wrong(const ef::Tensor<float>& x, const ef::Tensor<double>& d, const ef::Tensor<int>& ids) {
  (void)ef::relu(std::string("text"));
  (void)ef::relu(ids);
  (void)ef::permute(ids, {1, 0});
  (void)ef::add(x, d);
  (void)ef::multiply(x, std::string("text"));
  (void)ef::matmul(x, d);
}
#endif
