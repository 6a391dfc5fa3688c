#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "autograd/programs/comparison.hpp"
#include "autograd/programs/generator_layers.hpp"
#include "autograd/programs/generator_shapes.hpp"

using namespace eigenformer;
using namespace eigenformer::testing::programs;

// EIGENFORMER_TEST_PROGRAMS=FIRST:COUNT runs the programs of other seeds.
TEST_CASE("random programs of ops equal a reference in double, values and gradients") {
  std::uint64_t first = 1, count = 150;
  if (const char* seeds = std::getenv("EIGENFORMER_TEST_PROGRAMS"))
    REQUIRE(std::sscanf(seeds, "%lu:%lu", &first, &count) == 2);
  Checker checker;
  index_t failures = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const Program program = Generator(seed).make();
    const std::string wrong = checker.check(program);
    if (wrong.empty()) continue;
    ++failures;
    const Program small = shrunk(program, [&](const Program& p) { return !checker.check(p).empty(); });
    FAIL_CHECK(wrong << "\n"
                     << text(program) << "\nsmaller: " << checker.check(small) << "\n"
                     << text(small) << "\nagain: EIGENFORMER_TEST_PROGRAMS=" << seed
                     << ":1 test_autograd --source-file='*test_programs.cpp'");
  }
  MESSAGE(
      checker.tally().programs << " programs, " << checker.tally().runs << " runs, of which "
                               << checker.tally().near_kinks
                               << " are too near to a point where a function is not smooth to be compared");
}
