#include <set>

#include "eigenformer/kernels/elementwise/dropout.hpp"
#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("Philox4x32-10 gives its authors' known answers") {
  using P = detail::Philox4x32;
  CHECK(P::generate({0, 0, 0, 0}, {0, 0}) == P::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(P::generate({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        P::Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(P::generate({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        P::Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

struct Words {
  template <int Bytes>
  EIGENFORMER_ALWAYS_INLINE static void run(std::uint32_t key0, std::uint32_t key1, std::uint32_t first,
                                            std::uint32_t* out) {
    detail::kernels::PhiloxBlock<Bytes>::run(key0, key1, 0x85a308d3, 0xffffffff, 7, first, out);
  }
};

TEST_CASE("a block of counters gives the words of the scalar generator, on every instruction set") {
  for_each_isa([] {
    for (const std::uint32_t first : {0u, 16u, 0xfffffff0u}) {
      std::uint32_t words[64];
      detail::kernels::dispatch<Words>(0xa4093822u, 0x299f31d0u, first, words);
      for (std::uint32_t l = 0; l < 16; ++l) {
        const auto expected =
            detail::Philox4x32::generate({0x85a308d3, 0xffffffff, 7, first + l}, {0xa4093822, 0x299f31d0});
        for (std::uint32_t w = 0; w < 4; ++w) REQUIRE(words[16 * w + l] == expected[w]);
      }
    }
  });
}

TEST_CASE("keys differ wherever seed, step or site do") {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (std::uint32_t step = 0; step < 7; ++step) {
      for (std::uint32_t site = 0; site < 11; ++site)
        keys.insert(detail::DropoutKey{seed, step, site}.philox_key());
    }
  }
  CHECK(keys.size() == 5 * 7 * 11);
}

TEST_CASE("the first multipliers are pinned, because checkpoints resume with them") {
  std::vector<float> mask(8);
  detail::kernels::dropout_mask_row(detail::DropoutKey{1, 2, 3}, 4, 5, 0, 0, 8, 0.5, mask.data());
  std::vector<double> wide(8);
  detail::kernels::dropout_mask_row(detail::DropoutKey{1, 2, 3}, 4, 5, 0, 0, 8, 0.5, wide.data());
  CHECK(mask == std::vector<float>{0, 0, 0, 0, 2, 0, 2, 0});
  CHECK(std::vector<double>(mask.begin(), mask.end()) == wide);
}

TEST_CASE_TEMPLATE("vectorised dropout equals the scalar reference bit by bit", T, float, double) {
  const detail::DropoutKey key{123456789012345, 17, 3};
  for_each_isa([&] {
    for (const double rate : {0.0, 0.1, 0.5, 0.97}) {
      for (const index_t n : edge_sizes) {
        CAPTURE(n);
        const index_t rows = 4, ld = n + 3;
        std::vector<detail::RowKey> keys = {{0, 0}, {9, 4}, {0xffffffff, 1}, {2, 0xffffffff}};
        const auto x = random_values<T>(rows * ld, 1), r = random_values<T>(rows * ld, 2);
        std::vector<T> y(x.size(), T(77)), sum(y), dx(y), tile(y);
        const detail::kernels::RowDropout dropout{rate, key, keys.data()};
        detail::kernels::dropout_rows(x.data(), y.data(), rows, n, ld, dropout);
        detail::kernels::dropout_rows(r.data(), sum.data(), rows, n, ld, dropout, x.data());
        detail::kernels::dropout_rows<T>(x.data(), dx.data(), rows, n, ld, dropout, dx.data());
        // The same mask in two tiles, cut at an odd column.
        const index_t cut = n / 3;
        detail::kernels::dropout_tile(x.data(), tile.data(), 0, rows, 0, cut, ld, dropout);
        detail::kernels::dropout_tile(x.data() + cut + ld, tile.data() + cut + ld, 1, rows - 1, cut, n - cut,
                                      ld, dropout);
        detail::kernels::dropout_tile(x.data() + cut, tile.data() + cut, 0, 1, cut, n - cut, ld, dropout);
        std::vector<T> kept(x.size(), T(77)), with_x(kept), with_77(kept);
        for (index_t i = 0; i < rows; ++i) {
          const detail::RowKey row = keys[static_cast<std::size_t>(i)];
          std::vector<T> mask(static_cast<std::size_t>(n));
          detail::kernels::dropout_mask_row(key, row.sequence, row.position, 0, 0, n, rate, mask.data());
          for (index_t j = 0; j < n; ++j) {
            const auto at = static_cast<std::size_t>(i * ld + j);
            const T multiplier = mask[static_cast<std::size_t>(j)];
            kept[at] = x[at] * multiplier;
            with_x[at] = x[at] + r[at] * multiplier;
            with_77[at] = T(77) + x[at] * multiplier;
          }
        }
        // Between the rows nothing is written.
        CHECK(y == kept);
        CHECK(tile == kept);
        CHECK(worst_error(sum, with_x) < tolerance<T>);
        CHECK(worst_error(dx, with_77) < tolerance<T>);
      }
    }
  });
}

TEST_CASE("a part of a mask is the whole mask's part") {
  const detail::DropoutKey key{1, 2, 3};
  std::vector<float> whole(300), part(61);
  detail::kernels::dropout_mask_row(key, 4, 5, 6, 0, 300, 0.4, whole.data());
  detail::kernels::dropout_mask_row(key, 4, 5, 6, 77, 61, 0.4, part.data());
  for (std::size_t i = 0; i < part.size(); ++i) CHECK(part[i] == whole[77 + i]);
}

TEST_CASE_TEMPLATE("dropout keeps the mean, scales what it keeps and drops the share it is asked to", T,
                   float, double) {
  for_each_isa([&] {
    const index_t rows = 400, n = 250;
    const std::vector<T> x(static_cast<std::size_t>(rows * n), T(2));
    std::vector<T> y(x.size());
    const double rate = 0.2;
    detail::kernels::dropout_rows<T>(x.data(), y.data(), rows, n, n, {rate, {42, 0, 0}});
    double sum = 0;
    index_t dropped = 0, wrong = 0;
    for (const T v : y) {
      sum += static_cast<double>(v);
      dropped += v == T(0) ? 1 : 0;
      if (v != T(0) && v != T(2) * static_cast<T>(1 / (1 - rate))) ++wrong;
    }
    CHECK(wrong == 0);
    // 100,000 draws: a standard deviation of 126 dropped elements.
    CHECK(std::abs(static_cast<double>(dropped) - 20000) < 600);
    CHECK(sum / 100000 == doctest::Approx(2).epsilon(0.01));
  });
}

TEST_CASE("masks of other steps, sites, seeds, rows and columns are independent") {
  const index_t n = 4096;
  const auto mask = [&](detail::DropoutKey key, std::uint32_t sequence, std::uint32_t position) {
    std::vector<float> m(static_cast<std::size_t>(n));
    detail::kernels::dropout_mask_row(key, sequence, position, 0, 0, n, 0.5, m.data());
    return m;
  };
  const auto base = mask({1, 1, 1}, 1, 1);
  for (const auto& other : {mask({2, 1, 1}, 1, 1), mask({1, 2, 1}, 1, 1), mask({1, 1, 2}, 1, 1),
                            mask({1, 1, 1}, 2, 1), mask({1, 1, 1}, 1, 2)}) {
    int same = 0;
    for (std::size_t i = 0; i < base.size(); ++i) same += base[i] == other[i] ? 1 : 0;
    CHECK(std::abs(same - 2048) < 200);
  }
  int same = 0;
  for (std::size_t i = 16; i < base.size(); ++i) same += base[i] == base[i - 16] ? 1 : 0;
  CHECK(std::abs(same - 2040) < 200);
}

TEST_CASE_TEMPLATE("a row's mask follows its key, whatever the batch and the threads", T, float, double) {
  for_each_isa([&] {
    const index_t rows = 900, n = 70;
    std::vector<detail::RowKey> keys;
    for (std::uint32_t i = 0; i < 900; ++i) keys.push_back({i / 9, i % 9});
    const std::vector<T> x(static_cast<std::size_t>(rows * n), T(1));
    std::vector<T> one(x.size()), many(x.size()), alone(x.size());
    const detail::DropoutKey key{7, 8, 9};
    {
      const ThreadScope threads(1);
      detail::kernels::dropout_rows(x.data(), one.data(), rows, n, n, {0.3, key, keys.data()});
    }
    {
      const ThreadScope threads(4);
      detail::kernels::dropout_rows(x.data(), many.data(), rows, n, n, {0.3, key, keys.data()});
    }
    for (index_t r = rows - 1; r >= 0; --r) {
      detail::kernels::dropout_rows(x.data() + r * n, alone.data() + r * n, 1, n, n,
                                    {0.3, key, keys.data() + r});
    }
    CHECK(one == many);
    CHECK(one == alone);
  });
}

TEST_CASE("a rate outside [0, 1) is refused") {
  float x = 1;
  for (const double rate : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(detail::kernels::dropout_rows<float>(&x, &x, 1, 1, 1, {rate, {}}), ValueError);
  }
  CHECK_THROWS_WITH_AS(detail::kernels::dropout_rows<float>(&x, &x, 1, 1, 1, {1.0, {}}),
                       "[dropout] rate is 1, must be at least 0 and less than 1", ValueError);
}

}  // namespace
