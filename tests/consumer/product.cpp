// A client that includes the library as a whole: exit code 0 when its number is right.
#include "eigenformer/eigenformer.hpp"
#include "product.hpp"

int main() { return product_sum() == 394 ? 0 : 1; }
