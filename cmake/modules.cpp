// The modules that the headers leave to eigenformer::compiled, instantiated for float and double.
#define EIGENFORMER_COMPILED
#define EIGENFORMER_COMPILED_MODULES
#include "eigenformer/eigenformer.hpp"
