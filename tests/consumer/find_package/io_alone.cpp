// A client that links eigenformer::compiled and eigenformer::io, and none of the optional libraries: exit
// code 0 when all is right.
#include <string>
#include <vector>

#include "eigenformer/metrics/chrf.hpp"

int main() {
  const std::vector<std::string> lines = {"the old dog"};
  return eigenformer::corpus_chrf(lines, lines) > 99.9 ? 0 : 1;
}
