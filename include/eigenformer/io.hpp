#pragma once

/// Reading and writing models: safetensors files, NumPy arrays, checkpoints, folders replaced as a whole, model folders;
/// checkpoints of other libraries; comparing with another implementation. Needs nlohmann-json, and zlib for compressed
/// .npz files.
#include "eigenformer/io/atomic_file.hpp"
#include "eigenformer/io/checkpoint.hpp"
#include "eigenformer/io/folder_transaction.hpp"
#include "eigenformer/io/huggingface_bert.hpp"
#include "eigenformer/io/import_checkpoint.hpp"
#include "eigenformer/io/mapped_file.hpp"
#include "eigenformer/io/npy.hpp"
#include "eigenformer/io/npz.hpp"
#include "eigenformer/io/parity.hpp"
#include "eigenformer/io/quantized_model.hpp"
#include "eigenformer/io/safetensors.hpp"
#include "eigenformer/io/translation_model.hpp"
