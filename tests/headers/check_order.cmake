# cmake -DROOT=include/eigenformer -P check_order.cmake: a folder includes only itself and folders named before it;
# Eigen, nlohmann-json, SentencePiece, Boost and MPI appear only where they are wanted.
cmake_minimum_required(VERSION 3.22)
set(order core kernels autograd nn optim data io generation metrics train)
set(failures "")

file(GLOB_RECURSE headers RELATIVE "${ROOT}" "${ROOT}/*.hpp")
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^([a-z0-9_]+)/")
    continue()  # headers at the top gather the others
  endif()
  list(FIND order "${CMAKE_MATCH_1}" own)
  if(own LESS 0)
    list(APPEND failures "${header}: folder '${CMAKE_MATCH_1}' has no place in the order of folders")
    continue()
  endif()
  file(STRINGS "${ROOT}/${header}" lines REGEX "^ *# *include")
  foreach(line IN LISTS lines)
    if(line MATCHES "\"eigenformer/([a-z0-9_]+)/")
      list(FIND order "${CMAKE_MATCH_1}" other)
      if(other GREATER own OR other LESS 0)
        list(APPEND failures "${header} is below ${CMAKE_MATCH_1}, yet has ${line}")
      endif()
    elseif(line MATCHES "\"" AND NOT line MATCHES "\"eigenformer/version\\.hpp\"")
      list(APPEND failures "${header}: ${line} must name a header in a folder, as eigenformer/folder/name.hpp")
    elseif((line MATCHES "<(unsupported/)?Eigen/" AND NOT header MATCHES "^(kernels/|core/tensor/eigen_|core/base/b?float16)") OR
           (line MATCHES "<nlohmann/" AND NOT header MATCHES "^(io|train)/") OR
           (line MATCHES "<sentencepiece" AND NOT header MATCHES "^data/tokenizers/sentencepiece/") OR
           line MATCHES "<boost/" OR
           (line MATCHES "<mpi\\.h>" AND NOT header STREQUAL "train/distributed/mpi.hpp") OR
           (line MATCHES "<unicode/" AND NOT header MATCHES "^data/text/(icu_text|charsmap|sentence_rules)"))
      list(APPEND failures "${header} must not have ${line}")
    endif()
  endforeach()
endforeach()

list(LENGTH headers count)
if(count EQUAL 0)
  message(FATAL_ERROR "no headers in ${ROOT}")
endif()
if(failures)
  list(JOIN failures "\n  " failures)
  message(FATAL_ERROR "  ${failures}")
endif()
message(STATUS "${count} headers include downward only")
