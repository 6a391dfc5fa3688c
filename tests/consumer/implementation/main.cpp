// A client of two files beside the one with the implementation: exit code 0 when its numbers are right.
#include <cstdio>

#include "../work.hpp"

float product_of_other_file();

int main() {
  const float product = product_of_other_file(), ratio = loss_ratio();
  std::printf("product %g, loss divided by %g\n", static_cast<double>(product), static_cast<double>(ratio));
  return product == 394 && ratio > 2 ? 0 : 1;
}
