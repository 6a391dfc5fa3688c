# Targets beside eigenformer::eigenformer, made alike in this project and by find_package(eigenformer):
#   eigenformer::io             headers that read and write models; there when nlohmann-json is; zlib is used if found
#   eigenformer::zstd           texts compressed by zstd; there when libzstd is (those by gzip come with eigenformer::io)
#   eigenformer::sentencepiece  the subword tokenizer; there when SentencePiece is
#   eigenformer::icu            the tokenizers of BART and BERT, sentences of paragraphs; there when ICU is
#   eigenformer::mpi            training by many processes; there when an MPI is (OpenMPI, MPICH)
#   eigenformer::compiled       kernels and modules for float and double, compiled once instead of in every file; with nlohmann-json also the
#                               functions of io.hpp, and training and translating with Seq2SeqTransformer<float>
#   eigenformer::translator     what the translator is made of: documents, the service with its queue, corpora; there when nlohmann-json is.
#                               With Boost 1.74 or newer it has the server over HTTP (EIGENFORMER_WITH_SERVER)
# Expects EIGENFORMER_INCLUDE_DIR, the folder that holds eigenformer/eigenformer.hpp, and EIGENFORMER_TRANSLATOR_DIR, the one that holds
# translator/server; a package also EIGENFORMER_LIBRARY_DIR, the one of its static libraries, EIGENFORMER_BUILT_WITH, the optional libraries that
# they use, and EIGENFORMER_COMPILED_IO, whether they have what needs nlohmann-json. Not named eigenformer-targets-*.cmake:
# CMake includes all files of that name by itself, too early.
include_guard(DIRECTORY)

# Makes eigenformer::<name>, and sets `target` to what its properties are set on. find_package makes imported targets, so that a
# library that links one publicly can itself be installed and exported.
macro(eigenformer_component name)
  if(EIGENFORMER_PACKAGE)
    set(target eigenformer::${name})
    add_library(${target} INTERFACE IMPORTED)
  else()
    set(target eigenformer_${name})
    add_library(${target} INTERFACE)
    add_library(eigenformer::${name} ALIAS ${target})
  endif()
endmacro()

find_package(nlohmann_json CONFIG QUIET)
if(TARGET nlohmann_json::nlohmann_json)
  eigenformer_component(io)
  target_link_libraries(${target} INTERFACE eigenformer::eigenformer nlohmann_json::nlohmann_json)
  find_package(ZLIB QUIET)
  if(TARGET ZLIB::ZLIB)
    target_link_libraries(${target} INTERFACE ZLIB::ZLIB)
    target_compile_definitions(${target} INTERFACE EIGENFORMER_WITH_ZLIB=1)
  else()
    message(STATUS "eigenformer: zlib not found: compressed .npz files and gzip text cannot be read (Debian and Ubuntu: zlib1g-dev)")
  endif()
else()
  message(STATUS "eigenformer: nlohmann-json not found: eigenformer::io is not available, nor anything that reads or writes models "
                 "(Debian and Ubuntu: nlohmann-json3-dev)")
endif()

find_path(EIGENFORMER_SENTENCEPIECE_INCLUDE_DIR sentencepiece_trainer.h)
find_library(EIGENFORMER_SENTENCEPIECE_LIBRARY sentencepiece)
find_library(EIGENFORMER_SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train)
mark_as_advanced(EIGENFORMER_SENTENCEPIECE_INCLUDE_DIR EIGENFORMER_SENTENCEPIECE_LIBRARY
                 EIGENFORMER_SENTENCEPIECE_TRAIN_LIBRARY)
if(EIGENFORMER_SENTENCEPIECE_INCLUDE_DIR AND EIGENFORMER_SENTENCEPIECE_LIBRARY AND
   EIGENFORMER_SENTENCEPIECE_TRAIN_LIBRARY)
  eigenformer_component(sentencepiece)
  target_include_directories(${target} SYSTEM INTERFACE "${EIGENFORMER_SENTENCEPIECE_INCLUDE_DIR}")
  target_compile_definitions(${target} INTERFACE EIGENFORMER_WITH_SENTENCEPIECE=1)
  target_link_libraries(${target}
                        INTERFACE eigenformer::eigenformer "${EIGENFORMER_SENTENCEPIECE_TRAIN_LIBRARY}"
                                  "${EIGENFORMER_SENTENCEPIECE_LIBRARY}")
else()
  message(STATUS "eigenformer: SentencePiece not found: eigenformer::sentencepiece and subword tokenizers are not available "
                 "(Debian and Ubuntu: libsentencepiece-dev)")
endif()

