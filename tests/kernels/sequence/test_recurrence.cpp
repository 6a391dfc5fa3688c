#include "eigenformer/kernels/sequence/recurrence.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

}  // namespace

TEST_CASE_TEMPLATE("the recurrence and its gradients equal plain loops, on every path", T, float, double) {
  for_each_isa([&] {
    for (const index_t d : edge_sizes) {
      CAPTURE(d);
      // The second sequence is empty; a row that is in none lies before and one behind the third.
      const std::vector<index_t> lengths = {4, 0, 3}, offsets = {0, 4, 5};
      const index_t rows = 9;
      auto forget = random_values<T>(rows * d, 1);
      for (T& f : forget) f = T(1) / (T(1) + std::exp(f));
      const auto input = random_values<T>(rows * d, 2), dy = random_values<T>(rows * d, 3);
      const auto start = random_values<T>(3 * d, 4);
      const auto at = [d](index_t row, index_t j) { return static_cast<std::size_t>(row * d + j); };
      for (const bool with_state : {false, true}) {
        std::vector<T> state = start, c(input.size(), T(-7));
        detail::kernels::recurrence_forward<T>(forget.data(), input.data(), offsets, lengths, d,
                                               with_state ? state.data() : nullptr, c.data());
        std::vector<double> expected(input.size(), -7), after(start.begin(), start.end());
        for (index_t b = 0; b < 3; ++b) {
          for (index_t j = 0; j < d; ++j) {
            double before = with_state ? static_cast<double>(start[at(b, j)]) : 0;
            for (index_t t = 0; t < lengths[static_cast<std::size_t>(b)]; ++t) {
              const std::size_t i = at(offsets[static_cast<std::size_t>(b)] + t, j);
              const auto f = static_cast<double>(forget[i]);
              before = f * before + (1 - f) * static_cast<double>(input[i]);
              expected[i] = before;
            }
            if (with_state) after[at(b, j)] = before;
          }
        }
        for (std::size_t i = 0; i < c.size(); ++i)
          CHECK(std::abs(static_cast<double>(c[i]) - expected[i]) < 1e-5);
        for (std::size_t i = 0; i < state.size(); ++i)
          CHECK(std::abs(static_cast<double>(state[i]) - after[i]) < 1e-5);
      }
      std::vector<T> c(input.size(), T(0));
      detail::kernels::recurrence_forward<T>(forget.data(), input.data(), offsets, lengths, d, nullptr,
                                             c.data());
      for (const T beta : {T(0), T(1)}) {
        std::vector<T> df(input.size(), T(0.5)), dx(input.size(), T(0.25));
        detail::kernels::recurrence_backward<T>(
            forget.data(), input.data(), c.data(), dy.data(), offsets, lengths, d,
            {.forget = df.data(), .forget_beta = beta, .input = dx.data(), .input_beta = beta});
        for (std::size_t b = 0; b < 3; ++b) {
          for (index_t j = 0; j < d; ++j) {
            double g = 0;
            for (index_t t = lengths[b]; t-- > 0;) {
              const std::size_t i = at(offsets[b] + t, j);
              const auto f = static_cast<double>(forget[i]);
              g += static_cast<double>(dy[i]);
              const double before = t == 0 ? 0 : static_cast<double>(c[at(offsets[b] + t - 1, j)]);
              CHECK(std::abs(static_cast<double>(dx[i]) - (0.25 * static_cast<double>(beta) + (1 - f) * g)) <
                    1e-5);
              CHECK(std::abs(static_cast<double>(df[i]) - (0.5 * static_cast<double>(beta) +
                                                           (before - static_cast<double>(input[i])) * g)) <
                    1e-5);
              g *= f;
            }
          }
        }
        // Rows of no sequence.
        for (const index_t row : {4, 8}) {
          for (index_t j = 0; j < d; ++j) {
            CHECK(df[at(row, j)] == T(0.5));
            CHECK(dx[at(row, j)] == T(0.25));
          }
        }
        // One of them alone.
        std::vector<T> alone(input.size(), T(0));
        detail::kernels::recurrence_backward<T>(forget.data(), input.data(), c.data(), dy.data(), offsets,
                                                lengths, d, {.input = alone.data()});
        if (beta == T(0)) CHECK(alone[0] == dx[0]);
      }
    }
  });
}
