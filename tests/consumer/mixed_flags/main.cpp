// Compiled without -m flags and linked with avx2.cpp: both must give the same, to the last bit.
#include <cstdio>

#include "../work.hpp"

float product_with_avx2();
float ratio_with_avx2();

int main() {
  const float product = product_sum(), ratio = loss_ratio();
  std::printf("product %g and %g, loss divided by %.9g and %.9g\n", static_cast<double>(product),
              static_cast<double>(product_with_avx2()), static_cast<double>(ratio),
              static_cast<double>(ratio_with_avx2()));
  return product == 394 && product == product_with_avx2() && ratio > 2 && ratio == ratio_with_avx2() ? 0 : 1;
}
