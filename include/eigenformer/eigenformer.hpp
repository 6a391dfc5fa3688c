#pragma once

/// \file
/// All headers that need Eigen alone. Further headers: io.hpp (nlohmann-json) for files, train/trainer.hpp
/// for the training loop, text.hpp (SentencePiece) for subwords, linalg.hpp for linear algebra, whose
/// decompositions take long to compile.

// First, because it refuses targets and flags that the library does not support.
#include "eigenformer/core/base/config.hpp"

#include "eigenformer/autograd/ops.hpp"
#include "eigenformer/autograd/random.hpp"
#include "eigenformer/autograd/tape/functions.hpp"
#include "eigenformer/autograd/tape/grad_check.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/creation.hpp"
#include "eigenformer/core/tensor/eigen_interop.hpp"
#include "eigenformer/core/tensor/print.hpp"
#include "eigenformer/data/corpus/batching.hpp"
#include "eigenformer/data/corpus/tokenizer_factory.hpp"
#include "eigenformer/metrics/accuracy.hpp"
#include "eigenformer/metrics/bleu.hpp"
#include "eigenformer/nn/adapters/lora.hpp"
#include "eigenformer/nn/decoding/packed_model.hpp"
#include "eigenformer/nn/layers/batch_norm.hpp"
#include "eigenformer/nn/layers/convolution.hpp"
#include "eigenformer/nn/layers/norm.hpp"
#include "eigenformer/nn/layers/sequential.hpp"
#include "eigenformer/nn/models/language_model.hpp"
#include "eigenformer/nn/models/seq2seq.hpp"
#include "eigenformer/nn/models/sequence_regressor.hpp"
#include "eigenformer/nn/models/text_encoder.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/optim/adafactor.hpp"
#include "eigenformer/optim/adam.hpp"
#include "eigenformer/optim/average.hpp"
#include "eigenformer/optim/clip.hpp"
#include "eigenformer/optim/schedule.hpp"
#include "eigenformer/optim/sgd.hpp"
#include "eigenformer/search/beams/generate.hpp"
#include "eigenformer/version.hpp"
