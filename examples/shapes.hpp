#pragma once

/// Images that the programs draw for themselves: rings, squares, crosses and triangles of any place and size,
/// bright on dark or dark on bright, under noise.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/tensor.hpp"

namespace example {

inline constexpr eigenformer::index_t image_size = 16;
inline constexpr const char* shape_names[] = {"ring", "square", "cross", "triangle"};

/// Whether a shape of radius r covers the point (x, y), measured from its middle.
inline bool covers(std::int32_t shape, double x, double y, double r) {
  const double far = std::max(std::abs(x), std::abs(y));
  switch (shape) {
    case 0:
      return std::abs(std::hypot(x, y) - r) < 0.8;
    case 1:
      return std::abs(far - r) < 0.8;
    case 2:
      return far <= r && std::min(std::abs(x), std::abs(y)) < 0.8;
    default:
      return y <= r && std::abs(x) <= (y + r) / 2 && (r - y < 1.2 || std::abs(x) > (y + r) / 2 - 1.2);
  }
}

/// Images (count, 1, 16, 16) and the numbers of their shapes (count).
struct Shapes {
  eigenformer::Tensor<float> images;
  eigenformer::Tensor<std::int32_t> labels;

  Shapes(eigenformer::index_t count, eigenformer::RandomGenerator& rng)
      : images({count, 1, image_size, image_size}), labels({count}) {
    rng.fill_normal(images.data(), images.numel(), 0.0, 0.3);
    for (eigenformer::index_t i = 0; i < count; ++i) {
      const auto shape = labels.at({i}) = static_cast<std::int32_t>(rng.uniform_int(4));
      const double r = rng.uniform(3, 5.5), x = rng.uniform(r, 15 - r), y = rng.uniform(r, 15 - r);
      const float ink = rng.uniform_int(2) == 0 ? 1.0F : -1.0F;
      for (eigenformer::index_t p = 0; p < image_size * image_size; ++p) {
        const auto col = static_cast<double>(p % image_size), row = static_cast<double>(p / image_size);
        if (covers(shape, col - x, row - y, r)) images.data()[i * image_size * image_size + p] += ink;
      }
    }
  }
};

/// The share of images whose largest logit is that of their shape; prints the first image and its answer.
inline double accuracy(const Shapes& test, const eigenformer::Tensor<std::int64_t>& answers) {
  eigenformer::index_t right = 0;
  for (eigenformer::index_t i = 0; i < answers.numel(); ++i) right += answers.at({i}) == test.labels.at({i});
  for (eigenformer::index_t p = 0; p < image_size * image_size; ++p) {
    const auto level = static_cast<int>(2.5F + 2 * test.images.data()[p]);
    std::printf("%c%s", " .+*#"[std::clamp(level, 0, 4)], p % image_size == image_size - 1 ? "\n" : "");
  }
  std::printf("a %s, taken for a %s\n", shape_names[test.labels.at({0})], shape_names[answers.at({0})]);
  const double share = static_cast<double>(right) / static_cast<double>(answers.numel());
  std::printf("%.1f %% right (%lld of %lld)\n", 100 * share, static_cast<long long>(right),
              static_cast<long long>(answers.numel()));
  return share;
}

}  // namespace example
