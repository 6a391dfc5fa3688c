#include "eigenformer/implementation.hpp"
