// A client of a part of the library: exit code 0 when its number is right.
#include "product.hpp"

int main() { return product_sum() == 394 ? 0 : 1; }
