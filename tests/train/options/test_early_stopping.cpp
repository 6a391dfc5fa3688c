#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "eigenformer/train/options/options.hpp"

using eigenformer::detail::EarlyStopping;

TEST_CASE("early stopping counts validations without improvement") {
  EarlyStopping stopping(2);
  CHECK(std::isinf(stopping.best()));
  CHECK(stopping.update(3.0));
  CHECK_FALSE(stopping.update(3.0));  // as good is not better
  CHECK_FALSE(stopping.stop());
  CHECK(stopping.update(2.5));
  CHECK(stopping.without_improvement() == 0);
  CHECK_FALSE(stopping.update(2.6));
  CHECK_FALSE(stopping.update(2.7));
  CHECK(stopping.stop());
  CHECK(stopping.best() == 2.5);
}

TEST_CASE("NaN is never an improvement, not even the first") {
  EarlyStopping stopping(1);
  CHECK_FALSE(stopping.update(std::numeric_limits<double>::quiet_NaN()));
  CHECK(stopping.stop());
  CHECK(std::isinf(stopping.best()));
}

TEST_CASE("patience 0 never stops, and a restored count goes on") {
  EarlyStopping never;
  for (int i = 0; i < 50; ++i) never.update(1.0 + i);
  CHECK_FALSE(never.stop());

  EarlyStopping stopping(3);
  stopping.restore(1.5, 2);
  CHECK_FALSE(stopping.stop());
  CHECK_FALSE(stopping.update(1.6));
  CHECK(stopping.stop());
  CHECK(stopping.best() == 1.5);
}
