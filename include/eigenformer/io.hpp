#pragma once

/// \file
/// Headers for reading and writing models: safetensors files, NumPy arrays, model folders, checkpoints of
/// other libraries, comparisons with another implementation. They need nlohmann-json, and zlib for compressed
/// .npz files.

// First, because it refuses targets and flags that the library does not support.
#include "eigenformer/core/base/config.hpp"

#include "eigenformer/data/files/atomic_file.hpp"
#include "eigenformer/data/files/folder_transaction.hpp"
#include "eigenformer/data/files/mapped_file.hpp"
#include "eigenformer/io/adapters/load_adapter.hpp"
#include "eigenformer/io/huggingface/huggingface_bert.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/models/quantized_model.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/io/numpy/npy.hpp"
#include "eigenformer/io/numpy/npz.hpp"
#include "eigenformer/io/parity/parity.hpp"
#include "eigenformer/io/safetensors/checkpoint.hpp"
#include "eigenformer/io/safetensors/safetensors.hpp"
