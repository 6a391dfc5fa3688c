// A client of the library: exit code 0 when its numbers are right.
#include <cstdio>

#include "work.hpp"

int main() {
  const float product = product_sum(), ratio = loss_ratio();
  std::printf("eigenformer %s: product %g, loss divided by %g\n", eigenformer::version_string().c_str(),
              static_cast<double>(product), static_cast<double>(ratio));
  return product == 394 && ratio > 2 ? 0 : 1;
}