find_path(EIGENFORMER_ICU_INCLUDE_DIR unicode/uchar.h)
find_library(EIGENFORMER_ICU_LIBRARY icuuc)
mark_as_advanced(EIGENFORMER_ICU_INCLUDE_DIR EIGENFORMER_ICU_LIBRARY)
if(EIGENFORMER_ICU_INCLUDE_DIR AND EIGENFORMER_ICU_LIBRARY)
  eigenformer_component(icu)
  target_include_directories(${target} SYSTEM INTERFACE "${EIGENFORMER_ICU_INCLUDE_DIR}")
  target_compile_definitions(${target} INTERFACE EIGENFORMER_WITH_ICU=1)
  target_link_libraries(${target} INTERFACE eigenformer::eigenformer "${EIGENFORMER_ICU_LIBRARY}")
else()
  message(STATUS "eigenformer: ICU not found: eigenformer::icu, the tokenizers of BART and BERT, and sentence "
                 "splitting are not available (Debian and Ubuntu: libicu-dev)")
endif()

find_path(EIGENFORMER_ZSTD_INCLUDE_DIR zstd.h)
find_library(EIGENFORMER_ZSTD_LIBRARY zstd)
mark_as_advanced(EIGENFORMER_ZSTD_INCLUDE_DIR EIGENFORMER_ZSTD_LIBRARY)
if(EIGENFORMER_ZSTD_INCLUDE_DIR AND EIGENFORMER_ZSTD_LIBRARY)
  eigenformer_component(zstd)
  target_include_directories(${target} SYSTEM INTERFACE "${EIGENFORMER_ZSTD_INCLUDE_DIR}")
  target_compile_definitions(${target} INTERFACE EIGENFORMER_WITH_ZSTD=1)
  target_link_libraries(${target} INTERFACE eigenformer::eigenformer "${EIGENFORMER_ZSTD_LIBRARY}")
else()
  message(STATUS "eigenformer: zstd not found: eigenformer::zstd is not available, and zstd text cannot be read "
                 "(Debian and Ubuntu: libzstd-dev)")
endif()

find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)  # the target is made in any case
  eigenformer_component(mpi)
  target_link_libraries(${target} INTERFACE eigenformer::eigenformer MPI::MPI_CXX)
  target_compile_definitions(${target} INTERFACE EIGENFORMER_WITH_MPI=1)
else()
  message(STATUS "eigenformer: MPI not found: eigenformer::mpi and training with several processes are not available "
                 "(Debian and Ubuntu: libopenmpi-dev openmpi-bin, or libmpich-dev mpich)")
endif()

# Headers alone; they need no library of Boost's. For the server in eigenformer::translator.
find_path(EIGENFORMER_BOOST_INCLUDE_DIR boost/beast/http.hpp)
mark_as_advanced(EIGENFORMER_BOOST_INCLUDE_DIR)
set(eigenformer_boost_version 0)
if(EIGENFORMER_BOOST_INCLUDE_DIR)
  file(STRINGS "${EIGENFORMER_BOOST_INCLUDE_DIR}/boost/version.hpp" eigenformer_boost_version
       REGEX "^#define BOOST_VERSION [0-9]+")
  string(REGEX REPLACE "[^0-9]" "" eigenformer_boost_version "${eigenformer_boost_version}")
endif()
if(EIGENFORMER_BOOST_INCLUDE_DIR AND eigenformer_boost_version GREATER_EQUAL 107400)
  set(EIGENFORMER_SERVER_FOUND TRUE)
else()
  set(EIGENFORMER_SERVER_FOUND FALSE)
  message(STATUS "eigenformer: Boost.Beast (Boost 1.74 or newer) not found: TranslationServer and translator serve are "
                 "not available (Debian and Ubuntu: libboost-dev)")
endif()

