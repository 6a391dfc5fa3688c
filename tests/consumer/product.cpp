// A client that includes the library as a whole: exit code 0 when its number is right.
#include "product.hpp"
#include "eigenformer/eigenformer.hpp"

int main() { return product_sum() == 394 ? 0 : 1; }
