#pragma once

/// \file
/// The definitions that the other headers omit in files with EIGENFORMER_COMPILED: kernels and modules, for
/// float and double. For programs of several files that are built without CMake: one file includes this
/// header, before any other of the library, and all other files are compiled with -DEIGENFORMER_COMPILED.
/// Where all files, this one too, also have -DEIGENFORMER_COMPILED_IO, it holds the functions of io.hpp,
/// train/ and search/text/, too.
#if defined(EIGENFORMER_INLINE)
#error \
    "eigenformer/implementation.hpp must come before all other headers of eigenformer, and in one file only"
#endif
#undef EIGENFORMER_COMPILED
/// \cond
#define EIGENFORMER_COMPILED_BUILD
#define EIGENFORMER_COMPILED_MODULES
#define EIGENFORMER_INSTANTIATE
#if defined(EIGENFORMER_COMPILED_IO)
#define EIGENFORMER_COMPILED_IO_BUILD
#endif
/// \endcond
#include "eigenformer/eigenformer.hpp"
#include "eigenformer/kernels/definitions.hpp"
#if defined(EIGENFORMER_COMPILED_IO)
#include "eigenformer/io_definitions.hpp"
#endif
