#include <array>
#include <memory>
#include <numeric>

#include "eigenformer/kernels/reduction/permute.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

/// y[index] = x[index put back], one element at a time.
template <class T>
std::vector<T> reference(const std::vector<T>& x, const Shape& shape, const std::vector<index_t>& order) {
  std::vector<T> y;
  std::array<index_t, 6> strides{};
  index_t step = 1;
  for (index_t d = shape.rank() - 1; d >= 0; --d) {
    strides[static_cast<std::size_t>(d)] = step;
    step *= shape[d];
  }
  const Shape out = detail::kernels::permuted_shape(shape, order);
  for (index_t flat = 0; flat < out.numel(); ++flat) {
    index_t rest = flat, at = 0;
    for (index_t i = out.rank() - 1; i >= 0; --i) {
      const index_t from = order[static_cast<std::size_t>(i)];
      at += rest % out[i] * strides[static_cast<std::size_t>(from < 0 ? from + shape.rank() : from)];
      rest /= out[i];
    }
    y.push_back(x[static_cast<std::size_t>(at)]);
  }
  return y;
}

TEST_CASE_TEMPLATE("every order of every shape equals a plain loop", T, float, double) {
  const std::vector<Shape> shapes = {
      Shape{},          Shape{5},           Shape{3, 17},         Shape{1, 35, 16},
      Shape{2, 33, 15}, Shape{2, 5, 3, 12}, Shape{2, 1, 3, 2, 5}, Shape{2, 3, 2, 1, 2, 3},
      Shape{0, 4, 2}};
  for (const Shape& shape : shapes) {
    std::vector<T> x(static_cast<std::size_t>(shape.numel()));
    std::iota(x.begin(), x.end(), T(1));
    std::vector<index_t> order(static_cast<std::size_t>(shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    do {
      const auto expected = reference(x, shape, order);
      std::vector<T> y(x.size(), T(-7));
      detail::kernels::permute(x.data(), shape, order, y.data(), T(0));
      REQUIRE(y == expected);
      detail::kernels::permute(x.data(), shape, order, y.data(), T(1));
      for (std::size_t i = 0; i < y.size(); ++i) y[i] -= expected[i];
      REQUIRE(y == expected);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST_CASE("negative axes") {
  const float x[6] = {1, 2, 3, 4, 5, 6};
  float y[6];
  const std::vector<index_t> order = {-1, 0};
  detail::kernels::permute(x, Shape{2, 3}, order, y, 0.0f);
  const float expected[6] = {1, 4, 2, 5, 3, 6};
  for (int i = 0; i < 6; ++i) CHECK(y[i] == expected[i]);
  CHECK(detail::kernels::permuted_shape(Shape{2, 3}, order) == Shape{3, 2});
}

TEST_CASE("transpose in batches, on several threads") {
  const index_t batch = 3, rows = 133, cols = 217;
  std::vector<float> x(static_cast<std::size_t>(batch * rows * cols)), y(x.size());
  std::iota(x.begin(), x.end(), 0.0f);
  const ThreadScope threads(3);
  const std::vector<index_t> order = {0, 2, 1};
  detail::kernels::permute(x.data(), Shape{batch, rows, cols}, order, y.data(), 0.0f);
  CHECK(y == reference(x, Shape{batch, rows, cols}, {0, 2, 1}));
}

TEST_CASE("orders that are none are named") {
  const std::vector<std::vector<index_t>> wrong = {{0, 0}, {0}, {0, 2}, {1, -3}};
  for (const auto& order : wrong)
    CHECK_THROWS_AS((void)detail::kernels::permuted_shape(Shape{2, 3}, order), ShapeError);
  CHECK_THROWS_WITH_AS((void)detail::kernels::permuted_shape(Shape{2, 3}, wrong[0]),
                       "[permute] order (0, 0) must name each of the 2 dimensions of (2, 3) once",
                       ShapeError);
}

}  // namespace
