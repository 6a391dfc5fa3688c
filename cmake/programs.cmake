# What our own programs (tests, benchmarks, examples) share: warnings, optional libraries, where they land.
if(NOT CMAKE_RUNTIME_OUTPUT_DIRECTORY)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
endif()

add_library(eigenformer_warnings INTERFACE)
target_compile_options(eigenformer_warnings INTERFACE -Wall -Wextra -Wconversion -Wno-sign-conversion -Wshadow
                                                       $<$<BOOL:${EIGENFORMER_WARNINGS_AS_ERRORS}>:-Werror>)
target_link_libraries(eigenformer_compiled PRIVATE eigenformer_warnings)

find_package(CLI11 CONFIG QUIET)
if(NOT TARGET CLI11::CLI11)
  message(STATUS "eigenformer: CLI11 not found: the translator and most benchmarks are not built "
                 "(Debian and Ubuntu: libcli11-dev)")
endif()
find_package(benchmark CONFIG QUIET)

# Another compiler than CMake's for eigenformer::compiled and the programs that say so: clang, with a precompiled header, compiles a test in
# a third of g++'s time, but most users have g++.
set(EIGENFORMER_LIBRARY_COMPILER "" CACHE STRING "Compiler of eigenformer::compiled, the translator and tests that need speed; empty: CMake's own")
mark_as_advanced(EIGENFORMER_LIBRARY_COMPILER)
function(eigenformer_compile_as_library target)
  if(EIGENFORMER_LIBRARY_COMPILER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "bash;${PROJECT_SOURCE_DIR}/cmake/other_compiler.sh;${EIGENFORMER_LIBRARY_COMPILER};${CMAKE_CXX_COMPILER};${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()
eigenformer_compile_as_library(eigenformer_compiled)

# Everything that a program of ours may use.
add_library(eigenformer_programs INTERFACE)
target_link_libraries(eigenformer_programs INTERFACE eigenformer::compiled eigenformer_warnings)
# g++ 12 finds its own AVX-512 intrinsics uninitialised when Eigen uses them, as it does with -march=native.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(eigenformer_programs INTERFACE -Wno-error=maybe-uninitialized -Wno-error=uninitialized)
endif()
foreach(target eigenformer::io eigenformer::sentencepiece eigenformer::icu eigenformer::zstd CLI11::CLI11)
  if(TARGET ${target})
    target_link_libraries(eigenformer_programs INTERFACE ${target})
  endif()
endforeach()
# The flags of eigenformer::translator for all, because they share a precompiled header, which that library uses too; those that use it link it.
if(TARGET eigenformer_translator)
  target_include_directories(eigenformer_programs INTERFACE "${EIGENFORMER_TRANSLATOR_DIR}")
  if(EIGENFORMER_SERVER_FOUND)
    target_include_directories(eigenformer_programs SYSTEM INTERFACE "${EIGENFORMER_BOOST_INCLUDE_DIR}")
    target_compile_definitions(eigenformer_programs INTERFACE EIGENFORMER_WITH_SERVER=1)
  endif()
endif()

include(cmake/precompiled.cmake)

# The time of an example goes to the kernels, which are compiled apart with all optimisation; -O3 here doubles the compiler's.
set(EIGENFORMER_EXAMPLES_OPTIMIZATION -O1 CACHE STRING "Optimisation of the examples and the translator")
if(TARGET eigenformer_translator)
  target_link_libraries(eigenformer_translator PRIVATE eigenformer_warnings)
  if(NOT MSVC)
    target_compile_options(eigenformer_translator PRIVATE ${EIGENFORMER_EXAMPLES_OPTIMIZATION})
  endif()
  if(EIGENFORMER_TEST_BATCHES)  # the files of a program are compiled together
    set_target_properties(eigenformer_translator PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  eigenformer_precompile(eigenformer_translator "${EIGENFORMER_EXAMPLES_OPTIMIZATION}")
endif()

# Sets `out` to the optional libraries that a file includes, itself or by way of our own headers. Includes inside
# #if are not counted: such a file does without.
function(eigenformer_needs file out)
  get_property(known GLOBAL PROPERTY "eigenformer needs ${file}" SET)
  if(NOT known)
    set_property(GLOBAL PROPERTY "eigenformer needs ${file}" "")
    set(needs "")
    set(depth 0)
    get_filename_component(folder "${file}" DIRECTORY)
    file(STRINGS "${file}" lines REGEX "^ *# *(if|endif|include)")
    foreach(line IN LISTS lines)
      if(line MATCHES "^ *# *if")
        math(EXPR depth "${depth} + 1")
      elseif(line MATCHES "^ *# *endif")
        math(EXPR depth "${depth} - 1")
      elseif(depth GREATER 0)
        continue()
      elseif(line MATCHES "<nlohmann/")
        list(APPEND needs nlohmann-json)
      elseif(line MATCHES "<CLI/")
        list(APPEND needs CLI11)
      elseif(line MATCHES "<sentencepiece_")
        list(APPEND needs SentencePiece)
      elseif(line MATCHES "<unicode/")
        list(APPEND needs ICU)
      elseif(line MATCHES "<boost/")
        list(APPEND needs Boost)
      elseif(line MATCHES "<mpi\\.h>")
        list(APPEND needs MPI)
      elseif(line MATCHES "<benchmark/")
        list(APPEND needs "Google Benchmark")
      elseif(line MATCHES "include *[<\"](translator/[^>\"]+|[^<\"]+\")")
        string(REPLACE "\"" "" included "${CMAKE_MATCH_1}")
        if(included MATCHES "^translator/")
          list(APPEND needs eigenformer::translator)
        endif()
        foreach(root "${folder}" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests"
                     "${PROJECT_SOURCE_DIR}/tests/support" "${PROJECT_SOURCE_DIR}/translator/tool")
          get_filename_component(path "${included}" ABSOLUTE BASE_DIR "${root}")
          if(EXISTS "${path}")
            eigenformer_needs("${path}" inner)
            list(APPEND needs ${inner})
            break()
          endif()
        endforeach()
      endif()
    endforeach()
    list(REMOVE_DUPLICATES needs)
    set_property(GLOBAL PROPERTY "eigenformer needs ${file}" "${needs}")
  endif()
  get_property(needs GLOBAL PROPERTY "eigenformer needs ${file}")
  set(${out} "${needs}" PARENT_SCOPE)
endfunction()

# Sets `out` to the optional libraries that these files need and that were not found.
function(eigenformer_missing out)
  set(missing "")
  foreach(file IN LISTS ARGN)
    eigenformer_needs("${file}" needs)
    foreach(need IN LISTS needs)
      if((need STREQUAL "nlohmann-json" AND NOT TARGET eigenformer::io) OR
         (need STREQUAL "CLI11" AND NOT TARGET CLI11::CLI11) OR
         (need STREQUAL "SentencePiece" AND NOT TARGET eigenformer::sentencepiece) OR
         (need STREQUAL "ICU" AND NOT TARGET eigenformer::icu) OR
         (need STREQUAL "Boost" AND NOT EIGENFORMER_SERVER_FOUND) OR
         (need STREQUAL "eigenformer::translator" AND NOT TARGET eigenformer::translator) OR
         (need STREQUAL "MPI" AND NOT TARGET eigenformer::mpi) OR
         (need STREQUAL "Google Benchmark" AND NOT TARGET benchmark::benchmark))
        list(APPEND missing "${need}")
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES missing)
  set(${out} "${missing}" PARENT_SCOPE)
endfunction()

# Links eigenformer::translator to a target if one of its files, relative to the current folder, includes a header of it.
function(eigenformer_link_translator target)
  foreach(file IN LISTS ARGN)
    get_filename_component(file "${file}" ABSOLUTE)
    eigenformer_needs("${file}" needs)
    if("eigenformer::translator" IN_LIST needs)
      target_link_libraries(${target} PRIVATE eigenformer::translator)
      return()
    endif()
  endforeach()
endfunction()

# Adds a program of ours, or says why not.
function(eigenformer_add_program name)
  eigenformer_missing(missing ${ARGN})
  if(missing)
    list(JOIN missing ", " missing)
    message(STATUS "eigenformer: ${name} is not built: it needs ${missing}")
    return()
  endif()
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE eigenformer_programs)
  eigenformer_link_translator(${name} ${ARGN})
endfunction()
