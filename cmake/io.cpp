// What io.hpp, train/ and search/text/ leave to eigenformer::compiled; there with nlohmann-json.
#define EIGENFORMER_COMPILED
#define EIGENFORMER_COMPILED_IO_BUILD
#include "eigenformer/io_definitions.hpp"
