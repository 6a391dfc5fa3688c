// IMPLEMENT beside IMPLEMENT_WITH_MAIN, because the precompiled header has included doctest already.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
