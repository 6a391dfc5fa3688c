#pragma once

/// Reading and writing models: safetensors files, checkpoints, folders replaced as a whole. Needs
/// nlohmann-json.
#include "eigenformer/io/atomic_file.hpp"
#include "eigenformer/io/checkpoint.hpp"
#include "eigenformer/io/folder_transaction.hpp"
#include "eigenformer/io/mapped_file.hpp"
#include "eigenformer/io/quantized_model.hpp"
#include "eigenformer/io/safetensors.hpp"
