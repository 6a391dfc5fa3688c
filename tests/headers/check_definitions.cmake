# cmake -DROOT=include -P check_definitions.cmake: kernels/definitions.hpp includes every -inl.hpp of kernels/, in order.
file(GLOB_RECURSE found RELATIVE "${ROOT}" "${ROOT}/eigenformer/kernels/*-inl.hpp")
list(SORT found)
file(STRINGS "${ROOT}/eigenformer/kernels/definitions.hpp" listed REGEX "^#include")
list(TRANSFORM listed REPLACE "^#include \"(.*)\"$" "\\1")
if(NOT found STREQUAL listed)
  message(FATAL_ERROR "kernels/definitions.hpp includes\n${listed}\nand the files are\n${found}")
endif()

# A header that uses its macros includes config.hpp, or a header of the library that does.
file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/eigenformer/*.hpp")
foreach(header IN LISTS headers)
  file(STRINGS "${ROOT}/${header}" macros REGEX "^ *EIGENFORMER_(IO_)?FUNCTION |^#if EIGENFORMER_(IO_)?DEFINITIONS")
  file(STRINGS "${ROOT}/${header}" included REGEX "^#include \"eigenformer/")
  if(macros AND NOT included AND NOT header STREQUAL "eigenformer/core/base/config.hpp")
    message(FATAL_ERROR "${header} uses macros of eigenformer/core/base/config.hpp, and does not include it")
  endif()
endforeach()