# eigenformer::<name>, a static library. An installed package uses what was built before it was installed, if it is `usable`.
# Otherwise, as in a package of headers, and in this project, it is built when something links it. Sets `target`, `public` for the
# keyword of what its users get too, and `own` where sources are to be added.
macro(eigenformer_library name usable)
  set(target eigenformer_${name})
  set(file "${EIGENFORMER_LIBRARY_DIR}/${CMAKE_STATIC_LIBRARY_PREFIX}eigenformer_${name}${CMAKE_STATIC_LIBRARY_SUFFIX}")
  set(own FALSE)
  set(public PUBLIC)
  if(EIGENFORMER_PACKAGE AND ${usable} AND EXISTS "${file}")
    set(target eigenformer::${name})
    set(public INTERFACE)
    add_library(${target} STATIC IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${file}")
  elseif(NOT TARGET ${target})  # one for all folders of a project
    set(own TRUE)
    if(EIGENFORMER_PACKAGE AND EXISTS "${file}")
      message(STATUS "eigenformer: ${file} does not fit the optional libraries found here (it was built with: ${EIGENFORMER_BUILT_WITH}): "
                     "projects that link eigenformer::${name} compile it")
    endif()
    add_library(${target} STATIC EXCLUDE_FROM_ALL)
    add_library(eigenformer::${name} ALIAS ${target})
    target_compile_options(${target} PRIVATE $<$<CONFIG:>:-O2>)  # for a project without a build type
  endif()
endmacro()

# With ICU, io.cpp holds tokenizers and sentence splitting, and must be linked with it: a library that was built with ICU is of no use
# without it, and one that was built without ICU lacks functions where it is found.
set(usable TRUE)
if(EIGENFORMER_COMPILED_IO)
  string(FIND "${EIGENFORMER_BUILT_WITH}" "eigenformer::icu" built_with_icu)
  if((TARGET eigenformer::icu AND built_with_icu EQUAL -1) OR NOT (TARGET eigenformer::icu OR built_with_icu EQUAL -1))
    set(usable FALSE)
  endif()
endif()
eigenformer_library(compiled ${usable})
target_link_libraries(${target} ${public} eigenformer::eigenformer)
target_compile_definitions(${target} INTERFACE EIGENFORMER_COMPILED)
if(own)
  target_sources(${target} PRIVATE "${CMAKE_CURRENT_LIST_DIR}/kernels.cpp" "${CMAKE_CURRENT_LIST_DIR}/modules.cpp")
  if(TARGET eigenformer::io)
    target_sources(${target} PRIVATE "${CMAKE_CURRENT_LIST_DIR}/io.cpp")
    target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json)
    if(TARGET eigenformer::icu)
      target_link_libraries(${target} PRIVATE eigenformer::icu)
    endif()
    set(EIGENFORMER_COMPILED_IO TRUE)
  endif()
  # Kernels are worth full optimisation in every build type. What calls them is as fast with -O1, which halves the compiler's time.
  set(EIGENFORMER_KERNEL_OPTIMIZATION -O3 CACHE STRING "Optimisation of the kernels in eigenformer::compiled")
  set(EIGENFORMER_MODULE_OPTIMIZATION -O1 CACHE STRING "Optimisation of the rest of eigenformer::compiled, but in debug builds")
  mark_as_advanced(EIGENFORMER_KERNEL_OPTIMIZATION EIGENFORMER_MODULE_OPTIMIZATION)
  set(eigenformer_gnu "$<CXX_COMPILER_ID:GNU,Clang,AppleClang>")
  set_source_files_properties("${CMAKE_CURRENT_LIST_DIR}/kernels.cpp" PROPERTIES COMPILE_OPTIONS "$<${eigenformer_gnu}:${EIGENFORMER_KERNEL_OPTIMIZATION}>")
  set_source_files_properties(
    "${CMAKE_CURRENT_LIST_DIR}/modules.cpp" "${CMAKE_CURRENT_LIST_DIR}/io.cpp" PROPERTIES
    COMPILE_OPTIONS "$<$<AND:${eigenformer_gnu},$<NOT:$<CONFIG:Debug>>>:${EIGENFORMER_MODULE_OPTIMIZATION}>")
elseif(EIGENFORMER_COMPILED_IO AND TARGET eigenformer::icu)
  target_link_libraries(${target} INTERFACE $<LINK_ONLY:eigenformer::icu>)
endif()

if(NOT TARGET eigenformer::io)
  return()
endif()
if(EIGENFORMER_COMPILED_IO)
  target_compile_definitions(${target} INTERFACE EIGENFORMER_COMPILED_IO)
endif()
set(EIGENFORMER_OPTIONAL_LIBRARIES "")
foreach(component eigenformer::sentencepiece eigenformer::icu eigenformer::zstd ZLIB::ZLIB)
  if(TARGET ${component})
    string(APPEND EIGENFORMER_OPTIONAL_LIBRARIES "${component} ")
  endif()
endforeach()
if(EIGENFORMER_SERVER_FOUND)
  string(APPEND EIGENFORMER_OPTIONAL_LIBRARIES "Boost")
endif()
set(usable FALSE)
if(EIGENFORMER_OPTIONAL_LIBRARIES STREQUAL "${EIGENFORMER_BUILT_WITH}")
  set(usable TRUE)
endif()
eigenformer_library(translator ${usable})
target_include_directories(${target} ${public} "${EIGENFORMER_TRANSLATOR_DIR}")
target_link_libraries(${target} ${public} eigenformer::compiled eigenformer::io)
foreach(component sentencepiece icu zstd)
  if(TARGET eigenformer::${component})
    target_link_libraries(${target} ${public} eigenformer::${component})
  endif()
endforeach()
if(EIGENFORMER_SERVER_FOUND)
  target_include_directories(${target} SYSTEM ${public} "${EIGENFORMER_BOOST_INCLUDE_DIR}")
  target_compile_definitions(${target} ${public} EIGENFORMER_WITH_SERVER=1)
endif()
if(own)
  file(GLOB_RECURSE eigenformer_sources CONFIGURE_DEPENDS "${EIGENFORMER_TRANSLATOR_DIR}/translator/*.cpp")
  list(FILTER eigenformer_sources EXCLUDE REGEX "/translator/(main\\.cpp|tool/)")
  if(NOT EIGENFORMER_SERVER_FOUND)
    list(FILTER eigenformer_sources EXCLUDE REGEX "/translator/server/")
  endif()
  target_sources(${target} PRIVATE ${eigenformer_sources})
endif()
