// client FIXTURES WORKING: linked with both objects, in either order, or with the second alone. Both must
// give the same, to the last bit, whichever copy of an inline function the linker keeps. WORKING is the
// number of optional libraries that the first was compiled with, which the whole program then has; what it
// lacks is an error that says so.
#include <cstdio>
#include <cstdlib>

#include "library.hpp"

extern "C" __attribute__((weak)) WorkFunction work_first;  // null where it is not linked

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int working = std::atoi(argv[2]);
  Work first, second;
  work_second(2, argv[1], second);
  if (work_first != nullptr)
    work_first(2, argv[1], first);
  else
    first = second;
  for (const Work& work : {first, second}) {
    std::printf("product %g, loss divided by %.9g\n", static_cast<double>(work.product),
                static_cast<double>(work.loss_ratio));
    for (const std::string& library : work.libraries) std::printf("%s\n", library.c_str());
  }
  return second.product == 394 && first.product == 394 && second.loss_ratio > 2 &&
                 first.loss_ratio == second.loss_ratio && first.hypotheses == second.hypotheses &&
                 first.runtime == second.runtime && first.has(working) && second.has(working)
             ? 0
             : 1;
}
