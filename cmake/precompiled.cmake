# A precompiled header for tests and for programs that are compiled only to be tested. Clang's has our own headers and what they
# instantiate, of which a file takes what it needs: it halves the time of a file. g++ reads all of its own, and is slower with our headers in it: it
# has what no change of ours touches, and serves tests that are compiled one by one.
set(EIGENFORMER_TEST_OPTIMIZATION -O0 CACHE STRING "Optimisation of the tests")

set(precompiled <algorithm> <cmath> <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional>
                <set> <span> <sstream> <string> <thread> <unordered_map> <vector>)
if(TARGET eigenformer::io)
  list(APPEND precompiled <nlohmann/json.hpp>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND precompiled "${PROJECT_SOURCE_DIR}/include/eigenformer/eigenformer.hpp")
  if(TARGET eigenformer::io)
    list(APPEND precompiled "${PROJECT_SOURCE_DIR}/include/eigenformer/io.hpp")
  endif()
endif()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/precompiled.cpp" CONTENT "" @ONLY)
add_library(eigenformer_precompiled OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/precompiled.cpp")
target_link_libraries(eigenformer_precompiled PRIVATE eigenformer_programs)
target_compile_options(eigenformer_precompiled PRIVATE ${EIGENFORMER_TEST_OPTIMIZATION})
target_precompile_headers(eigenformer_precompiled PRIVATE ${precompiled})

# The precompiled header for a target that is compiled with `optimization`, where that is the one that it was made with.
function(eigenformer_precompile target optimization)
  if(NOT optimization STREQUAL EIGENFORMER_TEST_OPTIMIZATION OR CMAKE_BUILD_TYPE STREQUAL "Debug" OR
     (EIGENFORMER_TEST_BATCHES AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM eigenformer_precompiled)
endfunction()
