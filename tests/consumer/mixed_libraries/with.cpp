// Compiled with every optional library that was found.
#include "work.hpp"

std::vector<std::string> use_with(const std::string& fixtures) { return use_libraries(fixtures); }
