// Compiled with -mavx2 -mfma.
#include "../work.hpp"

float product_with_avx2() { return product_sum(); }
float ratio_with_avx2() { return loss_ratio(); }
