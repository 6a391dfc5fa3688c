# cmake -DROOT=<the source folder> -P check_order.cmake: a folder of the library, and of the translator, includes only itself and folders named
# before it, and the library nothing of the translator; Eigen, nlohmann-json, SentencePiece, ICU, Boost and MPI appear only where they are wanted.
cmake_minimum_required(VERSION 3.22)
set(failures "")
set(count 0)

# check_folders(ROOT NAME FOLDER...): the files below ROOT, whose own folders are included as NAME/FOLDER/...
function(check_folders root name)
  set(order ${ARGN})
  file(GLOB_RECURSE files RELATIVE "${root}" "${root}/*.hpp" "${root}/*.cpp")
  foreach(file IN LISTS files)
    if(NOT file MATCHES "^([a-z0-9_]+)/")
      continue()  # headers at the top gather the others
    endif()
    math(EXPR count "${count} + 1")
    list(FIND order "${CMAKE_MATCH_1}" own)
    if(own LESS 0)
      list(APPEND failures "${name}/${file}: folder '${CMAKE_MATCH_1}' has no place in the order of folders")
      continue()
    endif()
    file(STRINGS "${root}/${file}" lines REGEX "^ *# *include")
    foreach(line IN LISTS lines)
      if(line MATCHES "[\"<]${name}/([a-z0-9_]+)/")
        list(FIND order "${CMAKE_MATCH_1}" other)
        if(other GREATER own OR other LESS 0)
          list(APPEND failures "${name}/${file} is below ${CMAKE_MATCH_1}, yet has ${line}")
        endif()
      elseif(name STREQUAL "translator")
        continue()  # it may use all of the library, and any other
      elseif(line MATCHES "\"" AND NOT line MATCHES "\"eigenformer/version\\.hpp\"")
        list(APPEND failures "${file}: ${line} must name a header in a folder, as eigenformer/folder/name.hpp")
      elseif((line MATCHES "<(unsupported/)?Eigen/" AND NOT file MATCHES "^(kernels/|core/tensor/eigen_|core/base/b?float16)") OR
             (line MATCHES "<nlohmann/" AND NOT file MATCHES "^(io|train)/") OR
             (line MATCHES "<sentencepiece" AND NOT file MATCHES "^data/tokenizers/sentencepiece/") OR
             line MATCHES "<boost/" OR
             (line MATCHES "<mpi\\.h>" AND NOT file STREQUAL "train/distributed/mpi.hpp") OR
             (line MATCHES "<unicode/" AND NOT file MATCHES "^data/text/(icu_text|charsmap|sentence_rules)"))
        list(APPEND failures "${file} must not have ${line}")
      endif()
    endforeach()
  endforeach()
  if(count EQUAL 0)
    message(FATAL_ERROR "no headers in ${root}")
  endif()
  set(failures "${failures}" PARENT_SCOPE)
  set(count "${count}" PARENT_SCOPE)
endfunction()

check_folders("${ROOT}/include/eigenformer" eigenformer core kernels autograd nn optim data io search metrics train)
check_folders("${ROOT}/translator" translator text documents explorer serving preparing training server tool)
if(failures)
  list(JOIN failures "\n  " failures)
  message(FATAL_ERROR "  ${failures}")
endif()
message(STATUS "${count} files include downward only")
