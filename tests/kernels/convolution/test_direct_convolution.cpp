#include "eigenformer/kernels/convolution/direct_convolution.hpp"

#include <limits>
#include <utility>

#include "kernels/kernel_tools.hpp"

namespace {

using namespace eigenformer;
using namespace eigenformer::testing;
using detail::kernels::ConvolutionAxis;
using detail::kernels::DirectConvolution;

ConvolutionAxis axis(index_t in, index_t kernel, index_t stride, index_t padding, index_t dilation) {
  return {in,      kernel,   stride,
          padding, dilation, (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1};
}

/// Calls f(number in x, number in y, number in w) for each product of the convolution.
template <class F>
void for_each_product(const DirectConvolution& c, const F& f) {
  const index_t channels = c.groups * c.out;
  for (index_t n = 0; n < c.images * channels; ++n) {
    for (index_t oh = 0; oh < c.h.out; ++oh) {
      for (index_t ow = 0; ow < c.w.out; ++ow) {
        for (index_t i = 0; i < c.in; ++i) {
          for (index_t kh = 0; kh < c.h.kernel; ++kh) {
            for (index_t kw = 0; kw < c.w.kernel; ++kw) {
              const index_t ih = oh * c.h.stride - c.h.padding + kh * c.h.dilation;
              const index_t iw = ow * c.w.stride - c.w.padding + kw * c.w.dilation;
              if (ih < 0 || ih >= c.h.in || iw < 0 || iw >= c.w.in) continue;
              const index_t plane = n / c.out * c.in + i;
              f(static_cast<std::size_t>((plane * c.h.in + ih) * c.w.in + iw),
                static_cast<std::size_t>((n * c.h.out + oh) * c.w.out + ow),
                static_cast<std::size_t>(((n % channels * c.in + i) * c.h.kernel + kh) * c.w.kernel + kw));
            }
          }
        }
      }
    }
  }
}

struct Sizes {
  index_t x, y, w;
};
Sizes sizes(const DirectConvolution& c) {
  return {c.images * c.groups * c.in * c.h.in * c.w.in, c.images * c.groups * c.out * c.h.out * c.w.out,
          c.groups * c.out * c.in * c.h.kernel * c.w.kernel};
}

/// beta * 0.5, what the results hold before.
template <class T>
std::vector<T> before(index_t n, T beta) {
  return std::vector<T>(static_cast<std::size_t>(n),
                        beta == T(0) ? std::numeric_limits<T>::quiet_NaN() : T(0.5));
}

template <class T>
void check_all(const DirectConvolution& c) {
  const Sizes n = sizes(c);
  const auto x = random_values<T>(n.x, 1), y = random_values<T>(n.y, 2), w = random_values<T>(n.w, 3);
  const auto out_bias = random_values<T>(c.groups * c.out, 4), in_bias = random_values<T>(c.groups * c.in, 5);
  // Sums of thousands of products: float rounds each.
  const double bound = sizeof(T) == 4 ? 1e-4 : 1e-12;
  for (const T beta : {T(0), T(1), T(-2)}) {
    CAPTURE(beta);
    const auto start = [&](index_t count) {
      return std::vector<double>(static_cast<std::size_t>(count), static_cast<double>(beta) * 0.5);
    };
    auto ey = start(n.y), ex = start(n.x), ew = start(n.w);
    for_each_product(c, [&](std::size_t ix, std::size_t iy, std::size_t iw) {
      ey[iy] += static_cast<double>(x[ix]) * static_cast<double>(w[iw]);
      ex[ix] += static_cast<double>(y[iy]) * static_cast<double>(w[iw]);
      ew[iw] += static_cast<double>(y[iy]) * static_cast<double>(x[ix]);
    });
    auto ry = before(n.y, beta), rx = before(n.x, beta), rw = before(n.w, beta);
    detail::kernels::direct_convolution<T>(c, x.data(), w.data(), nullptr, ry.data(), beta);
    detail::kernels::direct_convolution_transposed<T>(c, y.data(), w.data(), nullptr, rx.data(), beta);
    detail::kernels::direct_convolution_weight_gradient<T>(c, x.data(), y.data(), rw.data(), beta);
    CHECK(worst_error(ry, ey) < bound);
    CHECK(worst_error(rx, ex) < bound);
    CHECK(worst_error(rw, ew) < bound);
    if (beta != T(0)) continue;
    for (std::size_t i = 0; i < ey.size(); ++i) {
      ey[i] +=
          static_cast<double>(out_bias[i / static_cast<std::size_t>(c.h.out * c.w.out) % out_bias.size()]);
    }
    for (std::size_t i = 0; i < ex.size(); ++i) {
      ex[i] += static_cast<double>(in_bias[i / static_cast<std::size_t>(c.h.in * c.w.in) % in_bias.size()]);
    }
    detail::kernels::direct_convolution<T>(c, x.data(), w.data(), out_bias.data(), ry.data(), beta);
    detail::kernels::direct_convolution_transposed<T>(c, y.data(), w.data(), in_bias.data(), rx.data(), beta);
    CHECK(worst_error(ry, ey) < bound);
    CHECK(worst_error(rx, ex) < bound);
  }
}

TEST_CASE_TEMPLATE("direct convolutions and their gradients equal a plain loop", T, float, double) {
  for_each_isa([] {
    for (const auto& channels : {std::pair<index_t, index_t>{1, 1}, {1, 2}, {2, 1}, {2, 3}}) {
      const index_t in = channels.first, out = channels.second;
      for (const index_t stride : {1, 2, 3}) {
        for (const index_t dilation : {1, 2}) {
          for (const index_t padding : {0, 1, 5}) {
            CAPTURE(in);
            CAPTURE(out);
            CAPTURE(stride);
            CAPTURE(dilation);
            CAPTURE(padding);
            check_all<T>({2, 3, in, out, axis(7, 2, stride, padding, dilation),
                          axis(21, 3, 4 - stride, padding, dilation)});
            check_all<T>({3, 2, in, out, axis(1, 1, 1, 0, 1), axis(19, 5, stride, padding, dilation)});
          }
        }
      }
    }
    // A kernel wider than the image, one element, no images, no channels, strides beyond the kernel.
    check_all<T>({1, 2, 1, 1, axis(2, 5, 2, 4, 1), axis(3, 7, 1, 3, 1)});
    check_all<T>({1, 2, 1, 1, axis(1, 1, 1, 0, 1), axis(1, 1, 2, 1, 1)});
    check_all<T>({1, 2, 1, 1, axis(2, 1, 2, 3, 1), axis(1, 3, 2, 6, 2)});
    check_all<T>({0, 2, 1, 1, axis(4, 3, 1, 1, 1), axis(5, 3, 1, 1, 1)});
    check_all<T>({2, 3, 0, 1, axis(4, 3, 1, 1, 1), axis(5, 3, 1, 1, 1)});
    check_all<T>({2, 3, 1, 0, axis(4, 3, 1, 1, 1), axis(5, 3, 1, 1, 1)});
    check_all<T>({2, 1, 1, 2, axis(11, 2, 5, 1, 1), axis(23, 3, 7, 2, 1)});
  });
}

TEST_CASE(
    "direct convolutions of several tiles equal a plain loop and are the same for any number of threads") {
  for_each_isa([] {
    // Rows wider than a tile; more rows than a tile has, with strides.
    for (const DirectConvolution& c :
         {DirectConvolution{1, 2, 1, 1, axis(1, 1, 1, 0, 1), axis(9001, 7, 1, 3, 1)},
          DirectConvolution{2, 1, 1, 1, axis(1, 1, 1, 0, 1), axis(17003, 3, 2, 2, 3)},
          DirectConvolution{3, 2, 1, 2, axis(203, 3, 1, 1, 1), axis(131, 3, 1, 1, 1)},
          DirectConvolution{3, 2, 2, 1, axis(207, 3, 2, 1, 2), axis(141, 5, 2, 2, 1)}}) {
      check_all<float>(c);
      const Sizes n = sizes(c);
      const auto x = random_values<float>(n.x, 1), y = random_values<float>(n.y, 2),
                 w = random_values<float>(n.w, 3);
      const auto run = [&](int threads) {
        const ThreadScope scope(threads);
        std::vector<float> all(static_cast<std::size_t>(n.x + n.y + n.w));
        detail::kernels::direct_convolution<float>(c, x.data(), w.data(), nullptr, all.data(), 0);
        detail::kernels::direct_convolution_transposed<float>(c, y.data(), w.data(), nullptr,
                                                              all.data() + n.y, 0);
        detail::kernels::direct_convolution_weight_gradient<float>(c, x.data(), y.data(),
                                                                   all.data() + n.y + n.x, 0);
        return all;
      };
      const auto one = run(1);
      CHECK(run(2) == one);
      CHECK(run(5) == one);
    }
  });
}

TEST_CASE("infinite elements reach the entries of the gradient whose windows hold them, and no other") {
  for_each_isa([] {
    for (const index_t stride : {1, 2}) {
      const DirectConvolution c{1, 1, 1, 1, axis(5, 2, 1, 0, 1), axis(21, 3, stride, 0, 1)};
      auto x = random_values<float>(105, 1);
      for (std::size_t r = 0; r < 5; ++r) x[r * 21 + 20] = std::numeric_limits<float>::infinity();
      const std::vector<float> dy(static_cast<std::size_t>(sizes(c).y), 1.0f);
      std::vector<float> dw(6);
      detail::kernels::direct_convolution_weight_gradient<float>(c, x.data(), dy.data(), dw.data(), 0);
      for (std::size_t k = 0; k < 6; ++k) CHECK(std::isfinite(dw[k]) == (k % 3 != 2));
      CHECK(dw[2] == std::numeric_limits<float>::infinity());
    }
  });
}

TEST_CASE("only groups of few channels with windows that do not reach far are direct") {
  DirectConvolution c{2, 3, 1, 1, axis(7, 3, 1, 1, 1), axis(9, 3, 1, 1, 1)};
  CHECK(detail::kernels::convolution_is_direct(c));
  c.in = 64;
  CHECK_FALSE(detail::kernels::convolution_is_direct(c));
  c.in = 1;
  const index_t far = (index_t(1) << 31) - 1;
  c.w.dilation = far;
  CHECK_FALSE(detail::kernels::convolution_is_direct(c));
  c.w = axis(9, 3, far, 1, 1);
  CHECK_FALSE(detail::kernels::convolution_is_direct(c));
}

}  // namespace
