// Compiled with EIGENFORMER_COMPILED, as every file of a program but the one with the implementation.
#include "../work.hpp"

float product_of_other_file() { return product_sum(); }
