# cmake -DROOT=include -P check_definitions.cmake: kernels/definitions.hpp includes every -inl.hpp of kernels/, in order.
file(GLOB_RECURSE found RELATIVE "${ROOT}" "${ROOT}/eigenformer/kernels/*-inl.hpp")
list(SORT found)
file(STRINGS "${ROOT}/eigenformer/kernels/definitions.hpp" listed REGEX "^#include")
list(TRANSFORM listed REPLACE "^#include \"(.*)\"$" "\\1")
if(NOT found STREQUAL listed)
  message(FATAL_ERROR "kernels/definitions.hpp includes\n${listed}\nand the files are\n${found}")
endif()
