#include "eigenformer/metrics/alignment_error.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

using namespace eigenformer;

TEST_CASE("alignment_error: precision, recall and error rate by sure and possible links") {
  using Links = std::vector<AlignmentLink>;
  AlignmentError error;
  CHECK(std::isnan(error.rate()));
  // A = {0-0, 1-1, 2-3}, S = {0-0, 1-2}, P = S and 1-1: |A & S| = 1, |A & P| = 2.
  error.add(Links{{0, 0}, {1, 1}, {2, 3}, {0, 0}}, Links{{0, 0}, {1, 2}}, Links{{1, 1}});
  CHECK(error.found() == 3);
  CHECK(error.precision() == doctest::Approx(2.0 / 3));
  CHECK(error.recall() == doctest::Approx(0.5));
  CHECK(error.rate() == doctest::Approx(1 - 3.0 / 5));
  // A right one of another sentence.
  error.add(Links{{4, 4}}, Links{{4, 4}});
  CHECK(error.rate() == doctest::Approx(1 - 5.0 / 7));
  CHECK(error.sure() == 3);
}
