// client FIXTURES WORKING: this file is compiled without the optional libraries, and linked with with.cpp
// (WORKING is the number of libraries that it has) or alone (0). A program has the libraries of any of its
// files, in every order of linking; what it lacks is an error that says so.
#include <cstdio>
#include <cstdlib>

#include "work.hpp"

// Null where with.cpp is not linked.
__attribute__((weak)) std::vector<std::string> use_with(const std::string& fixtures);

static bool check(const std::vector<std::string>& results, int working) {
  int ok = 0;
  bool clear = true;
  for (const std::string& result : results) {
    std::printf("%s\n", result.c_str());
    if (result.find(": ok") != std::string::npos) {
      ++ok;
    } else if (result.find("built without") == std::string::npos) {
      clear = false;
    }
  }
  return clear && ok == working;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int working = std::atoi(argv[2]);
  bool right = check(use_libraries(argv[1]), working);
  if (use_with != nullptr) right = check(use_with(argv[1]), working) && right;
  return right ? 0 : 1;
}
