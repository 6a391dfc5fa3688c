#include "eigenformer/core/base/error.hpp"
#include "eigenformer/kernels/sequence/embedding.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

std::vector<std::int32_t> random_ids(index_t n, index_t vocab) {
  RandomGenerator rng(9);
  std::vector<std::int32_t> ids;
  for (index_t i = 0; i < n; ++i) ids.push_back(static_cast<std::int32_t>(rng.uniform_int(vocab)));
  return ids;
}

TEST_CASE_TEMPLATE("embedding and its gradient equal a plain loop", T, float, double) {
  for_each_isa([&] {
    for (const index_t d : edge_sizes) {
      CAPTURE(d);
      const index_t vocab = 23, rows = 57;
      const auto ids = random_ids(rows, vocab);
      const auto table = random_values<T>(vocab * d, 1), dy = random_values<T>(rows * d, 2);
      const T scale = T(1.5);
      std::vector<T> y(dy.size());
      detail::kernels::embedding_forward(table.data(), vocab, d, ids.data(), rows, scale, y.data());
      std::vector<T> rows_of_table;
      for (const std::int32_t id : ids) {
        for (index_t j = 0; j < d; ++j)
          rows_of_table.push_back(scale * table[static_cast<std::size_t>(id * d + j)]);
      }
      CHECK(y == rows_of_table);
      for (const std::int32_t padding : {-1, 4}) {
        for (const T beta : {T(0), T(1)}) {
          std::vector<double> expected(table.size(), static_cast<double>(beta) * 0.5);
          for (index_t r = 0; r < rows; ++r) {
            const std::int32_t id = ids[static_cast<std::size_t>(r)];
            for (index_t j = 0; j < d && id != padding; ++j) {
              expected[static_cast<std::size_t>(id * d + j)] +=
                  1.5 * static_cast<double>(dy[static_cast<std::size_t>(r * d + j)]);
            }
          }
          std::vector<T> dtable(table.size(), beta == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.5));
          detail::kernels::embedding_backward(dy.data(), ids.data(), rows, padding, scale, dtable.data(),
                                              beta, vocab, d);
          CHECK(worst_error(dtable, expected) < tolerance<T>);
        }
      }
    }
  });
}

TEST_CASE("the gradient does not depend on the number of threads") {
  const index_t vocab = 11, rows = 1500, d = 200;
  const auto ids = random_ids(rows, vocab);
  const auto dy = random_values<float>(rows * d, 2);
  std::vector<float> one(static_cast<std::size_t>(vocab * d)), many(one);
  {
    const ThreadScope threads(1);
    detail::kernels::embedding_backward(dy.data(), ids.data(), rows, -1, 1.0f, one.data(), 0.0f, vocab, d);
  }
  {
    const ThreadScope threads(3);
    detail::kernels::embedding_backward(dy.data(), ids.data(), rows, -1, 1.0f, many.data(), 0.0f, vocab, d);
  }
  CHECK(one == many);
}

TEST_CASE("an id outside the vocabulary is named, with its position") {
  const std::vector<float> table(23 * 4);
  std::vector<float> y(3 * 4), dtable(23 * 4);
  for (const std::int32_t bad : {23, -1}) {
    const std::vector<std::int32_t> ids = {0, 22, bad};
    const std::string message =
        "[embedding] id " + std::to_string(bad) + " at position 2 is outside the vocabulary of 23";
    CHECK_THROWS_WITH_AS(
        detail::kernels::embedding_forward(table.data(), 23, 4, ids.data(), 3, 1.0f, y.data()),
        message.c_str(), IndexError);
    CHECK_THROWS_WITH_AS(
        detail::kernels::embedding_backward(y.data(), ids.data(), 3, -1, 1.0f, dtable.data(), 0.0f, 23, 4),
        message.c_str(), IndexError);
  }
}

}  // namespace
